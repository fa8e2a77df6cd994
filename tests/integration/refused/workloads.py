"""Refused Workloads, by their spec."""

from __future__ import annotations

from tests.integration.refused.objects import (
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    TOO_LONG,
    TOO_MANY,
    UNSUPPORTED,
    K,
    Refusal,
    pod_set,
    workload,
)

POD = "spec.podSets[0].template"
GATED = f"metadata.annotations[{K}admission-gated-by]"
WPC = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
PC = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"}

WORKLOADS = (
    Refusal(document=workload(pod_set("@main")), path="spec.podSets[0].name", kind=INVALID, value='"@main"'),
    Refusal(document=workload(pod_set(), pod_set()), path="spec.podSets[1]", kind=DUPLICATE),
    Refusal(document=workload(*(pod_set(f"p{i}") for i in range(19))), path="spec.podSets", kind=TOO_MANY, value="19"),
    Refusal(document=workload(pod_set(count=-1)), path="spec.podSets[0].count", kind=INVALID, value="-1"),
    Refusal(document=workload(pod_set(minCount=0)), path="spec.podSets[0].minCount", kind=INVALID, value="0"),
    Refusal(document=workload(pod_set(minCount=3)), path="spec.podSets[0].minCount", kind=INVALID),
    Refusal(document=workload(queueName="Q"), path="spec.queueName", kind=INVALID, value='"Q"'),
    Refusal(document=workload(maximumExecutionTimeSeconds=0), path="spec.maximumExecutionTimeSeconds", kind=INVALID),
    Refusal(document=workload(priorityClassRef=WPC), path="spec.priority", kind=INVALID),
    Refusal(
        document=workload(priority=1, priorityClassRef={**PC, "kind": "WorkloadPriorityClass"}),
        path="spec.priorityClassRef.kind",
        kind=INVALID,
    ),
    Refusal(
        document=workload(priority=1, priorityClassRef={**WPC, "group": "example.com"}),
        path="spec.priorityClassRef.group",
        kind=UNSUPPORTED,
    ),
    Refusal(
        document=workload(preemptionGates=[{"name": f"g{i}"} for i in range(9)]),
        path="spec.preemptionGates",
        kind=TOO_MANY,
    ),
    Refusal(
        document=workload(pod_set(topologyRequest={"required": "x" * 64})),
        path="spec.podSets[0].topologyRequest.required",
        kind=TOO_LONG,
    ),
    # The webhook's, on creation.
    Refusal(
        document=workload(pod_set(resources={"requests": {"pods": "1"}})),
        path=f"{POD}.spec.containers[0].resources.requests[pods]",
        kind=INVALID,
        code=403,
    ),
    Refusal(
        document=workload(pod_set(resources={"limits": {"cpu": "-1"}})),
        path=f"{POD}.spec.containers[0].resources.limits[cpu]",
        kind=INVALID,
        code=403,
        value='"-1"',
    ),
    Refusal(
        document=workload(pod_set(pod={"resources": {"requests": {"memory": "-1Gi"}}})),
        path=f"{POD}.spec.resources.requests[memory]",
        kind=INVALID,
        code=403,
    ),
    Refusal(
        document=workload(pod_set(meta={"labels": {"a": "not valid"}})),
        path=f"{POD}.metadata.labels",
        kind=INVALID,
        code=403,
    ),
    Refusal(
        document=workload(pod_set(meta={"annotations": {"a/b/c": ""}})),
        path=f"{POD}.metadata.annotations",
        kind=INVALID,
        code=403,
    ),
    Refusal(
        document=workload(pod_set(topologyRequest={"podSetSliceSize": 2})),
        path="spec.podSets[0].topologyRequest.podSetSliceSize",
        kind=FORBIDDEN,
        code=403,
    ),
    Refusal(
        document=workload(pod_set("a", minCount=1), pod_set("b", minCount=1)),
        path="spec.podSets",
        kind=INVALID,
        code=403,
    ),
    Refusal(
        document=workload(pod_set(minCount=1), annotations={K + "elastic-job": "true"}),
        path="spec.podSets",
        kind=INVALID,
        code=403,
    ),
    Refusal(
        document=workload(annotations={K + "admission-gated-by": "plain"}),
        path=GATED,
        kind=INVALID,
        code=403,
        value='"plain"',
    ),
    Refusal(
        document=workload(annotations={K + "admission-gated-by": "e.com/" + "x" * 60}),
        path=GATED,
        kind=TOO_LONG,
        code=403,
    ),
    Refusal(
        document=workload(),
        change={"metadata": {"annotations": {K + "admission-gated-by": "e.com/a"}}},
        path=GATED,
        kind=FORBIDDEN,
        code=403,
    ),
)
