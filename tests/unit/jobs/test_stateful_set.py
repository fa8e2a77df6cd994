from typing import Any

import msgspec
import pytest

from shared.api.meta import ObjectMeta, OwnerReference
from shared.config.feature_gates import DEFAULT_GATES, resolve
from shared.jobs.manifest import JsonObject
from shared.jobs.merge_patch import apply
from shared.jobs.protocol import Circumstances
from shared.jobs.queueing_parent import mirrored, owner_annotations, ungated
from shared.jobs.stateful_set import StatefulSet
from tests.unit.jobs.round_trip import template

KIND = StatefulSet()
K = "kueue.x-k8s.io/"
AROUND = Circumstances(gates=DEFAULT_GATES)
LABELS_FIRST = resolve({"WorkloadIdentifierAnnotations": False})
NAME = "statefulset-sts-d8800"


def stateful_set(
    replicas: int | None = 3,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    template_: JsonObject | None = None,
    status: JsonObject | None = None,
) -> JsonObject:
    spec: JsonObject = {"template": template_ or template()}
    if replicas is not None:
        spec["replicas"] = replicas
    metadata = {
        "name": "sts",
        "uid": "sts-uid",
        "labels": {K + k: v for k, v in (labels or {}).items()},
        "annotations": {K + k: v for k, v in (annotations or {}).items()},
    }
    return {"metadata": metadata, "spec": spec, "status": status or {}}


def test_pods_of_a_managed_set_are_marked() -> None:
    marked: Any = KIND.marked(stateful_set(labels={"queue-name": "q"}), DEFAULT_GATES)
    assert marked["spec"]["template"]["metadata"] == {"annotations": {K + "pod-suspending-parent": "statefulset"}}
    assert not KIND.foreign(marked)
    assert KIND.marked(marked, DEFAULT_GATES) == marked


@pytest.mark.parametrize(("marker", "foreign"), [("statefulset", False), ("leaderworkerset", True), ("", True)])
def test_a_set_that_belongs_to_something_else_is_left_alone(marker: str, foreign: bool) -> None:
    found = stateful_set(template_=template(pod_suspending_parent=marker, podset_required_topology="/"))
    assert KIND.foreign(found) is foreign
    if foreign:
        assert not list(
            KIND.errors(
                stateful_set(labels={"queue-name": "_"}, template_=template(pod_suspending_parent="x")), None, AROUND
            )
        )


def test_one_workload_for_all_pods() -> None:
    (workload,) = KIND.workloads(stateful_set(template_=template(podset_required_topology="rack")))
    assert workload.name == NAME
    assert workload.other_names == (KIND.workloads(apply(stateful_set(), {"metadata": {"uid": ""}}))[0].name,)
    assert workload.other_names != (NAME,)
    (pod_set,) = workload.pod_sets
    assert (pod_set.name, pod_set.count) == ("main", 3)
    assert pod_set.template == {"spec": template()["spec"]}
    assert pod_set.topology_request == {"required": "rack", "podIndexLabel": "apps.kubernetes.io/pod-index"}


def test_replicas() -> None:
    assert KIND.workloads(stateful_set(0)) == ()
    assert KIND.kept(stateful_set(0))[0] == NAME
    assert len(KIND.kept(stateful_set(0))) == 2
    assert KIND.kept(stateful_set(None)) == ()
    assert not KIND.sheds
    assert KIND.workloads(stateful_set(None))[0].pod_sets[0].count == 1


def test_on_a_worker_cluster_the_name_is_made_of_the_originals_uid() -> None:
    copy = stateful_set(labels={"multikueue-origin": "m"}, annotations={"multikueue-origin-uid": "sts-uid"})
    assert KIND.workloads(apply(copy, {"metadata": {"uid": "other"}}))[0].name == NAME
    assert mirrored(copy)
    assert not mirrored(stateful_set())


def test_annotations_of_its_workload() -> None:
    found = stateful_set()
    assert owner_annotations(KIND, found, KIND.workloads(found)[0]) == {
        K + "is-group-workload": "true",
        K + "job-owner-gvk": "apps/v1, Kind=StatefulSet",
        K + "job-owner-name": "sts",
    }


QUEUED = {"queue-name": "q", "priority-class": "p"}


def pod(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **rest: Any) -> JsonObject:
    metadata = {"name": "sts-0", "labels": labels or {}, "annotations": annotations or {}}
    gates = [{"name": K + "admission"}, {"name": "own"}, {"name": K + "topology"}]
    return {"metadata": metadata | rest.pop("metadata", {}), "spec": {"schedulingGates": gates}, **rest}


def test_a_pod_is_made_one_of_the_group() -> None:
    patch = KIND.pod_patch(stateful_set(labels=QUEUED), pod(), DEFAULT_GATES)
    assert patch == {
        "metadata": {
            "labels": {K + "managed": "true", K + "queue-name": "q", K + "priority-class": "p"},
            "annotations": {
                K + "pod-group-name": NAME,
                K + "prebuilt-workload-name": NAME,
                K + "pod-group-total-count": "3",
                K + "pod-group-fast-admission": "true",
                K + "pod-group-serving": "true",
                K + "pod-group-pod-index-label": "apps.kubernetes.io/pod-index",
                K + "role-hash": "main",
            },
        }
    }
    assert KIND.pod_patch(stateful_set(labels=QUEUED), apply(pod(), patch), DEFAULT_GATES) == {}


def test_a_pod_of_the_group_follows_the_queue_only() -> None:
    ours = pod({K + "queue-name": "old"}, {K + "pod-group-name": NAME})
    patch = KIND.pod_patch(stateful_set(7, labels=QUEUED), ours, DEFAULT_GATES)
    assert patch == {"metadata": {"labels": {K + "queue-name": "q"}}}


def test_where_the_name_of_the_group_stands() -> None:
    patch: Any = KIND.pod_patch(stateful_set(labels=QUEUED), pod(), LABELS_FIRST)
    assert patch["metadata"]["labels"][K + "pod-group-name"] == NAME
    assert patch["metadata"]["labels"][K + "prebuilt-workload-name"] == NAME
    assert K + "pod-group-name" not in patch["metadata"]["annotations"]
    ours = apply(pod(), patch)
    assert KIND.pod_patch(stateful_set(labels=QUEUED), ours, LABELS_FIRST) == {}
    # No label may be so long.
    long = apply(stateful_set(labels=QUEUED), {"metadata": {"name": "s" * 60}})
    patch = KIND.pod_patch(long, pod(), LABELS_FIRST)
    assert len(patch["metadata"]["annotations"][K + "pod-group-name"]) > 63


def test_the_workload_of_an_earlier_version_is_used_on() -> None:
    patch: Any = KIND.pod_patch(stateful_set(labels=QUEUED), pod(), DEFAULT_GATES, "statefulset-sts-older")
    assert patch["metadata"]["annotations"][K + "pod-group-name"] == "statefulset-sts-older"


@pytest.mark.parametrize(
    "over",
    [
        {"status": {"phase": "Failed"}},
        {"status": {"phase": "Succeeded"}},
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
    ],
)
def test_a_pod_that_is_over_is_left_alone(over: dict[str, Any]) -> None:
    assert KIND.pod_patch(stateful_set(labels=QUEUED), pod(**over), DEFAULT_GATES) == {}


@pytest.mark.parametrize(
    ("current", "update", "of_pod", "released"),
    [("a", "b", "a", True), ("a", "b", "b", False), ("a", "a", "a", False), ("", "b", "a", False)],
)
def test_a_pod_that_a_rollout_replaces_may_start(current: str, update: str, of_pod: str, released: bool) -> None:
    found = stateful_set(status={"currentRevision": current, "updateRevision": update})
    assert KIND.released(found, found, pod({"controller-revision-hash": of_pod})) is released
    assert not KIND.released(found, None, pod({"controller-revision-hash": of_pod}))


def test_only_our_gates_come_off() -> None:
    assert ungated(pod()) == {"spec": {"schedulingGates": [{"name": "own"}]}}
    assert ungated(apply(pod(), ungated(pod()))) == {}


def test_whose_pod_it_is() -> None:
    owner = OwnerReference(api_version="apps/v1", kind="StatefulSet", name="sts", uid="u", controller=True)
    assert KIND.set_of(ObjectMeta(owner_references=(owner,))) == "sts"
    assert KIND.set_of(ObjectMeta()) == ""
    for other in ({"controller": False}, {"kind": "ReplicaSet"}, {"api_version": "example.com/v1"}):
        assert KIND.set_of(ObjectMeta(owner_references=(msgspec.structs.replace(owner, **other),))) == ""
    assert KIND.controls(stateful_set(), ObjectMeta(uid="sts-uid"))
    assert not KIND.controls(stateful_set(), ObjectMeta(uid="another"))


def errors(new: JsonObject, old: JsonObject | None = None, around: Circumstances = AROUND) -> list[str]:
    return [f"{e.path.replace(K, '')} {e.kind}" for e in KIND.errors(new, old, around)]


REPLICAS = ["spec.replicas Forbidden"]


@pytest.mark.parametrize(
    ("old", "new", "status", "unreleased", "expected"),
    [
        (3, 3, {}, False, []),
        (3, 0, {"replicas": 3}, True, []),
        (0, 3, {}, False, []),
        (None, 0, {}, False, []),
        (3, 2, {}, False, REPLICAS),
        (3, 4, {}, False, REPLICAS),
        (None, 2, {}, False, REPLICAS),
        (0, 3, {"replicas": 1}, False, REPLICAS),
        (0, 3, {}, True, REPLICAS),
    ],
)
def test_replicas_change_from_or_to_none(
    old: int | None, new: int | None, status: JsonObject, unreleased: bool, expected: list[str]
) -> None:
    """Acceptance scenarios A27 and A28."""
    around = Circumstances(gates=DEFAULT_GATES, unreleased=unreleased)
    assert errors(stateful_set(new, status=status), stateful_set(old), around) == expected
    nobodys = Circumstances(gates=DEFAULT_GATES, managed=False, unreleased=unreleased)
    assert errors(stateful_set(new, status=status), stateful_set(old), nobodys) == []


SPEC = "spec.template.spec"


def shaped(**spec: Any) -> JsonObject:
    return stateful_set(template_={"spec": {"containers": [{"name": "c"}], **spec}})


def contained(**container: Any) -> JsonObject:
    return shaped(containers=[{"name": "c", **container}])


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (shaped(), []),
        (shaped(nodeSelector={}), []),
        (shaped(serviceAccountName="x", volumes=[{"name": "v"}]), []),
        (contained(image="new", env=[{"name": "A"}], resources={"limits": {"cpu": "1"}}), []),
        (contained(resources={"requests": {"cpu": "1"}}), [f"{SPEC}.containers[0].resources.requests Invalid value"]),
        (contained(ports=[{"containerPort": 1}]), [f"{SPEC}.containers[0].ports Invalid value"]),
        (shaped(containers=[{"name": "c"}, {"name": "d"}]), [f"{SPEC}.containers Invalid value"]),
        (shaped(initContainers=[{"name": "i"}]), [f"{SPEC}.initContainers Invalid value"]),
        (shaped(resources={"requests": {"cpu": "1"}}), [f"{SPEC}.resources.requests Invalid value"]),
        *(
            (shaped(**{key: value}), [f"{SPEC}.{key} Invalid value"])
            for key, value in {
                "affinity": {"nodeAffinity": {}},
                "nodeSelector": {"a": "b"},
                "overhead": {"cpu": "1"},
                "priority": 1,
                "resourceClaims": [{"name": "c"}],
                "runtimeClassName": "r",
                "tolerations": [{"key": "t"}],
                "topologySpreadConstraints": [{"maxSkew": 1}],
            }.items()
        ),
    ],
)
def test_what_makes_the_role_of_its_pods_does_not_change(changed: JsonObject, expected: list[str]) -> None:
    assert errors(changed, shaped()) == expected
    assert errors(changed, shaped(), Circumstances(gates=DEFAULT_GATES, managed=False)) == []
    assert errors(changed) == []


def test_labels_are_checked_as_those_of_a_deployment() -> None:
    old = stateful_set(labels={"queue-name": "a"}, status={"readyReplicas": 1})
    assert errors(stateful_set(labels={"queue-name": "b"}), old) == ["metadata.labels[queue-name] Invalid value"]
