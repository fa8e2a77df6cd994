"""What quotas allow, in a few lines that share nothing with the product's: promises are not measured with the ruler that made them.

A node (ClusterQueue or cohort) has a nominal quota of its own; what it does not keep for itself (lendingLimit) its parent may give to others; it may take
from its parent up to borrowingLimit. Amounts are of one (flavor, resource), in milli-cpu and the like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from shared.api.quantity import quota_units
from shared.events.objects import ClusterQueue, Cohort

FlavorResource = tuple[str, str]
Usage = Mapping[FlavorResource, int]


class _Limits(msgspec.Struct, frozen=True):
    nominal: int = 0
    borrowing: int | None = None
    lending: int | None = None


class Forest:
    """Queues and cohorts as they were at one moment."""

    def __init__(self, queues: Mapping[str, ClusterQueue], cohorts: Mapping[str, Cohort]) -> None:
        self._limits: dict[str, dict[FlavorResource, _Limits]] = {}
        self._parent: dict[str, str] = {}
        self._children: dict[str, list[str]] = {}
        self._gives: dict[tuple[str, FlavorResource], tuple[int, int]] = {}
        """What `_own_and_lent` has answered: a forest does not change, and it is asked again at every decision."""
        for name, queue in queues.items():
            self._add(f"queue {name}", queue, queue.cohort)
        for name, cohort in cohorts.items():
            self._add(f"cohort {name}", cohort, cohort.parent)

    def _add(self, node: str, source: ClusterQueue | Cohort, parent: str) -> None:
        limits = self._limits.setdefault(node, {})
        for group in source.groups:
            for flavor in group.flavors:
                for quota in flavor.quotas:
                    limits[flavor.name, quota.resource] = _Limits(
                        quota_units(quota.resource, quota.nominal),
                        _units(quota.resource, quota.borrowing_limit),
                        _units(quota.resource, quota.lending_limit),
                    )
        if parent:
            self._parent[node] = f"cohort {parent}"
            self._children.setdefault(f"cohort {parent}", []).append(node)

    def tree_of(self, queue: str) -> tuple[str, ...]:
        """The ClusterQueues that share quota with this one, itself included; empty if it does not exist."""
        node = f"queue {queue}"
        if node not in self._limits:
            return ()
        seen = {node}
        while node in self._parent and self._parent[node] not in seen:
            node = self._parent[node]
            seen.add(node)
        return tuple(self._queues_below(node, set()))

    def _queues_below(self, node: str, seen: set[str]) -> Iterable[str]:
        if node in seen:
            return
        seen.add(node)
        if node.startswith("queue "):
            yield node.removeprefix("queue ")
        for child in self._children.get(node, ()):
            yield from self._queues_below(child, seen)

    def excess(self, queue: str, usage: Callable[[str], Usage], cells: Iterable[FlavorResource]) -> str:
        """Empty if `usage` (by ClusterQueue) keeps within what this queue and all above it may use of `cells`; else where and by how much it does not."""
        for cell in cells:
            node: str | None = f"queue {queue}"
            steps = 0
            while node is not None and steps < 16:
                steps += 1
                allowed, used = self._allowed(node, cell), self._used(node, usage, cell)
                if allowed is not None and used > allowed:
                    return f"{node} uses {used} of {'/'.join(cell)}, allowed are {allowed}"
                own, lent = self._own_and_lent(node, cell)
                if used <= own - lent:
                    # It fits into what the node keeps for itself, whatever goes on above it.
                    break
                node = self._parent.get(node)
        return ""

    def _of(self, node: str, cell: FlavorResource) -> _Limits:
        return self._limits.get(node, {}).get(cell, _Limits())

    def _own_and_lent(self, node: str, cell: FlavorResource) -> tuple[int, int]:
        """(what the node has to give: its own quota and what its children lend; how much of it its parent may give to others)"""
        known = self._gives.get((node, cell))
        if known is None:
            limits = self._of(node, cell)
            own = limits.nominal + sum(self._own_and_lent(child, cell)[1] for child in self._children.get(node, ()))
            lent = own if limits.lending is None else min(own, limits.lending)
            known = self._gives[node, cell] = (own, lent)
        return known

    def _used(self, node: str, usage: Callable[[str], Usage], cell: FlavorResource) -> int:
        used = usage(node.removeprefix("queue ")).get(cell, 0) if node.startswith("queue ") else 0
        for child in self._children.get(node, ()):
            own, lent = self._own_and_lent(child, cell)
            used += max(0, self._used(child, usage, cell) - (own - lent))
        return used

    def _allowed(self, node: str, cell: FlavorResource) -> int | None:
        """None: nothing but its parents limits it."""
        if node not in self._parent:
            return self._own_and_lent(node, cell)[0]
        borrowing = self._of(node, cell).borrowing
        return None if borrowing is None else self._own_and_lent(node, cell)[0] + borrowing


def _units(resource: str, amount: str | None) -> int | None:
    return None if amount is None else quota_units(resource, amount)
