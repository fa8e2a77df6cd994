"""One body of tests over NATS itself and over the simulated server. The event loop says which: over NATS it is the usual one, over the simulated
server time jumps. What runs over NATS is marked `integration`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from shared.bus.interface import CaughtUp, FeedItem
from shared.bus.nats_bus import NatsBus, NatsGatewayBus
from shared.testing.virtual_time import VirtualTimeLoop
from tests.contract.bus.servers import RealServer, Server, SimulatedServer

WITHIN_S = 20.0
"""Bound of every wait; far beyond what any of them needs."""


LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, LoopFactory]:
    return {"simulated": _virtual, "nats": asyncio.new_event_loop}


def _virtual() -> asyncio.AbstractEventLoop:
    return VirtualTimeLoop(Random(0))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        chosen = getattr(item, "callspec", None)
        if item.path.is_relative_to(here) and chosen and asyncio.new_event_loop in chosen.params.values():
            item.add_marker(pytest.mark.integration)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    if isinstance(asyncio.get_running_loop(), VirtualTimeLoop):
        yield SimulatedServer()
        return
    real = RealServer(tmp_path)
    async with real.nats:
        yield real


Connect = Callable[..., Awaitable[NatsBus]]


@pytest.fixture
async def service(server: Server) -> AsyncIterator[Connect]:
    """`await service("scheduler")`."""
    async with AsyncExitStack() as stack:

        async def connected(name: str) -> NatsBus:
            bus = await server.bus(name)
            stack.push_async_callback(bus.close)
            return bus

        yield connected


ConnectGateway = Callable[..., Awaitable[NatsGatewayBus]]


@pytest.fixture
async def another_gateway(server: Server) -> AsyncIterator[ConnectGateway]:
    """`await another_gateway()`: a gateway that has made no stream."""
    async with AsyncExitStack() as stack:

        async def connected() -> NatsGatewayBus:
            bus = await server.gateway()
            stack.push_async_callback(bus.close)
            return bus

        yield connected


@pytest.fixture
async def gateway(server: Server) -> AsyncIterator[NatsGatewayBus]:
    """The gateway, with every stream there but no epoch open."""
    bus = await server.gateway(purge_grace_s=0)
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


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait, bounded, until the condition holds."""
    async with asyncio.timeout(WITHIN_S):
        while not await condition():  # noqa: ASYNC110 - what is waited for may be in another process
            await asyncio.sleep(0.02)
