"""StatefulSets and LeaderWorkerSets, whose pods queue in groups: from their first pod to none, without a real cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from services.watcher.managed_jobs import JobSettings
from shared.jobs.naming import workload_name
from tests.unit.watcher.manifests import metadata, template, workload
from tests.unit.watcher.world import World, running

K = "kueue.x-k8s.io/"
L = "leaderworkerset.sigs.k8s.io/"
LWS = "leaderworkerset.x-k8s.io/leaderworkerset"
SETTINGS = JobSettings(
    frameworks=("pod",), serving=("statefulset", LWS), only_pods_of_parents=True, label_keys_to_copy=("team",)
)
NAME = workload_name(kind="StatefulSet", group="apps", name="s", uid="uid-s")
GATED = [{"name": K + "admission"}, {"name": K + "topology"}]
GONE = "2026-01-02T03:04:06Z"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running(SETTINGS) as found:
        yield found


def stateful_set(replicas: int = 2, name: str = "s", **meta: Any) -> dict[str, Any]:
    """As the webhook leaves it."""
    labels = {K + "queue-name": "lq", **meta.pop("labels", {})}
    marked = template()
    marked["metadata"]["annotations"] = {K + "pod-suspending-parent": "statefulset"}
    found = metadata(name, namespace="team", labels=labels, **meta)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": found,
        "spec": {"replicas": replicas, "template": marked},
        "status": {},
    }


def pod_of_set(name: str, of: str = "s", *, parent: str = "statefulset", **meta: Any) -> dict[str, Any]:
    """Gated, and nothing else."""
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": of, "uid": f"uid-{of}", "controller": True}
    annotations = {K + "pod-suspending-parent": parent, K + "role-hash": "0a0a0a0a"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(name, namespace="team", annotations=annotations, ownerReferences=[owner], **meta),
        "spec": {**template()["spec"], "schedulingGates": list(GATED)},
        "status": {"phase": "Pending"},
    }


async def made(world: World, *pods: str, **changes: Any) -> None:
    world.load("statefulset", stateful_set(**changes))
    for name in pods:
        world.load("unmarkedpod", pod_of_set(name))
    await settled(world)


async def settled(world: World) -> None:
    """The watch of marked pods has brought those that were marked, and that of the others has lost them."""
    await world.settled()
    for (plural, namespace, name), found in list(world.api.objects.items()):
        if plural == "pods" and K + "managed" in found["metadata"].get("labels", {}):
            world.store.remove("unmarkedpod", namespace, name, version=world.api.version)
            world.deliver("pod", name)
    await world.settled()


def pod(world: World, name: str) -> dict[str, Any]:
    return world.api.one("pods", name)


def gated(world: World) -> list[str]:
    return sorted(p["metadata"]["name"] for p in world.api.objects_of("pods") if p["spec"].get("schedulingGates"))


async def phases(world: World, to: str, *names: str) -> None:
    for name in names:
        world.edit("pod", name, lambda found: found["status"].update(phase=to))
    await world.settled()


async def removed(world: World, *names: str) -> None:
    for name in names:
        del world.api.objects["pods", "team", name]
        world.deliver("pod", name)
    await world.settled()


async def scaled(world: World, replicas: int) -> None:
    world.edit("statefulset", "s", lambda found: found["spec"].update(replicas=replicas))
    await settled(world)


async def test_the_workload_of_a_set_is_there_before_its_pods(world: World) -> None:
    await made(world, annotations={"provreq.kueue.x-k8s.io/x": "1"}, labels={"team": "blue"})
    found = world.workload(NAME)
    assert found["metadata"]["annotations"] == {
        K + "is-group-workload": "true",
        K + "job-owner-gvk": "apps/v1, Kind=StatefulSet",
        K + "job-owner-name": "s",
        "provreq.kueue.x-k8s.io/x": "1",
    }
    # No labels are copied to that of a StatefulSet.
    assert found["metadata"]["labels"] == {K + "job-uid": "uid-s"}
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "uid-s"}
    assert found["metadata"]["ownerReferences"] == [owner]
    assert [(p["name"], p["count"]) for p in found["spec"]["podSets"]] == [("main", 2)]
    assert found["spec"]["queueName"] == "lq"
    assert world.reasons("s") == ["CreatedWorkload"]


async def test_a_pod_is_marked_with_one_write_and_started_with_another(world: World) -> None:
    await made(world, "s-0")
    found = pod(world, "s-0")
    assert found["metadata"]["labels"] == {K + "managed": "true", K + "queue-name": "lq"}
    annotations = found["metadata"]["annotations"]
    assert (annotations[K + "pod-group-name"], annotations[K + "prebuilt-workload-name"]) == (NAME, NAME)
    assert (annotations[K + "role-hash"], annotations[K + "pod-group-total-count"]) == ("main", "2")
    assert "finalizers" not in found["metadata"]
    # One pod is enough: the others of an ordered set come after it.
    await world.decide(world.admit(NAME, count=2))
    assert gated(world) == []
    assert pod(world, "s-0")["spec"]["nodeSelector"] == {"pool": "a"}
    world.load("unmarkedpod", pod_of_set("s-1"))
    await settled(world)
    assert gated(world) == []
    assert [c.name for c in world.api.calls if c.plural == "pods"] == ["s-0", "s-0", "s-1", "s-1"]
    owners = [o["name"] for o in world.workload(NAME)["metadata"]["ownerReferences"]]
    assert owners == ["s", "s-0", "s-1"]


async def test_more_pods_than_the_workload_has_stay_gated(world: World) -> None:
    await made(world, "s-0", "s-1", "s-2")
    await world.decide(world.admit(NAME, count=2))
    assert gated(world) == ["s-2"]
    await removed(world, "s-0")
    assert gated(world) == []


async def test_a_set_of_somebody_else_is_left_alone(world: World) -> None:
    foreign = stateful_set()
    foreign["spec"]["template"]["metadata"]["annotations"][K + "pod-suspending-parent"] = LWS
    world.load("statefulset", foreign)
    nobodys = stateful_set(name="t")
    del nobodys["metadata"]["labels"][K + "queue-name"]
    world.load("statefulset", nobodys)
    world.load("unmarkedpod", pod_of_set("t-0", "t"))
    await settled(world)
    assert world.api.calls == []


async def test_scaled_to_zero_it_keeps_its_place_without_quota(world: World) -> None:
    """Acceptance scenario A27."""
    await made(world, "s-0", "s-1")
    await world.decide(world.admit(NAME, count=2))
    await phases(world, "Running", "s-0", "s-1")
    await scaled(world, 0)
    # Quota that is in use is not given to anybody else.
    assert world.condition("QuotaReserved", NAME) == ("True", "QuotaReserved")
    await removed(world, "s-0", "s-1")
    assert world.condition("QuotaReserved", NAME) == ("False", "OnHold")
    assert world.condition("Admitted", NAME) == ("False", "NoReservation")
    await scaled(world, 2)
    assert world.condition("QuotaReserved", NAME) == ("False", "PendingEvaluation")
    assert len(world.api.created("workloads")) == 1


async def test_a_pending_one_that_is_admitted_too_late_gives_it_back(world: World) -> None:
    await made(world)
    await scaled(world, 0)
    assert world.condition("QuotaReserved", NAME) is None
    await world.decide(world.admit(NAME, count=2))
    assert world.condition("QuotaReserved", NAME) == ("False", "OnHold")


async def test_scaled_up_to_another_number_its_workload_does_not_fit(world: World) -> None:
    """Trap 21 of the specification: pod sets are told once."""
    await made(world)
    await scaled(world, 0)
    await scaled(world, 3)
    world.load("unmarkedpod", pod_of_set("s-0"))
    await world.settled()
    world.deliver("pod", "s-0")
    await world.until(lambda: world.condition("Finished", NAME) == ("True", "OutOfSync"))
    assert gated(world) == ["s-0"]


async def test_evicted_its_pods_are_deleted_and_queue_again(world: World) -> None:
    await made(world, "s-0", "s-1")
    await world.decide(world.admit(NAME, count=2))
    await phases(world, "Running", "s-0", "s-1")
    await world.append(world.preempt(NAME))
    await world.until(lambda: not world.api.objects_of("pods"))
    assert world.condition("QuotaReserved", NAME) == ("True", "QuotaReserved")
    world.deliver("pod", "s-0")
    world.deliver("pod", "s-1")
    await world.settled()
    # Nobody saw them stopped before they were gone.
    assert world.condition("QuotaReserved", NAME) == ("False", "PendingEvaluation")
    assert world.condition("Requeued", NAME) == ("True", "Preempted")
    world.load("unmarkedpod", pod_of_set("s-0"))
    await settled(world)
    assert gated(world) == ["s-0"]
    await world.decide(world.admit(NAME, count=2))
    assert gated(world) == []


async def test_it_follows_its_queue_its_priority_and_its_gates(world: World) -> None:
    priority = {"metadata": metadata("high"), "value": 9}
    world.load("workloadpriorityclass", priority)
    await made(world, "s-0")
    labels = {K + "queue-name": "other", K + "priority-class": "high"}
    world.edit("statefulset", "s", lambda found: found["metadata"].update(labels=labels))
    world.edit(
        "statefulset", "s", lambda found: found["metadata"].update(annotations={K + "admission-gated-by": "a.com/b"})
    )
    await settled(world)
    found = world.workload(NAME)
    assert (found["spec"]["queueName"], found["spec"]["priority"]) == ("other", 9)
    assert found["spec"]["priorityClassRef"]["name"] == "high"
    assert found["metadata"]["annotations"][K + "admission-gated-by"] == "a.com/b"
    assert pod(world, "s-0")["metadata"]["labels"][K + "queue-name"] == "other"
    assert "UpdatedWorkload" in world.reasons("s")
    world.edit("statefulset", "s", lambda found: found["metadata"].update(annotations={}))
    await settled(world)
    assert K + "admission-gated-by" not in world.workload(NAME)["metadata"]["annotations"]


async def test_without_its_priority_class_it_has_no_workload_and_its_pods_are_marked_all_the_same(world: World) -> None:
    world.load("statefulset", stateful_set(labels={K + "priority-class": "none"}))
    world.load("unmarkedpod", pod_of_set("s-0"))
    await world.until(lambda: "WorkloadPriorityClassNotFound" in world.reasons("s"))
    await world.until(lambda: K + "managed" in pod(world, "s-0")["metadata"].get("labels", {}))
    assert world.api.created("workloads") == []
    world.load("workloadpriorityclass", {"metadata": metadata("none"), "value": 1})
    await settled(world)
    assert world.workload(NAME)["spec"]["priority"] == 1


async def test_the_workload_of_an_earlier_version_is_used_on(world: World) -> None:
    older = workload_name(kind="StatefulSet", group="apps", name="s", uid="")
    world.load("workload", workload(older, meta={"annotations": {K + "is-group-workload": "true"}}))
    await made(world, "s-0")
    assert world.api.created("workloads") == []
    assert pod(world, "s-0")["metadata"]["annotations"][K + "pod-group-name"] == older
    assert [o["name"] for o in world.workload(older)["metadata"]["ownerReferences"]] == ["s", "s-0"]
    assert world.workload(older)["metadata"]["annotations"][K + "job-owner-name"] == "s"


async def test_a_workload_that_is_deleted_is_made_anew(world: World) -> None:
    await made(world, "s-0")
    world.edit("workload", NAME, lambda found: found["metadata"].update(deletionTimestamp=GONE))
    await world.settled()
    assert ("pods", "team", "s-0") not in world.api.objects
    world.deliver("workload", NAME)
    await world.settled()
    assert len(world.api.created("workloads")) == 2


async def test_a_pod_that_a_rollout_replaces_may_start(world: World) -> None:
    await made(world)
    world.edit("statefulset", "s", lambda found: found.update(status={"currentRevision": "a", "updateRevision": "b"}))
    for name, revision in (("s-0", "b"), ("s-1", "a")):
        world.load("unmarkedpod", pod_of_set(name, labels={"controller-revision-hash": revision}))
    await settled(world)
    assert gated(world) == ["s-0"]


async def test_a_copy_on_a_worker_cluster_makes_no_workload(world: World) -> None:
    world.load("statefulset", stateful_set(labels={K + "multikueue-origin": "m"}))
    world.load("unmarkedpod", pod_of_set("s-0"))
    await world.until(lambda: K + "managed" in pod(world, "s-0")["metadata"].get("labels", {}))
    assert world.api.created("workloads") == []
    assert pod(world, "s-0")["metadata"]["annotations"][K + "prebuilt-workload-name"] == NAME


async def test_a_workload_without_pods_goes_when_it_is_deleted(world: World) -> None:
    await made(world)
    del world.api.objects["statefulsets", "team", "s"]
    world.deliver("statefulset", "s")
    world.edit("workload", NAME, lambda found: found["metadata"].update(deletionTimestamp=GONE))
    await world.settled()
    assert ("workloads", "team", NAME) not in world.api.objects


def lws(replicas: int = 2, *, leader: bool = True, **meta: Any) -> dict[str, Any]:
    labels = {K + "queue-name": "lq", **meta.pop("labels", {})}
    groups = {"size": 3, "workerTemplate": template("2"), **({"leaderTemplate": template()} if leader else {})}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": metadata("l", namespace="team", labels=labels, **meta),
        "spec": {"replicas": replicas, "leaderWorkerTemplate": groups},
        "status": {},
    }


TOKEN = "leaderworkerset.leaderworkerset.x-k8s.io"


def name_of(index: int) -> str:
    return workload_name(kind="LeaderWorkerSet", group="leaderworkerset.x-k8s.io", name=f"l-{index}", uid="uid-l")


def part(name: str, index: int | None = 0, *, worker: bool = False) -> dict[str, Any]:
    """A pod of a group."""
    of = "l-0" if worker else "l"
    labels = {L + "name": "l", K + "queue-name": "lq"}
    if index is not None:
        labels[L + "group-index"] = str(index)
    found = pod_of_set(name, of, parent=LWS, labels=labels)
    found["metadata"]["annotations"] |= {
        K + "pod-group-serving": "true",
        **({L + "leader-name": "x"} if worker else {}),
    }
    return found


async def groups(world: World, **changes: Any) -> None:
    for name in ("l", "l-0"):
        made_by_it = stateful_set(name=name, labels={L + "name": "l"})
        made_by_it["spec"]["template"]["metadata"]["annotations"][K + "pod-suspending-parent"] = LWS
        world.load("statefulset", made_by_it)
    world.load(TOKEN, lws(**changes))
    await settled(world)


async def test_a_workload_for_each_group(world: World) -> None:
    await groups(world, labels={"team": "blue"})
    assert len(world.api.created("workloads")) == 2
    found = world.workload(name_of(1))
    assert found["metadata"]["annotations"][K + "component-workload-index"] == "1"
    assert found["metadata"]["labels"] == {"team": "blue", K + "job-uid": "uid-l"}
    assert [(p["name"], p["count"]) for p in found["spec"]["podSets"]] == [("leader", 1), ("worker", 2)]
    assert found["metadata"]["ownerReferences"] == [
        {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "l", "uid": "uid-l"}
    ]


async def test_pods_of_a_group_start_as_they_come(world: World) -> None:
    await groups(world)
    world.load("unmarkedpod", part("l-0"))
    await settled(world)
    decision = world.admit(name_of(0))
    (one,) = decision.pod_sets
    sets = tuple(msgspec.structs.replace(one, name=n, count=c) for n, c in (("leader", 1), ("worker", 2)))
    await world.decide(msgspec.structs.replace(decision, pod_sets=sets))
    assert gated(world) == []
    assert pod(world, "l-0")["metadata"]["annotations"][K + "role-hash"] == "leader"
    world.load("unmarkedpod", part("l-0-1", worker=True))
    world.load("unmarkedpod", part("l-1", 1))
    await settled(world)
    assert gated(world) == ["l-1"]
    assert pod(world, "l-0-1")["metadata"]["annotations"][K + "role-hash"] == "worker"
    assert pod(world, "l-1")["metadata"]["annotations"][K + "pod-group-name"] == name_of(1)


async def test_a_pod_waits_until_its_group_is_known(world: World) -> None:
    await groups(world)
    world.load("unmarkedpod", part("l-0", None))
    await settled(world)
    assert K + "managed" not in pod(world, "l-0")["metadata"]["labels"]
    world.load("unmarkedpod", part("l-0"))
    await settled(world)
    assert K + "managed" in pod(world, "l-0")["metadata"]["labels"]


async def test_more_and_fewer_groups(world: World) -> None:
    """Acceptance scenarios A29 and A30."""
    await groups(world)
    world.load("unmarkedpod", part("l-2", 2))
    world.edit(TOKEN, "l", lambda found: found["spec"].update(replicas=3))
    await settled(world)
    assert len(world.api.created("workloads")) == 3
    world.edit(TOKEN, "l", lambda found: found["spec"].update(replicas=1))
    await settled(world)
    for index in (1, 2):
        world.deliver("workload", name_of(index))
    await settled(world)
    assert [name for plural, _, name in world.api.objects if plural == "workloads"] == [name_of(0)]
    told = [
        c.body["status"]["conditions"][0] for c in world.api.calls if (c.plural, c.subresource) == ("pods", "status")
    ]
    assert {one["reason"] for one in told} == {"WorkloadDeleted"}
    assert ("pods", "team", "l-2") not in world.api.objects


async def test_pods_of_a_set_that_is_gone_lose_their_gates(world: World) -> None:
    await groups(world)
    world.load("unmarkedpod", part("l-0", None))
    await settled(world)
    del world.api.objects["leaderworkersets", "team", "l"]
    world.deliver(TOKEN, "l")
    await settled(world)
    assert gated(world) == []


async def test_a_pod_that_no_set_of_it_controls_loses_its_gates(world: World) -> None:
    await groups(world)
    world.load(
        "unmarkedpod", pod_of_set("stray", "elsewhere", parent=LWS, labels={L + "name": "l", L + "group-index": "0"})
    )
    await settled(world)
    assert gated(world) == []
    assert K + "managed" not in pod(world, "stray")["metadata"]["labels"]


async def test_what_cannot_be_created_is_told_and_tried_again(world: World) -> None:
    taken = workload(NAME, meta={"deletionTimestamp": GONE, "finalizers": ["x"]})
    world.api.put("workloads", taken)
    world.load("statefulset", stateful_set())
    await world.until(lambda: len(world.api.created("workloads")) > 1)
    del world.api.objects["workloads", "team", NAME]
    await settled(world)
    assert world.workload(NAME)["metadata"]["labels"] == {K + "job-uid": "uid-s"}
