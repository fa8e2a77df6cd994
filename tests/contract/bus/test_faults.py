"""The faults that only the simulated server can be asked for: each does to our code what its name says, and the same seed does it in the same way."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from shared.bus.interface import (
    Appended,
    AppendResult,
    FeedItem,
    Logged,
    LostRace,
    ObjectChanged,
    Refused,
    Reset,
    Settled,
    Unknown,
)
from shared.bus.nats_bus import NatsGatewayBus
from shared.bus.publishing import Outgoing
from shared.events.streams import LEASE_TTL_S
from shared.testing.link import Link
from shared.testing.simulated_bus import Fault, Publish, SimulatedBroker
from shared.testing.simulated_bus.client import SimulatedClient
from tests.contract.bus.conftest import Connect, Reader
from tests.contract.bus.messages import batch, has, names, rejected, workload
from tests.contract.bus.servers import Server, SimulatedServer

pytestmark = pytest.mark.asyncio(loop_factories=["simulated"])

Read = Callable[..., Reader]


@pytest.fixture
def broker(server: Server) -> SimulatedBroker:
    assert isinstance(server, SimulatedServer)
    return server.broker


@pytest.fixture
async def opened(gateway: NatsGatewayBus) -> NatsGatewayBus:
    """The gateway, with an epoch."""
    await gateway.open_epoch(shard="0", epoch=1, objects_position=0, why="test")
    return gateway


def once(broker: SimulatedBroker, stream: str, fault: Fault) -> None:
    """The next message to a stream meets the fault."""

    def judge(publish: Publish) -> Fault | None:
        if not publish.stream.startswith(stream):
            return None
        broker.fault = None
        return fault

    broker.fault = judge


@pytest.mark.parametrize(
    ("fault", "result", "at_once", "later"),
    [
        ("lose", Unknown, 1, 1),
        ("lose_ack", Unknown, 2, 2),
        ("break_before", Unknown, 1, 1),
        ("break_after", Unknown, 2, 2),
        ("break_late", Unknown, 1, 2),
        ("twice", Appended, 2, 2),
        ("full", Refused, 1, 1),
    ],
)
async def test_what_becomes_of_an_append(
    broker: SimulatedBroker,
    opened: NatsGatewayBus,
    service: Connect,
    fault: Fault,
    result: type[AppendResult],
    at_once: int,
    later: int,
) -> None:
    scheduler = await service("scheduler")
    once(broker, "DECISIONS", fault)
    assert type(await scheduler.append(batch(1))) is result
    assert broker.streams["DECISIONS_0_1"].last == at_once
    await asyncio.sleep(1)
    assert broker.streams["DECISIONS_0_1"].last == later
    # Whatever it was, the fence holds and the next one goes through.
    assert await scheduler.append(batch(later)) == Appended(later + 1)


async def test_what_was_not_sent_when_a_connection_broke_is_not_sent_on_the_next(
    broker: SimulatedBroker, opened: NatsGatewayBus
) -> None:
    client = broker.connection("watcher")._client
    assert isinstance(client, SimulatedClient)
    subject = "sluice.events.team-a.workload.admitted.w"
    for turn in range(1, 13):
        await client.publish(subject, b"before")
        broker.disconnect()
        assert not client.is_connected
        await client.publish(subject, b"meanwhile")
        async with asyncio.timeout(5):
            while broker.streams["EVENTS"].last < turn:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.1)
    assert {message.payload for message in broker.streams["EVENTS"].messages.values()} == {b"meanwhile"}


async def test_a_late_message_of_an_old_connection_ends_with_its_server(
    broker: SimulatedBroker, opened: NatsGatewayBus, service: Connect
) -> None:
    scheduler = await service("scheduler")
    once(broker, "DECISIONS", "break_late")
    assert isinstance(await scheduler.append(batch(1)), Unknown)
    broker.restart()
    await asyncio.sleep(1)
    assert broker.streams["DECISIONS_0_1"].last == 1


async def test_outcomes_come_twice_when_an_acknowledgement_is_lost_and_commands_do_not(
    broker: SimulatedBroker, opened: NatsGatewayBus
) -> None:
    for fault in ("lose_ack", "break_after", "twice"):
        once(broker, "OUTCOMES", fault)
        await opened.settle([rejected(2)])
    assert broker.streams["OUTCOMES"].last == 6
    once(broker, "OUTCOMES", "full")
    await opened.settle([rejected(2)])
    assert broker.streams["OUTCOMES"].last == 7
    once(broker, "EVENTS", "lose_ack")
    await opened.emit([("sluice.events.team-a.workload.admitted.w", b'{"id":"1"}')])
    assert broker.streams["EVENTS"].last == 1


async def test_a_stream_without_room_refuses_until_there_is_some(
    broker: SimulatedBroker, opened: NatsGatewayBus, service: Connect
) -> None:
    scheduler = await service("scheduler")
    broker.limit("DECISIONS_0_1", 200)
    last = 1
    while isinstance(result := await scheduler.append(batch(last)), Appended):
        last = result.position
    assert isinstance(result, Refused)
    assert 1 <= last < 5
    broker.limit("DECISIONS_0_1", -1)
    broker.streams["DECISIONS_0_1"].full = True
    assert isinstance(await scheduler.append(batch(last)), Refused)
    broker.streams["DECISIONS_0_1"].full = False
    assert await scheduler.append(batch(last)) == Appended(last + 1)


async def test_what_cannot_be_stored_for_a_while_is_told_until_it_can(
    broker: SimulatedBroker, opened: NatsGatewayBus
) -> None:
    broker.streams["EVENTS"].full = True
    emitting = asyncio.create_task(opened.emit([("sluice.events.team-a.workload.admitted.w", b"{}")]))
    await asyncio.sleep(1)
    assert opened.trouble == "", "a bad moment is none"
    await asyncio.sleep(8)
    assert opened.trouble == "sluice.events cannot be written: no space left on device"
    # What goes on elsewhere does not hide it.
    await opened.put_objects([workload("a", 1)])
    assert opened.trouble
    broker.streams["EVENTS"].full = False
    await emitting
    assert opened.trouble == ""


@pytest.mark.parametrize("how", ["delivery", "consumer", "connection", "server", "stall"])
async def test_a_reader_reads_on(
    broker: SimulatedBroker, opened: NatsGatewayBus, service: Connect, read: Read, how: str
) -> None:
    scheduler = await service("scheduler")
    reader = read(scheduler, kinds=["workload"], decisions=True, outcomes=True)
    await reader.caught_up()
    began = asyncio.get_running_loop().time()
    match how:
        case "delivery":
            broker.drop_delivery("objects", service="scheduler")
        case "consumer":
            broker.drop_consumers(service="scheduler")
        case "connection":
            scheduler._connection._client.cut()  # type: ignore[attr-defined]
        case "server":
            broker.restart()
        case "stall":
            broker.stall()
            asyncio.get_running_loop().call_later(10, broker.resume)
    await opened.put_objects([workload("a", 1)])
    await opened.put_objects([workload("b", 2)])
    items = await reader.until(has("b"))
    assert names(items) == ["a", "b"]
    assert not any(isinstance(i, Reset) for i in items)
    assert scheduler.counters.resumes >= 1
    # Silence takes a while to be noticed; a connection that came back is one that tells.
    took = asyncio.get_running_loop().time() - began
    assert took < (0.5 if how in ("delivery", "connection", "server") else 12)


async def test_streams_overtake_each_other(
    broker: SimulatedBroker, opened: NatsGatewayBus, service: Connect, read: Read
) -> None:
    scheduler, metrics = await service("scheduler"), await service("metrics")
    reader = read(scheduler, kinds=["workload"], decisions=True, outcomes=True)
    other = read(metrics, kinds=["workload"], decisions=True, outcomes=True)
    await reader.caught_up()
    await other.caught_up()
    began = asyncio.get_running_loop().time()
    broker.delay(3, "decisions", service="scheduler")
    broker.hold("objects", service="scheduler")
    await scheduler.append(batch(1))
    await opened.put_objects([workload("a", 1)])
    await opened.settle([rejected(2)])

    def both(items: list[FeedItem]) -> bool:
        return {Logged, Settled} <= {type(i) for i in items}

    assert [type(i) for i in await reader.until(both)] == [Settled, Logged]
    assert 3 <= asyncio.get_running_loop().time() - began < 3.1
    broker.release("objects", service="scheduler")
    assert names(await reader.until(bool)) == ["a"]
    # The other reader's were not held.
    assert len(await other.until(lambda items: both(items) and has("a")(items))) == 3
    assert asyncio.get_running_loop().time() - began < 4


async def test_only_the_newest_of_what_was_held_is_delivered(
    broker: SimulatedBroker, opened: NatsGatewayBus, service: Connect, read: Read
) -> None:
    reader = read(await service("scheduler"), kinds=["workload"])
    await reader.caught_up()
    broker.hold("objects")
    for version in (1, 2, 3):
        await opened.put_objects([workload("a", version)])
    broker.release("objects")
    assert [i.object.version for i in await reader.until(bool) if isinstance(i, ObjectChanged)] == [3]


async def test_made_anew_behind_everybodys_back(
    broker: SimulatedBroker, opened: NatsGatewayBus, service: Connect, read: Read
) -> None:
    await opened.put_objects([workload("a", 1)])
    reader = read(await service("scheduler"), kinds=["workload"])
    await reader.caught_up()
    broker.remake("OBJECTS")
    assert "made anew" in await opened.check_streams(applied=1, epoch=1)
    items = await reader.until(bool)
    assert [type(i) for i in items] == [Reset]


async def test_a_lost_lease_has_two_holders_for_a_moment(
    broker: SimulatedBroker, opened: NatsGatewayBus, service: Connect
) -> None:
    one = (await service("preemptor")).lease("preemptor")
    await one.wait_until_held()
    await asyncio.sleep(10)
    two = (await service("preemptor")).lease("preemptor")
    await asyncio.sleep(0.1)
    assert (one.held, two.held) == (True, False)
    # It was renewed at most a moment ago, and is not again before the other one looks.
    broker.drop_lease("preemptor")
    one._task.cancel()
    await two.wait_until_held()
    assert one.held
    await asyncio.sleep(LEASE_TTL_S)
    assert (one.held, two.held) == (False, True)


async def test_a_link_that_is_down(broker: SimulatedBroker, opened: NatsGatewayBus) -> None:
    link = Link(Random(0))
    bus = broker.bus("scheduler", link)
    assert await bus.append(batch(1)) == Appended(2)
    link.cut(down=True)
    assert not bus.connected
    assert isinstance(await bus.append(batch(2)), LostRace)
    link.mend()
    await asyncio.sleep(1)
    assert (bus.connected, bus._connection.reconnects) == (True, 1)
    assert await bus.append(batch(2)) == Appended(3)
    await bus.close()


async def test_killed_between_commit_and_answer(broker: SimulatedBroker, opened: NatsGatewayBus) -> None:
    passed: list[tuple[str, str]] = []

    def kill_at_answer(way: str, what: str) -> None:
        passed.append((way, what))
        if way == "back" and broker.streams["DECISIONS_0_1"].last == 2:
            link.kill()

    link = Link(Random(0), passing=kill_at_answer)
    bus = broker.bus("scheduler", link)
    lease = bus.lease("scheduler")
    appending = asyncio.create_task(bus.append(batch(1)))
    await asyncio.sleep(60)
    # It was stored; whoever asked is not there any more to hear of it.
    assert broker.streams["DECISIONS_0_1"].last == 2
    assert ("there", "sluice.decisions.0.1") in passed
    assert (bus.connected, lease.held) == (False, False)
    assert not any(c.client.user == "scheduler" for c in broker.consumers.values())
    appending.cancel()


async def test_whom_the_table_does_not_know_gets_no_bus(broker: SimulatedBroker) -> None:
    with pytest.raises(ValueError, match="no such service"):
        broker.bus("nobody")


async def test_without_a_link_nothing_takes_time(broker: SimulatedBroker, opened: NatsGatewayBus) -> None:
    loop = asyncio.get_running_loop()
    bus = broker.bus("scheduler")
    began = loop.time()
    assert await bus.append(batch(1)) == Appended(2)
    await bus._publisher.all_stored([Outgoing("sluice.dead.scheduler", b"x")])
    await bus.close()
    assert loop.time() == began
