"""A Job that names a Workload which somebody else has made (job specification 10.5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from shared.jobs.prebuilt import prebuilt_name
from tests.unit.watcher.manifests import metadata, template, workload
from tests.unit.watcher.world import World, queued_job, running

NAMED = {"kueue.x-k8s.io/prebuilt-workload-name": "mine"}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running() as found:
        yield found


async def quiet() -> None:
    for _ in range(300):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("annotation", "label", "first", "expected"),
    [
        ("", "", True, ""),
        ("a", "l", True, "a"),
        ("", "l", True, "l"),
        ("a", "l", False, "l"),
        ("a", "", False, ""),
        ("a" * 64, "", False, "a" * 64),
    ],
)
def test_which_name_counts(annotation: str, label: str, first: bool, expected: str) -> None:
    key = "kueue.x-k8s.io/prebuilt-workload-name"
    job: dict[str, object] = {"metadata": {"annotations": {key: annotation}, "labels": {key: label}}}
    assert prebuilt_name(job, annotation_first=first) == expected


async def test_it_waits_for_the_workload_and_makes_none(world: World) -> None:
    world.load("job", queued_job(annotations=NAMED, suspend=False))
    await quiet()
    assert world.api.created("workloads") == []
    assert world.job()["spec"]["suspend"] is True
    world.load("workload", workload("mine", pod_sets=[{"name": "main", "count": 3, "template": template()}]))
    await world.until(lambda: "ownerReferences" in world.workload("mine")["metadata"])
    await world.settled()
    found = world.workload("mine")["metadata"]
    (owner,) = found["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Job", "j", True)
    assert found["labels"]["kueue.x-k8s.io/job-uid"] == "uid-j"
    await world.decide(world.admit("mine"))
    assert world.job()["spec"]["suspend"] is False


async def test_one_that_differs_is_finished_and_the_job_stays_held(world: World) -> None:
    world.load("workload", workload("mine", pod_sets=[{"name": "main", "count": 9, "template": template()}]))
    world.load("job", queued_job(annotations=NAMED))
    await world.until(lambda: world.condition("Finished", "mine") is not None)
    assert world.condition("Finished", "mine") == ("True", "OutOfSync")
    assert world.job()["spec"]["suspend"] is True
    assert world.api.created("workloads") == []


async def test_one_that_belongs_to_another_job_is_left_alone(world: World) -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "k", "uid": "uid-k", "controller": True}
    world.load("workload", workload("mine", meta={"ownerReferences": [owner]}))
    world.load("job", queued_job(annotations=NAMED))
    await quiet()
    assert world.workload("mine")["metadata"]["ownerReferences"] == [owner]
    assert world.api.created("workloads") == []


async def test_its_priority_and_gates_are_its_makers(world: World) -> None:
    world.load("workloadpriorityclass", {"metadata": metadata("high"), "value": 7})
    world.load("workload", workload("mine", pod_sets=[{"name": "main", "count": 3, "template": template()}]))
    labels = {"kueue.x-k8s.io/priority-class": "high"}
    world.load("job", queued_job(annotations={**NAMED, "kueue.x-k8s.io/admission-gated-by": "a.b/c"}, labels=labels))
    await world.until(lambda: "ownerReferences" in world.workload("mine")["metadata"])
    await world.settled()
    assert "priorityClassRef" not in world.workload("mine")["spec"]
    assert "annotations" not in world.workload("mine")["metadata"]


async def test_what_is_wrong_with_it_is_told_on_the_job(world: World) -> None:
    others = {"apiVersion": "batch/v1", "kind": "Job", "name": "o", "uid": "uid-o", "controller": True}
    world.load("workload", workload("mine", meta={"ownerReferences": [others]}))
    world.load("job", queued_job(annotations=NAMED))
    await world.until(lambda: world.reasons("j") == ["ErrWorkloadCompose"])
    assert world.events("j")[0][1] == "Workload team/mine, which is named here, belongs to Job o"
