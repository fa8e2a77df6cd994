"""The merged view over a real server: replay, live, and every way in which a stream or the connection may break."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from shared.bus.consumer import AWAY_LIMIT_S, Received, Source
from shared.bus.feed import PATIENCE
from shared.bus.interface import Appended, CaughtUp, Logged, ObjectChanged, Reset, Settled
from shared.bus.jetstream import stream_config
from shared.bus.nats_bus import NatsGatewayBus
from shared.bus.permissions import consumer_names
from shared.bus.publishing import BACKOFF_S, Ack, Outgoing
from shared.events import deadletters, decisions, streams, subjects
from shared.events.decisions import Batch, EpochOpened, Positions
from tests.contract.bus.conftest import Connect, ConnectGateway, Reader, eventually
from tests.contract.bus.messages import batch, has, names, rejected, tombstone, workload
from tests.contract.bus.servers import Server

Read = Callable[..., Reader]


async def open_epoch(gateway: NatsGatewayBus, epoch: int = 1, position: int = 0) -> None:
    await gateway.open_epoch(shard="0", epoch=epoch, objects_position=position, why="test")


class Heard(logging.Handler):
    """When the feed said that streams are missing, in the loop's time."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "not ready: stream not found" in record.getMessage():
            self.times.append(asyncio.get_running_loop().time())


async def test_streams_that_are_long_in_coming_do_not_fill_the_log(
    server: Server, service: Connect, read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "shared.bus.feed")
    heard = Heard()
    logging.getLogger("shared.bus.feed").addHandler(heard)
    reader = read(await service("scheduler"), kinds=["workload"], decisions=True, outcomes=True)

    async def twice() -> bool:
        return len(heard.times) > 1

    reading = asyncio.create_task(reader.caught_up())
    await eventually(twice)
    logging.getLogger("shared.bus.feed").removeHandler(heard)
    assert heard.times[1] - heard.times[0] > BACKOFF_S[0] * PATIENCE * 0.8
    # And it is still looking.
    bus = await server.gateway(purge_grace_s=0)
    await bus.ensure_streams()
    await open_epoch(bus)
    assert await reading
    await bus.close()


async def test_replay_then_caught_up_then_live(gateway: NatsGatewayBus, service: Connect, read: Read) -> None:
    position = await gateway.put_objects([workload(f"w{i}", i + 1) for i in range(50)])
    await open_epoch(gateway, position=position)
    await gateway.settle([rejected(1)])
    scheduler = await service("scheduler")
    reader = read(scheduler, kinds=["workload"], decisions=True, outcomes=True)

    replay = await reader.caught_up()

    assert isinstance(replay[0], Reset)
    assert replay[0].epoch == 1
    assert sorted(names(replay)) == sorted(f"w{i}" for i in range(50))
    assert [i.position for i in replay if isinstance(i, Logged)] == [1]
    assert [type(i.entry) for i in replay if isinstance(i, Logged)] == [EpochOpened]
    assert [i.position for i in replay if isinstance(i, Settled)] == [1]
    last = replay[-1]
    assert isinstance(last, CaughtUp)
    assert last.positions == Positions(epoch=1, objects=51, decisions=1, outcomes=1)
    assert reader.feed.positions == last.positions

    await gateway.put_objects([workload("late", 100)])
    assert isinstance(await scheduler.append(batch(last.positions.decisions)), Appended)
    live = await reader.until(lambda items: has("late")(items) and any(isinstance(i, Logged) for i in items))
    assert not any(isinstance(i, (Reset, CaughtUp)) for i in live)
    assert reader.feed.positions.decisions == 2


async def test_only_wanted_kinds_and_traces(gateway: NatsGatewayBus, service: Connect, read: Read) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    traced = workload("traced", 1)
    await gateway.put_objects([type(traced)(traced.name, traced.object, trace)])
    await open_epoch(gateway)
    reader = read(await service("webhook"), kinds=["localqueue"])
    assert names(await reader.caught_up()) == []
    other = read(await service("metrics"), kinds=["workload"])
    assert [i.trace for i in await other.caught_up() if isinstance(i, ObjectChanged)] == [trace]


async def test_waits_for_streams_and_for_an_epoch(service: Connect, read: Read, gateway: NatsGatewayBus) -> None:
    await gateway.drop_objects()
    reader = read(await service("scheduler"), kinds=["workload"], decisions=True, outcomes=True)
    assert await reader.until(bool) == [Reset(0, "no epoch is open")]
    await gateway.put_objects([workload("a", 1)])
    await open_epoch(gateway, 3)
    items = await reader.caught_up()
    assert isinstance(items[0], Reset)
    assert items[0].epoch == 3
    assert names(items) == ["a"]


async def test_waits_where_there_is_no_stream_at_all(
    service: Connect, another_gateway: ConnectGateway, read: Read
) -> None:
    reader = read(await service("scheduler"), kinds=["workload"])
    assert [i.epoch for i in await reader.until(bool) if isinstance(i, Reset)] == [0]
    gateway = await another_gateway()
    await gateway.ensure_streams()
    await open_epoch(gateway)
    assert isinstance((await reader.caught_up())[-1], CaughtUp)


async def test_nothing_is_lost_when_the_server_is_killed_while_publishing(
    server: Server, gateway: NatsGatewayBus, service: Connect, read: Read
) -> None:
    await open_epoch(gateway)
    reader = read(await service("scheduler"), kinds=["workload"], decisions=True, outcomes=True)
    await reader.caught_up()
    count = 2000

    async def publish() -> None:
        for start in range(0, count, 20):
            await gateway.put_objects([workload(f"w{i}", 10 + i) for i in range(start, start + 20)])

    publishing = asyncio.create_task(publish())
    await reader.until(lambda items: len(names(items)) > 100)
    await server.stop()
    await server.start()
    seen: set[str] = set(names(reader.items))
    async with asyncio.timeout(40):
        while len(seen) < count:
            seen |= set(names(await reader.until(bool)))
        await publishing
    assert seen == {f"w{i}" for i in range(count)}
    # What was stored is still there: reading on was enough.
    assert [i.why for i in reader.items if isinstance(i, Reset)] == ["start"]
    # Whoever accepts the streams of the server's new run finds all that it had acknowledged.
    await gateway.ensure_streams()
    assert await gateway.check_streams(applied=1, epoch=1) == ""


async def test_wiped_streams_reset_and_a_new_epoch(
    server: Server, gateway: NatsGatewayBus, service: Connect, read: Read
) -> None:
    await gateway.put_objects([workload("old", 1)])
    await open_epoch(gateway, 1)
    reader = read(await service("scheduler"), kinds=["workload"], decisions=True, outcomes=True)
    await reader.caught_up()
    seen = gateway.reconnects
    await server.wipe()
    async with asyncio.timeout(20):
        await gateway.wait_reconnect(seen)
    assert await gateway.check_streams(applied=1, epoch=1) == "stream OBJECTS is missing"
    await gateway.ensure_streams()
    assert await gateway.load_objects() == {}
    # As many messages as before: only the identity of the stream tells them apart.
    await gateway.put_objects([workload("new", 2)])
    await open_epoch(gateway, 2)
    items = await reader.caught_up()
    assert [i.epoch for i in items if isinstance(i, Reset)][-1] == 2
    last_reset = max(n for n, i in enumerate(items) if isinstance(i, Reset))
    assert names(items[last_reset:]) == ["new"]


async def test_refilled_to_the_same_sequence_under_the_same_epoch(
    gateway: NatsGatewayBus, another_gateway: ConnectGateway, service: Connect, read: Read
) -> None:
    await gateway.put_objects([workload("old", 1)])
    await open_epoch(gateway, 1)
    reader = read(await service("scheduler"), kinds=["workload"])
    await reader.caught_up()
    known = gateway.identities
    await gateway.drop_objects()
    await gateway.put_objects([workload("new", 1)])
    await gateway.close()
    again = await another_gateway()
    await again.load_objects()
    await open_epoch(again, 2)
    items = await reader.caught_up()
    assert names(items[[isinstance(i, Reset) for i in items].index(True) :]) == ["new"]
    assert await again.check_streams(applied=1, epoch=2, known=known) == "stream OBJECTS was made anew"
    assert await again.check_streams(applied=1, epoch=2) == ""


async def test_epoch_switch_replays_under_the_new_log(gateway: NatsGatewayBus, service: Connect, read: Read) -> None:
    await gateway.put_objects([workload("a", 1)])
    await open_epoch(gateway, 1)
    scheduler = await service("scheduler")
    reader = read(scheduler, kinds=["workload"], decisions=True, outcomes=True)
    await reader.caught_up()
    before = reader.feed.positions
    await open_epoch(gateway, 2)
    items = await reader.caught_up()
    assert [i.epoch for i in items if isinstance(i, Reset)] == [2]
    assert names(items) == ["a"]
    assert [i.entry.epoch for i in items if isinstance(i, Logged) and isinstance(i.entry, EpochOpened)] == [2]
    # Who still believes in the old epoch cannot write there any more.
    assert type(await scheduler.append(batch(before.decisions))).__name__ == "LostRace"


async def test_a_log_that_lost_its_tail_is_noticed(gateway: NatsGatewayBus, service: Connect, read: Read) -> None:
    await open_epoch(gateway, 1)
    scheduler = await service("scheduler")
    reader = read(scheduler, kinds=["workload"], decisions=True, outcomes=True)
    await reader.caught_up()
    appended = await scheduler.append(batch(reader.feed.positions.decisions))
    assert isinstance(appended, Appended)
    await reader.until(lambda items: any(isinstance(i, Logged) for i in items))
    # The stream as a host leaves it that lost its last seconds: the same name, fewer entries, then another entry in the lost one's place.
    stream, subject = subjects.decisions_stream("0", 1), subjects.decisions("0", 1)
    info = await gateway._js.stream_info(stream)
    assert info.state.last_seq == 2
    await gateway._js.delete_stream(stream)
    await gateway._js.create_stream(stream_config(streams.decisions_of("0", 1), 1))
    for author in ("x", "y"):
        entry = Outgoing(subject, decisions.codec.encode(batch(0, author)))
        assert isinstance(await gateway._publisher.try_one(entry), Ack)
    items = await reader.caught_up()
    assert isinstance(items[0], Reset)
    assert [i.entry.author for i in items if isinstance(i, Logged) and isinstance(i.entry, Batch)] == ["x", "y"]


async def test_objects_that_lost_its_tail_is_noticed_by_the_gateway(gateway: NatsGatewayBus) -> None:
    position = await gateway.put_objects([workload("a", 1), workload("b", 2)])
    await open_epoch(gateway, 1)
    assert await gateway.check_streams(applied=1, epoch=1, objects_position=position) == ""
    assert "OBJECTS lost its tail" in await gateway.check_streams(applied=1, epoch=1, objects_position=position + 9)
    assert "lost its tail" in await gateway.check_streams(applied=2, epoch=1)
    assert "is missing" in await gateway.check_streams(applied=0, epoch=2)


async def test_a_host_that_lost_its_last_seconds(
    server: Server, gateway: NatsGatewayBus, service: Connect, read: Read
) -> None:
    await gateway.put_objects([workload("a", 1), workload("b", 1)])
    await open_epoch(gateway, 1)
    scheduler = await service("scheduler")
    reader = read(scheduler, kinds=["workload"], decisions=True, outcomes=True)
    await reader.caught_up()
    await server.remember()
    position = await gateway.put_objects([workload("a", 2), workload("c", 2)])
    assert isinstance(await scheduler.append(batch(1)), Appended)
    await reader.until(lambda items: has("c")(items) and any(isinstance(i, Logged) for i in items))

    seen = gateway.reconnects
    await server.go_back()
    async with asyncio.timeout(20):
        await gateway.wait_reconnect(seen)

    assert "OBJECTS lost its tail" in await gateway.check_streams(applied=2, epoch=1, objects_position=position)
    # What was replaced by what got lost is there again.
    found = {o.name: o.version for _, o in (await gateway.load_objects()).values()}
    assert found == {"a": 1, "b": 1, "0": 1}
    # As much is written as was lost: to a reader that stood there, nothing but the messages themselves looks different.
    assert await gateway.put_objects([workload("a", 3), workload("d", 3)]) == position
    items = await reader.caught_up()
    assert isinstance(items[0], Reset)
    assert {i.name.name: i.object.version for i in items if isinstance(i, ObjectChanged)} == {"a": 3, "b": 1, "d": 3}
    assert [i.position for i in items if isinstance(i, Logged)] == [1]


async def test_purged_unseen_means_starting_over(gateway: NatsGatewayBus, service: Connect, read: Read) -> None:
    await open_epoch(gateway, 1)
    scheduler = await service("scheduler")
    reader = read(scheduler, kinds=["workload"], decisions=True, outcomes=True)
    await reader.caught_up()
    positions = reader.feed.positions
    for last in range(1, 6):
        await scheduler.append(batch(last))
        await gateway.settle([rejected(last + 1)])
    await reader.until(lambda items: sum(isinstance(i, (Logged, Settled)) for i in items) == 10)
    # Read up to the last one: purging what was read disturbs nobody.
    await gateway.purge_settled(shard="0", epoch=1, decisions=4)
    await gateway.put_objects([workload("after", 50)])
    assert not any(isinstance(i, Reset) for i in await reader.until(has("after")))
    assert (await gateway._js.stream_info("OUTCOMES")).state.first_seq == 3
    assert (await gateway._js.stream_info(subjects.decisions_stream("0", 1))).state.first_seq == 4
    assert positions.decisions == 1
    # A reader that stands before what was purged has missed it.
    late = read(await service("scheduler"), kinds=["workload"], decisions=True, outcomes=True)
    await late.caught_up()
    assert late.feed._log is not None
    late.feed._log.position, late.feed._log.stamp = 2, 1
    late.feed._log.break_off("test")
    items = await late.caught_up()
    assert isinstance(items[0], Reset)


async def test_away_for_too_long_means_starting_over(
    server: Server, gateway: NatsGatewayBus, service: Connect, read: Read
) -> None:
    await gateway.put_objects([workload("a", 1)])
    await open_epoch(gateway, 1)
    reader = read(await service("scheduler"), kinds=["workload"])
    await reader.caught_up()
    reader.feed._away_limit_s = 0.0
    await server.restart()
    items = await reader.caught_up()
    assert isinstance(items[0], Reset)
    assert "away from OBJECTS" in items[0].why
    assert names(items) == ["a"]


async def test_malformed_messages_are_moved_aside(gateway: NatsGatewayBus, service: Connect, read: Read) -> None:
    await gateway.put_objects([workload("good", 1)])
    bad = [
        Outgoing(subjects.objects("workload", "team-a", "bad"), b"\xc1"),
        Outgoing("sluice.outcomes.decisions", b"nonsense"),
    ]
    assert all(isinstance(r, Ack) for r in await gateway._publisher.try_all(bad))
    await open_epoch(gateway, 1)
    scheduler = await service("scheduler")
    reader = read(scheduler, kinds=["workload"], decisions=True, outcomes=True)
    assert names(await reader.caught_up()) == ["good"]
    assert scheduler.counters.malformed == 2

    async def letters() -> bool:
        return len(await dead_letters(gateway)) == 2

    await eventually(letters)
    assert {d.subject for d in await dead_letters(gateway)} == {b.subject for b in bad}


async def dead_letters(gateway: NatsGatewayBus) -> list[deadletters.DeadLetter]:
    last = (await gateway._js.stream_info("DEADLETTER")).state.last_seq
    found: list[Received] = []
    if last:
        source = Source(
            gateway._connection,
            stream="DEADLETTER",
            consumers=consumer_names("watcher", "dead"),
            filters=("sluice.dead.>",),
            on_activity=lambda: None,
        )
        await source.open()
        async with asyncio.timeout(10):
            while len(found) < last:
                found += await source.take()
                await asyncio.sleep(0.01)
        await source.close()
    return [deadletters.codec.decode(m.payload) for m in found]


async def test_tombstones_come_live(gateway: NatsGatewayBus, service: Connect, read: Read) -> None:
    await gateway.put_objects([workload("a", 1)])
    await open_epoch(gateway, 1)
    reader = read(await service("scheduler"), kinds=["workload"])
    await reader.caught_up()
    await gateway.put_objects([tombstone("a", 5)])
    items = await reader.until(has("a"))
    assert [type(i.object).__name__ for i in items if isinstance(i, ObjectChanged)] == ["Tombstone"]


async def test_a_delivery_that_got_lost_is_noticed_and_fetched(
    gateway: NatsGatewayBus, service: Connect, read: Read
) -> None:
    await open_epoch(gateway, 1)
    scheduler = await service("scheduler")
    reader = read(scheduler, kinds=["workload"], decisions=True, outcomes=True)
    await reader.caught_up()
    sid = reader.feed._objects._sid
    assert sid is not None
    receive = scheduler._connection._client.direct[sid]
    dropped: list[str] = []

    def lossy(subject: str, reply: str, payload: bytes, headers: bytes | None) -> None:
        if subject.endswith(".lost") and not dropped:
            dropped.append(subject)
        else:
            receive(subject, reply, payload, headers)

    scheduler._connection._client.direct[sid] = lossy
    await gateway.put_objects([workload("before", 1), workload("lost", 2), workload("behind", 3)])
    items = await reader.until(has("behind"))
    assert dropped
    assert names(items) == ["before", "lost", "behind"]
    assert not any(isinstance(i, Reset) for i in items)
    assert scheduler.counters.resumes == 1


async def test_a_last_delivery_that_got_lost_shows_in_the_heartbeat(
    gateway: NatsGatewayBus, service: Connect, read: Read
) -> None:
    await open_epoch(gateway, 1)
    scheduler = await service("scheduler")
    reader = read(scheduler, kinds=["workload"])
    await reader.caught_up()
    sid = reader.feed._objects._sid
    assert sid is not None
    receive = scheduler._connection._client.direct[sid]
    scheduler._connection._client.direct[sid] = lambda s, r, p, h: None if s.endswith(".lost") else receive(s, r, p, h)
    await gateway.put_objects([workload("lost", 2)])
    assert names(await reader.until(has("lost"))) == ["lost"]


async def test_a_consumer_that_vanished_is_made_again(gateway: NatsGatewayBus, service: Connect, read: Read) -> None:
    await open_epoch(gateway, 1)
    scheduler = await service("scheduler")
    reader = read(scheduler, kinds=["workload"], decisions=True, outcomes=True)
    await reader.caught_up()
    await scheduler._js.delete_consumer("OBJECTS", "scheduler-0-objects")
    await gateway.put_objects([workload("a", 1)])
    items = await reader.until(has("a"))
    assert not any(isinstance(i, Reset) for i in items)


async def test_a_replay_larger_than_the_flow_control_window(
    gateway: NatsGatewayBus, service: Connect, read: Read
) -> None:
    large = {"note": "x" * 32_000}
    count = 1500
    await gateway.put_objects([workload(f"w{i}", i + 1, annotations=large) for i in range(count)])
    await open_epoch(gateway, 1)
    reader = read(await service("scheduler"), kinds=["workload"])
    assert len(names(await reader.caught_up())) == count


async def test_another_message_in_the_place_of_the_last_one_read_means_starting_over(
    gateway: NatsGatewayBus, service: Connect, read: Read
) -> None:
    await gateway.put_objects([workload("a", 1)])
    await open_epoch(gateway, 1)
    reader = read(await service("scheduler"), kinds=["workload"])
    await reader.caught_up()
    # As if a host had lost its last seconds, and as much had been written since: same stream, same length.
    reader.feed._objects.stamp -= 1
    reader.feed._objects.break_off("test")
    items = await reader.caught_up()
    assert isinstance(items[0], Reset)
    assert "is not the one that was there" in items[0].why
    assert names(items) == ["a"]


async def test_a_process_that_slept_for_too_long_starts_over_whatever_waited_in_its_socket(
    gateway: NatsGatewayBus, service: Connect, read: Read
) -> None:
    await gateway.put_objects([workload("a", 1)])
    await open_epoch(gateway, 1)
    reader = read(await service("scheduler"), kinds=["workload"])
    await reader.caught_up()
    reader.feed._objects._heard -= AWAY_LIMIT_S + 1
    await gateway.put_objects([workload("b", 2)])
    items = await reader.caught_up()
    assert isinstance(items[0], Reset)
    assert "away" in items[0].why
    assert sorted(names(items)) == ["a", "b"]


async def test_how_far_a_reader_is_behind(gateway: NatsGatewayBus, service: Connect, read: Read) -> None:
    await open_epoch(gateway, 1)
    scheduler = await service("scheduler")
    reader = read(scheduler, kinds=["workload"], decisions=True)
    await reader.caught_up()
    name = "scheduler-0-objects"
    assert scheduler.behind == {name: 0, "scheduler-0-decisions": 0, "scheduler-0-epoch": 0}

    async def behind(count: int) -> bool:
        return scheduler.behind[name] == count

    await gateway.put_objects([workload(n, 1) for n in "abc"])
    # It is not asked for them, so they wait.
    await eventually(lambda: behind(3))
    await reader.until(has("c"))
    assert scheduler.behind[name] == 0
    await reader.close()
    assert scheduler.behind == {}
