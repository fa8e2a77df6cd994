"""Dominant resource shares of ClusterQueues and cohorts (core rule 8.1).

Why it exists: fair sharing compares queues by how much they borrow, relative to what could be lent to them and to their weight.
Shares are read off the live quota forest, for the usage as it is or with something on top or taken away; nothing is changed.
What follows from quotas alone (who is lendable how much, which cells count) is kept on the node until its tree is rebuilt.
Whom to admit or preempt is decided in `shared.decide.tournament` and `shared.decide.fair_preemption`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

import msgspec

from shared.model.amounts import INT64_MAX, add
from shared.model.flavor_resources import Vector
from shared.model.quota_cells import Cell
from shared.model.quota_tree import Node
from shared.model.world import World

ShareKey = tuple[bool, float]
"""(infinite, value): compares as shares do."""

NOTHING: Vector = {}


class Share(msgspec.Struct, frozen=True, gc=False):
    """How much a node borrows, in per mille of what its parent could give, divided by its weight.

    With weight 0 and something borrowed the share is infinite, and `value` is the ratio before weighting.
    """

    infinite: bool = False
    value: float = 0.0
    resource: str = ""
    """The dominant resource; empty when nothing lendable is borrowed."""
    borrowing: bool = False

    @property
    def key(self) -> ShareKey:
        """Infinite shares are above all finite ones and ordered by their unweighted ratio."""
        return (self.infinite, self.value)

    def rounded(self) -> int:
        """status.fairSharing.weightedShare: rounded up, the largest int64 when infinite."""
        return INT64_MAX if self.infinite else min(ceil(self.value), INT64_MAX)


NO_SHARE = Share()


class _Resource(msgspec.Struct, frozen=True):
    """One resource of a node: what the parent could lend of it, and the node's cells of all its flavors."""

    name: str
    lendable: int
    cells: tuple[tuple[int, Cell], ...]


class _Facts(msgspec.Struct):
    """What is known of one node until its tree is rebuilt; filled when asked for."""

    declared: frozenset[int] | None = None
    """Flavor-resources that the node or something below has quota for."""
    lendable: dict[str, int] | None = None
    """Per resource, what could be used at this node if nothing were used anywhere."""
    resources: tuple[_Resource, ...] | None = None
    weight: float = 1.0


class FairShares:
    """Shares on the live state of a World.

    `extra` arguments are usage to imagine on top of what the node itself has. For usage of a ClusterQueue seen from an
    ancestor, `spilled` tells what of it reaches the next node up.
    """

    __slots__ = ("_forest", "_world")

    def __init__(self, world: World) -> None:
        self._world = world
        self._forest = world.forest

    def of_queue(self, name: str, extra: Mapping[int, int] = NOTHING) -> Share:
        """The share of a ClusterQueue. Raises KeyError for an unknown one."""
        return self.of(self._forest.queue_node(name), extra)

    def of_cohort(self, name: str, extra: Mapping[int, int] = NOTHING) -> Share:
        """The share of a cohort. Raises KeyError for an unknown one."""
        return self.of(self._forest.cohort_node(name), extra)

    def of(self, node: Node, extra: Mapping[int, int] = NOTHING) -> Share:
        """The share of a node of the forest, which must be current; without a parent it has none."""
        if parent_of(node) is None:
            return NO_SHARE
        facts = self._facts(node)
        resources = facts.resources
        if resources is None:
            resources = self._resources(node, facts)
        ratio, dominant, borrowing = 0.0, "", False
        for resource in resources:
            borrowed = 0
            for index, cell in resource.cells:
                over = cell.usage - cell.subtree
                if index in extra:
                    over += extra[index]
                if over > 0:
                    borrowed += over
            if borrowed:
                borrowing = True
                if resource.lendable > 0:
                    this = borrowed * 1000.0 / resource.lendable
                    if this > ratio:
                        ratio, dominant = this, resource.name
        if not borrowing:
            return NO_SHARE
        if facts.weight > 0:
            return Share(False, ratio / facts.weight, dominant, True)
        return Share(ratio > 0, ratio, dominant, True)

    def borrows_on(self, node: Node, requested: Mapping[int, int], extra: Mapping[int, int] = NOTHING) -> bool:
        """Does the node borrow a flavor-resource of which more than 0 is requested?"""
        if parent_of(node) is None:
            return False
        declared = self._declared(node)
        for index, amount in requested.items():
            if amount > 0 and index in declared:
                cell = self._forest.node_cell(node, index)
                if cell.usage + extra.get(index, 0) > cell.subtree:
                    return True
        return False

    def spilled(self, node: Node, extra: Mapping[int, int]) -> Vector:
        """What reaches the parent when `extra` is added to the node's usage (core rule 5.3)."""
        reaching: Vector = {}
        for index, amount in extra.items():
            cell = self._forest.node_cell(node, index)
            free = cell.local - cell.usage
            rest = amount - free if free > 0 else amount
            if rest > 0:
                reaching[index] = rest
        return reaching

    def released(self, node: Node, extra: Mapping[int, int]) -> Vector:
        """What is taken off the parent when `extra` (here: negative amounts) is taken off the node's usage."""
        reaching: Vector = {}
        for index, amount in extra.items():
            cell = self._forest.node_cell(node, index)
            stored = cell.usage - cell.local
            if stored > 0 and amount < 0:
                reaching[index] = max(amount, -stored)
        return reaching

    # --- facts that follow from quotas -----------------------------------------------------------------------------

    def _facts(self, node: Node) -> _Facts:
        facts = node.fair
        if not isinstance(facts, _Facts):
            facts = node.fair = _Facts(weight=self._weight(node))
        return facts

    def _weight(self, node: Node) -> float:
        if node.is_cohort:
            cohort = self._world.cohorts.get(node.name)
            return cohort.fair_weight if cohort is not None else 1.0
        return self._world.cluster_queues[node.name].fair_weight

    def _declared(self, node: Node) -> frozenset[int]:
        facts = self._facts(node)
        if facts.declared is None:
            below = (self._declared(child) for child in node.children.values())
            facts.declared = frozenset(node.quotas).union(*below)
        return facts.declared

    def _lendable(self, parent: Node) -> dict[str, int]:
        facts = self._facts(parent)
        if facts.lendable is None:
            root = parent
            while root.parent is not None:
                root = root.parent
            lendable: dict[str, int] = {}
            for index in self._declared(root):
                resource = self._world.interned.pair(index)[1]
                potential = self._forest.node_cell(parent, index).potential
                lendable[resource] = add(lendable.get(resource, 0), potential)
            facts.lendable = lendable
        return facts.lendable

    def _resources(self, node: Node, facts: _Facts) -> tuple[_Resource, ...]:
        parent = node.parent
        lendable = self._lendable(parent) if parent is not None else {}
        cells: dict[str, list[tuple[int, Cell]]] = {}
        for index in sorted(self._declared(node)):
            resource = self._world.interned.pair(index)[1]
            cells.setdefault(resource, []).append((index, self._forest.node_cell(node, index)))
        facts.resources = tuple(
            _Resource(name, lendable.get(name, 0), tuple(of_flavors)) for name, of_flavors in sorted(cells.items())
        )
        return facts.resources


def parent_of(node: Node) -> Node | None:
    """The parent for purposes of sharing; nodes whose way up is a cycle have none."""
    return None if node.cyclic else node.parent


def path_of(node: Node) -> list[Node]:
    """The node and its ancestors, root last."""
    path = [node]
    parent = parent_of(node)
    while parent is not None:
        path.append(parent)
        parent = parent.parent
    return path
