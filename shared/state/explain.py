"""What the bus carries of a refusal: the facts of why a workload stays pending, for programs.

Why it exists: the words of the condition are made of the same facts (`shared.decide.reasons`); whoever wants numbers should not have to read them
out of a sentence. All facts were found when the workload was looked at: nothing is searched or computed anew, so it costs something for what
is reported only.
"""

from __future__ import annotations

from collections.abc import Iterator

from shared.events.commands import FlavorObstacle, PendingExplanation
from shared.model.refusal import FlavorReason, PendingReason, PodSetRefusal, Refusal

_BY_REASON: dict[str, str] = {
    PendingReason.EXCEEDS_MAX_QUOTA: "never_fits",
    PendingReason.NO_MATCHING_FLAVOR: "no_matching_flavor",
    PendingReason.TOPOLOGY_PLACEMENT_FAILED: "no_placement",
    PendingReason.WAITING_FOR_QUOTA: "no_quota",
}


def of(refusal: Refusal) -> PendingExplanation:
    """The explanation of a refusal."""
    flavors = tuple(obstacle for pod_set in refusal.pod_sets for obstacle in _obstacles(pod_set))
    stop = refusal.stop
    if stop is None:
        return PendingExplanation(stopped_by=_BY_REASON.get(refusal.reason, "unknown"), flavors=flavors)
    return PendingExplanation(
        stopped_by=stop.code, names=stop.names, count=stop.count, detail=stop.detail, flavors=flavors
    )


def _obstacles(pod_set: PodSetRefusal) -> Iterator[FlavorObstacle]:
    if pod_set.error:
        yield FlavorObstacle(pod_set=pod_set.name, code=pod_set.error, detail=", ".join(pod_set.flavors))
    for reason in pod_set.reasons:
        yield _obstacle(pod_set.name, reason)


def _obstacle(pod_set: str, reason: FlavorReason) -> FlavorObstacle:
    own = max(0, reason.nominal - reason.used)
    missing = reason.missing or max(0, reason.assumed + reason.requested - reason.free)
    return FlavorObstacle(
        pod_set=pod_set,
        flavor=reason.flavor,
        resource=reason.resource,
        code=reason.code,
        detail=reason.detail,
        requested=reason.requested,
        earlier=reason.assumed,
        free=reason.free,
        borrowable=max(0, reason.free - own),
        missing=missing,
        preemptable=missing if reason.preemption in ("within_cluster_queue", "reclaim") else 0,
        preemption=reason.preemption,
        maximum=reason.maximum,
        limit="borrowing_limit" if _is_limited(reason) else "",
    )


def _is_limited(reason: FlavorReason) -> bool:
    """Does the borrowing limit of the ClusterQueue itself keep it from more? (Else the quota of its cohorts does, or their limits.)"""
    if reason.borrowing_limit is None:
        return False
    limit = reason.nominal + reason.borrowing_limit
    return reason.maximum == limit if reason.code == "over_max_capacity" else reason.used + reason.free == limit
