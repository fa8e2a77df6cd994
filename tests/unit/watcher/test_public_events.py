"""What is told to the outside: each moment once, in order, whoever wrote it, and again under the same id after a start."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from services.watcher.public_events import moments
from shared.api.decoding import convert
from shared.api.workload import Workload
from shared.events import cloudevents as ce
from shared.jobs.naming import workload_name
from tests.unit.watcher.manifests import condition, workload
from tests.unit.watcher.moments import NOW, NOW_TEXT
from tests.unit.watcher.world import World, queued_job, running

NAME = workload_name(kind="Job", group="batch", name="j", uid="uid-j")
AT = int(NOW.timestamp())


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running() as found:
        yield found


def names(events: list[ce.CloudEvent]) -> list[str]:
    return [ce.event_name(event.data) for event in events]


async def test_the_life_of_a_job_in_order(world: World) -> None:
    world.load("job", queued_job())
    await world.settled()
    await world.decide(world.admit(NAME))
    world.edit("job", "j", lambda job: job.update(status={"conditions": [condition("Complete")]}))
    await world.settled()
    events = world.public()
    assert names(events) == ["created", "queued", "admitted", "started", "finished"]
    assert {event.subject for event in events} == {f"team/{NAME}"}
    created, _, admitted, _, finished = (event.data for event in events)
    assert isinstance(created, ce.Created)
    assert created.pod_sets == {"main": 3}
    assert created.job == ce.JobReference("batch/v1", "Job", "j", "uid-j")
    assert isinstance(admitted, ce.Admitted)
    assert (admitted.flavors, admitted.cluster_queue) == ({"main": {"cpu": "default"}}, "cq")
    assert isinstance(finished, ce.Finished)
    assert finished.reason == "Succeeded"
    assert [subject for subject, _ in world.broker.events][2] == f"sluice.events.team.workload.admitted.{NAME}"
    assert events[2].id == f"uid-{NAME}/admitted/{AT}"
    assert len({event.traceparent for event in events}) == 1


async def test_an_eviction_and_what_follows(world: World) -> None:
    world.load("workload", workload())
    await world.decide(world.admit())
    await world.decide(world.preempt())
    told = [event for event in world.public() if event.subject == "team/w"]
    assert names(told) == ["created", "queued", "admitted", "preempted", "evicted"]
    assert isinstance(told[3].data, ce.Preempted)
    assert (told[3].data.preemptor, told[3].data.preemptor_uid) == ("team/p", "uid-p")

    def released(document: dict[str, Any]) -> None:
        conditions = [c for c in document["status"]["conditions"] if c["type"] not in ("QuotaReserved", "Admitted")]
        conditions.append(condition("Requeued", reason="Preempted", at=NOW_TEXT))
        conditions.append(condition("QuotaReserved", "False", "PendingEvaluation", NOW_TEXT))
        document["status"] = {"conditions": conditions}

    world.edit("workload", "w", released)
    await world.settled()
    assert names([event for event in world.public() if event.subject == "team/w"])[5:] == ["requeued"]


async def test_a_reason_is_told_when_it_changes_and_when_it_comes_back(world: World) -> None:
    world.load("workload", workload())
    for reason in ("WaitingForQuota", "WaitingForQuota", "NoMatchingFlavor", "WaitingForQuota"):
        refused = {"conditions": [condition("QuotaReserved", "False", reason)]}
        world.edit("workload", "w", lambda w, s=refused: w.update(status=s))  # type: ignore[misc]
    await world.settled()
    events = [event for event in world.public() if isinstance(event.data, ce.Pending)]
    assert [event.data.reason for event in events if isinstance(event.data, ce.Pending)] == [
        "WaitingForQuota",
        "NoMatchingFlavor",
        "WaitingForQuota",
    ]
    assert len({event.id for event in events}) == 3


async def test_waiting_to_be_looked_at_is_no_news(world: World) -> None:
    pending = {"conditions": [condition("QuotaReserved", "False", "PendingEvaluation")]}
    world.load("workload", workload(status=pending))
    await world.settled()
    assert names(world.public()) == ["created", "queued"]


async def test_after_a_start_only_the_latest_is_told_again_under_the_same_ids() -> None:
    admission = {"clusterQueue": "cq", "podSetAssignments": []}

    def status(at: str) -> dict[str, Any]:
        return {
            "admission": admission,
            "conditions": [condition("QuotaReserved", at=at), condition("Admitted", at=at)],
        }

    def fill(world: World) -> None:
        world.load("workload", workload("old", status=status("2026-01-02T03:30:00Z")))
        world.load("workload", workload("new", status=status(NOW_TEXT)))

    async with running(before=fill) as world:
        assert [event.id for event in world.public()] == [f"uid-new/admitted/{AT}"]


async def test_an_object_made_anew_begins_anew(world: World) -> None:
    world.load("workload", workload())
    world.load("workload", workload(uid="second"))
    await world.settled()
    assert names(world.public()) == ["created", "queued", "created", "queued"]
    assert len({event.id for event in world.public()}) == 4


async def test_a_deletion_is_no_event(world: World) -> None:
    world.load("workload", workload())
    await world.settled()
    del world.api.objects[("workloads", "team", "w")]
    world.deliver("workload", "w")
    await world.settled()
    assert names(world.public()) == ["created", "queued"]


def of(**changes: Any) -> list[str]:
    return [moment.what for moment in moments(convert(Workload, workload(**changes)), {})]


def test_moments_of_a_workload_without_queue() -> None:
    assert of(queueName="") == ["created"]


def test_a_workload_that_may_not_requeue_says_so() -> None:
    status = {"conditions": [condition("Requeued", "False", "PodsReadyTimeout")]}
    (_, _, requeued) = moments(convert(Workload, workload(status=status)), {})
    assert isinstance(requeued.data, ce.Requeued)
    assert not requeued.data.waiting


def test_the_wait_counts_from_the_last_requeue() -> None:
    status = {
        "admission": {"clusterQueue": "cq", "podSetAssignments": []},
        "conditions": [
            condition("QuotaReserved", at="2026-01-02T03:20:00Z"),
            condition("Admitted", at="2026-01-02T03:20:00Z"),
            condition("Requeued", at="2026-01-02T03:19:00Z"),
        ],
    }
    found = list(moments(convert(Workload, workload(status=status)), {}))
    admitted = next(m for m in found if isinstance(m.data, ce.Admitted))
    assert isinstance(admitted.data, ce.Admitted)
    assert admitted.data.wait_seconds == 60
    assert admitted.at == datetime(2026, 1, 2, 3, 20, tzinfo=UTC)


def test_a_preemptor_that_nobody_remembers_is_read_from_the_message() -> None:
    preempted = {**condition("Preempted", reason="InClusterQueue"), "message": "Preempted (UID: abc, JobUID: d) due to"}
    found = list(moments(convert(Workload, workload(status={"conditions": [preempted]})), {}))
    data = found[-1].data
    assert isinstance(data, ce.Preempted)
    assert (data.preemptor, data.preemptor_uid) == ("", "abc")
