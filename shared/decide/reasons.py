"""Words for structured reasons: the one place where a pending reason becomes a sentence.

Why it exists: condition, event, CLI and dashboard must say the same. Amounts are written as Kubernetes quantities, so that a
reader (or a program) can take flavor, resource, requested, missing and maximum out of the text.
"""

from __future__ import annotations

from shared.api.quantity import format_amount
from shared.decide.assignment import Assignment, GranularMode, Mode
from shared.model.refusal import FlavorReason, PodSetRefusal, Refusal


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
    if reason.code == "resource_not_in_cluster_queue":
        return f"resource {resource} is not available in the ClusterQueue"
    if reason.code == "untolerated_taint":
        return f"flavor {flavor}: taint {reason.detail} is not tolerated"
    if reason.code == "affinity_mismatch":
        return f"flavor {flavor}: node affinity does not match"
    if reason.code == "flavor_not_allowed":
        return f"flavor {flavor}: not among the flavors this workload may use"
    if reason.code == "flavor_missing":
        return f"flavor {flavor}: no such ResourceFlavor"
    if reason.code == "flavor_topology_only":
        return f"flavor {flavor}: supports only workloads with a topology request"
    return f"flavor {flavor}: {reason.detail}"


def pod_set_refusal(pod_set: PodSetRefusal) -> str:
    """The pod set's name and its reasons, sorted."""
    if pod_set.error:
        return f"pod set {pod_set.name}: {pod_set.error}"
    return f"pod set {pod_set.name}: {', '.join(sorted(flavor_reason(reason) for reason in pod_set.reasons))}"


def message(refusal: Refusal) -> str:
    """The whole message of a pending workload."""
    parts = [pod_set_refusal(pod_set) for pod_set in refusal.pod_sets]
    if refusal.note:
        parts.append(refusal.note)
    return "; ".join(parts)


def refusal_of(assignment: Assignment, reason: str, note: str = "") -> Refusal:
    """The refusal an assignment stands for: each pod set that is not Fit, with its distinct reasons."""
    return Refusal(
        reason,
        tuple(
            PodSetRefusal(pod_set.name, tuple(dict.fromkeys(pod_set.reasons)))
            for pod_set in assignment.pod_sets
            if pod_set.mode is not Mode.FIT and pod_set.reasons
        ),
        note,
    )


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
