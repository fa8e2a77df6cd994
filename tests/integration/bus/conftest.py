"""A real NATS server with the generated permissions, and connections of every user that end with the test."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from devcluster.nats_server import NatsServer
from shared.bus.interface import CaughtUp, FeedItem, ObjectWrite
from shared.bus.nats_bus import NatsBus, NatsGatewayBus, connect
from shared.events import objects
from shared.events.subjects import ObjectName

WITHIN_S = 20.0
"""Bound of every wait; far beyond what any of them needs."""


@pytest.fixture
async def nats(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with NatsServer(tmp_path, readers={"events_reader": (), "team_a_reader": ("team-a",)}) as server:
        yield server


Connect = Callable[..., Awaitable[NatsBus]]


@pytest.fixture
async def service(nats: NatsServer) -> AsyncIterator[Connect]:
    """`await service("scheduler")`."""
    async with AsyncExitStack() as stack:

        async def connected(name: str, **options: Any) -> NatsBus:
            bus: NatsBus = await connect(name, nats.url, name, nats.password(name), **options)
            stack.push_async_callback(bus.close)
            return bus

        yield connected


@pytest.fixture
async def gateway(nats: NatsServer) -> AsyncIterator[NatsGatewayBus]:
    """The gateway, with every stream there but no epoch open."""
    bus = await connect("watcher", nats.url, "watcher", nats.password("watcher"), gateway=True, purge_grace_s=0)
    await bus.ensure_streams()
    yield bus
    await bus.close()


class Reader:
    """Reads a feed until something has come; remembers all that came."""

    def __init__(self, bus: NatsBus, **what: Any) -> None:
        self.feed = bus.feed(**what)
        self._steps = self.feed.__aiter__()
        self.items: list[FeedItem] = []

    async def until(self, condition: Callable[[list[FeedItem]], bool]) -> list[FeedItem]:
        """Items since the last call, up to the list after which the condition holds for them."""
        start = len(self.items)
        async with asyncio.timeout(WITHIN_S):
            while not condition(self.items[start:]):
                self.items += await anext(self._steps)
        return self.items[start:]

    async def caught_up(self) -> list[FeedItem]:
        return await self.until(lambda items: any(isinstance(i, CaughtUp) for i in items))

    async def close(self) -> None:
        await self._steps.aclose()  # type: ignore[attr-defined]


@pytest.fixture
async def read() -> AsyncIterator[Callable[..., Reader]]:
    """`read(bus, kinds=[...], decisions=True)`."""
    async with AsyncExitStack() as stack:

        def reader(bus: NatsBus, **what: Any) -> Reader:
            made = Reader(bus, **what)
            stack.push_async_callback(made.close)
            return made

        yield reader


def workload(name: str, version: int, *, namespace: str = "team-a", uid: str = "", **fields: Any) -> ObjectWrite:
    found = objects.Workload(namespace=namespace, name=name, uid=uid or f"uid-{name}", version=version, **fields)
    return ObjectWrite(ObjectName("workload", namespace, name), found)


def tombstone(name: str, version: int, *, namespace: str = "team-a") -> ObjectWrite:
    gone = objects.Tombstone(namespace=namespace, name=name, uid=f"uid-{name}", version=version)
    return ObjectWrite(ObjectName("workload", namespace, name), gone)


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait, bounded, until the condition holds."""
    async with asyncio.timeout(WITHIN_S):
        while not await condition():  # noqa: ASYNC110 - what is waited for is in another process
            await asyncio.sleep(0.02)
