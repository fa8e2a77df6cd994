"""One readiness and one page of metrics over several services, some of which do not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.parser import text_string_to_metric_families

from devcluster.ports import free_ports
from shared.runtime import overview
from shared.runtime.health import Health, application, serve
from shared.runtime.overview import Address, merged


class Service:
    """A health page as every service has one."""

    def __init__(self) -> None:
        self.health = Health()
        self.registry = CollectorRegistry()
        self.url = ""


@asynccontextmanager
async def running(*services: Service) -> AsyncIterator[None]:
    runners = []
    for service in services:
        runner, port = await serve(application(service.health, service.registry), "127.0.0.1", 0)
        service.url = f"http://127.0.0.1:{port}"
        runners.append(runner)
    try:
        yield
    finally:
        for runner in runners:
            await runner.cleanup()


@asynccontextmanager
async def listening(
    parts: dict[str, str], health: Address | None, metrics: Address | None
) -> AsyncIterator[aiohttp.ClientSession]:
    task = asyncio.create_task(overview.run(parts, health, metrics))
    port = (health or metrics or Address("", 0)).port
    try:
        async with aiohttp.ClientSession() as session, asyncio.timeout(20):
            while True:
                with suppress(aiohttp.ClientError):
                    await session.get(f"http://127.0.0.1:{port}/")
                    break
                if task.done():
                    task.result()
                await asyncio.sleep(0.005)
            yield session
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def get(session: aiohttp.ClientSession, port: int, path: str) -> tuple[int, str]:
    async with session.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status, await response.text()


async def test_ready_when_all_are() -> None:
    a, b = Service(), Service()
    (port,) = free_ports(1)
    async with running(a, b):
        parts = {"a": a.url, "b": b.url}
        async with listening(parts, Address("127.0.0.1", port), None) as session:
            assert await get(session, port, "/healthz") == (200, "ok\n")
            assert await get(session, port, "/readyz") == (503, "a: start: starting\nb: start: starting\n")
            a.health.ready(True)
            assert await get(session, port, "/readyz") == (503, "b: start: starting\n")
            b.health.ready(True)
            assert await get(session, port, "/readyz") == (200, "ok\n")
            b.health.ready(False, "gone", cause="bus")
            assert await get(session, port, "/readyz") == (503, "b: bus: gone\n")
            assert (await get(session, port, "/metrics"))[0] == 404


async def test_one_that_does_not_answer_is_not_ready() -> None:
    a = Service()
    a.health.ready(True)
    port, nobody = free_ports(2)
    async with running(a):
        parts = {"a": a.url, "b": f"http://127.0.0.1:{nobody}"}
        address = Address("127.0.0.1", port)
        async with listening(parts, address, address) as session:
            status, text = await get(session, port, "/readyz")
            assert status == 503
            assert text.startswith("b: no answer: ")
            # The series of the others are there all the same, here on the same port.
            assert (await get(session, port, "/metrics"))[0] == 200


async def test_all_series_on_one_page() -> None:
    a, b = Service(), Service()
    Counter("kueue_things", "Things.", ["kind"], registry=a.registry).labels("x").inc(3)
    for service, value in ((a, 1), (b, 2)):
        Gauge("process_size", "Size.", registry=service.registry).set(value)
        Gauge("sluice_by", "By.", ["kind"], registry=service.registry).labels('q"}').set(value)
    Histogram("sluice_seconds", "Seconds.", ["service"], registry=b.registry, buckets=(1,)).labels("own").observe(0.5)
    health, metrics = free_ports(2)
    async with running(a, b):
        parts = {"a": a.url, "b": b.url}
        async with listening(parts, Address("127.0.0.1", health), Address("127.0.0.1", metrics)) as session:
            _, page = await get(session, metrics, "/metrics")
            assert (await get(session, health, "/metrics"))[0] == 404
    families = {f.name: f for f in text_string_to_metric_families(page)}
    assert [(s.labels, s.value) for s in families["kueue_things"].samples if s.name.endswith("total")] == [
        ({"kind": "x"}, 3.0)
    ]
    assert [(s.labels, s.value) for s in families["process_size"].samples] == [
        ({"service": "a"}, 1.0),
        ({"service": "b"}, 2.0),
    ]
    assert [s.labels for s in families["sluice_by"].samples] == [
        {"service": "a", "kind": 'q"}'},
        {"service": "b", "kind": 'q"}'},
    ]
    assert {s.labels["service"] for s in families["sluice_seconds"].samples} == {"own"}
    assert page.count("# TYPE process_size gauge") == 1


def test_nothing_to_show() -> None:
    assert merged({}) == ""
    assert merged({"a": "", "b": "\n"}) == ""


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("a 1", 'a{service="s"} 1'),
        ("a{} 1", 'a{service="s"} 1'),
        ('a{b="c"} 1', 'a{service="s",b="c"} 1'),
        ("kueue_a 1", "kueue_a 1"),
        ('a{service="x"} 1', 'a{service="x"} 1'),
        ('a{b="c",service="x"} 1', 'a{b="c",service="x"} 1'),
    ],
)
def test_labels(line: str, shown: str) -> None:
    assert merged({"s": f"# HELP a A.\n# TYPE a gauge\n{line}\n"}).splitlines()[-1] == shown


async def test_an_address_that_is_taken() -> None:
    a = Service()
    async with running(a):
        taken = int(a.url.rpartition(":")[2])
        with pytest.raises(OSError):
            await overview.run({}, Address("127.0.0.1", taken), None)
