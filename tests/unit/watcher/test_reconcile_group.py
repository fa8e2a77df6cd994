"""A group of plain pods as one job: complete or not, replaced, too many, finished, evicted, without a real cluster."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from services.watcher.group_workload import ARRIVING_S
from services.watcher.lane_keys import POD_GROUP
from services.watcher.managed_jobs import JobSettings
from services.watcher.reconcile_group import FORGOTTEN_S, GATHER_S, LATEST_S, GroupReconciler
from shared.api.meta import format_time
from shared.config.feature_gates import resolve
from tests.unit.watcher.manifests import metadata, template, workload
from tests.unit.watcher.moments import NOW
from tests.unit.watcher.world import World, queued_pod, running

A, B = "0a0a0a0a", "0b0b0b0b"
PODS = JobSettings(frameworks=("pod",), label_keys_to_copy=("team",))
GONE = "2026-01-02T03:04:06Z"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running(PODS) as found:
        yield found


async def add(world: World, *pods: str, total: int = 3, **changes: Any) -> None:
    for name in pods:
        world.load("pod", queued_pod(name, group="g", total=total, **changes))
    await world.settled()


async def admitted(world: World, count: int = 3) -> None:
    await add(world, *(f"p{i}" for i in range(count)), total=count, role=A)
    await world.decide(decide_roles(world, **{A: count}))
    await phases(world, "Running", *(f"p{i}" for i in range(count)))


async def phases(world: World, to: str, *names: str) -> None:
    for name in names:
        world.edit("pod", name, lambda found: found["status"].update(phase=to))
    await world.settled()


async def quiet() -> None:
    """Everything that can happen now has happened; something may be put off."""
    for _ in range(300):
        await asyncio.sleep(0)


def pods(world: World) -> dict[str, dict[str, Any]]:
    return {name: found for (plural, _, name), found in world.api.objects.items() if plural == "pods"}


def gated(world: World) -> list[str]:
    return sorted(name for name, found in pods(world).items() if found["spec"].get("schedulingGates"))


def kept(world: World) -> list[str]:
    """Pods that still have our finalizer."""
    return sorted(name for name, found in pods(world).items() if found["metadata"]["finalizers"])


def pod_sets(world: World) -> dict[str, int]:
    return {pod_set["name"]: pod_set["count"] for pod_set in world.workload("g")["spec"]["podSets"]}


def decide_roles(world: World, **counts: int) -> Any:
    decision = world.admit("g")
    (one,) = decision.pod_sets
    sets = tuple(
        msgspec.structs.replace(one, name=name, count=count, usage={"cpu": 1000 * count})
        for name, count in counts.items()
    )
    return msgspec.structs.replace(decision, pod_sets=sets)


async def test_nothing_is_asked_for_before_the_group_is_complete(world: World) -> None:
    await add(world, "p0", "p1")
    assert world.api.created("workloads") == []
    assert world.reasons("p0") == ["ErrWorkloadCompose"]
    await add(world, "p2")
    assert pod_sets(world) == {A: 3}


async def test_a_group_whose_pods_still_arrive_is_not_warned_of(world: World) -> None:
    now = format_time(datetime.fromtimestamp(world.clock(), UTC))
    world.load("pod", queued_pod("p0", group="g", total=2))
    world.load("pod", queued_pod("p1", group="h", total=2, at=now))
    await world.until(lambda: world.reasons() != [])
    await quiet()
    assert (world.reasons("p0"), world.reasons("p1")) == (["ErrWorkloadCompose"], [])
    # It is looked at again when the time is over, even if nothing happens.
    assert [lane.name for lane in world.gateway._lanes._lanes] == ["h"]
    world.clock.pass_(ARRIVING_S)
    world.edit("pod", "p1", lambda found: found["metadata"]["annotations"].update(x="y"))
    await world.settled()
    assert world.reasons("p1") == ["ErrWorkloadCompose"]


def deleted(world: World, name: str, *, grace: int = 0) -> None:
    """Somebody deletes a pod."""
    change = {"deletionTimestamp": GONE, "deletionGracePeriodSeconds": grace}
    world.edit("pod", name, lambda found: found["metadata"].update(change))


@pytest.mark.parametrize("phase", ["Running", "Failed"])
async def test_a_pod_that_is_deleted_by_force_goes_and_can_be_replaced(world: World, phase: str) -> None:
    await admitted(world)
    await phases(world, phase, "p1")
    deleted(world, "p1")
    await world.settled()
    assert sorted(pods(world)) == ["p0", "p2"]
    world.deliver("pod", "p1")
    await world.settled()
    assert world.condition("WaitingForReplacementPods", "g") == ("True", "PodsFailed")
    await add(world, "p3", role=A, at="2026-01-02T04:00:00Z")
    assert gated(world) == []


async def test_a_pod_that_is_deleted_with_grace_waits_for_its_replacement(world: World) -> None:
    await admitted(world)
    deleted(world, "p1", grace=30)
    await phases(world, "Failed", "p1")
    assert kept(world) == ["p0", "p1", "p2"]


async def test_a_pod_that_we_have_stopped_waits_even_when_its_end_is_told(world: World) -> None:
    await admitted(world)
    await world.append(world.preempt("g"))
    await quiet()
    deleted(world, "p1")
    await phases(world, "Failed", "p0", "p1", "p2")
    assert kept(world) == ["p0", "p1", "p2"]
    assert world.condition("WaitingForReplacementPods", "g") == ("True", "Preempted")


async def test_without_the_gate_a_foreign_workload_of_that_name_is_taken() -> None:
    settings = JobSettings(frameworks=("pod",), gates=resolve({"PodIntegrationValidateGroupOwner": False}))
    async with running(settings) as world:
        sets = [{"name": A, "count": 1, "template": template()}]
        world.load("workload", workload("g", pod_sets=sets))
        await add(world, "p0", total=1, role=A)
        assert [o["name"] for o in world.workload("g")["metadata"]["ownerReferences"]] == ["p0"]
        assert world.reasons("p0") == []


NAMED = {"kueue.x-k8s.io/prebuilt-workload-name": "g"}


async def test_a_prebuilt_workload_that_is_not_there_or_too_small_is_told_of(world: World) -> None:
    world.load("pod", queued_pod("p0", group="g", total=1, role=A, annotations=NAMED))
    await world.until(lambda: "ErrWorkloadCompose" in world.reasons("p0"))
    world.load("workload", workload("g", pod_sets=[{"name": B, "count": 1, "template": template()}]))
    await world.until(lambda: world.condition("Finished", "g") == ("True", "OutOfSync"))
    await world.until(lambda: len(world.reasons("p0")) == 2)
    assert [note for _, note in world.events("p0")] == [
        "Workload team/g, which is named here, does not exist",
        "Workload team/g, which is named here, asks for something else: it is finished",
    ]


async def test_of_a_set_it_is_not_told_that_its_workload_is_not_there_yet(world: World) -> None:
    marked = {**NAMED, "kueue.x-k8s.io/pod-suspending-parent": "statefulset"}
    world.load("pod", queued_pod("p0", group="g", total=1, role=A, annotations=marked))
    await quiet()
    assert world.reasons("p0") == []


async def test_the_longest_run_of_a_prebuilt_workload_is_its_own(world: World) -> None:
    sets = [{"name": A, "count": 1, "template": template()}]
    world.load("workload", workload("g", pod_sets=sets, maximumExecutionTimeSeconds=9))
    await add(world, "p0", total=1, role=A, annotations=NAMED)
    assert world.condition("Finished", "g") is None


async def test_the_workload_of_a_group(world: World) -> None:
    await add(world, "p0", total=2, role=B, labels={"team": "blue"}, annotations={"provreq.kueue.x-k8s.io/x": "1"})
    await add(world, "p1", total=2, role=A, labels={"team": "blue"})
    found = world.workload("g")
    assert found["metadata"]["labels"] == {"team": "blue"}
    assert found["metadata"]["annotations"] == {
        "kueue.x-k8s.io/is-group-workload": "true",
        "provreq.kueue.x-k8s.io/x": "1",
    }
    owners = [(o["kind"], o["name"], o.get("controller", False)) for o in found["metadata"]["ownerReferences"]]
    assert owners == [("Pod", "p0", False), ("Pod", "p1", False)]
    assert [(p["name"], p["count"]) for p in found["spec"]["podSets"]] == [(A, 1), (B, 1)]


async def test_labels_that_do_not_agree(world: World) -> None:
    await add(world, "p0", total=2, labels={"team": "blue"})
    await add(world, "p1", total=2, labels={"team": "red"})
    assert world.api.created("workloads") == []
    assert "ErrWorkloadCompose" in world.reasons("p0")


async def test_all_pods_start_each_with_one_write(world: World) -> None:
    await admitted(world)
    assert gated(world) == []
    writes = [c.name for c in world.api.calls if c.plural == "pods"]
    assert sorted(writes) == ["p0", "p1", "p2"]
    assert pods(world)["p1"]["spec"]["nodeSelector"] == {"pool": "a"}
    assert pods(world)["p1"]["metadata"]["labels"]["kueue.x-k8s.io/podset"] == A
    assert [is_group for _, is_group in world.let_run] == [True, True, True]


async def test_each_role_gets_its_own_flavor_and_one_without_can_never_start(world: World) -> None:
    await add(world, "p0", total=2, role=A)
    await add(world, "p1", total=2, role=B)
    await world.decide(decide_roles(world, **{A: 1, "other": 1}))
    assert world.condition("Finished", "g") == ("True", "FailedToStart")


async def test_a_failed_pod_is_replaced_under_the_same_admission(world: World) -> None:
    await admitted(world)
    await phases(world, "Failed", "p1")
    assert world.condition("WaitingForReplacementPods", "g") == ("True", "PodsFailed")
    assert kept(world) == ["p0", "p1", "p2"]
    await add(world, "p3", role=A, at="2026-01-02T04:00:00Z")
    assert gated(world) == []
    assert kept(world) == ["p0", "p2", "p3"]
    assert world.condition("WaitingForReplacementPods", "g") == ("False", "PodsReady")
    assert "OwnerReferencesAdded" in world.reasons("g")
    assert [o["name"] for o in world.workload("g")["metadata"]["ownerReferences"]] == ["p0", "p1", "p2", "p3"]


async def test_one_pod_too_many_is_deleted(world: World) -> None:
    await admitted(world)
    await add(world, "p9", role=A, at="2026-01-02T04:00:00Z")
    assert sorted(pods(world)) == ["p0", "p1", "p2"]
    assert world.reasons("p9") == ["ExcessPodDeleted"]


async def test_too_many_from_the_start(world: World) -> None:
    for name in ("p0", "p1", "p2"):
        world.load("pod", queued_pod(name, group="g", total=2, at=f"2026-01-02T0{name[1]}:00:00Z"))
    await world.settled()
    assert pod_sets(world) == {A: 2}
    assert sorted(pods(world)) == ["p0", "p1"]


async def test_all_succeeded(world: World) -> None:
    await admitted(world)
    await phases(world, "Succeeded", "p0", "p1", "p2")
    assert world.condition("Finished", "g") == ("True", "Succeeded")
    finished = next(c for c in world.workload("g")["status"]["conditions"] if c["type"] == "Finished")
    assert finished["message"] == "Pods succeeded: 3/3."
    assert kept(world) == []
    assert world.workload("g")["metadata"]["finalizers"] == []
    for name in ("p0", "p1", "p2"):
        assert len([c for c in world.api.calls if c.plural == "pods" and c.name == name]) == 2
    assert len([c for c in world.api.calls if c.plural == "workloads"]) <= 6


async def test_what_has_succeeded_is_told_together(world: World) -> None:
    await admitted(world)
    before = len(world.api.calls)
    for name in ("p0", "p1"):
        world.edit("pod", name, lambda found: found["status"].update(phase="Succeeded"))
        await quiet()
        # Another one has ended since: it is waited for a third.
        world.clock.pass_(GATHER_S - 0.5)
    assert len(world.api.calls) == before
    world.clock.pass_(GATHER_S)
    world.edit("pod", "p2", lambda found: found["metadata"]["annotations"].update(x="y"))
    await world.settled()
    assert world.workload("g")["status"]["reclaimablePods"] == [{"name": A, "count": 2}]
    assert len(world.api.calls) == before + 1
    # What is over by the time it would be told is not told, and nobody looks again.
    world.edit("pod", "p2", lambda found: found["status"].update(phase="Succeeded"))
    await world.settled()
    assert world.condition("Finished", "g") == ("True", "Succeeded")
    assert world.workload("g")["status"]["reclaimablePods"] == [{"name": A, "count": 2}]


async def test_while_pods_go_on_ending_it_is_told_at_last(world: World) -> None:
    names = [f"p{i}" for i in range(15)]
    await admitted(world, len(names))
    before = len(world.api.calls)
    told: list[float] = []
    for name in names[:-1]:
        world.edit("pod", name, lambda found: found["status"].update(phase="Succeeded"))
        await quiet()
        told += [world.clock() - NOW.timestamp()] * (len(world.api.calls) - before - len(told))
        world.clock.pass_(GATHER_S - 0.2)
    assert len(told) == 1
    assert LATEST_S <= told[0] < LATEST_S + GATHER_S
    assert world.workload("g")["status"]["reclaimablePods"][0]["count"] > len(names) // 2


async def test_a_group_that_cannot_be_retried_is_over_when_all_have_ended(world: World) -> None:
    await admitted(world)
    world.edit(
        "pod",
        "p0",
        lambda found: found["metadata"]["annotations"].update({"kueue.x-k8s.io/retriable-in-group": "false"}),
    )
    await phases(world, "Failed", "p0", "p1")
    assert world.condition("Finished", "g") is None
    await phases(world, "Succeeded", "p2")
    assert world.condition("Finished", "g") == ("True", "Succeeded")
    assert kept(world) == []


async def test_an_eviction_deletes_what_runs_and_keeps_what_waits(world: World) -> None:
    await admitted(world)
    await phases(world, "Failed", "p0")
    await world.append(world.preempt("g"))
    await quiet()
    running_now = {n for n, p in pods(world).items() if p["metadata"].get("deletionTimestamp")}
    assert running_now == {"p1", "p2"}
    reasons = {c["reason"] for p in ("p1", "p2") for c in pods(world)[p]["status"]["conditions"]}
    assert reasons == {"WorkloadEvictedDueToPreempted"}
    # Their grace period (over in 2026-01-03) holds the quota until they have ended.
    assert world.condition("QuotaReserved", "g") == ("True", "QuotaReserved")
    await phases(world, "Failed", "p1", "p2")
    assert world.condition("QuotaReserved", "g") == ("False", "PendingEvaluation")
    assert world.condition("WaitingForReplacementPods", "g") == ("True", "Preempted")


async def test_a_group_whose_workload_is_deleted_ends(world: World) -> None:
    await admitted(world)
    world.edit("workload", "g", lambda found: found["metadata"].update(deletionTimestamp=GONE))
    await world.settled()
    assert pods(world) == {}
    assert ("workloads", "team", "g") not in world.api.objects


async def test_a_foreign_workload_of_that_name_is_left_alone(world: World) -> None:
    world.load("workload", workload("g"))
    await world.settled()
    await add(world, "p0", total=1)
    assert world.reasons("p0") == ["WorkloadNameConflict"]
    assert "ownerReferences" not in world.workload("g")["metadata"]
    assert world.workload("g")["spec"] == workload("g")["spec"]
    # Once it is gone, the name is free.
    del world.api.objects[("workloads", "team", "g")]
    world.deliver("workload", "g")
    await world.settled()
    assert pod_sets(world) == {A: 1}


async def test_fast_admission_asks_for_the_whole_group_by_its_first_pod(world: World) -> None:
    await add(world, "p0", role=A, annotations={"kueue.x-k8s.io/pod-group-fast-admission": "true"})
    assert pod_sets(world) == {A: 3}


async def test_a_serving_group_goes_on_when_its_pods_end(world: World) -> None:
    serving = {"kueue.x-k8s.io/pod-group-serving": "true"}
    await add(world, "p0", total=1, role=A, annotations=serving)
    await world.decide(decide_roles(world, **{A: 1}))
    await phases(world, "Succeeded", "p0")
    assert world.condition("Finished", "g") is None
    assert "reclaimablePods" not in world.workload("g")["status"]


async def test_a_prebuilt_workload_is_adopted(world: World) -> None:
    named = {"kueue.x-k8s.io/prebuilt-workload-name": "g"}
    sets = [{"name": A, "count": 2, "template": queued_pod("x")["spec"] and {"spec": queued_pod("x")["spec"]}}]
    world.load("workload", workload("g", pod_sets=sets))
    await add(world, "p0", "p1", total=2, annotations=named)
    assert [o["name"] for o in world.workload("g")["metadata"]["ownerReferences"]] == ["p0", "p1"]
    assert world.api.created("workloads") == []
    assert kept(world) == ["p0", "p1"]


async def test_in_a_namespace_that_ends_pods_do_not_wait_for_their_workload(world: World) -> None:
    await admitted(world)
    await phases(world, "Failed", "p0")
    ending = metadata("team", labels={"kubernetes.io/metadata.name": "team"}, deletionTimestamp=GONE)
    world.load("namespace", {"metadata": ending})
    for name in ("p0", "p1", "p2"):
        world.edit("pod", name, lambda found: found["metadata"].update(deletionTimestamp=GONE))
    await world.settled()
    assert pods(world) == {}


async def test_a_group_all_of_whose_pods_are_gone_lets_its_workload_go(world: World) -> None:
    await admitted(world)
    for name in ("p0", "p1", "p2"):
        del world.api.objects[("pods", "team", name)]
        world.deliver("pod", name)
    await world.settled()
    assert world.workload("g")["metadata"]["finalizers"] == []


async def test_the_last_pods_end_while_the_others_are_still_to_be_told(world: World) -> None:
    await admitted(world)
    world.edit("pod", "p0", lambda found: found["status"].update(phase="Succeeded"))
    await quiet()
    await phases(world, "Succeeded", "p1", "p2")
    assert world.condition("Finished", "g") == ("True", "Succeeded")
    assert "reclaimablePods" not in world.workload("g")["status"]


async def test_of_a_group_that_goes_before_it_is_told_of_nothing_is_kept(world: World) -> None:
    await admitted(world)
    world.edit("pod", "p0", lambda found: found["status"].update(phase="Succeeded"))
    await quiet()
    reconciler = world.gateway._reconcilers[POD_GROUP]
    assert isinstance(reconciler, GroupReconciler)
    (first,) = reconciler._untold
    for name in ("p0", "p1", "p2"):
        del world.api.objects["pods", "team", name]
        world.deliver("pod", name)
    await world.settled()
    assert set(reconciler._untold) == {first}
    world.clock.pass_(FORGOTTEN_S)
    for name in ("q0", "q1"):
        world.load("pod", queued_pod(name, group="h", total=2, role=A))
    await world.settled()
    assert first not in reconciler._untold


async def test_with_fast_release_pods_that_are_being_deleted_hold_no_quota() -> None:
    settings = JobSettings(frameworks=("pod",), gates=resolve({"FastQuotaReleaseInPodIntegration": True}))
    async with running(settings) as world:
        await admitted(world)
        await world.append(world.preempt("g"))
        await world.until(lambda: world.condition("QuotaReserved", "g") == ("False", "PendingEvaluation"))
        assert {"p0", "p1", "p2"} == set(pods(world))


def _ready(found: dict[str, Any]) -> None:
    found["status"]["conditions"] = [{"type": "Ready", "status": "True"}]


def _over(found: dict[str, Any]) -> None:
    found["status"] = {"phase": "Succeeded", "conditions": [{"type": "Ready", "status": "False"}]}


async def test_readiness_is_told_when_it_is_there_and_when_it_stays_away() -> None:
    async with running(JobSettings(frameworks=("pod",), wait_for_pods_ready=True)) as world:
        await admitted(world)
        assert world.condition("PodsReady", "g") is None
        for name in ("p0", "p1", "p2"):
            world.edit("pod", name, _ready)
        await world.settled()
        assert world.condition("PodsReady", "g") == ("True", "Started")
        world.edit("pod", "p0", _over)
        await quiet()
        assert world.condition("PodsReady", "g") == ("True", "Started")
        world.clock.pass_(GATHER_S)
        world.edit("pod", "p0", lambda found: found["metadata"]["annotations"].update(x="y"))
        await world.settled()
        assert world.condition("PodsReady", "g") == ("False", "WaitForRecovery")
        for name in ("p1", "p2"):
            world.edit("pod", name, _over)
        await world.settled()
        assert world.condition("Finished", "g") == ("True", "Succeeded")
        assert len([c for c in world.api.calls if c.plural == "workloads"]) <= 7


async def test_a_short_life_costs_few_writes() -> None:
    async with running(JobSettings(frameworks=("pod",), wait_for_pods_ready=True)) as world:
        await admitted(world)
        for change in (_ready, _over):
            for name in ("p0", "p1", "p2"):
                world.edit("pod", name, change)
                await quiet()
        await world.settled()
        assert world.condition("Finished", "g") == ("True", "Succeeded")
        # Made, admitted, ready, finished, let go.
        assert len([c for c in world.api.calls if c.plural == "workloads"]) == 5
