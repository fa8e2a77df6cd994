"""Kubernetes Events: their form, their budget, and that none is sent twice in a short time."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from services.watcher.kubernetes_events import EventRecorder, Regarding
from shared.kube.errors import Forbidden, Unreachable
from shared.kube.write_budget import WriteBudget
from tests.unit.watcher.fake_api import FakeApi
from tests.unit.watcher.moments import Clock

WORKLOAD = Regarding("kueue.x-k8s.io/v1beta2", "Workload", "team", "w", "uid-w")
QUEUE = Regarding("kueue.x-k8s.io/v1beta2", "ClusterQueue", "", "cq", "uid-cq")


class Written:
    def __init__(self) -> None:
        self.api = FakeApi()
        self.clock = Clock()
        self.recorder = EventRecorder(
            self.api.client, WriteBudget(rate_per_s=1e6, burst=100), instance="gateway-1", now=self.clock
        )

    async def after(self, number: int) -> None:
        async with asyncio.timeout(10):
            while len(self.api.created("events")) < number:  # noqa: ASYNC110 - the writer has no event for it
                await asyncio.sleep(0)


@pytest.fixture
async def written() -> AsyncIterator[Written]:
    made = Written()
    task = asyncio.create_task(made.recorder.run())
    yield made
    task.cancel()


async def test_the_form_of_an_event(written: Written) -> None:
    written.recorder.emit(WORKLOAD, "Normal", "Preempted", "why", controller="kueue-admission", related=QUEUE)
    await written.after(1)
    (event,) = written.api.created("events")
    name = event["metadata"].pop("name")
    assert name.startswith("w.")
    event["metadata"].pop("uid")
    event["metadata"].pop("generation")
    event["metadata"].pop("resourceVersion")
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "team"},
        "eventTime": "2026-01-02T04:00:00.000000Z",
        "type": "Normal",
        "reason": "Preempted",
        "note": "why",
        "action": "Preempted",
        "reportingController": "kueue-admission",
        "reportingInstance": "gateway-1",
        "regarding": {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "name": "w",
            "namespace": "team",
            "uid": "uid-w",
        },
        "related": {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "name": "cq", "uid": "uid-cq"},
    }


async def test_events_of_cluster_scoped_objects_are_in_the_default_namespace(written: Written) -> None:
    written.recorder.emit(QUEUE, "Warning", "Malformed", "x", controller="c")
    await written.after(1)
    (event,) = written.api.created("events")
    assert event["metadata"]["namespace"] == "default"
    assert "namespace" not in event["regarding"]


async def test_long_notes_are_cut(written: Written) -> None:
    written.recorder.emit(WORKLOAD, "Normal", "X", "ä" * 2000, controller="c")
    await written.after(1)
    note = written.api.created("events")[0]["note"]
    assert len(note.encode()) <= 1024
    assert note.endswith(" ...")


async def test_the_same_is_told_again_only_after_a_while(written: Written) -> None:
    for _ in range(3):
        written.recorder.emit(WORKLOAD, "Normal", "X", "same", controller="c")
    written.recorder.emit(WORKLOAD, "Normal", "X", "other", controller="c")
    written.clock.pass_(11)
    written.recorder.emit(WORKLOAD, "Normal", "X", "same", controller="c")
    written.recorder.emit(WORKLOAD, "Normal", "X", "other", controller="c", window_s=3600)
    await written.after(3)
    assert [event["note"] for event in written.api.created("events")] == ["same", "other", "same"]


async def test_a_refused_event_stops_nothing(written: Written) -> None:
    written.api.fail("create", Forbidden(403, "Forbidden", "the namespace is terminating"))
    written.recorder.emit(WORKLOAD, "Normal", "X", "refused", controller="c")
    written.recorder.emit(WORKLOAD, "Normal", "X", "next", controller="c")
    await written.after(1)
    assert [event["note"] for event in written.api.created("events")] == ["next"]


async def test_an_event_without_answer_is_tried_again(written: Written) -> None:
    written.api.fail("create", Unreachable(0, "Unreachable", "no answer"))
    written.recorder.emit(WORKLOAD, "Normal", "X", "once", controller="c")
    await written.after(1)
    assert [event["note"] for event in written.api.created("events")] == ["once"]


def test_too_many_are_dropped_and_counted() -> None:
    made = Written()
    for number in range(1028):
        made.recorder.emit(WORKLOAD, "Normal", "X", str(number), controller="c")
    assert made.recorder.dropped == 4


async def test_what_waited_for_a_minute_is_not_told_any_more() -> None:
    made = Written()
    made.recorder.emit(WORKLOAD, "Normal", "Old", "note", controller="c")
    made.clock.pass_(60.5)
    made.recorder.emit(WORKLOAD, "Normal", "New", "note", controller="c")
    task = asyncio.create_task(made.recorder.run())
    try:
        await made.after(1)
    finally:
        task.cancel()
        await asyncio.wait({task})
    assert [event["reason"] for event in made.api.created("events")] == ["New"]
    assert made.recorder.dropped == 1
