"""Finished workloads, and jobs that were given up, are kept as long as the configuration says."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from services.watcher.managed_jobs import JobSettings, job_settings
from shared.config.configuration import Configuration, Configured, RetentionPolicies, WorkloadRetention
from shared.config.durations import Duration
from shared.events import commands as c
from shared.jobs.naming import workload_name
from shared.kube.errors import Unreachable
from tests.unit.watcher.manifests import condition, workload
from tests.unit.watcher.moments import NOW_TEXT
from tests.unit.watcher.world import World, queued_job, running

NAME = workload_name(kind="Job", group="batch", name="j", uid="uid-j")
AT_ONCE = JobSettings(keep_finished_s=0, keep_deactivated_s=0)
FOR_EVER = JobSettings()
KEY = ("workloads", "team", NAME)


def deletions(world: World) -> list[tuple[str, str]]:
    return [(call.plural, call.name) for call in world.api.calls if call.verb == "delete"]


async def admitted(world: World) -> None:
    world.load("job", queued_job())
    await world.settled()
    await world.decide(world.admit(NAME))


def complete(document: dict[str, Any]) -> None:
    document["status"] = {"conditions": [condition("Complete")], "succeeded": 3}


async def finish(world: World) -> None:
    await admitted(world)
    world.edit("job", "j", complete)
    await world.settled()


async def test_a_finished_workload_is_deleted_and_its_job_is_not() -> None:
    async with running(AT_ONCE) as world:
        await finish(world)
        assert deletions(world) == [("workloads", NAME)]
        assert "Deleted" in world.reasons(NAME)
        world.deliver("workload", NAME)
        await world.settled()
        # The job is over: nothing asks for a workload any more.
        assert KEY not in world.api.objects
        assert len(world.api.created("workloads")) == 1
        assert world.job()["spec"]["suspend"] is False


async def test_without_a_policy_everything_is_kept() -> None:
    async with running(FOR_EVER) as world:
        await finish(world)
        assert deletions(world) == []


async def test_a_finished_workload_is_kept_for_its_time() -> None:
    async with running(JobSettings(keep_finished_s=60)) as world:
        await admitted(world)
        world.edit("job", "j", complete)
        await world.until(lambda: world.condition("Finished", NAME) is not None)
        await world.until(lambda: not world.workload(NAME)["metadata"].get("finalizers"))
        assert deletions(world) == []
        world.clock.pass_(60)
        # Any look will do; by itself the next one comes when the time is over.
        world.edit("job", "j", lambda job: job["metadata"].setdefault("annotations", {}).update(a="b"))
        await world.until(lambda: bool(deletions(world)))


async def test_finished_workloads_of_kinds_that_others_look_after_go_too() -> None:
    owner = [{"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "uid-t", "controller": True}]
    done = {"conditions": [condition("Finished")]}
    async with running(AT_ONCE) as world:
        world.load("workload", workload("theirs", meta={"ownerReferences": owner}, status=done))
        world.load("workload", workload("running", meta={"ownerReferences": owner}))
        await world.settled()
        assert deletions(world) == [("workloads", "theirs")]
        assert world.reasons("theirs") == ["Deleted"]


async def test_they_are_kept_for_their_time() -> None:
    owner = [{"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "uid-t", "controller": True}]
    done = {"conditions": [condition("Finished", at=NOW_TEXT)]}
    theirs = workload("theirs", meta={"ownerReferences": owner}, status=done)
    async with running(FOR_EVER) as world:
        world.load("workload", theirs)
        await world.settled()
        assert deletions(world) == []
    async with running(JobSettings(keep_finished_s=600)) as world:
        world.load("workload", theirs)
        for _ in range(300):
            # Everything that can happen now has happened; the deletion is put off.
            await asyncio.sleep(0)
        assert deletions(world) == []
        world.clock.pass_(600)
        world.edit("workload", "theirs", lambda w: w["metadata"].setdefault("annotations", {}).update(a="b"))
        await world.until(lambda: deletions(world) == [("workloads", "theirs")])


async def test_a_finished_workload_without_an_owner_goes_too() -> None:
    async with running(AT_ONCE) as world:
        world.load("workload", workload("mine", status={"conditions": [condition("Finished")]}))
        world.load("workload", workload("running"))
        await world.settled()
        assert deletions(world) == [("workloads", "mine")]


async def test_an_answer_that_is_lost_is_asked_for_again() -> None:
    async with running(AT_ONCE) as world:
        world.api.fail("delete", Unreachable(0, "Unreachable", "no answer in time"))
        await finish(world)
        await world.until(lambda: KEY not in world.api.objects)


async def deactivated(world: World, cause: str) -> None:
    await admitted(world)
    world.edit("workload", NAME, lambda w: w["spec"].update(active=False))
    await world.settled()
    found = world.projection(NAME)
    evict = c.Evict(
        id="",
        kind="workload",
        namespace="team",
        name=NAME,
        uid=found.uid,
        incarnation=found.incarnation,
        reason="Deactivated",
        message="off",
        cause=cause,
    )
    await world.broker.bus("preemptor").command([msgspec.structs.replace(evict, id="c1")])
    await world.until(lambda: world.condition("Evicted", NAME) is not None)


async def until_stopped(world: World) -> None:
    """The job is held back, and its own controller tells that it ran and has stopped."""
    await world.until(lambda: world.job()["spec"]["suspend"] is True)
    await world.until(lambda: "kueue.x-k8s.io/stopping" not in world.job()["metadata"].get("annotations", {}))
    for active, held in ((3, "False"), (0, "True")):
        status = {"active": active, "conditions": [condition("Suspended", held)]}
        world.edit("job", "j", lambda job, status=status: job.update(status=status))  # type: ignore[misc]
    await world.until(lambda: world.condition("QuotaReserved", NAME) == ("False", "PendingEvaluation"))


@pytest.mark.parametrize(
    ("cause", "settings", "deleted"),
    [
        ("MaximumExecutionTimeExceeded", AT_ONCE, True),
        ("MaximumExecutionTimeExceeded", FOR_EVER, False),
        # Whoever switched the workload off by hand wants it back.
        ("", AT_ONCE, False),
    ],
)
async def test_a_job_that_was_given_up(cause: str, settings: JobSettings, deleted: bool) -> None:
    async with running(settings) as world:
        await deactivated(world, cause)
        await until_stopped(world)
        if deleted:
            await world.until(lambda: ("jobs", "j") in deletions(world))
            await world.until(lambda: "Deleted" in world.reasons("j"))
        else:
            await world.settled()
            assert deletions(world) == []


def test_durations_of_the_configuration() -> None:
    kept = WorkloadRetention(after_finished=Duration(5), after_deactivated_by_kueue=Duration(0))
    file = Configuration(object_retention_policies=RetentionPolicies(workloads=kept))
    settings = job_settings(Configured(configuration=file), "kueue-system")
    assert (settings.keep_finished_s, settings.keep_deactivated_s) == (5, 0)
    bare = job_settings(Configured(), "kueue-system")
    assert (bare.keep_finished_s, bare.keep_deactivated_s) == (None, None)
