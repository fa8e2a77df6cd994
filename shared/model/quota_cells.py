"""Cells of the quota forest: one (node, flavor-resource) with its numbers, linked to the parent's cell.

Why it exists: for one flavor-resource the forest is a plain chain from a ClusterQueue to its root, so walking cells
needs no lookups. The formulas are those of Kueue's quota model (KEP-79, hierarchical cohorts). Structure
(who is whose child) is kept by `shared.model.quota_tree`.
"""

from __future__ import annotations

import msgspec

from shared.model.amounts import add, sub


class Quota(msgspec.Struct, frozen=True, gc=False):
    """What one node declares for one flavor-resource, in model units. None = no limit."""

    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


NO_QUOTA = Quota()


class Cell:
    """Numbers of one node for one flavor-resource.

    `subtree`, `local` and `potential` follow from declared quotas and are set when a tree is rebuilt; `usage` changes
    with every reservation. `local` is the part of `subtree` that is never lent to the parent.
    """

    __slots__ = ("borrowing_limit", "height", "local", "nominal", "parent", "potential", "subtree", "usage")

    def __init__(self, quota: Quota, parent: Cell | None = None, usage: int = 0) -> None:
        self.nominal = quota.nominal
        self.borrowing_limit = quota.borrowing_limit
        self.parent = parent
        self.usage = usage
        self.subtree = quota.nominal
        self.local = 0
        self.potential = quota.nominal
        self.height = 0

    def local_available(self) -> int:
        """Part of the never-lent quota that is free."""
        return max(0, sub(self.local, self.usage))

    def used_in_parent(self) -> int:
        """What this node's usage takes from its parent."""
        return max(0, self.usage - self.local)

    def lent_to_parent(self) -> int:
        """What this node adds to its parent's subtree quota."""
        return sub(self.subtree, self.local)

    def raw_available(self) -> int:
        """What can still be used here, borrowing included; negative when over-admitted."""
        chain: list[Cell] = []
        cell = self
        while cell.parent is not None:
            chain.append(cell)
            cell = cell.parent
        available = sub(cell.subtree, cell.usage)
        while chain:
            cell = chain.pop()
            local, usage = cell.local, cell.usage
            if cell.borrowing_limit is not None:
                stored = sub(cell.subtree, local)
                own_limit = add(sub(stored, usage - local) if usage > local else stored, cell.borrowing_limit)
                if own_limit < available:
                    available = own_limit
            if local > usage:
                available = add(sub(local, usage), available)
        return available

    def available(self) -> int:
        """`raw_available`, never below 0."""
        raw = self.raw_available()
        return raw if raw > 0 else 0

    def borrows_with(self, amount: int) -> bool:
        """Would `amount` more exceed the quota of this node's own subtree?"""
        return self.subtree < add(self.usage, amount)

    def set_potential(self) -> None:
        """Recompute `potential`; the parent's must be current."""
        if self.parent is None:
            self.potential = self.subtree
            return
        self.potential = add(self.local, self.parent.potential)
        if self.borrowing_limit is not None:
            self.potential = min(self.potential, add(self.subtree, self.borrowing_limit))

    def set_local(self, lending_limit: int | None) -> None:
        """Recompute `local`; `subtree` must be current."""
        self.local = 0 if lending_limit is None else max(0, sub(self.subtree, lending_limit))
