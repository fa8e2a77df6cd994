"""The order in which heads are processed with fair sharing: a tournament in each cohort tree (core rule 8.2).

Why it exists: with fair sharing the next head is the one whose queue, and whose cohorts on every level, would have the smallest
share with it admitted; each admission changes that. The winners of all cohorts are kept, and only those on the way from the
last processed queue to its root are played again, so a round costs the depth of a tree and not its size.
It reads shares and changes no usage.

Rules that upstream leaves open: trees take turns by the priority and age of their winners; full ties are broken by uid and key.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Generic, TypeVar

from shared.decide.fair_share import FairShares, ShareKey, parent_of, path_of
from shared.decide.order import HeadOrder
from shared.model.quota_tree import Node
from shared.model.workload import WorkloadInfo, queue_timestamp
from shared.model.world import World

Entry = TypeVar("Entry")

_Tie = tuple[int, float, str, str]
"""(-priority, queue timestamp, uid, key): decides between equal shares."""

_Standing = tuple[bool, bool, ShareKey, _Tie]
"""Of a contender in one cohort: (no preemptor, borrows what it asks for, share, tie); smaller wins."""


class _Contender(Generic[Entry]):
    """A head of one ClusterQueue with the usage it asks for."""

    __slots__ = ("entry", "later", "node", "tie", "usage")

    def __init__(self, entry: Entry, node: Node, usage: Mapping[int, int], later: bool, tie: _Tie) -> None:
        self.entry = entry
        self.node = node
        self.usage = usage
        self.later = later
        self.tie = tie


class _Bracket(Generic[Entry]):
    """The contenders that play for one cohort: at most one per child."""

    __slots__ = ("_heap", "_playing", "_serial")

    def __init__(self) -> None:
        self._playing: dict[tuple[bool, str], tuple[int, _Contender[Entry]]] = {}
        self._heap: list[tuple[_Standing, int, tuple[bool, str]]] = []
        self._serial = 0

    def put(self, child: tuple[bool, str], standing: _Standing, contender: _Contender[Entry]) -> None:
        """This contender now plays for this child."""
        self._serial += 1
        self._playing[child] = (self._serial, contender)
        heappush(self._heap, (standing, self._serial, child))

    def drop(self, child: tuple[bool, str]) -> None:
        """Nobody plays for this child any more."""
        self._playing.pop(child, None)

    def winner(self) -> _Contender[Entry] | None:
        """Who is best now."""
        while self._heap:
            _, serial, child = self._heap[0]
            playing = self._playing.get(child)
            if playing is not None and playing[0] == serial:
                return playing[1]
            heappop(self._heap)
        return None


class Tournament(Generic[Entry]):
    """Heads of one cycle. `add` all, then `pop` one after the other.

    The caller may change usage of the popped entry's ClusterQueue before the next `pop`; other changes of usage must be
    told by `usage_changed`.
    """

    def __init__(self, world: World, order: HeadOrder) -> None:
        self._world = world
        self._forest = world.forest
        self._shares = FairShares(world)
        self._order = order
        self._contenders: dict[str, _Contender[Entry]] = {}
        self._brackets: dict[Node, _Bracket[Entry]] = {}
        self._trees: _Bracket[Entry] = _Bracket()
        self._stale: dict[str, None] = {}

    def add(
        self, entry: Entry, info: WorkloadInfo, queue: str, usage: Mapping[int, int], *, preemptor: bool = False
    ) -> Entry | None:
        """Enter a head of a ClusterQueue. A ClusterQueue has one contender: returns the earlier one that had to go."""
        order = self._order
        stamp = queue_timestamp(
            info, by_eviction=order.by_eviction, priority_within_cohort=order.priority_within_cohort
        )
        tie = (-info.priority if order.priority_within_cohort else 0, stamp, info.uid, info.key)
        before = self._contenders.get(queue)
        later = not (order.prioritize_preemptors and preemptor)
        self._contenders[queue] = _Contender(entry, self._forest.queue_node(queue), usage, later, tie)
        self._stale[queue] = None
        return before.entry if before is not None else None

    def usage_changed(self, queue: str) -> None:
        """Usage of this ClusterQueue was added or removed since the last `pop`."""
        self._stale[queue] = None

    def pop(self) -> Entry | None:
        """The entry to process next; None when there is none left."""
        if self._stale:
            self._replay()
        winner = self._trees.winner()
        if winner is None:
            return None
        queue = winner.node.name
        del self._contenders[queue]
        self._stale[queue] = None
        return winner.entry

    def remaining(self) -> list[Entry]:
        """Entries not popped, in the order they were added."""
        return [contender.entry for contender in self._contenders.values()]

    def _replay(self) -> None:
        """Play again everything on the ways from the stale ClusterQueues to their roots, lower cohorts first."""
        stale, self._stale = self._stale, {}
        levels: dict[int, dict[Node, None]] = {}
        roots: dict[Node, None] = {}
        for queue in stale:
            if not self._forest.has_cluster_queue(queue):
                continue
            path = path_of(self._forest.queue_node(queue))
            roots[path[-1]] = None
            for distance, node in enumerate(reversed(path[:-1])):
                levels.setdefault(distance, {})[node] = None
        for distance in sorted(levels, reverse=True):
            for node in levels[distance]:
                self._play(node)
        for root in roots:
            best = self._best_below(root)
            if best is None:
                self._trees.drop(root.key)
            else:
                self._trees.put(root.key, (False, False, (False, 0.0), best.tie), best)

    def _play(self, node: Node) -> None:
        """Let the best below this node play for its parent."""
        parent = parent_of(node)
        assert parent is not None
        bracket = self._brackets.get(parent)
        if bracket is None:
            bracket = self._brackets[parent] = _Bracket()
        best = self._best_below(node)
        if best is None:
            bracket.drop(node.key)
        else:
            bracket.put(node.key, self._standing(best, node), best)

    def _best_below(self, node: Node) -> _Contender[Entry] | None:
        if not node.is_cohort:
            return self._contenders.get(node.name)
        bracket = self._brackets.get(node)
        return bracket.winner() if bracket is not None else None

    def _standing(self, contender: _Contender[Entry], node: Node) -> _Standing:
        """How a contender stands in the cohort above `node`, which is its ClusterQueue or an ancestor of it."""
        shares, extra, at = self._shares, contender.usage, contender.node
        while at is not node:
            extra = shares.spilled(at, extra)
            above = parent_of(at)
            assert above is not None
            at = above
        borrows = self._order.prioritize_non_borrowing and shares.borrows_on(node, contender.usage, extra)
        return (contender.later, borrows, shares.of(node, extra).key, contender.tie)
