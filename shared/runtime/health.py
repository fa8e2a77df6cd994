"""The HTTP side of a service: /healthz (the process works), /readyz (it does its job), /metrics (Prometheus text)."""

from __future__ import annotations

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest


class Health:
    """Why this service is not ready, by cause; ready when there is no cause left."""

    def __init__(self) -> None:
        self._causes: dict[str, str] = {"start": "starting"}

    def ready(self, is_ready: bool, why: str = "", *, cause: str = "start") -> None:
        """Say whether `cause` (a short word, `start` is set at the beginning) still stands in the way."""
        if is_ready:
            self._causes.pop(cause, None)
        else:
            self._causes[cause] = why or "not ready"

    @property
    def is_ready(self) -> bool:
        """True when nothing stands in the way."""
        return not self._causes

    @property
    def why(self) -> str:
        """The causes, for people."""
        return "; ".join(f"{cause}: {why}" for cause, why in sorted(self._causes.items()))


def application(health: Health, registry: CollectorRegistry) -> web.Application:
    """The three routes."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n") if health.is_ready else web.Response(status=503, text=health.why + "\n")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    return app


async def serve(app: web.Application, host: str, port: int) -> tuple[web.AppRunner, int]:
    """Listen; returns the runner to clean up and the port in use. Raises OSError if the address cannot be had."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    await site.start()
    return runner, int(runner.addresses[0][1])
