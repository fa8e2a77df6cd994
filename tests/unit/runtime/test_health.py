"""/healthz, /readyz and /metrics."""

from __future__ import annotations

import aiohttp
from prometheus_client import CollectorRegistry, Counter

from shared.runtime.health import Health, application, serve


def test_ready_when_no_cause_is_left() -> None:
    health = Health()
    assert (health.is_ready, health.why) == (False, "start: starting")
    health.ready(False, "no stream", cause="bus")
    health.ready(True)
    assert health.why == "bus: no stream"
    health.ready(False, cause="bus")
    assert health.why == "bus: not ready"
    health.ready(True, cause="bus")
    health.ready(True, cause="never set")
    assert health.is_ready


async def test_routes() -> None:
    health, registry = Health(), CollectorRegistry()
    Counter("things", "Things.", registry=registry).inc()
    runner, port = await serve(application(health, registry), "127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

            async def get(path: str) -> tuple[int, str]:
                async with session.get(path) as response:
                    return response.status, await response.text()

            assert await get("/healthz") == (200, "ok\n")
            assert await get("/readyz") == (503, "start: starting\n")
            health.ready(True)
            assert await get("/readyz") == (200, "ok\n")
            assert "things_total 1.0" in (await get("/metrics"))[1]
    finally:
        await runner.cleanup()
