"""Words for structured reasons: the one place where a pending reason becomes a sentence.

Why it exists: condition, event, CLI and dashboard must say the same. Amounts are written as Kubernetes quantities, so that a
reader (or a program) can take flavor, resource, requested, missing and maximum out of the text.
"""

from __future__ import annotations

from shared.api.quantity import format_amount
from shared.decide.assignment import Assignment, GranularMode, Mode
from shared.model.refusal import FlavorReason, PodSetRefusal, Refusal, Stop

FLAVOR_WORDS = {
    "resource_not_in_cluster_queue": "resource {resource} is not available in the ClusterQueue",
    "untolerated_taint": "flavor {flavor}: taint {detail} is not tolerated",
    "affinity_mismatch": "flavor {flavor}: node affinity does not match",
    "malformed_affinity": "flavor {flavor}: node affinity cannot be read: {detail}",
    "flavor_not_allowed": "flavor {flavor}: not among the flavors this workload may use",
    "flavor_missing": "flavor {flavor}: no such ResourceFlavor",
    "flavor_topology_only": "flavor {flavor}: supports only workloads with a topology request",
    "flavor_without_topology": "flavor {flavor}: has no topology, and the pods request one",
    "flavor_topology_unknown": "flavor {flavor}: its Topology is not known",
    "level_not_in_flavor": "flavor {flavor}: its Topology has no level {detail}",
    "slice_flavor_pinned": "flavor {flavor}: the slice to be replaced holds flavor {detail}",
    "no_placement": "flavor {flavor}: no placement: {detail}",
}
"""Words of each code of a FlavorReason that has no amounts."""

POD_SET_WORDS = {
    "no_topology_flavor_in_cluster_queue": "the ClusterQueue has no flavor with a topology",
    "no_topology_flavor_assigned": "none of its flavors has a topology",
    "several_topology_flavors_assigned": "more than one of its flavors has a topology: {flavors}",
    "elastic_required_topology": "an elastic workload cannot require a topology",
    "elastic_preferred_topology": "an elastic workload cannot prefer a topology",
}
"""Words of each error of a PodSetRefusal."""

STOP_WORDS = {
    "checks_not_passed": "admission checks not passed: {names}",
    "cluster_queue_missing": "ClusterQueue {names} not found",
    "cluster_queue_inactive": "ClusterQueue {names} is inactive",
    "requests_refused": "{detail}",
    "no_candidates": "no workloads can be preempted to make room",
    "quota_taken": "other workloads of this cycle took the quota",
    "same_victims": "another workload of this cycle preempts the same workloads",
    "preemption_gated": "it would have to preempt, and its preemption gates are closed",
    "waits_for_preemptions": "it fits once the preemptions of this cycle are complete",
    "better_variant": "a variant on a preferred flavor is admitted",
    "no_migration": "another variant is admitted, and this flavor is not worth a migration",
    "pods_not_ready": "the pods of admitted workloads are not ready yet",
    "preempting": "preempting {count} workload{plural}",
    "migrating": "migrating {count} workload{plural} to this flavor",
}
"""Words of each code of a Stop but namespace_mismatch, whose names differ in kind."""


def flavor_reason(reason: FlavorReason) -> str:
    """One reason in words."""
    resource, flavor = reason.resource, reason.flavor
    if reason.code == "over_max_capacity":
        wanted = format_amount(resource, reason.requested)
        earlier = f" on top of {format_amount(resource, reason.assumed)} of earlier pod sets" if reason.assumed else ""
        limit = format_amount(resource, reason.maximum)
        return f"{resource} in flavor {flavor}: {wanted} requested{earlier}, maximum ever available is {limit}"
    if reason.code == "short_of_unused_quota":
        wanted = format_amount(resource, reason.requested)
        return (
            f"{resource} in flavor {flavor}: {wanted} requested, {format_amount(resource, reason.missing)} more needed"
        )
    return FLAVOR_WORDS[reason.code].format(flavor=flavor, resource=resource, detail=reason.detail)


def pod_set_refusal(pod_set: PodSetRefusal) -> str:
    """The pod set's name and its reasons, sorted."""
    if pod_set.error:
        return f"pod set {pod_set.name}: {POD_SET_WORDS[pod_set.error].format(flavors=', '.join(pod_set.flavors))}"
    told = sorted(flavor_reason(reason) for reason in pod_set.reasons)
    return f"pod set {pod_set.name}: {', '.join(told) or 'no flavor is left to try'}"


def stop(found: Stop) -> str:
    """What stopped a workload as a whole, in words."""
    if found.code == "namespace_mismatch":
        namespace, queue = found.names
        return f"namespace {namespace} does not match the selector of ClusterQueue {queue}"
    return STOP_WORDS[found.code].format(
        names=", ".join(found.names), detail=found.detail, count=found.count, plural="" if found.count == 1 else "s"
    )


def message(refusal: Refusal) -> str:
    """The whole message of a pending workload."""
    parts = [pod_set_refusal(pod_set) for pod_set in refusal.pod_sets]
    if refusal.stop is not None:
        parts.append(stop(refusal.stop))
    return "; ".join(parts)


def refusal_of(assignment: Assignment, reason: str, stopped: Stop | None = None) -> Refusal:
    """The refusal an assignment stands for: each pod set that is not Fit, with its distinct reasons or its error."""
    refused = []
    for pod_set in assignment.pod_sets:
        if pod_set.mode is Mode.FIT:
            continue
        error = pod_set.error
        if pod_set.reasons or pod_set.failed or error is not None:
            told = pod_set.reasons if len(pod_set.reasons) < 2 else tuple(dict.fromkeys(pod_set.reasons))
            code, flavors = (error.code, error.flavors) if error is not None else ("", ())
            refused.append(PodSetRefusal(pod_set.name, told, code, flavors))
    return Refusal(reason, tuple(refused), stopped)


_MODE_WORDS = {
    GranularMode.NO_FIT: "NoFit",
    GranularMode.NO_PREEMPTION_CANDIDATES: "preemptionMode=NoCandidates",
    GranularMode.PREEMPT: "preemptionMode=Preempt",
    GranularMode.RECLAIM: "preemptionMode=Reclaim",
    GranularMode.FIT: "Fit",
}


def considered_flavors(assignment: Assignment) -> str:
    """The flavors that were looked at, for the event of a reservation; empty when each fitted at once."""
    parts = []
    for pod_set in assignment.pod_sets:
        if all(attempt.mode is GranularMode.FIT and not attempt.level for attempt in pod_set.attempts):
            continue
        items = []
        for name in sorted({attempt.flavor for attempt in pod_set.attempts}):
            same = [attempt for attempt in pod_set.attempts if attempt.flavor == name]
            mode, level = min(attempt.mode for attempt in same), max(attempt.level for attempt in same)
            if mode is GranularMode.FIT and level == 0:
                continue
            words = [_MODE_WORDS[mode]]
            if level:
                words.append(f"borrow={level}")
            words.extend(sorted({flavor_reason(reason) for attempt in same for reason in attempt.reasons}))
            items.append(f"{name}({';'.join(words)})")
        if items:
            parts.append(f"{pod_set.name}: {', '.join(items)}")
    return " | ".join(parts)
