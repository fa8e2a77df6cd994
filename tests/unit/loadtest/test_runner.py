"""A whole run against a small API server whose controller is a few lines: what is created, seen, played and told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web

from loadtest.generator import Plan, plan
from loadtest.runner import Outcome, Runner
from loadtest.shape import Cohort, Kind, QueuesSet, Shape, WorkloadsSet, WorkloadTemplate
from shared.kube.client import KubeClient
from shared.kube.resources import CLUSTER_QUEUES, JOBS, WORKLOADS
from tests.unit.kube.api_server import ApiServer, Document, client_of, status

STEP_S = 0.005


def planned(kind: Kind, *, runtime_ms: int = 20, count: int = 4, queues: int = 2) -> Plan:
    template = WorkloadTemplate(class_name="one", runtime_ms=runtime_ms, request="1")
    sets = (WorkloadsSet(count=count, creation_interval_ms=5, workloads=(template,)),)
    of_queues = (QueuesSet(class_name="cq", count=queues, nominal_quota="4", workloads_sets=sets),)
    return plan(Shape(title="t", kind=kind, cohorts=(Cohort(class_name="c", count=1, queues_sets=of_queues),)))


def true(*types: str) -> list[Document]:
    return [{"type": type_, "status": "True", "reason": "Test"} for type_ in types]


def has(document: Document, type_: str, wanted: str = "True") -> bool:
    conditions = document.get("status", {}).get("conditions", [])
    return any(c["type"] == type_ and c["status"] == wanted for c in conditions)


class Controller:
    """Activates queues and admits every Workload; what `first` says of a key is done with its first admission."""

    def __init__(self, api: ApiServer) -> None:
        self.api = api
        self.evict_once: set[str] = set()
        self.ignore: set[str] = set()
        self.run_jobs = True

    async def run(self) -> None:
        while True:
            for queue in list(self.api.objects.get("clusterqueues", {}).values()):
                if not has(queue, "Active"):
                    await self.api.put(CLUSTER_QUEUES, {**queue, "status": {"conditions": true("Active")}})
            for workload in list(self.api.objects.get("workloads", {}).values()):
                await self._workload(workload)
            for job in list(self.api.objects.get("jobs", {}).values()) if self.run_jobs else ():
                await self._job(job)
            await asyncio.sleep(STEP_S)

    async def _workload(self, workload: Document) -> None:
        name = workload["metadata"]["name"]
        if name in self.ignore or has(workload, "Finished") or has(workload, "Evicted"):
            if has(workload, "Evicted") and has(workload, "QuotaReserved", "False"):
                await self._set(workload, [], None)
        elif not has(workload, "Admitted"):
            await self._set(workload, true("QuotaReserved", "Admitted"), {"clusterQueue": "q"})
        elif name in self.evict_once:
            self.evict_once.discard(name)
            await self._set(workload, true("QuotaReserved", "Admitted", "Evicted"), {"clusterQueue": "q"})

    async def _set(self, workload: Document, conditions: list[Document], admission: Document | None) -> None:
        await self.api.put(WORKLOADS, {**workload, "status": {"conditions": conditions, "admission": admission}})

    async def _job(self, job: Document) -> None:
        suspend = job["spec"].get("suspend")
        if suspend is None:
            await self.api.put(JOBS, {**job, "spec": {**job["spec"], "suspend": True}})
            owner = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
            owner |= {"name": job["metadata"]["name"], "uid": job["metadata"]["uid"]}
            metadata = {
                "namespace": job["metadata"]["namespace"],
                "name": f"job-{job['metadata']['name']}",
                "ownerReferences": [owner],
            }
            await self.api.put(WORKLOADS, {"metadata": metadata})
        elif suspend:
            await self.api.put(JOBS, {**job, "spec": {**job["spec"], "suspend": False}})
        elif not has(job, "Complete"):
            await self.api.put(JOBS, {**job, "status": {"conditions": true("Complete")}})


@asynccontextmanager
async def controlled() -> AsyncIterator[tuple[ApiServer, KubeClient, Controller]]:
    api = ApiServer()
    controller = Controller(api)
    async with client_of(api) as client:
        task = asyncio.create_task(controller.run())
        try:
            yield api, client, controller
        finally:
            task.cancel()
            await asyncio.wait({task})
    assert task.cancelled()


async def finished(
    client: KubeClient,
    made: Plan,
    kind: Kind,
    *,
    timeout_s: float = 10.0,
    progress: Callable[..., Any] = lambda *_: None,
) -> Outcome:
    runner = Runner(client, made, mimic=kind == "Workload", timeout_s=timeout_s, progress=progress)
    await runner.prepare()
    return await runner.run()


async def test_workloads_are_played_to_the_end() -> None:
    made = planned("Workload")
    async with controlled() as (api, client, _):
        outcome = await finished(client, made, "Workload")
    assert outcome.problems == ()
    assert len(outcome.timelines) == 8
    for t in outcome.timelines:
        assert outcome.began <= t.asked <= t.answered <= t.finished <= outcome.ended
        assert t.asked < t.reserved <= t.admitted
        assert t.finished - t.admitted >= t.item.runtime_s
    assert all(has(w, "Finished") and has(w, "Admitted") for w in api.objects["workloads"].values())


async def test_an_evicted_workload_gives_back_its_quota_and_runs_again() -> None:
    made = planned("Workload", runtime_ms=60, count=1)
    name = made.items[0].name
    async with controlled() as (_, client, controller):
        controller.evict_once = {name}
        outcome = await finished(client, made, "Workload")
    assert outcome.problems == ()
    evicted = [t for t in outcome.timelines if t.evictions]
    assert [t.evictions for t in evicted] == [1]
    assert evicted[0].finished - evicted[0].admitted > evicted[0].item.runtime_s
    assert all(t.finished for t in outcome.timelines)


async def test_jobs_are_watched_from_held_to_complete() -> None:
    async with controlled() as (api, client, _):
        # The small server's UIDs are made of names, so those have to differ: one queue.
        outcome = await finished(client, planned("Job", queues=1), "Job")
    assert outcome.problems == ()
    for t in outcome.timelines:
        assert t.held
        assert t.asked < t.started <= t.finished
        assert t.succeeded
        assert t.workload == f"{t.item.namespace}/job-{t.item.name}"
    assert all(not has(w, "Finished") for w in api.objects["workloads"].values())


async def test_a_run_that_does_not_end_ends_at_its_time() -> None:
    made = planned("Workload")
    stuck = made.items[0].name
    async with controlled() as (_, client, controller):
        controller.ignore = {stuck}
        outcome = await finished(client, made, "Workload", timeout_s=0.6)
    assert outcome.problems == ("not done after 0.6 s",)
    assert {t.item.name for t in outcome.timelines if not t.finished} == {stuck}


async def test_faults_are_done_while_admissions_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtest.runner.SETTLE_S", 0.05)
    monkeypatch.setattr("loadtest.runner.FLOWING", 2)
    made = planned("Workload", runtime_ms=100)
    done: list[str] = []
    async with controlled() as (_, client, controller):
        held = {item.name for item in made.items[2:]}
        controller.ignore = held

        async def fault() -> None:
            done.append("fault")
            controller.ignore = set()

        runner = Runner(client, made, mimic=True, timeout_s=10.0, faults={"let go": fault})
        await runner.prepare()
        outcome = await runner.run()
    assert done == ["fault"]
    assert [f.name for f in outcome.faults] == ["let go"]
    assert outcome.began < outcome.faults[0].began < outcome.faults[0].recovered
    late = [t.admitted for t in outcome.timelines if t.item.name in held and t.admitted]
    assert len(late) >= 2
    assert min(late) > outcome.faults[0].began


async def test_what_cannot_be_created_is_told_and_not_waited_for() -> None:
    made = planned("Workload")
    refused: list[str] = []

    async def refuse(request: web.Request) -> web.StreamResponse | None:
        if request.method == "POST" and request.path.endswith("/workloads") and not refused:
            refused.append(msgspec.json.decode(await request.read())["metadata"]["name"])
            return status(403, "Forbidden", "no")
        api.faults.append(refuse)
        return None

    async with controlled() as (api, client, _):
        runner = Runner(client, made, mimic=True, timeout_s=10.0)
        await runner.prepare()
        api.faults.append(refuse)
        outcome = await runner.run()
    assert len(refused) == 1
    assert [p.split(": ")[1] for p in outcome.problems] == ["not created"]
    assert sum(1 for t in outcome.timelines if t.finished) == 7


async def test_progress_ends_at_the_whole() -> None:
    told: list[tuple[int, ...]] = []
    async with controlled() as (_, client, _controller):
        await finished(client, planned("Workload"), "Workload", progress=lambda *done: told.append(done))
    assert told[-1] == (8, 8, 8)
    assert told == sorted(told)


async def test_what_is_there_already_is_left_alone() -> None:
    made = planned("Workload", count=1)
    async with controlled() as (api, client, _):
        runner = Runner(client, made, mimic=True, timeout_s=10.0)
        await runner.prepare()
        await runner.prepare()
        assert len(api.objects["clusterqueues"]) == 2


async def test_a_queue_that_never_becomes_active_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtest.runner.QUEUES_ACTIVE_S", 0.2)
    async with client_of(ApiServer()) as client:
        with pytest.raises(TimeoutError):
            await Runner(client, planned("Job"), mimic=False, timeout_s=1.0).prepare()
