"""WorkloadInfo: a workload as the engine sees it, with effective requests.

Why it exists: pending order, flavor choice and usage need a few integers of a workload, computed once per change of it.
The values are made by `shared.decide.requests`; this module only holds them and answers questions about them.
Amounts are in model units (milli-cpu, bytes, pieces), times in seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shared.model.flavor_resources import FlavorResources, Vector
from shared.model.sources import RequirementSource, TolerationSource


class ConditionInfo(msgspec.Struct, frozen=True, gc=False):
    """One condition: type, truth, reason, lastTransitionTime."""

    type: str
    status: bool
    reason: str = ""
    changed: int = 0


class PodSetInfo(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One pod set: what `count` pods ask for together, and where they may run."""

    name: str
    count: int
    """Effective count: reclaimable pods are already taken off."""
    requests: dict[str, int]
    """Effective requests by resource, for all `count` pods."""
    min_count: int | None = None
    group: str = ""
    """Pod sets of the same group get the same flavors."""
    topology: Mapping[str, str] = {}
    """topologyRequest, as written."""
    pod: Mapping[str, int] = {}
    """What one pod asks for, without exclusion or transformation; only where a placement is asked for."""
    node_selector: Mapping[str, str] = {}
    affinity_terms: tuple[tuple[RequirementSource, ...], ...] | None = None
    tolerations: tuple[TolerationSource, ...] = ()


class PodSetAssignment(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What one pod set holds: flavor by resource, and usage for all its pods."""

    name: str
    count: int
    flavors: dict[str, str]
    usage: dict[str, int]
    delayed_topology: bool = False
    """Its placement was put off and is still missing."""


class Admission(msgspec.Struct, frozen=True, gc=False):
    """A reservation in a ClusterQueue."""

    cluster_queue: str
    pod_sets: tuple[PodSetAssignment, ...]

    def vector(self, interned: FlavorResources) -> Vector:
        """Quota held, per interned flavor-resource; a resource without a flavor holds none."""
        total: Vector = {}
        for pod_set in self.pod_sets:
            usage = pod_set.usage
            for resource, flavor in pod_set.flavors.items():
                index = interned.index(flavor, resource)
                total[index] = total.get(index, 0) + usage.get(resource, 0)
        return total

    def unassigned(self) -> dict[str, int]:
        """Usage of resources that got no flavor: it consumes no quota."""
        total: dict[str, int] = {}
        for pod_set in self.pod_sets:
            for resource, amount in pod_set.usage.items():
                if resource not in pod_set.flavors:
                    total[resource] = total.get(resource, 0) + amount
        return total

    def flavors(self) -> frozenset[str]:
        """All flavors in use."""
        return frozenset(flavor for pod_set in self.pod_sets for flavor in pod_set.flavors.values())


class WorkloadInfo(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A workload in the engine. `priority` is the effective one; `conditions` holds only types that decisions read."""

    namespace: str
    name: str
    key: str
    uid: str = ""
    version: int = 0
    generation: int = 0
    incarnation: str = ""
    created: int = 0
    queue_name: str = ""
    queue_key: str = ""
    """Key of the LocalQueue, `namespace/name`."""
    priority: int = 0
    base_priority: int = 0
    active: bool = True
    finished: bool = False
    pod_sets: tuple[PodSetInfo, ...] = ()
    conditions: tuple[ConditionInfo, ...] = ()
    checks: tuple[tuple[str, str], ...] = ()
    """(name, state) of each admission check."""
    requeue_at: int | None = None
    reclaimable: tuple[tuple[str, int], ...] = ()
    admission: Admission | None = None
    """Set only while QuotaReserved is true; scaled down by reclaimable pods."""
    gated_by: str = ""
    """Admission gates still closed, as written in the annotation."""
    allowed_flavors: frozenset[str] | None = None
    """Flavors a variant of concurrent admission may use; None = all."""
    parent_uid: str = ""
    """Uid of the parent workload of a variant of concurrent admission."""
    replaces: str = ""
    """Key of the older slice this slice of an elastic job is to replace."""
    preemption_gated: bool = False
    """Some gate of spec.preemptionGates is not open."""
    invalid: str = ""
    """Why the requests are refused (above limits, LimitRange), or empty."""
    uncountable: bool = False
    """Its devices cannot be counted: it is not queued."""
    shape: str = ""
    """Equivalence hash: equal for workloads the scheduler cannot tell apart; empty = unknown."""
    family: str = ""
    """Equal for workloads that differ only in amounts and priority; empty = like no other."""
    job_uid: str = ""

    def condition(self, kind: str) -> ConditionInfo | None:
        """The condition of this type, if present."""
        for condition in self.conditions:
            if condition.type == kind:
                return condition
        return None

    def is_true(self, kind: str) -> bool:
        """Is this condition present and True?"""
        for condition in self.conditions:
            if condition.type == kind:
                return condition.status
        return False

    @property
    def reserved(self) -> bool:
        """Does it hold quota on the wire, by its conditions?"""
        return self.admission is not None

    @property
    def on_hold(self) -> bool:
        """Did its integration release the reservation on purpose?"""
        found = self.condition("QuotaReserved")
        return found is not None and not found.status and found.reason == "OnHold"

    def admissible(self) -> bool:
        """May it be queued at all (core rules of 2.10)? A running backoff does not make it inadmissible in this sense."""
        return (
            self.active
            and not self.finished
            and self.admission is None
            and not self.gated_by
            and not self.uncountable
            and not (self.conditions and (self.on_hold or self.is_true("WaitingForReplacementPods")))
        )

    def backoff_expired(self, now: float) -> bool:
        """May it be tried at `now`: not marked Requeued=False, and no requeue time ahead (equality is expired)."""
        requeued = self.condition("Requeued")
        if requeued is not None and not requeued.status:
            return False
        return self.requeue_at is None or now >= self.requeue_at


DECISIVE_CONDITIONS = frozenset(
    {
        "QuotaReserved",
        "Admitted",
        "Evicted",
        "Preempted",
        "Requeued",
        "Finished",
        "PodsReady",
        "WaitingForReplacementPods",
        "DeactivationTarget",
        "BlockedOnPreemptionGates",
    }
)
"""Condition types that decisions read; others are not kept."""


def queue_timestamp(info: WorkloadInfo, *, by_eviction: bool = True, priority_within_cohort: bool = True) -> float:
    """The time that orders a workload among equals of its priority.

    `by_eviction`: waitForPodsReady.requeuingStrategy.timestamp is Eviction. `priority_within_cohort`: the gate
    PrioritySortingWithinCohort; without it a workload preempted while borrowing goes just behind its preemptor.
    """
    if not info.conditions:
        return info.created
    evicted = info.condition("Evicted")
    if evicted is not None and evicted.status:
        if evicted.reason == "PodsReadyTimeout" and by_eviction:
            return evicted.changed
        if evicted.reason == "AdmissionCheck":
            return evicted.changed
    if not priority_within_cohort:
        preempted = info.condition("Preempted")
        if preempted is not None and preempted.status and preempted.reason == "InCohortReclaimWhileBorrowing":
            return preempted.changed + 0.001
    return info.created
