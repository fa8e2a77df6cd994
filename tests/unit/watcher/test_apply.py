"""The pieces together: epochs, which change concerns which lane, what is told about objects nobody can use."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from services.watcher.lane_keys import workload_lane
from services.watcher.lanes import Urgency
from shared.events.decisions import Batch, Positions
from shared.kube import resources
from tests.unit.watcher.manifests import condition, metadata, workload
from tests.unit.watcher.world import World, queued_job, running


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running(before=lambda w: w.load("workload", workload())) as found:
        yield found


async def test_a_decision_of_an_epoch_that_is_over_is_void() -> None:
    """It waited behind the closed gate when the epoch ended: it is not applied, and has no outcome."""
    world = World()
    world.load("workload", workload())
    bus = world.broker.gateway()
    await bus.open_epoch(shard="0", epoch=1, objects_position=0, why="first")
    lanes = asyncio.create_task(world.gateway.run())
    first = asyncio.create_task(world.gateway.follow(shard="0", epoch=1))
    await world.append(world.admit())
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await world.gateway.pause()
    await bus.open_epoch(shard="0", epoch=2, objects_position=0, why="second")
    second = asyncio.create_task(world.gateway.follow(shard="0", epoch=2))
    await world.until(lambda: world.gateway.applied == 1)
    world.gateway.resume()
    await world.settled()
    assert world.outcomes == []
    assert [call for call in world.api.calls if call.plural == "workloads"] == []

    positions = Positions(epoch=2, decisions=1)
    batch = Batch(author="test", positions=positions, decided_ns=1, decisions=(world.admit(),))
    await world.scheduler.append(batch)
    await world.until(lambda: bool(world.outcomes))
    assert [(o.decision.epoch, o.status) for o in world.outcomes] == [(2, "applied")]
    for task in (lanes, second):
        task.cancel()
    await asyncio.gather(lanes, second, return_exceptions=True)


async def test_an_object_nobody_can_use_gets_one_event(world: World) -> None:
    for _ in range(3):
        world.gateway.malformed(
            "clusterqueue", resources.CLUSTER_QUEUES, "", "bad", "uid-bad", "spec.resourceGroups: not a list"
        )
    await world.until(lambda: bool(world.events("bad")))
    assert world.events("bad") == [("Malformed", "This clusterqueue cannot be used: spec.resourceGroups: not a list")]


async def test_a_namespace_that_becomes_selected_brings_its_jobs(world: World) -> None:
    world.load("job", {**queued_job(), "metadata": {**queued_job()["metadata"], "namespace": "later"}})
    await world.settled()
    assert world.api.created("workloads") == []
    world.load("namespace", {"metadata": metadata("later", labels={"kubernetes.io/metadata.name": "later"})})
    await world.settled()
    assert [made["metadata"]["namespace"] for made in world.api.created("workloads")] == ["later"]


async def test_jobs_that_were_there_before_are_looked_at() -> None:
    async with running(before=lambda w: w.load("job", queued_job())) as world:
        assert len(world.api.created("workloads")) == 1


async def test_evictions_pass_by_everything_else_that_waits(world: World) -> None:
    """The gate opens on many waiting admissions and one eviction: the eviction is the first write."""
    for number in range(20):
        world.load("workload", workload(f"w{number}"))
    await world.decide(world.admit("w"))
    await world.gateway.pause()
    await world.append(*(world.admit(f"w{number}") for number in range(20)), world.preempt("w"))
    before = len(world.api.calls)
    world.gateway.resume()
    await world.settled()
    written = [call.name for call in world.api.calls[before:] if call.plural == "workloads"]
    assert written[0] == "w"
    assert len(written) == 21


@pytest.mark.parametrize(
    ("suspend", "conditions", "urgency"),
    [
        (True, [], Urgency.START),
        # It runs: nobody waits for what is left to write about it.
        (False, [], Urgency.STATUS),
        # It has ended: its quota is waited for.
        (False, [{"type": "Complete", "status": "True"}], Urgency.START),
    ],
)
async def test_a_job_that_runs_lets_those_go_first_that_are_to_start(
    world: World, suspend: bool, conditions: list[dict[str, str]], urgency: Urgency
) -> None:
    world.load("job", queued_job())
    await world.settled()
    (created,) = world.api.created("workloads")
    name = created["metadata"]["name"]
    await world.decide(world.admit(name))
    await world.gateway.pause()
    stored = world.store.get("workload", "team", name)
    assert stored is not None
    job = world.job()
    job["spec"]["suspend"] = suspend
    job["status"]["conditions"] = conditions
    world.load("job", job)
    assert world.gateway._urgency(workload_lane(stored.object.metadata)) == urgency


async def test_nothing_is_remembered_of_a_job_that_was_started_and_is_gone(world: World) -> None:
    world.load("job", queued_job())
    await world.settled()
    (created,) = world.api.created("workloads")
    await world.decide(world.admit(created["metadata"]["name"]))
    runs, uid = world.gateway._reconciler._runs, world.job()["metadata"]["uid"]
    assert runs.follows(uid)
    del world.api.objects["jobs", "team", "j"]
    world.deliver("job", "j")
    assert not runs.follows(uid)


async def test_a_workload_without_a_job_is_looked_at_only_if_it_may_be_over(world: World) -> None:
    await world.gateway.pause()
    waiting = world.gateway._lanes.waiting
    world.load("workload", workload("alone"))
    assert world.gateway._lanes.waiting == waiting
    world.load("workload", workload("of-a-job", meta={"labels": {"kueue.x-k8s.io/job-uid": "gone"}}))
    assert world.gateway._lanes.waiting == waiting + 1
    world.load("workload", workload("ended", status={"conditions": [condition("Finished")]}))
    assert world.gateway._lanes.waiting == waiting + 2
