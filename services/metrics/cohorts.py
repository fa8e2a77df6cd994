"""Gauges of cohorts, and amounts as metrics give them: cores, bytes, pieces."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from services.metrics.view import View
from shared.api.quantity import QuantityError, quota_units
from shared.events.objects import ClusterQueue, Cohort, QueueUsage, ResourceGroup

Cell = tuple[str, str]
"""Flavor and resource."""


def cohort_samples(view: View) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """(family, labels, value) of all cohorts, those without an object included."""
    quotas = _quotas(view)
    for name in sorted(quotas):
        yield "cohort_info", (name, view.parent(name), view.root(name)), 1.0
        found = view.get(Cohort, name)
        if found is not None and found.weighted_share is not None:
            yield "cohort_weighted_share", (name,), float(found.weighted_share)
        for cell, amount in quotas[name].items():
            yield "cohort_subtree_quota", (name, *cell), amount
    for name, cells in _reservations(view).items():
        for cell, amount in cells.items():
            yield "cohort_subtree_resource_reservations", (name, *cell), amount


def _quotas(view: View) -> dict[str, dict[Cell, float]]:
    """Nominal quota of each cohort plus what each member lends: all it has, up to its lending limit. From the leaves up; in a cycle, which no cohort
    is served in, the member that comes later counts as empty."""
    members: dict[str, list[Cohort | ClusterQueue]] = defaultdict(list)
    for queue in view.all(ClusterQueue):
        members[queue.cohort].append(queue)
    for cohort in view.all(Cohort):
        members[cohort.parent].append(cohort)
    quotas: dict[str, dict[Cell, float]] = {}
    for name in sorted(view.cohorts(), key=lambda cohort: (-len(view.above(cohort)), cohort)):
        own = view.get(Cohort, name)
        total: dict[Cell, float] = defaultdict(float)
        for cell, nominal, _ in _cells(own.groups if own is not None else ()):
            total[cell] += nominal
        for member in members.get(name, ()):
            limits = {cell: lending for cell, _, lending in _cells(member.groups)}
            own_quota = {cell: nominal for cell, nominal, _ in _cells(member.groups)}
            has = own_quota if isinstance(member, ClusterQueue) else quotas.get(member.name, {})
            for cell, amount in has.items():
                total[cell] += min(amount, limits.get(cell, math.inf))
        quotas[name] = total
    return quotas


def _reservations(view: View) -> dict[str, dict[Cell, float]]:
    found: dict[str, dict[Cell, float]] = {}
    for queue in view.all(ClusterQueue):
        for cohort in view.above(queue.cohort):
            cells = found.setdefault(cohort, defaultdict(float))
            for flavor, resource, total in rows(queue.status_reservation):
                cells[flavor, resource] += total
    return found


def _cells(groups: tuple[ResourceGroup, ...]) -> Iterator[tuple[Cell, float, float]]:
    """Flavor and resource, nominal quota, lending limit."""
    for group in groups:
        for flavor in group.flavors:
            for quota in flavor.quotas:
                cell = (flavor.name, quota.resource)
                yield cell, limit(quota.resource, quota.nominal), limit(quota.resource, quota.lending_limit)


def base(resource: str, units: int) -> float:
    """Cores of milli-cores; anything else is in its base unit already."""
    return units / 1000 if resource == "cpu" else float(units)


def rows(usage: QueueUsage) -> Iterator[tuple[str, str, float]]:
    """Flavor, resource, total."""
    for flavor, resource, total, _ in usage.rows:
        yield flavor, resource, base(resource, total)


def limit(resource: str, quantity: str | None) -> float:
    """The limit in cores or bytes; infinite without one, not a number if it cannot be read."""
    if quantity is None:
        return math.inf
    try:
        return base(resource, quota_units(resource, quantity))
    except QuantityError:
        return math.nan
