"""A plain pod from its gate to its end, and every way in between, without a real cluster."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any

import pytest

from services.watcher.managed_jobs import JobSettings
from services.watcher.pod_control import side_by_side
from shared.config.feature_gates import resolve
from shared.jobs.naming import workload_name
from tests.unit.watcher.manifests import condition, metadata
from tests.unit.watcher.world import World, queued_pod, running

NAME = workload_name(kind="Pod", group="", name="p1", uid="uid-p1")
PODS = JobSettings(frameworks=("pod",))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running(PODS) as found:
        yield found


def pod(world: World, name: str = "p1") -> dict[str, Any]:
    return world.api.one("pods", name)


def gates(world: World, name: str = "p1") -> list[str]:
    return [gate["name"] for gate in pod(world, name)["spec"].get("schedulingGates", [])]


def writes(world: World, plural: str, name: str) -> list[str]:
    return [f"{c.verb} {c.subresource}".strip() for c in world.api.calls if (c.plural, c.name) == (plural, name)]


def told(world: World) -> list[tuple[str, str]]:
    """(type, reason) of the conditions that pods were given before they were deleted."""
    calls = [c for c in world.api.calls if (c.plural, c.subresource) == ("pods", "status")]
    return [(c["type"], c["reason"]) for call in calls for c in call.body["status"]["conditions"]]


async def created(world: World, **changes: Any) -> None:
    world.load("pod", queued_pod("p1", **changes))
    await world.settled()


async def admitted(world: World) -> None:
    await created(world)
    await world.decide(world.admit(NAME, count=1))


async def phase(world: World, to: str) -> None:
    world.edit("pod", "p1", lambda found: found["status"].update(phase=to))
    await world.settled()


async def test_a_pod_gets_a_workload_of_its_own(world: World) -> None:
    await created(world)
    found = world.workload(NAME)
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["apiVersion"], owner["kind"], owner["uid"], owner["controller"]) == ("v1", "Pod", "uid-p1", True)
    (pod_set,) = found["spec"]["podSets"]
    assert (pod_set["name"], pod_set["count"]) == ("main", 1)
    assert "metadata" not in pod_set["template"]
    assert pod_set["topologyRequest"] == {"podIndexLabel": "kueue.x-k8s.io/pod-group-pod-index"}
    assert gates(world) == ["kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"]


async def test_an_admitted_pod_is_let_go_to_its_flavor_in_one_write(world: World) -> None:
    await admitted(world)
    assert gates(world) == []
    found = pod(world)
    assert found["spec"]["nodeSelector"] == {"pool": "a"}
    assert found["spec"]["tolerations"] == [{"key": "t", "operator": "Exists"}]
    assert found["metadata"]["annotations"]["kueue.x-k8s.io/workload"] == NAME
    assert writes(world, "pods", "p1") == ["patch"]
    assert "Started" in world.reasons("p1")
    assert world.let_run == [(NAME, False)]


@pytest.mark.parametrize(("end", "reason"), [("Succeeded", "Succeeded"), ("Failed", "Failed")])
async def test_its_end_is_the_workloads_and_it_may_go(world: World, end: str, reason: str) -> None:
    await admitted(world)
    await phase(world, end)
    assert world.condition("Finished", NAME) == ("True", reason)
    assert pod(world)["metadata"]["finalizers"] == []
    assert writes(world, "pods", "p1") == ["patch", "patch"]
    assert world.workload(NAME)["metadata"]["finalizers"] == []


async def test_an_evicted_pod_is_told_why_and_deleted_and_its_quota_is_free_at_once(world: World) -> None:
    await admitted(world)
    await phase(world, "Running")
    await world.decide(world.preempt(NAME))
    assert told(world) == [("TerminationTarget", "WorkloadEvictedDueToPreempted")]
    assert writes(world, "pods", "p1") == ["patch", "patch status", "delete", "patch"]
    assert world.condition("QuotaReserved", NAME) == ("False", "PendingEvaluation")
    assert world.condition("Requeued", NAME) == ("False", "Preempted")
    assert "Stopped" in world.reasons("p1")
    assert world.condition("Finished", NAME) == ("True", "OwnerNotFound")
    assert ("pods", "team", "p1") not in world.api.objects


async def test_a_gated_pod_that_is_deleted_goes_with_its_workload(world: World) -> None:
    await created(world)
    world.edit("pod", "p1", lambda found: found["metadata"].update(deletionTimestamp="2026-01-02T03:04:06Z"))
    await world.settled()
    assert ("pods", "team", "p1") not in world.api.objects
    assert world.condition("Finished", NAME) == ("True", "OwnerNotFound")
    assert world.workload(NAME)["metadata"]["finalizers"] == []


async def test_a_workload_that_is_deleted_takes_the_pod_along(world: World) -> None:
    await admitted(world)
    await phase(world, "Running")
    world.edit("workload", NAME, lambda found: found["metadata"].update(deletionTimestamp="2026-01-02T03:04:06Z"))
    await world.settled()
    assert told(world) == [("TerminationTarget", "WorkloadDeleted")]
    assert ("pods", "team", "p1") not in world.api.objects
    assert ("workloads", "team", NAME) not in world.api.objects


async def test_a_pod_that_was_sent_to_another_cluster_stays_gated(world: World) -> None:
    world.load(
        "admissioncheck",
        {"metadata": metadata("multi"), "spec": {"controllerName": "kueue.x-k8s.io/multikueue"}},
    )
    await created(world)
    checks = [
        {"name": "multi", "state": "Ready", "message": "", "lastTransitionTime": condition("x")["lastTransitionTime"]}
    ]
    world.edit("workload", NAME, lambda found: found.update(status={"admissionChecks": checks}))
    await world.decide(world.admit(NAME, count=1, checks=("multi",)))
    assert world.condition("Admitted", NAME) == ("True", "Admitted")
    assert gates(world) == ["kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"]


async def test_a_namespace_that_is_not_ours(world: World) -> None:
    world.load("namespace", {"metadata": metadata("team", labels={"kubernetes.io/metadata.name": "team"})})
    world.store.remove("namespace", "", "team", version=world.api.version + 1)
    await created(world)
    assert world.api.created("workloads") == []


async def test_without_the_integration_nothing_is_looked_at() -> None:
    async with running(JobSettings()) as world:
        assert "pod" not in world.store.watched


async def test_where_only_pods_of_deployments_are_managed_others_are_left_alone() -> None:
    async with running(JobSettings(frameworks=("pod",), only_pods_of_parents=True)) as world:
        world.load("pod", queued_pod("p1"))
        world.load("pod", queued_pod("p2", annotations={"kueue.x-k8s.io/pod-suspending-parent": "deployment"}))
        await world.settled()
        owners = [w["metadata"]["ownerReferences"][0]["name"] for w in world.api.created("workloads")]
        assert owners == ["p2"]


async def test_without_the_gate_the_workload_of_an_evicted_pod_may_be_queued_again() -> None:
    settings = JobSettings(frameworks=("pod",), gates=resolve({"SkipReassignmentForPodOwnedWorkloads": False}))
    async with running(settings) as world:
        await admitted(world)
        await phase(world, "Running")
        await world.decide(world.preempt(NAME))
        assert world.condition("Requeued", NAME) == ("True", "Preempted")


async def test_of_many_writes_only_those_that_begin_are_made() -> None:
    made: list[int] = []

    async def endless() -> None:
        await asyncio.Event().wait()

    def work() -> Iterator[Awaitable[None]]:
        for i in range(25):
            made.append(i)
            yield endless()

    writing = asyncio.create_task(side_by_side(work()))
    await asyncio.sleep(0)
    writing.cancel()
    assert isinstance((await asyncio.gather(writing, return_exceptions=True))[0], asyncio.CancelledError)
    assert made == list(range(10))
