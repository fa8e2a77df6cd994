"""An elastic Job grows and shrinks while it runs, by slices of its Workload, without a real cluster."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.jobs.batch_job import BatchJob
from shared.jobs.naming import workload_name
from shared.kube.resources import PODS
from tests.unit.watcher.manifests import condition, metadata
from tests.unit.watcher.world import World, queued_job, running

ELASTIC = "kueue.x-k8s.io/elastic-job"
FIRST = workload_name(kind="Job", group="batch", name="j", uid="uid-j", extra="1")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running() as found:

        async def pages(resource: Any, namespace: str, *, query: dict[str, str]) -> AsyncIterator[bytes]:
            assert (resource, namespace) == (PODS, "team")
            assert query["labelSelector"] == "kueue.x-k8s.io/podset in (main)"
            pods = found.api.objects_of("pods")
            for at in range(0, len(pods), 2):
                yield json.dumps({"items": pods[at : at + 2]}).encode()

        found.api.pages = pages  # type: ignore[attr-defined]
        yield found


async def started(world: World) -> None:
    job = queued_job(annotations={ELASTIC: "true"})
    job["spec"]["template"]["spec"]["schedulingGates"] = [{"name": ELASTIC}]
    world.load("job", job)
    await world.settled()
    await world.decide(world.admit(FIRST))
    assert world.job()["spec"]["suspend"] is False


async def resized(world: World, pods: int) -> None:
    def change(job: dict[str, Any]) -> None:
        job["spec"] |= {"parallelism": pods, "completions": None}
        job["metadata"]["generation"] += 1

    world.edit("job", "j", change)
    await world.settled()


def slices(world: World) -> list[str]:
    return sorted(name for plural, _, name in world.api.objects if plural == "workloads" if name.startswith("job-j"))


def pod(world: World, name: str, first: str = FIRST, *, gated: bool = True, phase: str = "Pending") -> None:
    annotations = {"kueue.x-k8s.io/workload-slice-name": first}
    found = metadata(name, namespace="team", annotations=annotations, labels={"kueue.x-k8s.io/podset": "main"})
    gates = [{"name": ELASTIC}] if gated else []
    world.api.put("pods", {"metadata": found, "spec": {"schedulingGates": gates}, "status": {"phase": phase}})


def free(world: World) -> list[str]:
    """Pods without the gate."""
    return sorted(p["metadata"]["name"] for p in world.api.objects_of("pods") if not p["spec"].get("schedulingGates"))


async def test_the_first_slice_says_that_it_is_one(world: World) -> None:
    await started(world)
    annotations = world.workload(FIRST)["metadata"]["annotations"]
    assert annotations == {ELASTIC: "true", "kueue.x-k8s.io/workload-slice-name": FIRST}
    pod = world.job()["spec"]["template"]
    assert pod["metadata"]["annotations"]["kueue.x-k8s.io/workload-slice-name"] == FIRST


async def test_fewer_pods_are_fewer_in_the_same_workload(world: World) -> None:
    await started(world)
    await resized(world, 1)
    assert slices(world) == [FIRST]
    assert world.workload(FIRST)["spec"]["podSets"][0]["count"] == 1
    assert world.job()["spec"]["suspend"] is False


async def test_more_pods_ask_by_a_new_slice_while_the_job_runs(world: World) -> None:
    await started(world)
    await resized(world, 5)
    (second,) = set(slices(world)) - {FIRST}
    annotations = world.workload(second)["metadata"]["annotations"]
    assert annotations["kueue.x-k8s.io/workload-slice-name"] == FIRST
    assert annotations["kueue.x-k8s.io/workload-slice-replacement-for"] == f"team/{FIRST}"
    assert world.workload(second)["spec"]["podSets"][0]["count"] == 5
    assert world.job()["spec"]["suspend"] is False
    assert world.condition("Finished", FIRST) is None
    # Once it is admitted, the first is over.
    old = world.workload(FIRST)["metadata"]["uid"]
    await world.decide(world.admit(second, count=5, replaces=f"team/{FIRST}", replaced_uid=old))
    assert world.condition("Finished", FIRST) == ("True", "WorkloadSliceReplaced")
    assert world.job()["spec"]["suspend"] is False


async def test_pods_run_as_far_as_they_were_granted(world: World) -> None:
    for name in ("p4", "p1", "p2", "p3"):
        pod(world, name)
    pod(world, "ended", phase="Succeeded")
    pod(world, "stranger", first="other")
    await started(world)
    world.edit("job", "j", lambda job: job.update(status={"active": 4}))
    await world.settled()
    assert free(world) == ["p1", "p2", "p3"]


async def test_its_end_is_that_of_all_slices(world: World) -> None:
    await started(world)
    await resized(world, 5)
    (second,) = set(slices(world)) - {FIRST}
    world.edit("job", "j", lambda job: job.update(status={"conditions": [condition("Complete")]}))
    await world.settled()
    assert world.condition("Finished", FIRST) == ("True", "Succeeded")
    assert world.condition("Finished", second) == ("True", "Succeeded")


async def test_an_eviction_stops_the_whole_job(world: World) -> None:
    await started(world)
    await world.append(world.preempt(FIRST))
    await world.until(lambda: world.job()["spec"]["suspend"] is True)


async def test_what_its_kind_wants_to_be_on_the_job_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def own_annotations(self: BatchJob, job: dict[str, object]) -> dict[str, str]:
        return {"cluster": "7"}

    monkeypatch.setattr(BatchJob, "own_annotations", own_annotations)
    async with running() as world:
        world.load("job", queued_job(annotations={ELASTIC: "true"}))
        await world.settled()
        world.edit("job", "j", lambda job: job["metadata"]["labels"].update(x="y"))
        await world.settled()
        patches = [c.body["metadata"]["annotations"] for c in world.api.calls if c.plural == "jobs"]
        assert patches == [{"cluster": "7"}]
