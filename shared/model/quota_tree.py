"""The quota forest: ClusterQueues as leaves, cohorts as inner nodes, usage kept incrementally.

Why it exists: every decision asks "how much can this ClusterQueue still use", and the answer depends on the whole cohort
tree. Usage changes touch one chain of cells; trial changes are undone by a journal instead of copying (mark / undo_to).
Structure changes (quotas, parents) only mark trees; the next question rebuilds them, so loading many objects is linear.

It knows amounts only: no workloads, no flavors' order, no policies. Names of cohorts without an object are nodes too
(implicit cohorts) for as long as they have members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shared.model.amounts import add
from shared.model.quota_cells import NO_QUOTA, Cell, Quota


class Node:
    """A ClusterQueue or cohort in the forest. `declared` is False for an implicit cohort."""

    __slots__ = (
        "active",
        "cells",
        "children",
        "cyclic",
        "declared",
        "fair",
        "generation",
        "height",
        "is_cohort",
        "key",
        "members",
        "name",
        "parent",
        "quotas",
        "top",
    )

    def __init__(self, name: str, is_cohort: bool) -> None:
        self.name = name
        self.is_cohort = is_cohort
        self.key = (is_cohort, name)
        """Identity among siblings: cohorts and ClusterQueues may share a name."""
        self.declared = False
        self.active = True
        self.cyclic = False
        self.height = 0
        self.generation = 1
        self.fair: object | None = None
        """What fair sharing keeps about this node until the tree is rebuilt (`shared.decide.fair_share`)."""
        self.parent: Node | None = None
        self.top: Node = self
        """Root of its tree (itself in a cycle), as of the last rebuild."""
        self.members: tuple[str, ...] | None = None
        """Of a root: ClusterQueues of its tree, sorted; None until somebody asks."""
        self.quotas: Mapping[int, Quota] = {}
        self.cells: dict[int, Cell] = {}
        self.children: dict[tuple[bool, str], Node] = {}


class QuotaForest:
    """All cohort trees with quotas and usage.

    Invariant after a rebuild: for every cohort and flavor-resource, usage is the sum over its children of
    max(0, usage - local), and subtree is its nominal plus the sum of what its children lend.
    """

    def __init__(self) -> None:
        self._queues: dict[str, Node] = {}
        self._cohorts: dict[str, Node] = {}
        self._dirty: dict[Node, None] = {}
        self._journal: list[tuple[Cell, int]] = []
        self._marks = 0

    # --- structure -------------------------------------------------------------------------------------------------

    def set_cluster_queue(
        self, name: str, cohort: str | None, quotas: Mapping[int, Quota], active: bool = True
    ) -> None:
        """Add a ClusterQueue or replace its cohort, quotas and activity; its usage stays."""
        node = self._queues.get(name)
        if node is None:
            node = self._queues[name] = Node(name, is_cohort=False)
        node.declared = True
        node.quotas = dict(quotas)
        node.active = active
        self._attach(node, cohort)

    def set_active(self, name: str, active: bool) -> None:
        """An inactive ClusterQueue still counts with quota and usage but not for the height of its cohort."""
        node = self._queues[name]
        if node.active != active:
            node.active = active
            self._touch(node)

    def remove_cluster_queue(self, name: str) -> None:
        """Forget a ClusterQueue with its quota and usage. Unknown names are ignored."""
        node = self._queues.pop(name, None)
        if node is not None:
            self._attach(node, None)
            self._dirty.pop(node, None)

    def set_cohort(self, name: str, parent: str | None, quotas: Mapping[int, Quota]) -> None:
        """Declare a cohort object or replace its parent and quotas."""
        node = self._cohort(name)
        node.declared = True
        node.quotas = dict(quotas)
        self._attach(node, parent)

    def remove_cohort(self, name: str) -> None:
        """The object is gone: quota and parent vanish, members stay (the cohort becomes implicit)."""
        node = self._cohorts.get(name)
        if node is None or not node.declared:
            return
        node.declared = False
        node.quotas = {}
        self._attach(node, None)
        self._collect(node)

    def _cohort(self, name: str) -> Node:
        node = self._cohorts.get(name)
        if node is None:
            node = self._cohorts[name] = Node(name, is_cohort=True)
        return node

    def _attach(self, node: Node, parent_name: str | None) -> None:
        if self._marks:
            raise RuntimeError("the structure cannot change while a trial is open")
        old = node.parent
        new = self._cohort(parent_name) if parent_name else None
        if old is not new:
            if old is not None:
                # What hung on the old tree must be recomputed even when this node is the only link to it.
                self._touch(old)
                del old.children[node.key]
            node.parent = new
            if new is not None:
                new.children[node.key] = node
            if old is not None:
                self._collect(old)
        self._touch(node)

    def _collect(self, cohort: Node) -> None:
        """Drop an implicit cohort that has no members."""
        if not cohort.declared and not cohort.children and self._cohorts.get(cohort.name) is cohort:
            del self._cohorts[cohort.name]
            self._dirty.pop(cohort, None)

    def _touch(self, node: Node) -> None:
        if self._marks:
            raise RuntimeError("the structure cannot change while a trial is open")
        self._dirty[node] = None

    def refresh(self) -> None:
        """Rebuild the trees whose structure changed. Questions call this; it costs nothing when all is current."""
        if not self._dirty:
            return
        dirty, self._dirty = self._dirty, {}
        done: set[Node] = set()
        for node in dirty:
            top, cyclic = _top_of(node)
            if top not in done:
                done.update(_rebuild(top, cyclic))

    # --- usage -----------------------------------------------------------------------------------------------------

    def add_usage(self, queue: str, usage: Mapping[int, int]) -> None:
        """Charge a vector to a ClusterQueue and, beyond what its chain keeps local, to its ancestors."""
        node = self._queues[queue]
        if self._dirty and not self._marks:
            for index, amount in usage.items():
                self._leaf(node, index).usage += amount
            return
        cells = node.cells
        for index, amount in usage.items():
            self._add(cells.get(index) or self._new_cell(node, index), amount)

    def remove_usage(self, queue: str, usage: Mapping[int, int]) -> None:
        """The inverse of `add_usage`."""
        node = self._queues[queue]
        if self._dirty and not self._marks:
            for index, amount in usage.items():
                self._leaf(node, index).usage -= amount
            return
        cells = node.cells
        for index, amount in usage.items():
            self._remove(cells.get(index) or self._new_cell(node, index), amount)

    def _leaf(self, node: Node, index: int) -> Cell:
        cell = node.cells.get(index)
        if cell is None:
            cell = node.cells[index] = Cell(node.quotas.get(index, NO_QUOTA))
        self._touch(node)
        return cell

    def _add(self, first: Cell, amount: int) -> None:
        cell: Cell | None = first
        while cell is not None:
            free = cell.local - cell.usage
            if self._marks:
                self._journal.append((cell, cell.usage))
            cell.usage += amount
            if free > 0:
                amount -= free
            if amount <= 0:
                return
            cell = cell.parent

    def _remove(self, first: Cell, amount: int) -> None:
        cell: Cell | None = first
        while cell is not None:
            stored = cell.usage - cell.local
            if self._marks:
                self._journal.append((cell, cell.usage))
            cell.usage -= amount
            if stored <= 0:
                return
            if stored < amount:
                amount = stored
            cell = cell.parent

    # --- trials ----------------------------------------------------------------------------------------------------

    def mark(self) -> int:
        """Open a trial: usage changes from here on can be undone. Trials nest."""
        self.refresh()
        self._marks += 1
        return len(self._journal)

    def undo_to(self, mark: int) -> None:
        """Close the innermost trial and restore all usage as it was at its `mark`."""
        journal = self._journal
        for place in range(len(journal) - 1, mark - 1, -1):
            cell, usage = journal[place]
            cell.usage = usage
        del journal[mark:]
        self._marks -= 1

    def keep(self, mark: int) -> None:
        """Close the innermost trial and keep its changes (an outer trial can still undo them)."""
        self._marks -= 1
        if self._marks == 0:
            del self._journal[mark:]

    # --- questions -------------------------------------------------------------------------------------------------

    def cell(self, queue: str, index: int) -> Cell:
        """The live cell of a ClusterQueue. Valid until the structure changes. Raises KeyError for an unknown queue."""
        if self._dirty:
            self.refresh()
        node = self._queues[queue]
        return node.cells.get(index) or self._new_cell(node, index)

    def node_cell(self, node: Node, index: int) -> Cell:
        """The live cell of a node of this forest, which must be current (`queue_node` and `cohort_node` see to that)."""
        return self._cell(node, index)

    def _cell(self, node: Node, index: int) -> Cell:
        return node.cells.get(index) or self._new_cell(node, index)

    def _new_cell(self, first: Node, index: int) -> Cell:
        """Empty cells for a flavor-resource that nobody on the way up has quota for, down to `first`."""
        missing: list[Node] = []
        node: Node | None = first
        while node is not None and index not in node.cells:
            missing.append(node)
            node = None if node.cyclic else node.parent
        cell = node.cells[index] if node is not None else None
        for below in reversed(missing):
            cell = below.cells[index] = Cell(NO_QUOTA, cell)
            cell.height = below.height
            cell.set_potential()
        return first.cells[index]

    def cohort_cell(self, cohort: str, index: int) -> Cell:
        """The live cell of a cohort. Raises KeyError for an unknown cohort."""
        self.refresh()
        return self._cell(self._cohorts[cohort], index)

    def queue_node(self, queue: str) -> Node:
        """The node of a ClusterQueue, with current height and cycle mark. Read only."""
        if self._dirty:
            self.refresh()
        return self._queues[queue]

    def cohort_node(self, cohort: str) -> Node:
        """The node of a cohort. Read only."""
        self.refresh()
        return self._cohorts[cohort]

    def has_cluster_queue(self, queue: str) -> bool:
        return queue in self._queues

    def cluster_queues(self) -> Iterable[str]:
        """Names of all ClusterQueues, sorted."""
        return sorted(self._queues)

    def cohorts(self) -> Iterable[str]:
        """Names of all cohorts, implicit ones included, sorted."""
        return sorted(self._cohorts)

    def in_cycle(self, queue: str) -> bool:
        """Does the path of cohorts above this ClusterQueue never reach a root?"""
        return self.queue_node(queue).cyclic

    def has_parent(self, queue: str) -> bool:
        return self._queues[queue].parent is not None

    def path(self, queue: str) -> tuple[str, ...]:
        """Names from the root cohort down to the ClusterQueue itself; only the queue when in a cycle."""
        node = self.queue_node(queue)
        names = [node.name]
        while node.parent is not None and not node.cyclic:
            node = node.parent
            names.append(node.name)
        return tuple(reversed(names))

    def tree_of(self, queue: str) -> tuple[str, ...]:
        """ClusterQueues of the whole tree this one belongs to, sorted; itself alone without a cohort."""
        node = self.queue_node(queue)
        return (queue,) if node.cyclic else self._members(node.top)

    def members_of_cohort_tree(self, cohort: str) -> tuple[str, ...]:
        """ClusterQueues of the whole tree a cohort belongs to, sorted; empty for an unknown cohort or in a cycle."""
        self.refresh()
        node = self._cohorts.get(cohort)
        if node is None or node.cyclic:
            return ()
        return self._members(node.top)

    def _members(self, top: Node) -> tuple[str, ...]:
        if top.members is None:
            top.members = tuple(sorted(node.name for node in _descendants(top) if not node.is_cohort))
        return top.members

    def tree_id(self, queue: str) -> tuple[bool, str]:
        """Identity of the tree: (is a cohort, name of the root)."""
        return self.queue_node(queue).top.key

    def available(self, queue: str, index: int) -> int:
        """What the ClusterQueue can still use, borrowing included, never below 0."""
        return self.cell(queue, index).available()

    def potential(self, queue: str, index: int) -> int:
        """What it could use if nothing were used anywhere."""
        return self.cell(queue, index).potential

    def find_height(self, queue: str, index: int, amount: int) -> tuple[int, bool]:
        """(borrowing level, may reclaim) of satisfying `amount` more.

        Level 0 = own nominal quota, else the height of the smallest cohort subtree with room (or of the root when nothing
        has room). "May reclaim": that subtree is not the whole tree, so outsiders' use of it can be taken back.
        """
        cell = self.cell(queue, index)
        parent = cell.parent
        if parent is None or not cell.borrows_with(amount):
            return 0, parent is not None
        rest = amount - cell.local_available()
        while True:
            if not parent.borrows_with(rest):
                return parent.height, parent.parent is not None
            rest -= parent.local_available()
            if parent.parent is None:
                return parent.height, False
            parent = parent.parent

    def bump_generation(self, queue: str) -> None:
        """A workload left this queue's usage: flavors tried before may be worth another look."""
        self._queues[queue].generation += 1

    def dump(self) -> dict[tuple[bool, str], dict[int, tuple[int, int, int, int]]]:
        """(usage, subtree, local, potential) of every cell that has or holds something, for comparisons and debugging."""
        self.refresh()
        return {
            node.key: {
                index: (cell.usage, cell.subtree, cell.local, cell.potential)
                for index, cell in sorted(node.cells.items())
                if index in node.quotas or cell.usage or cell.subtree or cell.local
            }
            for node in (*self._queues.values(), *self._cohorts.values())
        }


def _top_of(node: Node) -> tuple[Node, bool]:
    """(root, False), or (some node on the cycle, True) when the way up never ends."""
    seen = {node.key}
    while node.parent is not None:
        node = node.parent
        if node.key in seen:
            return node, True
        seen.add(node.key)
    return node, False


def _descendants(top: Node) -> list[Node]:
    """`top` and all below it, parents before children; a cycle is walked once."""
    order = [top]
    seen = {top.key}
    for node in order:
        for key, child in node.children.items():
            if key not in seen:
                seen.add(key)
                order.append(child)
    return order


def _rebuild(top: Node, cyclic: bool) -> list[Node]:
    """Recompute everything below `top`; returns what was recomputed."""
    order = _descendants(top)
    for node in order:
        node.cyclic = cyclic
        node.top = node if cyclic else top
        node.members = None
        node.fair = None
    for node in reversed(order):
        node.generation += 1
        if node.is_cohort:
            _rebuild_cohort(node, cyclic)
        else:
            _rebuild_queue(node)
    for node in order:
        for index, cell in node.cells.items():
            cell.height = node.height
            parent = None if node.parent is None or cyclic else node.parent.cells[index]
            cell.parent = parent
            cell.set_potential()
    return order


def _rebuild_queue(node: Node) -> None:
    held = {index: cell.usage for index, cell in node.cells.items() if cell.usage}
    node.cells = {
        index: Cell(node.quotas.get(index, NO_QUOTA), usage=held.get(index, 0)) for index in {**node.quotas, **held}
    }
    for index, cell in node.cells.items():
        quota = node.quotas.get(index)
        cell.set_local(quota.lending_limit if quota is not None else None)


def _rebuild_cohort(node: Node, cyclic: bool) -> None:
    children = () if cyclic else tuple(node.children.values())
    cells = {index: Cell(quota) for index, quota in node.quotas.items()}
    node.height = 0
    for child in children:
        if child.is_cohort or child.active:
            node.height = max(node.height, 1 + child.height)
        for index, cell in child.cells.items():
            mine = cells.get(index)
            if mine is None:
                mine = cells[index] = Cell(NO_QUOTA)
            mine.subtree = add(mine.subtree, cell.lent_to_parent())
            mine.usage += cell.used_in_parent()
    node.cells = cells
    for index, cell in cells.items():
        quota = node.quotas.get(index)
        cell.set_local(quota.lending_limit if quota is not None else None)
