"""Refusals of Workloads: what a reservation freezes, what assignments and checks may hold."""

from __future__ import annotations

from typing import Any

import pytest

from services.webhook.validate_workload import workload_errors
from shared.api.decoding import convert
from shared.api.raw_workload import RawWorkload
from shared.config.feature_gates import DEFAULT_GATES, FeatureGates, resolve

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
) -> RawWorkload:
    spec = {"podSets": pod_sets or [pod_set()]}
    return convert(
        RawWorkload, {"metadata": {"name": "w", "annotations": annotations or {}}, "spec": spec, "status": status}
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


def paths(new: RawWorkload, old: RawWorkload | None = None, gates: FeatureGates = DEFAULT_GATES) -> list[str]:
    return [f"{e.path} {e.kind}" for e in workload_errors(new, old, gates)]


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
        (workload(conditions=[RESERVED]), ["status.admission Required value"]),
        (
            workload(conditions=[RESERVED], admission=admission(usage="4001m")),
            ["status.admission.podSetAssignments[0].resourceUsage[cpu] Invalid value"],
        ),
        (
            workload(conditions=[RESERVED], admission=admission(name="other")),
            ["status.admission.podSetAssignments[0].name Not found"],
        ),
        (workload(reclaimablePods=[{"name": "x", "count": 1}]), ["status.reclaimablePods[x].name Unsupported value"]),
        (
            workload(reclaimablePods=[{"name": "main", "count": 3}]),
            ["status.reclaimablePods[main].count Invalid value"],
        ),
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
def test_creation(made: RawWorkload, expected: list[str]) -> None:
    assert paths(made) == expected


HELD: dict[str, Any] = {"conditions": [RESERVED], "admission": admission()}
READY = "status.admissionChecks[0].podSetUpdates Invalid value"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (workload(), workload(pod_sets=[pod_set(count=3)]), []),
        (workload(**HELD), workload(**HELD, pod_sets=[pod_set(count=3)]), ["spec.podSets[0] Invalid value"]),
        (workload(**HELD), workload(**HELD, pod_sets=[pod_set(count=1)]), []),
        (
            workload(**HELD),
            workload(**HELD, pod_sets=[pod_set(), pod_set("b")]),
            ["spec.podSets Invalid value"],
        ),
        # Amounts by value, and what is empty is absent.
        (
            workload(**HELD, pod_sets=[pod_set(resources={"requests": {"cpu": "1"}})]),
            workload(**HELD, pod_sets=[pod_set(resources={"requests": {"cpu": "1000m"}, "limits": {}})]),
            [],
        ),
        (workload(**HELD), workload(), []),
        (workload(**HELD), workload(conditions=[RESERVED], admission=admission(usage="4000m")), []),
        (workload(), workload(clusterName="w1"), ["status.clusterName Invalid value"]),
        (workload(nominatedClusterNames=["w1"]), workload(clusterName="w1"), []),
        (workload(clusterName="w1"), workload(), []),
        (
            workload(),
            workload(clusterName="w1", annotations={"kueue.x-k8s.io/workload-slice-replacement-for": "default/w"}),
            [],
        ),
        (
            workload(**HELD),
            workload(conditions=[RESERVED], admission=admission(queue="p")),
            ["status.admission Invalid value"],
        ),
        (workload(conditions=[RESERVED]), workload(conditions=[RESERVED]), []),
        (
            workload(**HELD, reclaimablePods=[{"name": "main", "count": 2}]),
            workload(**HELD, reclaimablePods=[{"name": "main", "count": 1}]),
            ["status.reclaimablePods[main].count Invalid value"],
        ),
        (
            workload(**HELD, reclaimablePods=[{"name": "main", "count": 2}]),
            workload(**HELD),
            ["status.reclaimablePods[main] Required value"],
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
def test_update(old: RawWorkload, new: RawWorkload, expected: list[str]) -> None:
    assert paths(new, old) == expected


def test_no_field_of_a_template_may_change() -> None:
    def imaged(image: str) -> RawWorkload:
        one = pod_set()
        one["template"]["spec"]["containers"][0]["image"] = image
        return workload(**HELD, pod_sets=[one])

    assert paths(imaged("a"), imaged("a")) == []
    assert paths(imaged("b"), imaged("a")) == ["spec.podSets[0] Invalid value"]


def test_fewer_pods_only_with_elastic_jobs() -> None:
    rigid = resolve({"ElasticJobsViaWorkloadSlices": False})
    fewer, before = workload(**HELD, pod_sets=[pod_set(count=1)]), workload(**HELD)
    assert paths(fewer, before, rigid) == ["spec.podSets[0] Invalid value"]


def test_the_topology_of_an_admission_may_change() -> None:
    def placed(state: str) -> RawWorkload:
        it = admission()
        it["podSetAssignments"][0]["delayedTopologyRequest"] = state
        return workload(conditions=[RESERVED], admission=it)

    assert paths(placed("Ready"), placed("Pending")) == []
    off = FeatureGates(DEFAULT_GATES.states | {"TopologyAwareScheduling": False})
    assert paths(placed("Ready"), placed("Pending"), off) == ["status.admission Invalid value"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"type": "Not A Type"}, ["type Invalid value"]),
        ({"observedGeneration": -1}, ["observedGeneration Invalid value"]),
        ({"lastTransitionTime": None}, ["lastTransitionTime Required value"]),
        ({"reason": ""}, ["reason Required value"]),
        ({"reason": "two words"}, ["reason Invalid value"]),
        ({"reason": "R" * 1025}, ["reason Too long"]),
        ({"message": "m" * 32769}, ["message Too long"]),
    ],
)
def test_conditions(change: dict[str, Any], expected: list[str]) -> None:
    condition = {**RESERVED, "type": "Other", **change}
    found = paths(workload(conditions=[{**RESERVED, "type": "First"}, condition]))
    assert found == [f"status.conditions[1].{one}" for one in expected]


def test_a_condition_is_there_once() -> None:
    twice = [{**RESERVED, "type": "Other"}] * 2
    assert paths(workload(conditions=twice)) == ["status.conditions[1].type Duplicate value"]


SLICE = "spec.podSets[0].topologyRequest.podSetSliceSize"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}, []),
        ({"podSetSliceRequiredTopology": "rack"}, [f"{SLICE} Required value"]),
        ({"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 0}, [f"{SLICE} Invalid value"]),
        ({"podSetSliceSize": 2}, [f"{SLICE} Forbidden"]),
        (
            {"podsetSliceRequiredTopologyConstraints": [{"topology": "a", "size": 2}, {"topology": "b", "size": 0}]},
            ["spec.podSets[0].topologyRequest.podsetSliceRequiredTopologyConstraints[1].size Invalid value"],
        ),
    ],
)
def test_slices(request_: dict[str, Any], expected: list[str]) -> None:
    made = workload(pod_sets=[pod_set(topologyRequest=request_)])
    assert paths(made) == expected
    assert paths(made, gates=resolve({"TASValidateWorkloadSliceSize": False})) == []


@pytest.mark.parametrize(
    ("boost", "good"),
    [("0", True), ("-5", True), ("+7", True), ("2147483647", True), ("2147483648", False), ("", False), ("x", False)],
)
def test_a_boost_is_an_int32(boost: str, good: bool) -> None:
    made = workload(annotations={"kueue.x-k8s.io/priority-boost": boost})
    expected = [] if good else ["metadata.annotations[kueue.x-k8s.io/priority-boost] Invalid value"]
    assert paths(made, gates=resolve({"PriorityBoost": True})) == expected
    assert paths(made) == []


def test_amounts_that_are_none() -> None:
    at = "spec.podSets[0].template.spec.containers[0].resources"
    made = workload(pod_sets=[pod_set(resources={"requests": {"cpu": "much"}, "limits": {"cpu": "-1"}})])
    assert paths(made) == [f"{at}.requests[cpu] Invalid value", f"{at}.limits[cpu] Invalid value"]
    lenient = resolve({"WorkloadValidateResourcesAreNonNegative": False})
    assert paths(made, gates=lenient) == [f"{at}.requests[cpu] Invalid value"]


def test_templates_are_not_looked_into_without_the_feature() -> None:
    made = workload(pod_sets=[pod_set(meta={"labels": {"@": "x"}, "annotations": {"a/b/c": "x"}})])
    assert paths(made) == [
        f"spec.podSets[0].template.metadata.{kind} Invalid value" for kind in ("labels", "annotations")
    ]
    assert paths(made, gates=resolve({"WorkloadValidationForPodSetMetadata": False})) == []


ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}


@pytest.mark.parametrize(
    ("now", "admitted", "was", "is_", "annotations", "expected"),
    [
        # An entry that is older than the pod set is small may stay, until the pods are told anew.
        (1, 2, 2, 2, ELASTIC, []),
        (1, 2, 2, 3, ELASTIC, ["status.reclaimablePods[main].count Invalid value"]),
        (1, 2, 2, 2, {}, ["status.reclaimablePods[main].count Invalid value"]),
        (1, 2, 1, 0, ELASTIC, []),
        (1, 2, 1, None, ELASTIC, []),
        (2, 2, 1, 0, ELASTIC, ["status.reclaimablePods[main].count Invalid value"]),
        (2, 2, 1, None, ELASTIC, ["status.reclaimablePods[main] Required value"]),
        (1, 2, 1, 0, {}, ["status.reclaimablePods[main].count Invalid value"]),
    ],
)
def test_reclaimable_pods_of_elastic_workloads(
    now: int, admitted: int, was: int, is_: int | None, annotations: dict[str, str], expected: list[str]
) -> None:
    def made(count: int | None) -> RawWorkload:
        reclaimable = [] if count is None else [{"name": "main", "count": count}]
        held = {"conditions": [RESERVED], "admission": admission(count=admitted)}
        return workload(pod_sets=[pod_set(count=now)], annotations=annotations, reclaimablePods=reclaimable, **held)

    assert paths(made(is_), made(was)) == expected


def test_an_elastic_workload_is_all_or_nothing() -> None:
    made = workload(pod_sets=[pod_set(minCount=1)], annotations=ELASTIC)
    assert paths(made) == ["spec.podSets Invalid value"]
    assert paths(made, gates=resolve({"ElasticJobsViaWorkloadSlices": False})) == []
