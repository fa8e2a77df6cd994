"""The fence of the decision log, against a real server (R4)."""

import asyncio
from typing import Any

import pytest

from shared.bus.interface import Appended, Logged, LostRace, StreamsLost, Unknown
from shared.bus.nats_bus import NatsBus, NatsGatewayBus
from shared.events import subjects
from shared.events.decisions import Batch, EpochOpened
from shared.testing.simulated_bus.client import SimulatedClient
from tests.contract.bus.conftest import Connect, ConnectGateway, eventually
from tests.contract.bus.messages import batch
from tests.contract.bus.servers import Server


async def read_log(gateway: NatsGatewayBus, count: int, after: int = 0) -> list[Logged]:
    found: list[Logged] = []
    log = gateway.log(shard="0", epoch=1, after=after)
    async with asyncio.timeout(20):
        async for entries in log:
            found += entries
            if len(found) >= count:
                break
    await log.aclose()  # type: ignore[attr-defined]
    return found


async def test_of_two_writers_exactly_one_wins_each_position(gateway: NatsGatewayBus, service: Connect) -> None:
    await gateway.open_epoch(shard="0", epoch=1, objects_position=0, why="test")
    first, second = await service("scheduler"), await service("scheduler")
    winners = []
    for last in range(1, 31):
        results = await asyncio.gather(first.append(batch(last, "first")), second.append(batch(last, "second")))
        assert {type(r) for r in results} == {Appended, LostRace}
        winners += [author for author, r in zip(("first", "second"), results, strict=True) if isinstance(r, Appended)]
        assert [r.position for r in results if isinstance(r, Appended)] == [last + 1]
    entries = await read_log(gateway, 31)
    assert isinstance(entries[0].entry, EpochOpened)
    assert [e.entry.author for e in entries[1:] if isinstance(e.entry, Batch)] == winners
    assert [e.position for e in entries] == list(range(1, 32))


async def test_behind_and_ahead_of_the_log_both_lose(gateway: NatsGatewayBus, service: Connect) -> None:
    await gateway.open_epoch(shard="0", epoch=1, objects_position=0, why="test")
    scheduler = await service("scheduler")
    for wrong in (0, 2, 99):
        assert isinstance(await scheduler.append(batch(wrong, "s")), LostRace)
    assert isinstance(await scheduler.append(batch(1, epoch=2)), LostRace)
    assert await scheduler.append(batch(1, "s")) == Appended(2)


async def test_no_answer_is_unknown_and_the_entry_may_be_there(
    server: Server, gateway: NatsGatewayBus, service: Connect
) -> None:
    await gateway.open_epoch(shard="0", epoch=1, objects_position=0, why="test")
    scheduler = await service("scheduler")
    await server.stall()
    try:
        result = await scheduler.append(batch(1, "stalled"))
    finally:
        await server.resume()
    assert isinstance(result, Unknown)
    entries = await read_log(gateway, 2)
    assert [e.entry.author for e in entries if isinstance(e.entry, Batch)] == ["stalled"]
    # Looking before deciding again is what keeps it from being there twice.
    assert isinstance(await scheduler.append(batch(1, "stalled")), LostRace)


async def test_a_connection_that_breaks_is_unknown_and_one_that_is_away_writes_nothing(
    server: Server, gateway: NatsGatewayBus, service: Connect
) -> None:
    await gateway.open_epoch(shard="0", epoch=1, objects_position=0, why="test")
    scheduler = await service("scheduler")
    await server.stall()
    appending = asyncio.create_task(scheduler.append(batch(1, "broken")))

    async def sent() -> bool:
        return bool(scheduler._connection._waiting)

    await eventually(sent)
    await server.stop()
    assert isinstance(await appending, Unknown)

    async def away() -> bool:
        return not scheduler.connected

    await eventually(away)
    assert isinstance(await scheduler.append(batch(1, "away")), LostRace)
    await server.start()


def break_connection(bus: NatsBus) -> None:
    """The server goes on."""
    client: Any = bus._connection._client
    if isinstance(client, SimulatedClient):
        client.cut()
    else:
        client._transport.close()


async def test_what_a_server_that_was_started_again_has_forgotten_nobody_can_know(
    server: Server, gateway: NatsGatewayBus, service: Connect
) -> None:
    """What it acknowledged last may not have been on its disk, and may have been written over since: the epoch ends."""
    await gateway.open_epoch(shard="0", epoch=1, objects_position=0, why="test")
    await (await service("scheduler")).append(batch(1, "b1"))
    log = gateway.log(shard="0", epoch=1, after=0)

    async def read() -> None:
        async for entries in log:
            if entries[-1].position == 2:
                await server.restart()

    with pytest.raises(StreamsLost, match="started again"):
        async with asyncio.timeout(30):
            await read()
    assert await gateway.check_streams(applied=2, epoch=1) == "the server was started again"
    await gateway.ensure_streams()
    assert await gateway.check_streams(applied=2, epoch=1) == ""


async def make_the_log_anew(gateway: NatsGatewayBus, another: NatsGatewayBus, scheduler: NatsBus) -> None:
    """Under its name, and as long as it was."""
    await gateway._js.delete_stream(subjects.decisions_stream("0", 1))
    await another.open_epoch(shard="0", epoch=1, objects_position=0, why="by somebody else")
    assert await scheduler.append(batch(1, "another")) == Appended(2)


async def test_a_log_made_anew_is_not_the_one_that_was_read(
    gateway: NatsGatewayBus, another_gateway: ConnectGateway, service: Connect
) -> None:
    await gateway.open_epoch(shard="0", epoch=1, objects_position=0, why="test")
    scheduler = await service("scheduler")
    assert await scheduler.append(batch(1, "first")) == Appended(2)
    log = gateway.log(shard="0", epoch=1, after=0)
    found: list[Logged] = []
    async with asyncio.timeout(20):
        while len(found) < 2:
            found += await anext(log)
    await make_the_log_anew(gateway, await another_gateway(), scheduler)
    assert await gateway.check_streams(applied=2, epoch=1) == "stream DECISIONS_0_1 was made anew"
    with pytest.raises(StreamsLost):
        async with asyncio.timeout(20):
            await anext(log)


async def test_a_log_made_anew_is_noticed_by_who_begins_to_read_it(
    gateway: NatsGatewayBus, another_gateway: ConnectGateway, service: Connect
) -> None:
    await gateway.open_epoch(shard="0", epoch=1, objects_position=0, why="test")
    scheduler, kept = await service("scheduler"), gateway.identities
    assert await scheduler.append(batch(1, "first")) == Appended(2)
    await make_the_log_anew(gateway, await another_gateway(), scheduler)
    with pytest.raises(StreamsLost, match="made anew"):
        await read_log(gateway, 2)
    next_one = await another_gateway()
    await next_one.ensure_streams()
    assert await next_one.check_streams(applied=2, epoch=1, known=kept) == "stream DECISIONS_0_1 was made anew"
    del kept["DECISIONS_0_1"]
    assert "not known" in await next_one.check_streams(applied=2, epoch=1, known=kept)


async def test_the_gateway_reads_on_from_where_it_was(gateway: NatsGatewayBus, service: Connect) -> None:
    await gateway.open_epoch(shard="0", epoch=1, objects_position=0, why="test")
    scheduler = await service("scheduler")
    for last in range(1, 5):
        await scheduler.append(batch(last, f"b{last}"))

    async def appended() -> bool:
        return isinstance(await scheduler.append(batch(5, "later")), Appended)

    found: list[int] = []
    log = gateway.log(shard="0", epoch=1, after=2)
    async with asyncio.timeout(30):
        async for entries in log:
            found += [e.position for e in entries]
            if found == [3, 4, 5]:
                break_connection(gateway)
                await eventually(appended)
            if found[-1] == 6:
                break
    await log.aclose()  # type: ignore[attr-defined]
    assert found == [3, 4, 5, 6]


async def test_entries_that_vanish_unread_are_said_to_be_lost(gateway: NatsGatewayBus, service: Connect) -> None:
    await gateway.open_epoch(shard="0", epoch=1, objects_position=0, why="test")
    scheduler = await service("scheduler")
    for last in range(1, 5):
        await scheduler.append(batch(last, "s"))
    await gateway._js.purge_below(subjects.decisions_stream("0", 1), 5)
    with pytest.raises(StreamsLost, match="removed unseen"):
        await read_log(gateway, 3, after=2)


async def test_an_epoch_is_opened_once_and_ends_the_ones_before(gateway: NatsGatewayBus) -> None:
    for epoch in (1, 2):
        await gateway.open_epoch(shard="0", epoch=epoch, objects_position=0, why="test")
    assert await gateway.epochs("0") == [2]
    with pytest.raises(StreamsLost, match="cannot be opened"):
        await gateway.open_epoch(shard="0", epoch=2, objects_position=0, why="test")
    with pytest.raises(StreamsLost, match="later epoch"):
        await gateway.open_epoch(shard="0", epoch=1, objects_position=0, why="test")
