from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config.feature_gates import DEFAULT_GATES
from shared.jobs.manifest import JsonObject
from shared.jobs.merge_patch import apply
from shared.jobs.podset_info import PermanentError, PodSetInfo
from shared.jobs.protocol import Circumstances
from shared.jobs.ray_cluster import RayCluster
from tests.unit.jobs.round_trip import INFO_LISTS, TEMPLATES, assert_round_trip, requests, shape, template

KIND = RayCluster()
AROUND = Circumstances(gates=DEFAULT_GATES, manage_all=True)
ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}
GATE = {"name": "kueue.x-k8s.io/elastic-job"}


def group(name: str, template_: JsonObject | None = None, **rest: Any) -> JsonObject:
    return {"groupName": name, "template": template_ or template(), **rest}


def cluster(
    *groups: JsonObject,
    head: JsonObject | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    status: JsonObject | None = None,
    **spec: Any,
) -> JsonObject:
    return {
        "metadata": {"name": "r", "generation": 3, "annotations": annotations or {}, "labels": labels or {}},
        "spec": {
            "suspend": True,
            "headGroupSpec": {"template": template() if head is None else head, "rayStartParams": {}},
            "workerGroupSpecs": list(groups),
            **spec,
        },
        "status": status or {},
    }


@pytest.mark.parametrize(
    ("worker", "count"),
    [
        (group("g"), 1),
        (group("g", replicas=3), 3),
        (group("g", replicas=0), 0),
        (group("g", replicas=3, numOfHosts=4), 12),
        (group("g", replicas=3, numOfHosts=1), 3),
        (group("g", numOfHosts=2), 2),
        (group("g", replicas=2, numOfHosts=0), 2),
    ],
)
def test_workers(worker: JsonObject, count: int) -> None:
    assert shape(KIND, cluster(worker)) == [("head", 1), ("g", count)]


def test_the_head_is_first_and_groups_have_their_order() -> None:
    found = cluster(group("Small", template("2")), group("large", template("4")))
    assert shape(KIND, found) == [("head", 1), ("small", 1), ("large", 1)]
    assert [requests(pod_set) for pod_set in KIND.pod_sets(found)] == [[{"cpu": c}] for c in ("1", "2", "4")]
    assert all(pod_set.topology_request is None for pod_set in KIND.pod_sets(found))


FAULT_TOLERANT: list[dict[str, Any]] = [
    {"annotations": {"ray.io/ft-enabled": "true"}},
    {"annotations": {"ray.io/ft-enabled": "TRUE"}},
    {"gcsFaultToleranceOptions": {}},
]


@pytest.mark.parametrize("how", FAULT_TOLERANT)
@pytest.mark.parametrize(
    ("asked", "counted"),
    [
        ({}, {"cpu": "200m", "memory": "256Mi"}),
        ({"cpu": "100m", "memory": "1Gi"}, {"cpu": "200m", "memory": "1Gi"}),
        ({"cpu": "0.2", "memory": "255Mi"}, {"cpu": "0.2", "memory": "256Mi"}),
        ({"cpu": 2, "gpu": 1}, {"cpu": 2, "gpu": 1, "memory": "256Mi"}),
    ],
)
def test_a_fault_tolerant_head_asks_for_at_least_so_much(
    how: dict[str, Any], asked: JsonObject, counted: JsonObject
) -> None:
    head: JsonObject = {"spec": {"containers": [{"name": "h", "resources": {"requests": asked}}, {"name": "other"}]}}
    head_set, _ = KIND.pod_sets(cluster(group("g"), head=head, **how))
    assert requests(head_set) == [counted, None]


def test_a_head_that_is_not_fault_tolerant_asks_for_what_it_says() -> None:
    found = cluster(annotations={"ray.io/ft-enabled": "false"})
    assert requests(KIND.pod_sets(found)[0]) == [{"cpu": "1"}]


def test_a_fault_tolerant_head_has_a_container() -> None:
    with pytest.raises(PermanentError, match="no container"):
        KIND.pod_sets(cluster(head={"spec": {}}, gcsFaultToleranceOptions={"redisAddress": "r"}))


def test_a_cluster_that_scales_itself_has_a_container_more() -> None:
    usual = {"cpu": "500m", "memory": "512Mi"}
    spec: Any = KIND.pod_sets(cluster(enableInTreeAutoscaling=True))[0].template["spec"]
    assert spec["containers"][1] == {"name": "autoscaler", "resources": {"requests": usual, "limits": usual}}
    own = {"requests": {"cpu": "1"}}
    spec = KIND.pod_sets(cluster(enableInTreeAutoscaling=True, autoscalerOptions={"resources": own}))[0].template[
        "spec"
    ]
    assert spec["containers"][1] == {"name": "autoscaler", "resources": own}
    assert len(requests(KIND.pod_sets(cluster(enableInTreeAutoscaling=False))[0])) == 1


def test_start_injects_the_head_first_and_writes_no_containers_of_its_own() -> None:
    found = cluster(group("g"), enableInTreeAutoscaling=True)
    infos = (PodSetInfo(name="head", node_selector={"n": "h"}), PodSetInfo(name="g", node_selector={"n": "w"}))
    patch: Any = KIND.start(found, infos)
    assert patch["spec"]["headGroupSpec"] == {"template": {"spec": {"nodeSelector": {"n": "h"}}}}
    assert patch["spec"]["workerGroupSpecs"][0]["template"]["spec"]["nodeSelector"] == {"n": "w"}
    assert patch["spec"]["suspend"] is False


CLUSTERS = st.builds(
    lambda head, workers, extra: cluster(*(group(f"g{i}", w) for i, w in enumerate(workers)), head=head, **extra),
    TEMPLATES,
    st.lists(TEMPLATES, max_size=3),
    st.fixed_dictionaries(
        {},
        optional={
            "enableInTreeAutoscaling": st.booleans(),
            "gcsFaultToleranceOptions": st.just({}),
            "annotations": st.just({"ray.io/ft-enabled": "True"}),
        },
    ),
)


@given(CLUSTERS, INFO_LISTS)
def test_a_stop_leaves_nothing_of_a_start(found: JsonObject, infos: list[PodSetInfo]) -> None:
    assert_round_trip(KIND, found, infos)


@pytest.mark.parametrize(
    ("state", "active", "held"), [("", False, None), ("ready", True, False), ("suspended", False, True)]
)
def test_status(state: str, active: bool, held: bool | None) -> None:
    found = cluster(status={"state": state} if state else {})
    assert KIND.active(found) is active
    assert KIND.pods_ready(found) is active
    assert KIND.held(found) is held
    assert KIND.finished(found) is None


def test_pods_of_an_elastic_cluster_are_gated() -> None:
    found = cluster(group("g"), head={"spec": {"schedulingGates": [{"name": "own"}]}}, annotations=ELASTIC)
    prepared = KIND.prepared(found, DEFAULT_GATES)
    assert [
        pod_set.template["spec"]["schedulingGates"]  # type: ignore[index]
        for pod_set in KIND.pod_sets(prepared)
    ] == [[{"name": "own"}, GATE], [GATE]]
    assert KIND.prepared(prepared, DEFAULT_GATES) == prepared
    assert KIND.prepared(found, {"ElasticJobsViaWorkloadSlices": False}) == found
    assert KIND.prepared(cluster(group("g")), DEFAULT_GATES) == cluster(group("g"))
    assert not list(KIND.errors(prepared, None, AROUND))


def test_slices_of_a_cluster_are_told_apart_by_its_generation() -> None:
    assert KIND.slice_part(cluster()) == "3"
    assert KIND.slice_part({"metadata": {}}) == "0"
    assert KIND.own_annotations(cluster(annotations=ELASTIC)) == {}
    assert KIND.refers_to(cluster(annotations=ELASTIC)) == ()


def errors(found: JsonObject, around: Circumstances = AROUND) -> list[str]:
    return [f"{e.path} {e.kind}".replace("kueue.x-k8s.io/", "") for e in KIND.errors(found, None, around)]


def test_a_cluster_that_scales_itself_must_be_elastic() -> None:
    """Acceptance scenario A32."""
    assert errors(cluster(enableInTreeAutoscaling=True)) == ["spec.enableInTreeAutoscaling Invalid value"]
    elastic = KIND.prepared(cluster(enableInTreeAutoscaling=True, annotations=ELASTIC), DEFAULT_GATES)
    assert errors(elastic) == []
    elsewhere = apply(elastic, {"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}})
    assert errors(elsewhere) == ["spec.enableInTreeAutoscaling Forbidden"]


def test_pods_of_an_elastic_cluster_must_be_gated() -> None:
    assert errors(cluster(group("g"), annotations=ELASTIC)) == [
        "spec.headGroupSpec.template.spec.schedulingGates Invalid value",
        "spec.workerGroupSpecs[0].template.spec.schedulingGates Invalid value",
    ]


@pytest.mark.parametrize(("groups", "expected"), [(17, []), (18, ["spec.workerGroupSpecs Too many"])])
def test_groups_are_counted(groups: int, expected: list[str]) -> None:
    assert errors(cluster(*(group(f"g{i}") for i in range(groups)))) == expected


def test_no_group_is_called_head() -> None:
    assert errors(cluster(group("a"), group("head"))) == ["spec.workerGroupSpecs[1].groupName Forbidden"]


def test_a_cluster_that_is_not_managed_may_do_what_it_likes() -> None:
    found = cluster(group("head"), enableInTreeAutoscaling=True)
    nobodys = Circumstances(gates=DEFAULT_GATES)
    assert errors(found, nobodys) == []
    queued = apply(found, {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}})
    assert len(errors(queued, nobodys)) == 2


def test_topology_annotations_are_checked_in_each_template() -> None:
    twice = template(podset_required_topology="rack", podset_preferred_topology="rack")
    assert errors(cluster(group("g", twice), head=twice)) == [
        "spec.headGroupSpec.template.metadata.annotations Invalid value",
        "spec.workerGroupSpecs[0].template.metadata.annotations Invalid value",
    ]
    together = template(podset_group_name="g", podset_required_topology="rack")
    assert errors(cluster(group("g", together, replicas=4), head=together)) == []
    assert len(errors(cluster(group("g", together)))) == 1
