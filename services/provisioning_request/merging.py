"""Which pod sets a ProvisioningRequest is about, and which of them become one (topology-and-checks spec 15.3, 15.4)."""

from __future__ import annotations

from collections.abc import Collection

from shared.events.objects import Container, PodSet, ProvisioningRequestConfig, Workload

IDENTICAL_TEMPLATES = "IdenticalPodTemplates"
IDENTICAL_REQUIREMENTS = "IdenticalWorkloadSchedulingRequirements"


def needed_pod_sets(workload: Workload, managed: Collection[str]) -> list[tuple[PodSet, int]]:
    """Pod sets that need capacity, with their assigned counts: some pods, and a managed resource named by one of their containers
    (`managed` empty: any will do)."""
    assigned = {a.name: a.count for a in workload.admission.pod_sets} if workload.admission is not None else {}
    return [
        (pod_set, assigned[pod_set.name])
        for pod_set in workload.pod_sets
        if pod_set.count > 0 and assigned.get(pod_set.name, 0) > 0 and (not managed or _names_one(pod_set, managed))
    ]


def merged_pod_sets(workload: Workload, config: ProvisioningRequestConfig) -> list[tuple[str, int]]:
    """(pod set, pods) of the request: under a merge policy the first of equal pod sets takes the count of the others."""
    merged: list[tuple[PodSet, int]] = []
    for pod_set, count in needed_pod_sets(workload, config.managed_resources):
        for index, (first, sum_) in enumerate(merged):
            if _alike(first, pod_set, config.merge_policy):
                merged[index] = (first, sum_ + count)
                break
        else:
            merged.append((pod_set, count))
    return [(pod_set.name, count) for pod_set, count in merged]


def _alike(left: PodSet, right: PodSet, policy: str) -> bool:
    if policy == IDENTICAL_TEMPLATES:
        return bool(left.template_hash) and left.template_hash == right.template_hash
    if policy == IDENTICAL_REQUIREMENTS:
        return _requirements(left) == _requirements(right)
    return False


def _requirements(pod_set: PodSet) -> tuple[object, ...]:
    return (
        [_requests(c) for c in pod_set.containers],
        [_requests(c) for c in pod_set.init_containers],
        pod_set.pod_requests,
        pod_set.pod_limits,
        pod_set.node_selector,
        pod_set.tolerations,
        pod_set.affinity_terms,
    )


def _requests(container: Container) -> dict[str, str]:
    # A limit stands for a request that is not given, as in the PodTemplate that is made of it.
    return {**container.limits, **container.requests}


def _names_one(pod_set: PodSet, managed: Collection[str]) -> bool:
    return any(
        resource in container.requests or resource in container.limits
        for container in (*pod_set.containers, *pod_set.init_containers)
        for resource in managed
    )
