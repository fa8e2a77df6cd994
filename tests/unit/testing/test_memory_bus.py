from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from shared.bus.interface import (
    Appended,
    Bus,
    CaughtUp,
    FeedItem,
    GatewayBus,
    Logged,
    LostRace,
    ObjectChanged,
    ObjectWrite,
    Reset,
    Settled,
    Unknown,
)
from shared.events.commands import SetActive
from shared.events.decisions import Batch, DecisionId, EpochOpened, Positions
from shared.events.objects import Tombstone
from shared.events.outcomes import DecisionOutcome
from shared.events.subjects import ObjectName
from shared.testing.memory_bus import MemoryBroker
from tests.unit.state.builders import flavor, namespace, workload

W = ObjectName("workload", "ns", "a")


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


def batch(after: int, epoch: int = 1) -> Batch:
    return Batch(author="x", positions=Positions(epoch=epoch, decisions=after), decided_ns=1)


async def next_items(feed: AsyncIterator[list[FeedItem]]) -> list[FeedItem]:
    return await asyncio.wait_for(anext(feed), 2.0)


def test_it_is_what_the_interface_says(broker: MemoryBroker) -> None:
    bus: Bus = broker.bus("scheduler")
    gateway: GatewayBus = broker.gateway()
    assert (bus.service, gateway.service) == ("scheduler", "watcher")


async def test_a_feed_replays_then_follows(broker: MemoryBroker) -> None:
    gateway = broker.gateway()
    await gateway.put_objects(
        [ObjectWrite(W, workload("a")), ObjectWrite(ObjectName("namespace", "", "ns"), namespace())]
    )
    await gateway.open_epoch(shard="0", epoch=1, objects_position=2, why="first")
    feed = broker.bus("s").feed(kinds=["workload"], decisions=True, outcomes=True)
    items = aiter(feed)
    reset, change, opened, caught_up = await next_items(items)
    assert reset == Reset(1, "start")
    assert isinstance(change, ObjectChanged)
    assert (change.name, change.position) == (W, 1)
    assert isinstance(opened, Logged)
    assert isinstance(opened.entry, EpochOpened)
    assert isinstance(caught_up, CaughtUp)
    assert caught_up.positions == feed.positions
    outcome = DecisionOutcome(decision=DecisionId(1, 2, 0), key="ns/a", uid="u", status="applied", version=3)
    await gateway.settle([outcome])
    assert await next_items(items) == [Settled(outcome, 1)]


async def test_no_epoch_is_epoch_zero_and_never_caught_up(broker: MemoryBroker) -> None:
    items = aiter(broker.bus("s").feed(kinds=["workload"]))
    assert await next_items(items) == [Reset(0, "start")]
    await broker.gateway().put_objects([ObjectWrite(W, workload("a"))])
    assert [type(item) for item in await next_items(items)] == [ObjectChanged]


async def test_objects_are_compared_and_set(broker: MemoryBroker) -> None:
    gateway = broker.gateway()
    assert await gateway.put_objects([ObjectWrite(W, workload("a", version=5))]) == 1
    assert await gateway.put_objects([ObjectWrite(W, workload("a", version=5))]) == 1
    assert await gateway.put_objects([ObjectWrite(W, Tombstone(name="a", version=4))]) == 1
    assert await gateway.put_objects([ObjectWrite(W, workload("a", version=6))]) == 2
    assert await gateway.put_objects([ObjectWrite(W, workload("a", version=1, uid="new"))]) == 3
    assert [position for position, _ in (await gateway.load_objects()).values()] == [3]


async def test_the_fence_lets_one_in(broker: MemoryBroker) -> None:
    await broker.gateway().open_epoch(shard="0", epoch=1, objects_position=0, why="")
    bus = broker.bus("scheduler")
    assert await bus.append(batch(1)) == Appended(2)
    assert isinstance(await bus.append(batch(1)), LostRace)
    assert isinstance(await bus.append(batch(2, epoch=7)), LostRace)
    assert await bus.append(batch(2)) == Appended(3)


async def test_unknown_appends_are_written_or_not(broker: MemoryBroker) -> None:
    await broker.gateway().open_epoch(shard="0", epoch=1, objects_position=0, why="")
    bus = broker.bus("scheduler")
    broker.append_faults.extend(["unknown_lost", "unknown_written"])
    assert isinstance(await bus.append(batch(1)), Unknown)
    assert len(broker.logs["0", 1]) == 1
    assert isinstance(await bus.append(batch(1)), Unknown)
    assert len(broker.logs["0", 1]) == 2


async def test_held_streams_wait(broker: MemoryBroker) -> None:
    gateway = broker.gateway()
    await gateway.open_epoch(shard="0", epoch=1, objects_position=0, why="")
    items = aiter(broker.bus("s").feed(kinds=["resourceflavor"], decisions=True))
    await next_items(items)
    broker.hold("objects")
    await gateway.put_objects([ObjectWrite(ObjectName("resourceflavor", "", "f"), flavor("f"))])
    await broker.bus("scheduler").append(batch(1))
    assert [type(item) for item in await next_items(items)] == [Logged]
    broker.release("objects")
    assert [type(item) for item in await next_items(items)] == [ObjectChanged]


@pytest.mark.parametrize("how", ["epoch", "wipe"])
async def test_what_voids_the_past_is_a_reset(broker: MemoryBroker, how: str) -> None:
    gateway = broker.gateway()
    await gateway.open_epoch(shard="0", epoch=1, objects_position=0, why="")
    items = aiter(broker.bus("s").feed(kinds=["workload"], decisions=True))
    await next_items(items)
    if how == "wipe":
        broker.wipe()
        assert [type(item) for item in await next_items(items)] == [Reset]
    await gateway.open_epoch(shard="0", epoch=2, objects_position=0, why="")
    assert [type(item) for item in await next_items(items)] == [Reset, Logged, CaughtUp]


async def test_a_lease_goes_to_the_next_in_line(broker: MemoryBroker) -> None:
    first, second = broker.bus("a"), broker.bus("b")
    one, two = first.lease("scheduler"), second.lease("scheduler")
    await one.wait_until_held()
    assert (one.held, two.held) == (True, False)
    await first.close()
    await asyncio.wait_for(two.wait_until_held(), 2.0)
    assert (one.held, two.held) == (False, True)


async def test_commands_are_kept_per_subject_until_closed(broker: MemoryBroker) -> None:
    bus, gateway = broker.bus("preemptor"), broker.gateway()
    await bus.command([SetActive(id="1", kind="workload", namespace="ns", name="a", active=False)])
    [first] = await asyncio.wait_for(anext(aiter(gateway.commands())), 2.0)
    await bus.command([SetActive(id="2", kind="workload", namespace="ns", name="a", active=False)])
    await gateway.close_commands([first])
    assert [open_.command.id for open_ in broker.commands.values()] == ["2"]
    await gateway.move_aside(next(iter(broker.commands.values())), attempts=5, error="bad")
    assert broker.commands == {}
    assert [letter.error for letter in broker.dead] == ["bad"]


async def test_purging_keeps_positions(broker: MemoryBroker) -> None:
    gateway, bus = broker.gateway(), broker.bus("scheduler")
    await gateway.open_epoch(shard="0", epoch=1, objects_position=0, why="")
    await bus.append(batch(1))
    await gateway.purge_settled(shard="0", epoch=1, decisions=3)
    assert broker.logs["0", 1] == []
    assert await bus.append(batch(2)) == Appended(3)


async def test_requests_reach_who_serves(broker: MemoryBroker) -> None:
    async def answer(payload: bytes) -> bytes:
        return payload.upper()

    await broker.bus("scheduler").serve("shout", answer)
    assert await broker.bus("x").request("scheduler", "shout", b"hi", 1.0) == b"HI"
    with pytest.raises(TimeoutError):
        await broker.bus("x").request("scheduler", "nothing", b"", 1.0)
