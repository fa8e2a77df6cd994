"""Where one replica of a service runs: a process in virtual time with links of its own, a clock of its own, and nothing in its memory when it starts."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
from opentelemetry.trace import NoOpTracer
from prometheus_client import CollectorRegistry

from services.scheduler.service import Scheduler
from services.watcher.store import Store
from services.webhook.handlers import Handler, Handlers
from services.webhook.known_objects import KINDS as WEBHOOK_KINDS
from services.webhook.known_objects import KnownObjects
from services.webhook.settings import WebhookSettings
from shared.bus.interface import Bus, CaughtUp
from shared.config.configuration import Configuration, Configured
from shared.config.settings import BaseSettings
from shared.kube.client import KubeClient
from shared.runtime.health import Health
from shared.runtime.service import Context
from shared.testing.link import Link
from shared.testing.virtual_time import Process
from tests.simulation.scenario import SYSTEM

if TYPE_CHECKING:
    from tests.simulation.world import World

GATEWAY_USER = "system:serviceaccount:kueue-system:sluice-watcher"
_CONFIGURED = {True: Configured(), False: Configured(configuration=Configuration(wait_for_pods_ready=None))}


class SimulatedContext(Context[Any]):
    """A context whose clock is the slot's."""

    def __init__(self, slot: Slot, settings: BaseSettings, bus: Bus) -> None:
        configured = _CONFIGURED[slot.world.scenario.pods_ready]
        super().__init__(slot.service, settings, bus, slot.health, CollectorRegistry(), NoOpTracer(), configured)
        self._slot = slot

    def now(self) -> float:
        return self._slot.wall()


class Slot:
    """Where one replica runs; `start` begins a process, of which any number follow each other here."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.service = name.rpartition("-")[0]
        self.skew = 0.0
        """Seconds by which its clock is wrong."""
        self.starts = 0
        self.process: Process | None = None
        self.task: asyncio.Task[None] | None = None
        self.health = Health()
        self.api: Link | None = None
        self.bus: Link | None = None
        self.delays: dict[str, tuple[float, float]] = {"api": (0.001, 0.01), "bus": (0.0005, 0.008)}
        self.armed: tuple[str, str, float] | None = None
        """(way, part of what passes, seconds to stay away): at that passage it is killed."""
        self.store: Store | None = None
        self.scheduler: Scheduler | None = None
        self.reviews: dict[str, Handler] = {}

    def wall(self) -> float:
        """Seconds since the epoch by its clock."""
        return self.world.loop.wall() + self.skew

    @property
    def runs(self) -> bool:
        """Is there a process, paused or not?"""
        return self.process is not None

    def start(self) -> None:
        """A new process with nothing in its memory."""
        if self.process is not None:
            return
        self.starts += 1
        process = self.process = Process(f"{self.name}#{self.starts}")
        self.health = Health()
        self.store = self.scheduler = None
        self.reviews = {}
        self.api, self.bus = self._link("api"), self._link("bus")
        self.task = self.world.loop.spawn(process, self._main())
        self.task.add_done_callback(lambda task: self.world.ended(self, process, task), context=self.world.context)

    def _link(self, which: str) -> Link:
        return Link(
            Random(self.world.draw.getrandbits(64)),
            delay_s=self.delays[which],
            passing=lambda way, what: self.world.passing(self, way, what),
        )

    async def _main(self) -> None:
        world, service = self.world, self.service
        bus: Bus = world.broker.gateway(self.bus) if service == "watcher" else world.broker.bus(service, self.bus)
        settings, serve = world.wiring[service]
        if service == "watcher":
            settings = msgspec.structs.replace(settings, instance=f"{self.name}-{self.starts}")
        await serve(SimulatedContext(self, settings, bus))

    async def serve_webhook(self, ctx: Context[WebhookSettings]) -> None:
        """The webhook without its HTTPS: what it answers is asked for by the API server's hook."""
        client = self.client(timeout_s=ctx.settings.api_timeout_s)
        known = KnownObjects(client)
        self.reviews = Handlers(ctx.settings, known, client, ctx.configured).routes()
        async for items in ctx.bus.feed(kinds=WEBHOOK_KINDS):
            for item in items:
                known.apply(item)
                if isinstance(item, CaughtUp):
                    ctx.health.ready(True)

    def client(self, timeout_s: float) -> KubeClient:
        """A client of this process."""
        user = GATEWAY_USER if self.service == "watcher" else f"system:serviceaccount:{SYSTEM}:sluice-{self.service}"
        return self.world.api.client(self.api, user=user, timeout_s=timeout_s)

    def forget(self) -> None:
        """The process is gone."""
        process, self.process, self.task = self.process, None, None
        self.armed = None
        self.reviews = {}
        if process is None:
            return
        self.world.loop.kill_process(process)
        for link in (self.api, self.bus):
            if link is not None:
                link.kill()
