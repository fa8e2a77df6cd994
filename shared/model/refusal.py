"""Structured reasons: why a flavor was not taken, and why a workload stays pending.

Why it exists: the condition, the event, the CLI and the dashboard must say the same; they all render these values
(`shared.decide.reasons`). Amounts are in model units. Nothing is decided here.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class PendingReason(StrEnum):
    """Reasons of QuotaReserved=False."""

    PENDING_EVALUATION = "PendingEvaluation"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    WAITING_FOR_PREEMPTED = "WaitingForPreemptedWorkloads"
    NO_MATCHING_FLAVOR = "NoMatchingFlavor"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed"
    MISCONFIGURED = "Misconfigured"
    SUSPENDED = "Suspended"
    WAITING_FOR_PODS_READY = "WaitingForPodsReady"
    ADMISSION_GATED = "AdmissionGated"
    ON_HOLD = "OnHold"
    DEACTIVATED = "Deactivated"


SEVERITY: dict[str, int] = {
    "": 0,
    PendingReason.TOPOLOGY_PLACEMENT_FAILED: 1,
    PendingReason.WAITING_FOR_QUOTA: 2,
    PendingReason.EXCEEDS_MAX_QUOTA: 3,
    PendingReason.NO_MATCHING_FLAVOR: 4,
}
"""How bad a reason for not fitting is; larger is worse."""


class FlavorReason(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Why one flavor (or resource) was not simply taken.

    Codes: over_max_capacity (assumed + requested > maximum), short_of_unused_quota (missing), affinity_mismatch,
    untolerated_taint (taint as key=value:effect), flavor_missing, resource_not_in_cluster_queue, flavor_topology_only, flavor_not_allowed,
    malformed_affinity (detail), slice_flavor_pinned (detail = flavor of the replaced slice), flavor_without_topology,
    flavor_topology_unknown, level_not_in_flavor (detail = level), no_placement (detail = why).
    """

    code: str
    flavor: str = ""
    resource: str = ""
    assumed: int = 0
    """Already taken by earlier pod sets of the same workload."""
    requested: int = 0
    missing: int = 0
    maximum: int = 0
    """Most the ClusterQueue could ever have, with all it may borrow."""
    detail: str = ""
    free: int = 0
    """What it could take at that moment, borrowing included."""
    nominal: int = 0
    used: int = 0
    """Of the ClusterQueue, by all its workloads."""
    borrowing_limit: int | None = None
    preemption: str = ""
    """What the search for victims said: no_candidates, within_cluster_queue, reclaim; empty where it was not asked."""


class PodSetRefusal(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Why one pod set does not fit now.

    Errors: no_topology_flavor_in_cluster_queue, no_topology_flavor_assigned, several_topology_flavors_assigned (flavors),
    elastic_required_topology, elastic_preferred_topology.
    """

    name: str
    reasons: tuple[FlavorReason, ...] = ()
    error: str = ""
    flavors: tuple[str, ...] = ()


class Stop(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A fact about the whole workload, not about a flavor, that keeps it pending.

    Codes: checks_not_passed (names), cluster_queue_missing, cluster_queue_inactive, namespace_mismatch (names: namespace, ClusterQueue),
    requests_refused (detail), no_candidates, quota_taken, same_victims, preemption_gated, waits_for_preemptions, better_variant, no_migration,
    pods_not_ready, preempting (count), migrating (count).
    """

    code: str
    names: tuple[str, ...] = ()
    count: int = 0
    detail: str = ""


class Refusal(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Why a workload stays pending: the reason of its condition, and the facts behind it."""

    reason: str
    pod_sets: tuple[PodSetRefusal, ...] = ()
    stop: Stop | None = None
