"""ClusterQueues, LocalQueues, cohorts and flavors as the engine sees them: amounts, order, policies, activity.

Why it exists: projections carry text; decisions want interned flavor-resources and integers, made once per change of the
object. Built here from `shared.model.sources`; a quantity that cannot be read raises QuantityError. No usage in here.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shared.api.quantity import parse, quota_units
from shared.model.admission_fair_sharing import UsageRecord
from shared.model.flavor_resources import FlavorResources
from shared.model.quota_cells import Quota
from shared.model.sources import (
    ClusterQueueSource,
    CohortSource,
    LocalQueueSource,
    ResourceFlavorSource,
    ResourceGroupSource,
    SelectorSource,
    TaintSource,
    TolerationSource,
)


class FlavorOption(msgspec.Struct, frozen=True, gc=False):
    """One flavor of a resource group, with the index of (flavor, resource) for each covered resource."""

    name: str
    cells: dict[str, int]


class ResourceGroup(msgspec.Struct, frozen=True, gc=False):
    """Resources that must share a flavor, and the flavors in order of preference."""

    covered: tuple[str, ...]
    flavors: tuple[FlavorOption, ...]


class Fungibility(msgspec.Struct, frozen=True, gc=False):
    """flavorFungibility, as booleans: True = look at the next flavor before settling."""

    next_when_borrowing: bool = False
    next_when_preempting: bool = True
    preemption_over_borrowing: bool = False


class PreemptionPolicy(msgspec.Struct, frozen=True, gc=False):
    """Whose workloads this ClusterQueue may preempt."""

    within_cluster_queue: str = "Never"
    reclaim_within_cohort: str = "Never"
    borrow_within_cohort: str = "Never"
    borrow_max_priority: int | None = None


class CheckRule(msgspec.Struct, frozen=True, gc=False):
    """An admission check and the flavors it applies to; empty = all flavors of the ClusterQueue."""

    name: str
    on_flavors: frozenset[str]


class ClusterQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A ClusterQueue's configuration in model units."""

    name: str
    cohort: str | None = None
    groups: tuple[ResourceGroup, ...] = ()
    group_of: dict[str, int] = {}
    """Index of the group that covers a resource."""
    quotas: dict[int, Quota] = {}
    strict: bool = False
    """StrictFIFO (else BestEffortFIFO)."""
    namespace_selector: SelectorSource | None = None
    fungibility: Fungibility = Fungibility()
    preemption: PreemptionPolicy = PreemptionPolicy()
    checks: tuple[CheckRule, ...] = ()
    stop_policy: str = "None"
    deleting: bool = False
    fair_weight: float = 1.0
    usage_based_admission: bool = False
    last_acceptable_flavor: str = ""
    """Concurrent admission: no migration to flavors after this one; empty = to any better one."""

    def flavor_names(self) -> tuple[str, ...]:
        """All flavors in the order of the spec."""
        return tuple(flavor.name for group in self.groups for flavor in group.flavors)

    def required_checks(self, flavors: frozenset[str]) -> tuple[str, ...]:
        """Checks that apply to these assigned flavors, sorted by name."""
        if not self.checks:
            return ()
        return tuple(sorted(rule.name for rule in self.checks if not rule.on_flavors or rule.on_flavors & flavors))

    def unconditional_checks(self) -> tuple[str, ...]:
        """Checks that apply whatever flavor is assigned, sorted by name."""
        every = frozenset(self.flavor_names())
        return tuple(sorted(rule.name for rule in self.checks if not rule.on_flavors or rule.on_flavors >= every))


class LocalQueue(msgspec.Struct, frozen=True, gc=False):
    """A namespace's door to a ClusterQueue."""

    key: str
    cluster_queue: str
    stop_policy: str = "None"
    deleting: bool = False
    fair_weight: float = 1.0
    consumed: UsageRecord | None = None
    """Decayed consumption as its status tells, for admission fair sharing."""

    @property
    def stopped(self) -> bool:
        return self.stop_policy != "None"


class Cohort(msgspec.Struct, frozen=True, gc=False):
    """A Cohort object: own quota and parent."""

    name: str
    parent: str | None
    quotas: dict[int, Quota]
    fair_weight: float = 1.0


class ResourceFlavor(msgspec.Struct, frozen=True):
    """A flavor: which nodes it stands for and what running there needs."""

    name: str
    labels: Mapping[str, str] = {}
    taints: tuple[TaintSource, ...] = ()
    tolerations: tuple[TolerationSource, ...] = ()
    topology: str = ""


def _group_of(groups: tuple[ResourceGroupSource, ...]) -> dict[str, int]:
    """The first group that covers each resource (validation allows only one)."""
    found: dict[str, int] = {}
    for index, group in enumerate(groups):
        for resource in group.covered:
            found.setdefault(resource, index)
    return found


def _quotas(groups: tuple[ResourceGroupSource, ...], interned: FlavorResources) -> dict[int, Quota]:
    quotas: dict[int, Quota] = {}
    for group in groups:
        for flavor in group.flavors:
            for resource in group.covered:
                quotas[interned.index(flavor.name, resource)] = Quota()
            for quota in flavor.quotas:
                quotas[interned.index(flavor.name, quota.resource)] = Quota(
                    nominal=quota_units(quota.resource, quota.nominal),
                    borrowing_limit=_limit(quota.resource, quota.borrowing_limit),
                    lending_limit=_limit(quota.resource, quota.lending_limit),
                )
    return quotas


def _weight(raw: str) -> float:
    """A fair-sharing weight; a fraction of shares, hence no amount."""
    return parse(raw).nano / 1e9


def _limit(resource: str, raw: str | None) -> int | None:
    return None if raw is None else quota_units(resource, raw)


def _group(group: ResourceGroupSource, interned: FlavorResources) -> ResourceGroup:
    options = tuple(
        FlavorOption(flavor.name, {resource: interned.index(flavor.name, resource) for resource in group.covered})
        for flavor in group.flavors
    )
    return ResourceGroup(group.covered, options)


def cluster_queue(source: ClusterQueueSource, interned: FlavorResources) -> ClusterQueue:
    """The configuration of a ClusterQueue. Raises QuantityError."""
    return ClusterQueue(
        name=source.name,
        cohort=source.cohort or None,
        groups=tuple(_group(group, interned) for group in source.groups),
        group_of=_group_of(source.groups),
        quotas=_quotas(source.groups, interned),
        strict=source.strategy == "StrictFIFO",
        namespace_selector=source.namespace_selector,
        fungibility=Fungibility(
            next_when_borrowing=source.when_can_borrow == "TryNextFlavor",
            next_when_preempting=source.when_can_preempt != "MayStopSearch",
            preemption_over_borrowing=source.fungibility_preference == "PreemptionOverBorrowing",
        ),
        preemption=PreemptionPolicy(
            within_cluster_queue=source.within_cluster_queue,
            reclaim_within_cohort=source.reclaim_within_cohort,
            borrow_within_cohort=source.borrow_within_cohort,
            borrow_max_priority=source.borrow_max_priority,
        ),
        checks=tuple(CheckRule(rule.name, frozenset(rule.on_flavors)) for rule in source.checks),
        stop_policy=source.stop_policy or "None",
        deleting=source.deleting,
        fair_weight=_weight(source.fair_weight),
        usage_based_admission=source.admission_mode == "UsageBasedAdmissionFairSharing",
        last_acceptable_flavor=source.last_acceptable_flavor,
    )


def local_queue(source: LocalQueueSource) -> LocalQueue:
    """The engine's view of a LocalQueue. Raises QuantityError."""
    record = None
    if source.consumed_at is not None:
        record = UsageRecord({name: parse(raw).nano for name, raw in source.consumed.items()}, source.consumed_at)
    return LocalQueue(
        key=f"{source.namespace}/{source.name}",
        cluster_queue=source.cluster_queue,
        stop_policy=source.stop_policy or "None",
        deleting=source.deleting,
        fair_weight=_weight(source.fair_weight),
        consumed=record,
    )


def cohort(source: CohortSource, interned: FlavorResources) -> Cohort:
    """The engine's view of a Cohort object. Raises QuantityError."""
    return Cohort(source.name, source.parent or None, _quotas(source.groups, interned), _weight(source.fair_weight))


def resource_flavor(source: ResourceFlavorSource) -> ResourceFlavor:
    """The engine's view of a ResourceFlavor."""
    return ResourceFlavor(source.name, source.node_labels, source.node_taints, source.tolerations, source.topology)
