"""Refusals of Workloads: what a reservation freezes, what assignments and checks may hold."""

from __future__ import annotations

from typing import Any

import pytest

from services.webhook.validate_workload import workload_errors
from shared.api.decoding import convert
from shared.api.workload import Workload

TIME = "2026-01-01T00:00:00Z"
RESERVED = {
    "type": "QuotaReserved",
    "status": "True",
    "reason": "QuotaReserved",
    "message": "",
    "lastTransitionTime": TIME,
}


def pod_set(name: str = "main", count: int = 2, **rest: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": rest.pop("resources", {})}
    return {
        "name": name,
        "count": count,
        "template": {"metadata": rest.pop("meta", {}), "spec": {"containers": [container]}},
        **rest,
    }


def workload(
    *, pod_sets: list[dict[str, Any]] | None = None, annotations: dict[str, str] | None = None, **status: Any
) -> Workload:
    spec = {"podSets": pod_sets or [pod_set()]}
    return convert(
        Workload, {"metadata": {"name": "w", "annotations": annotations or {}}, "spec": spec, "status": status}
    )


def admission(usage: str = "4", name: str = "main", count: int = 2, queue: str = "q") -> dict[str, Any]:
    assignment = {"name": name, "count": count, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": usage}}
    return {"clusterQueue": queue, "podSetAssignments": [assignment]}


def check(state: str = "Pending", **update: Any) -> dict[str, Any]:
    return {
        "name": "ac",
        "state": state,
        "message": "",
        "lastTransitionTime": TIME,
        "podSetUpdates": [update] if update else [],
    }


def paths(new: Workload, old: Workload | None = None) -> list[str]:
    return [f"{e.path} {e.kind}" for e in workload_errors(new, old)]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (workload(), []),
        (
            workload(pod_sets=[pod_set("a", minCount=1), pod_set("b", minCount=1)]),
            ["spec.podSets Invalid value"],
        ),
        (
            workload(pod_sets=[pod_set(resources={"requests": {"pods": "1"}})]),
            ["spec.podSets[0].template.spec.containers[0].resources.requests[pods] Invalid value"],
        ),
        (
            workload(pod_sets=[pod_set(resources={"limits": {"cpu": "-1"}})]),
            ["spec.podSets[0].template.spec.containers[0].resources.limits[cpu] Invalid value"],
        ),
        (
            workload(pod_sets=[pod_set(meta={"labels": {"@": "x"}})]),
            ["spec.podSets[0].template.metadata.labels Invalid value"],
        ),
        (workload(conditions=[RESERVED], admission=admission()), []),
        (workload(conditions=[RESERVED]), ["status.admission Forbidden"]),
        (
            workload(conditions=[RESERVED], admission=admission(usage="4001m")),
            ["status.admission.podSetAssignments[0].resourceUsage[cpu] Invalid value"],
        ),
        (
            workload(conditions=[RESERVED], admission=admission(name="other")),
            ["status.admission.podSetAssignments[0].name Unsupported value"],
        ),
        (workload(reclaimablePods=[{"name": "x", "count": 1}]), ["status.reclaimablePods[0].name Unsupported value"]),
        (workload(reclaimablePods=[{"name": "main", "count": 3}]), ["status.reclaimablePods[0].count Invalid value"]),
        (
            workload(admissionChecks=[check(name="other")]),
            ["status.admissionChecks[0].podSetUpdates[0].name Unsupported value"],
        ),
        (
            workload(admissionChecks=[check(name="main", nodeSelector={"@": "x"})]),
            ["status.admissionChecks[0].podSetUpdates[0].nodeSelector Invalid value"],
        ),
        (
            workload(annotations={"kueue.x-k8s.io/admission-gated-by": "plain"}),
            ["metadata.annotations[kueue.x-k8s.io/admission-gated-by] Invalid value"],
        ),
    ],
)
def test_creation(made: Workload, expected: list[str]) -> None:
    assert paths(made) == expected


HELD: dict[str, Any] = {"conditions": [RESERVED], "admission": admission()}
READY = "status.admissionChecks[0].podSetUpdates Invalid value"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (workload(), workload(pod_sets=[pod_set(count=3)]), []),
        (workload(**HELD), workload(**HELD, pod_sets=[pod_set(count=3)]), ["spec.podSets Invalid value"]),
        (workload(**HELD), workload(), []),
        (
            workload(**HELD),
            workload(conditions=[RESERVED], admission=admission(queue="p")),
            ["status.admission Invalid value"],
        ),
        (workload(conditions=[RESERVED]), workload(conditions=[RESERVED]), []),
        (
            workload(**HELD, reclaimablePods=[{"name": "main", "count": 2}]),
            workload(**HELD, reclaimablePods=[{"name": "main", "count": 1}]),
            ["status.reclaimablePods[0].count Forbidden"],
        ),
        (
            workload(**HELD, reclaimablePods=[{"name": "main", "count": 2}]),
            workload(**HELD),
            ["status.reclaimablePods Forbidden"],
        ),
        (
            workload(admissionChecks=[check("Ready", name="main", labels={"a": "b"})]),
            workload(admissionChecks=[check("Ready", name="main", labels={"a": "c"})]),
            [READY],
        ),
        (
            workload(admissionChecks=[check("Pending")]),
            workload(admissionChecks=[check("Ready", name="main", labels={"a": "c"})]),
            [],
        ),
    ],
)
def test_update(old: Workload, new: Workload, expected: list[str]) -> None:
    assert paths(new, old) == expected
