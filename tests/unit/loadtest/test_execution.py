"""What is written for whom and when, against a small API server that keeps resourceVersions."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import msgspec
import pytest
from aiohttp import web

from loadtest.changes import Purpose
from loadtest.execution import Execution
from loadtest.observation import Seen, seen_decoder
from loadtest.timeline import Timeline
from shared.kube.client import KubeClient
from shared.kube.resources import WORKLOADS
from tests.unit.kube.api_server import ApiServer, Document, client_of, status, until
from tests.unit.loadtest.items import item

KEY = ("ns", "a")


def conditions(*true: str) -> list[Document]:
    return [{"type": type_, "status": "True", "reason": "Test", "message": "kept"} for type_ in true]


def document(*true: str) -> Document:
    return {
        "metadata": {"namespace": "ns", "name": "a"},
        "status": {"conditions": conditions(*true), "admission": {"clusterQueue": "q"}},
    }


class Fixture:
    def __init__(self, api: ApiServer, client: KubeClient, execution: Execution) -> None:
        self.api, self.client, self.execution = api, client, execution
        self.timeline = Timeline(msgspec.structs.replace(item("a"), runtime_s=0.0))
        self.writes: list[bytes] = []

    async def put(self, *true: str) -> Seen:
        """The Workload in this state, as the watch shows it."""
        await self.api.put(WORKLOADS, document(*true))
        return await self.read()

    async def read(self) -> Seen:
        return seen_decoder.decode(await self.client.get(WORKLOADS, *KEY))

    async def wait(self, purpose: Purpose, count: int = 1) -> None:
        await until(lambda: self.execution.written[purpose] == count)


@contextlib.asynccontextmanager
async def playing() -> AsyncIterator[Fixture]:
    api = ApiServer()
    async with client_of(api) as client:
        execution = Execution(client)
        task = asyncio.create_task(execution.run())
        try:
            yield Fixture(api, client, execution)
        finally:
            task.cancel()
            await asyncio.wait({task})
    assert task.cancelled()


async def test_it_finishes_after_its_run_time_and_not_before() -> None:
    async with playing() as f:
        f.timeline.item = msgspec.structs.replace(f.timeline.item, runtime_s=0.15)
        f.timeline.current = time.time()
        f.execution.admitted(f.timeline, await f.put("QuotaReserved", "Admitted"))
        await f.wait("finish")
        assert time.time() - f.timeline.current >= 0.15
        seen = await f.read()
    assert [c.type for c in seen.status.conditions] == ["QuotaReserved", "Admitted", "Finished"]
    finished = seen.find("Finished")
    assert finished is not None
    assert (finished.reason, finished.message) == ("ByTest", "By test runner")
    # What others wrote is written back as it was.
    assert {c.message for c in seen.status.conditions if c.type != "Finished"} == {"kept"}


async def test_what_is_due_sooner_goes_first() -> None:
    async with playing() as f:
        late = msgspec.structs.replace(f.timeline, item=msgspec.structs.replace(item("b"), runtime_s=3600.0))
        late.current = f.timeline.current = time.time()
        seen = await f.put("QuotaReserved", "Admitted")
        f.execution.admitted(late, seen)
        f.execution.admitted(f.timeline, seen)
        await f.wait("finish")
    assert f.execution.problems == []


async def test_who_is_evicted_gives_back_reservation_and_admission_in_one_write() -> None:
    async with playing() as f:
        f.execution.evicted(f.timeline, await f.put("QuotaReserved", "Admitted", "Evicted"))
        await f.wait("release")
        seen = await f.read()
        raw = msgspec.json.decode(await f.client.get(WORKLOADS, *KEY))
    states = {c.type: (c.status, c.reason) for c in seen.status.conditions}
    assert states["QuotaReserved"] == ("False", "Pending")
    assert states["Admitted"] == ("False", "NoReservation")
    assert states["Evicted"][0] == "True"
    assert not raw["status"].get("admission")


async def test_an_eviction_makes_the_planned_end_void() -> None:
    async with playing() as f:
        f.timeline.item = msgspec.structs.replace(f.timeline.item, runtime_s=0.1)
        f.timeline.current = time.time()
        f.execution.admitted(f.timeline, await f.put("QuotaReserved", "Admitted"))
        f.execution.evicted(f.timeline, await f.put("QuotaReserved", "Admitted", "Evicted"))
        await f.wait("release")
        f.timeline.current = time.time()
        f.execution.admitted(f.timeline, await f.put("QuotaReserved", "Admitted"))
        again = f.timeline.current
        await f.wait("finish")
        assert time.time() - again >= 0.1
    assert f.execution.written == {"release": 1, "finish": 1}


async def test_after_a_conflict_the_present_state_decides() -> None:
    async with playing() as f:
        old = await f.put("QuotaReserved", "Admitted")
        await f.put("QuotaReserved", "Admitted", "PodsReady")
        f.execution.admitted(f.timeline, old)
        await f.wait("finish")
        assert (await f.read()).is_true("PodsReady")
        # Meanwhile evicted: there is nothing to finish.
        old = await f.put("QuotaReserved", "Admitted")
        await f.put("QuotaReserved", "Admitted", "Evicted")
        f.execution.admitted(f.timeline, old)
        f.execution.evicted(f.timeline, await f.read())
        await f.wait("release")
    assert f.execution.written["finish"] == 1


async def test_a_server_that_does_not_answer_is_asked_again() -> None:
    left = [2]

    async def busy(request: web.Request) -> web.StreamResponse | None:
        if request.method == "PATCH" and left[0]:
            left[0] -= 1
            f.api.faults.append(busy)
            return status(504, "Timeout", "try again")
        if request.method != "PATCH":
            f.api.faults.append(busy)
        return None

    async with playing() as f:
        seen = await f.put("QuotaReserved", "Admitted")
        f.api.faults.append(busy)
        f.execution.admitted(f.timeline, seen)
        await f.wait("finish")
    assert left == [0]
    assert f.execution.problems == []


async def test_a_workload_that_is_gone_is_a_problem_and_stops_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtest.execution.ATTEMPTS", 2)
    monkeypatch.setattr("loadtest.execution.PAUSE_S", 0.001)
    async with playing() as f:
        seen = await f.put("QuotaReserved", "Admitted")
        gone = msgspec.structs.replace(f.timeline, item=item("gone"))
        evicted = await f.put("QuotaReserved", "Evicted")
        f.execution.evicted(gone, msgspec.structs.replace(seen, status=evicted.status))
        await until(lambda: len(f.execution.problems) == 1)
        f.execution.admitted(f.timeline, await f.put("QuotaReserved", "Admitted"))
        await f.wait("finish")
    assert f.execution.problems[0].startswith("ns/gone: ")
