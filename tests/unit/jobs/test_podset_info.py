import pytest

from shared.api.pods import Toleration
from shared.jobs.manifest import JsonObject
from shared.jobs.podset_info import (
    Assigned,
    FlavorNodes,
    MergeConflict,
    MissingFlavor,
    PodSetInfo,
    Start,
    infos_of,
    merged,
    merged_template,
    restored_template,
)

SPOT = Toleration(key="spot", operator="Exists")


def start(**changes: object) -> Start:
    values: dict[str, object] = {
        "workload": "job-a-12345",
        "queue": "main",
        "cluster_queue": "cq",
        "assigned": (Assigned(name="main", count=3, flavors=("spot",)),),
    }
    return Start(**(values | changes))  # type: ignore[arg-type]


FLAVORS = {"spot": FlavorNodes({"type": "spot"}, (SPOT,)), "zone": FlavorNodes({"zone": "a", "type": "z"})}


def test_info_of_an_admitted_pod_set() -> None:
    (info,) = infos_of(start(), FLAVORS)
    assert info == PodSetInfo(
        name="main",
        count=3,
        labels={
            "kueue.x-k8s.io/podset": "main",
            "kueue.x-k8s.io/local-queue-name": "main",
            "kueue.x-k8s.io/cluster-queue-name": "cq",
        },
        annotations={"kueue.x-k8s.io/workload": "job-a-12345"},
        node_selector={"type": "spot"},
        tolerations=(SPOT,),
    )


def test_several_flavors_are_united_and_the_later_wins() -> None:
    (info,) = infos_of(start(assigned=(Assigned(name="main", count=1, flavors=("spot", "zone")),)), FLAVORS)
    assert info.node_selector == {"type": "z", "zone": "a"}
    assert info.tolerations == (SPOT,)


def test_a_queue_name_that_is_no_label_is_left_out() -> None:
    (info,) = infos_of(start(cluster_queue="a.b"), FLAVORS)
    assert "kueue.x-k8s.io/cluster-queue-name" not in info.labels
    (info,) = infos_of(start(cluster_queue="c" * 64), FLAVORS)
    assert "kueue.x-k8s.io/cluster-queue-name" not in info.labels


def test_missing_flavor() -> None:
    with pytest.raises(MissingFlavor, match="spot"):
        infos_of(start(), {})


def test_topology_gates_the_pods() -> None:
    assigned = (Assigned(name="main", count=1, flavors=(), has_topology=True),)
    (info,) = infos_of(start(assigned=assigned), {})
    assert info.scheduling_gates == ("kueue.x-k8s.io/topology",)
    assert info.annotations["kueue.x-k8s.io/podset-unconstrained-topology"] == "true"
    assigned = (Assigned(name="main", count=1, flavors=(), has_topology=True, asks_topology=True),)
    (info,) = infos_of(start(assigned=assigned), {})
    assert "kueue.x-k8s.io/podset-unconstrained-topology" not in info.annotations


def test_check_updates_are_merged_by_pod_set() -> None:
    updates = (
        (PodSetInfo(name="other", labels={"x": "1"}), PodSetInfo(name="main", annotations={"pr": "a"})),
        (PodSetInfo(name="main", node_selector={"pool": "p"}, tolerations=(SPOT,)),),
    )
    (info,) = infos_of(start(updates=updates), FLAVORS)
    assert info.annotations["pr"] == "a"
    assert "x" not in info.labels
    assert info.node_selector == {"type": "spot", "pool": "p"}
    assert info.tolerations == (SPOT,)


def test_a_check_update_that_contradicts_is_a_permanent_error() -> None:
    with pytest.raises(MergeConflict, match="invalid admission check PodSetUpdate: conflict for nodeSelector"):
        infos_of(start(updates=((PodSetInfo(name="main", node_selector={"type": "other"}),),)), FLAVORS)


@pytest.mark.parametrize("field", ["annotations", "labels", "node_selector"])
def test_the_same_value_is_no_conflict(field: str) -> None:
    info = PodSetInfo(name="main", **{field: {"k": "v"}})  # type: ignore[arg-type]
    assert getattr(merged(info, info), field) == {"k": "v"}
    with pytest.raises(MergeConflict):
        merged(info, PodSetInfo(name="main", **{field: {"k": "w"}}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Toleration(key="a", value="1"), Toleration(key="a", operator="Equal", value="1"), True),
        (Toleration(key="a", operator="Exists"), Toleration(key="a", operator="Exists", toleration_seconds=5), True),
        (Toleration(key="a", operator="Exists"), Toleration(key="a"), False),
        (Toleration(key="a", effect="NoSchedule"), Toleration(key="a"), False),
    ],
)
def test_tolerations_are_appended_unless_present(one: Toleration, other: Toleration, same: bool) -> None:
    result = merged(PodSetInfo(name="m", tolerations=(one,)), PodSetInfo(name="m", tolerations=(other,)))
    assert result.tolerations == ((one,) if same else (one, other))


TEMPLATE: JsonObject = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {
        "containers": [{"name": "c", "unknown": {"deep": [1]}}],
        "tolerations": [{"key": "mine", "operator": "Exists", "tolerationSeconds": 3}],
        "schedulingGates": [{"name": "own"}],
    },
}


def test_a_template_keeps_everything_it_had() -> None:
    info = PodSetInfo(
        name="main", labels={"l": "1"}, node_selector={"n": "1"}, tolerations=(SPOT,), scheduling_gates=("g", "own")
    )
    assert merged_template(TEMPLATE, info) == {
        "metadata": {"labels": {"app": "x", "l": "1"}},
        "spec": {
            "containers": [{"name": "c", "unknown": {"deep": [1]}}],
            "nodeSelector": {"n": "1"},
            "tolerations": [
                {"key": "mine", "operator": "Exists", "tolerationSeconds": 3},
                {"key": "spot", "operator": "Exists"},
            ],
            "schedulingGates": [{"name": "own"}, {"name": "g"}],
        },
    }


def test_an_info_without_content_changes_nothing() -> None:
    assert merged_template(TEMPLATE, PodSetInfo(name="main")) == TEMPLATE
    assert merged_template({}, PodSetInfo(name="main")) == {}


def test_a_template_with_another_value_cannot_start() -> None:
    with pytest.raises(MergeConflict, match="conflict for labels: conflict for key=app, value1=x, value2=y"):
        merged_template(TEMPLATE, PodSetInfo(name="main", labels={"app": "y"}))


def test_restore_removes_what_was_added_since() -> None:
    info = PodSetInfo(
        name="main",
        labels={"l": "1"},
        annotations={"a": "1"},
        node_selector={"n": "1"},
        tolerations=(SPOT,),
        scheduling_gates=("g",),
    )
    started = merged_template(TEMPLATE, info)
    assert restored_template(started, TEMPLATE) == {**TEMPLATE, "metadata": {"labels": {"app": "x"}}}


def test_surviving_labels_stay_as_they_are() -> None:
    now: JsonObject = {"metadata": {"labels": {"uid": "1", "extra": "2"}}}
    assert restored_template(now, {}, ("uid", "absent")) == {"metadata": {"labels": {"uid": "1"}}}
