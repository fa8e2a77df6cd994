from typing import Any

import pytest

from shared.api.meta import ObjectMeta
from shared.config.feature_gates import DEFAULT_GATES, resolve
from shared.jobs.leader_worker_set import LeaderWorkerSet
from shared.jobs.manifest import JsonObject
from shared.jobs.merge_patch import apply
from shared.jobs.protocol import Circumstances
from shared.jobs.queueing_parent import owner_annotations
from tests.unit.jobs.round_trip import requests, template

KIND = LeaderWorkerSet()
K = "kueue.x-k8s.io/"
L = "leaderworkerset.sigs.k8s.io/"
AROUND = Circumstances(gates=DEFAULT_GATES)
QUEUED = {"queue-name": "q", "priority-class": "p"}


def lws(
    replicas: int | None = 2,
    size: int | None = 3,
    *,
    leader: JsonObject | None = None,
    worker: JsonObject | None = None,
    labels: dict[str, str] | None = None,
    status: JsonObject | None = None,
    **spec: Any,
) -> JsonObject:
    groups: JsonObject = {"workerTemplate": worker or template("2")}
    if leader is not None:
        groups["leaderTemplate"] = leader
    if size is not None:
        groups["size"] = size
    if replicas is not None:
        spec["replicas"] = replicas
    metadata = {"name": "lws", "uid": "uid-1", "labels": {K + k: v for k, v in (labels or {}).items()}}
    return {"metadata": metadata, "spec": {"leaderWorkerTemplate": groups, **spec}, "status": status or {}}


MARKS = {K + "pod-suspending-parent": KIND.framework, K + "pod-group-serving": "true"}


def test_pods_of_a_managed_set_are_marked() -> None:
    marked: Any = KIND.marked(lws(labels=QUEUED), DEFAULT_GATES)
    groups = marked["spec"]["leaderWorkerTemplate"]
    labels = {K + "queue-name": "q", K + "priority-class": "p"}
    assert groups["workerTemplate"]["metadata"] == {"labels": labels, "annotations": MARKS}
    assert "leaderTemplate" not in groups
    marked = KIND.marked(lws(leader=template(), labels=QUEUED), DEFAULT_GATES)
    groups = marked["spec"]["leaderWorkerTemplate"]
    assert groups["leaderTemplate"]["metadata"] == {"labels": labels, "annotations": MARKS}
    offset = {K + "pod-index-offset": "1"}
    assert groups["workerTemplate"]["metadata"] == {"labels": labels, "annotations": MARKS | offset}
    assert KIND.marked(marked, DEFAULT_GATES) == marked
    assert not KIND.foreign(marked)


def test_ranks_of_workers_that_share_the_leaders_place_are_told_by_their_group() -> None:
    found = lws(leader=template(), worker=template("2", podset_group_name="g"))
    marked: Any = KIND.marked(found, DEFAULT_GATES)
    assert (
        K + "pod-index-offset"
        not in marked["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]["annotations"]
    )
    without: Any = KIND.marked(lws(leader=template()), {"TopologyAwareScheduling": False})
    assert without["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"] == {"annotations": MARKS}


def test_a_workload_for_each_group() -> None:
    """Acceptance scenario A29."""
    found = KIND.workloads(lws(3))
    assert [workload.index for workload in found] == ["0", "1", "2"]
    assert found[0].name == "leaderworkerset-lws-0-76f84"
    assert len({workload.name for workload in found}) == 3
    assert KIND.workloads(lws(2)) == found[:2]
    assert KIND.workloads(lws(0)) == ()
    assert len(KIND.workloads(lws(None))) == 1
    assert owner_annotations(KIND, lws(), found[1]) == {
        K + "is-group-workload": "true",
        K + "job-owner-gvk": "leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet",
        K + "job-owner-name": "lws",
        K + "component-workload-index": "1",
    }


def test_pods_of_a_group() -> None:
    (main,) = KIND.workloads(lws(1))[0].pod_sets
    assert (main.name, main.count) == ("main", 3)
    assert main.topology_request == {"podIndexLabel": L + "worker-index"}
    leader, worker = KIND.workloads(lws(1, leader=template("1")))[0].pod_sets
    assert (leader.name, leader.count, worker.name, worker.count) == ("leader", 1, "worker", 2)
    assert (requests(leader), requests(worker)) == ([{"cpu": "1"}], [{"cpu": "2"}])
    assert leader.topology_request is None
    assert worker.topology_request == {"podIndexLabel": L + "worker-index"}
    assert KIND.workloads(lws(1, size=None))[0].pod_sets[0].count == 1


def test_what_its_controller_gives_pods_is_not_the_users() -> None:
    both = {L + "name": "lws", L + "group-index": "0", "mine": "1"}
    found = {"metadata": {"labels": both, "annotations": {L + "size": "3"}}, "spec": {"x": 1}}
    (pod_set,) = KIND.workloads(lws(1, worker=found))[0].pod_sets
    assert pod_set.template == {"metadata": {"labels": {L + "name": "lws", "mine": "1"}}, "spec": {"x": 1}}


def surge(by: object) -> JsonObject:
    return {"type": "RollingUpdate", "rollingUpdateConfiguration": {"maxSurge": by}}


@pytest.mark.parametrize(
    ("by", "status", "groups"),
    [
        (2, {"replicas": 4, "updatedReplicas": 1}, 4),
        (2, {"replicas": 1, "updatedReplicas": 0}, 2),
        (2, {"replicas": 4, "updatedReplicas": 2}, 2),
        (0, {"replicas": 4, "updatedReplicas": 1}, 2),
        ("50%", {"replicas": 4, "updatedReplicas": 1}, 2),
    ],
)
def test_a_rollout_that_surges_has_more_groups(by: object, status: JsonObject, groups: int) -> None:
    """Acceptance scenario A30."""
    assert len(KIND.workloads(lws(2, rolloutStrategy=surge(by), status=status))) == groups


def pod(
    index: str = "0", *, worker: bool = False, gated: bool = True, labels: dict[str, str] | None = None
) -> JsonObject:
    found = {L + "name": "lws", **({L + "group-index": index} if index else {}), **(labels or {})}
    annotations = {L + "leader-name": "lws-0"} if worker else {}
    gates = [{"name": K + "admission"}] if gated else []
    return {"metadata": {"labels": found, "annotations": annotations}, "spec": {"schedulingGates": gates}}


@pytest.mark.parametrize(
    ("leader", "worker", "role"),
    [(None, True, "main"), (None, False, "main"), (template(), True, "worker"), (template(), False, "leader")],
)
def test_a_pod_is_made_one_of_its_group(leader: JsonObject | None, worker: bool, role: str) -> None:
    found = lws(leader=leader, labels=QUEUED)
    patch = KIND.pod_patch(found, pod("1", worker=worker), DEFAULT_GATES)
    name = KIND.workloads(found)[1].name
    assert patch == {
        "metadata": {
            "labels": {K + "managed": "true", K + "queue-name": "q"},
            "annotations": {
                K + "pod-group-name": name,
                K + "prebuilt-workload-name": name,
                K + "pod-group-total-count": "3",
                K + "role-hash": role,
            },
        }
    }
    assert KIND.pod_patch(found, apply(pod("1", worker=worker), patch), DEFAULT_GATES) == {}


def test_pods_that_are_not_gated_keep_their_queue() -> None:
    patch: Any = KIND.pod_patch(lws(labels=QUEUED), pod(gated=False), DEFAULT_GATES)
    assert patch["metadata"]["labels"] == {K + "managed": "true"}
    managed = {K + "managed": "true", K + "queue-name": "old"}
    assert KIND.pod_patch(lws(labels=QUEUED), pod(gated=False, labels=managed), DEFAULT_GATES) == {}
    assert KIND.pod_patch(lws(labels=QUEUED), pod(labels=managed), DEFAULT_GATES) == {
        "metadata": {"labels": {K + "queue-name": "q"}}
    }


def test_a_pod_whose_group_is_not_known_yet_waits() -> None:
    assert KIND.pod_patch(lws(labels=QUEUED), pod(""), DEFAULT_GATES) == {}
    gone = apply(pod(), {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert KIND.pod_patch(lws(labels=QUEUED), gone, DEFAULT_GATES) == {}


def test_pods_that_nobody_can_admit_any_more_are_let_go() -> None:
    rolled: JsonObject = {"status": {"currentRevision": "a", "updateRevision": "b"}}
    assert KIND.released(None, rolled, pod())
    assert KIND.released(lws(), None, pod())
    assert KIND.released(lws(), rolled, pod(labels={"controller-revision-hash": "a"}))
    assert not KIND.released(lws(), rolled, pod(labels={"controller-revision-hash": "b"}))
    assert not KIND.released(lws(), {}, pod())


def test_whose_pod_it_is() -> None:
    assert KIND.set_of(ObjectMeta(labels={L + "name": "lws"})) == "lws"
    assert KIND.set_of(ObjectMeta()) == ""
    assert KIND.controls(lws(), ObjectMeta(labels={L + "name": "lws"}))
    assert not KIND.controls(lws(), ObjectMeta(labels={L + "name": "other"}))
    assert not KIND.controls(lws(), ObjectMeta(uid="uid-1"))
    # What is not wanted is deleted, not parked.
    assert (KIND.kept(lws(0)), KIND.sheds) == ((), True)


def errors(new: JsonObject, old: JsonObject | None = None, around: Circumstances = AROUND) -> list[str]:
    return [f"{e.path.replace(K, '')} {e.kind}" for e in KIND.errors(new, old, around)]


AT = "spec.leaderWorkerTemplate"


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        (0, []),
        (1_000_000, []),
        (-1, ["spec.replicas Invalid value"]),
        (1_000_001, ["spec.replicas Invalid value"]),
        (None, []),
    ],
)
def test_replicas(replicas: int | None, expected: list[str]) -> None:
    assert errors(lws(replicas)) == expected


def test_topology_annotations_are_checked() -> None:
    twice = template(podset_required_topology="rack", podset_preferred_topology="rack")
    assert errors(lws(leader=twice, worker=twice)) == [
        f"{AT}.leaderTemplate.metadata.annotations Invalid value",
        f"{AT}.workerTemplate.metadata.annotations Invalid value",
    ]
    sliced = template(podset_slice_required_topology="rack", podset_slice_size="3")
    assert errors(lws(worker=sliced)) == []
    assert errors(lws(leader=template(), worker=sliced)) == [
        f"{AT}.workerTemplate.metadata.annotations[podset-slice-size] Invalid value"
    ]
    together = template(podset_group_name="g", podset_required_topology="rack")
    assert errors(lws(leader=together, worker=together)) == []
    assert len(errors(lws(worker=together))) == 1


def test_changes_of_a_managed_set() -> None:
    old = lws(leader=template())
    assert errors(lws(5, leader=template()), old) == []
    assert errors(lws(), old) == [f"{AT}.leaderTemplate Invalid value"]
    assert errors(old, lws()) == [f"{AT}.leaderTemplate Invalid value"]
    assert errors(lws(leader=template("9")), old) == [
        f"{AT}.leaderTemplate.spec.containers[0].resources.requests Invalid value"
    ]
    assert errors(lws(leader=template(), worker=template("9")), old) == [
        f"{AT}.workerTemplate.spec.containers[0].resources.requests Invalid value"
    ]
    assert errors(lws(size=4, leader=template()), old) == [f"{AT}.size Invalid value"]
    assert errors(lws(size=1), lws(size=None)) == []
    free = Circumstances(gates=resolve({"LWSImmutableGroupSize": False}))
    assert errors(lws(size=4, leader=template()), old, free) == []
    nobodys = Circumstances(gates=DEFAULT_GATES, managed=False)
    assert errors(lws(size=4, worker=template("9")), old, nobodys) == []


def test_labels_are_checked_as_those_of_a_deployment() -> None:
    old = lws(labels={"queue-name": "a"}, status={"readyReplicas": 1})
    assert errors(lws(labels={"queue-name": "b"}), old) == ["metadata.labels[queue-name] Invalid value"]
    assert errors(lws(labels={"queue-name": "_"})) == ["metadata.labels[queue-name] Invalid value"]
