"""Which ClusterQueue the next victim of fair-sharing preemption comes from (core rule 7.6).

Why it exists: from the root of the cohort tree down, the child with the highest share is entered, until a ClusterQueue is reached.
Shares are those with the preemptor's demand in its ClusterQueue. They are kept per node and computed again only on the way
from a ClusterQueue that lost a victim to the root, so that a step costs the depth of the tree and not its size.
What makes a candidate a victim is decided in `shared.decide.fair_preemption`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import heappop, heappush
from typing import TypeVar

from shared.decide.fair_share import NOTHING, FairShares, Share, path_of
from shared.model.flavor_resources import Vector
from shared.model.quota_tree import Node, QuotaForest
from shared.model.reservations import Rank

_QueuePlace = tuple[bool, float, int, bool, int, float, str, str, int, Node]
"""(finite, -share, rank of the head with the own ClusterQueue behind others, turn, node): smaller is chosen first."""

_CohortPlace = tuple[bool, float, str, int, Node]
Place = TypeVar("Place", _QueuePlace, _CohortPlace)


class Line:
    """Candidates of one ClusterQueue, first to go first; read no further than needed."""

    __slots__ = ("_rest", "head", "node")

    def __init__(self, node: Node, candidates: Iterable[Rank]) -> None:
        self.node = node
        self._rest: Iterator[Rank] = iter(candidates)
        self.head: Rank | None = next(self._rest, None)

    def pop(self) -> Rank:
        """Take the head. Raises IndexError when there is none."""
        if self.head is None:
            raise IndexError(f"no candidate left in ClusterQueue {self.node.name}")
        taken, self.head = self.head, next(self._rest, None)
        return taken

    def drop(self) -> None:
        """No more victims from here."""
        self.head = None


class _Level:
    """Children of one cohort that can still be chosen."""

    __slots__ = ("cohorts", "queues")

    def __init__(self) -> None:
        self.queues: list[_QueuePlace] = []
        self.cohorts: list[_CohortPlace] = []


class Ordering:
    """Lines of one cohort tree, among which `next` chooses. After each use of a line call `changed`."""

    def __init__(
        self, forest: QuotaForest, shares: FairShares, own: Node, demand: Mapping[int, int], lines: Iterable[Line]
    ) -> None:
        self._forest = forest
        self._shares = shares
        self._demand = demand
        self._own_path = path_of(own)
        self._on_top: dict[Node, Vector] = {}
        """What the preemptor adds to each node on its way to the root."""
        self._own_side: dict[Node, Node] = dict(zip(self._own_path[1:], self._own_path, strict=False))
        """Ancestor of the preemptor's ClusterQueue -> its child on that way."""
        self._lines = {line.node: line for line in lines}
        self._levels: dict[Node, _Level] = {}
        self._turns: dict[Node, int] = {}
        self._closed: set[Node] = set()
        self._put_on_top()
        for line in self._lines.values():
            self._enter(line.node)

    def next(self) -> Line | None:
        """The line to take a victim from; None when no node is left that may lose one."""
        root = self._own_path[-1]
        if not root.is_cohort:
            line = self._lines.get(root)
            return line if line is not None and line.head is not None else None
        node = root
        while True:
            level = self._levels.get(node)
            queue = self._best(level.queues) if level is not None else None
            cohort = self._best(level.cohorts) if level is not None else None
            if queue is None and cohort is None:
                if node is root:
                    return None
                self._closed.add(node)
                self._place(node)
                node = root
            elif queue is None or (cohort is not None and cohort[:2] <= queue[:2]):
                assert cohort is not None
                node = cohort[-1]
            else:
                return self._lines[queue[-1]]

    def changed(self, line: Line, *, removed: bool) -> None:
        """The head of a line was taken; `removed`: its usage was taken out of the forest."""
        self._place(line.node)
        if removed:
            self._put_on_top()
            for node in path_of(line.node)[1:-1]:
                self._place(node)

    def share(self, node: Node) -> Share:
        """The share of a node, the preemptor's demand included."""
        return self._shares.of(node, self._on_top.get(node, NOTHING))

    def sides(self, line: Line) -> tuple[Node, Node]:
        """The children of the lowest common ancestor on the ways to the preemptor's ClusterQueue and to this one."""
        node = line.node
        while True:
            parent = node.parent
            assert parent is not None
            own = self._own_side.get(parent)
            if own is not None:
                return own, node
            node = parent

    def share_without(self, line: Line, vector: Mapping[int, int], node: Node) -> Share:
        """The share of `node`, an ancestor of the line's ClusterQueue or itself, without a workload of that ClusterQueue.

        Only for nodes that are not above the preemptor's ClusterQueue.
        """
        off = {index: -amount for index, amount in vector.items()}
        at = line.node
        while at is not node:
            off = self._shares.released(at, off)
            assert at.parent is not None
            at = at.parent
        return self._shares.of(node, off)

    def _put_on_top(self) -> None:
        extra: Vector = dict(self._demand)
        for node in self._own_path:
            self._on_top[node] = extra
            extra = self._shares.spilled(node, extra)

    def _enter(self, node: Node) -> None:
        """Make a ClusterQueue and the cohorts above it choosable."""
        self._place(node)
        for above in path_of(node)[1:-1]:
            if above in self._turns:
                return
            self._place(above)

    def _place(self, node: Node) -> None:
        """Put a node anew among its siblings, or leave it out for good: nothing to give, or it does not borrow."""
        turn = self._turns[node] = self._turns.get(node, 0) + 1
        parent = node.parent
        if parent is None or node in self._closed:
            return
        level = self._levels.get(parent)
        if level is None:
            level = self._levels[parent] = _Level()
        share = self.share(node)
        if not share.borrowing and node not in self._on_top:
            return
        if node.is_cohort:
            heappush(level.cohorts, (not share.infinite, -share.value, node.name, turn, node))
            return
        head = self._lines[node].head
        if head is not None:
            own = node is self._own_path[0]
            place = (head[0], own, head[1], head[2], head[3], head[4])
            heappush(level.queues, (not share.infinite, -share.value, *place, turn, node))

    def _best(self, heap: list[Place]) -> Place | None:
        """The first place of a heap that is current."""
        while heap:
            place = heap[0]
            if self._turns[place[-1]] == place[-2]:
                return place
            heappop(heap)
        return None
