"""Compare-and-set of projections: no order of writers, restarts and expiries lets an older state win (R5; interleaving 5)."""

import asyncio

import pytest

from shared.bus import objects_store
from shared.bus.interface import StreamsLost
from shared.bus.nats_bus import NatsGatewayBus
from shared.bus.publishing import Outgoing
from shared.events import objects, subjects
from tests.contract.bus.conftest import ConnectGateway, eventually
from tests.contract.bus.messages import tombstone, workload
from tests.contract.bus.servers import Server

SUBJECT = subjects.objects("workload", "team-a", "a")


async def stored(gateway: NatsGatewayBus, subject: str = SUBJECT) -> tuple[str, int, str] | None:
    """(type, version, uid) of what OBJECTS holds, read behind the store's back."""
    message = await gateway._js.last_message("OBJECTS", subject)
    if message is None:
        return None
    found = objects.codec.decode(message.data)
    return type(found).__name__, found.version, found.uid


async def test_a_late_older_state_never_replaces_a_newer_one(gateway: NatsGatewayBus) -> None:
    first = await gateway.put_objects([workload("a", 10)])
    assert await gateway.put_objects([workload("a", 9)]) == first
    assert await gateway.put_objects([workload("a", 9, uid="another uid")]) == first
    assert await stored(gateway) == ("Workload", 10, "uid-a")
    second = await gateway.put_objects([workload("a", 11, uid="new")])
    assert second > first
    assert await stored(gateway) == ("Workload", 11, "new")


async def test_in_one_batch_the_newest_counts(gateway: NatsGatewayBus) -> None:
    await gateway.put_objects([workload("a", 3), tombstone("a", 5), workload("a", 4), workload("a", 5)])
    assert await stored(gateway) == ("Tombstone", 5, "uid-a")
    assert gateway.counters.objects_written == 1


async def test_the_same_state_is_not_written_again_but_another_projection_of_it_is(gateway: NatsGatewayBus) -> None:
    first = await gateway.put_objects([workload("a", 3)])
    assert await gateway.put_objects([workload("a", 3)]) == first
    assert gateway.counters.objects_skipped == 1
    assert await gateway.put_objects([workload("a", 3, queue_name="now projected")]) > first


async def test_a_late_state_after_a_tombstone(gateway: NatsGatewayBus) -> None:
    await gateway.put_objects([workload("a", 10)])
    await gateway.put_objects([tombstone("a", 12)])
    await gateway.put_objects([workload("a", 11)])
    assert await stored(gateway) == ("Tombstone", 12, "uid-a")
    await gateway.put_objects([workload("a", 13, uid="reborn")])
    assert await stored(gateway) == ("Workload", 13, "reborn")


async def test_a_list_that_began_before_the_object_was_made_buries_nothing(gateway: NatsGatewayBus) -> None:
    await gateway.put_objects([workload("a", 10)])
    await gateway.put_objects([tombstone("a", 9)])
    assert await stored(gateway) == ("Workload", 10, "uid-a")


async def test_tombstones_expire_and_objects_do_not(gateway: NatsGatewayBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects_store, "TOMBSTONE_TTL_S", 1)
    await gateway.put_objects([workload("a", 10), workload("stays", 10)])
    await gateway.put_objects([tombstone("a", 12)])

    async def expired() -> bool:
        return await stored(gateway) is None

    await eventually(expired)
    # Late, after the tombstone is gone from the stream: still refused.
    await gateway.put_objects([workload("a", 11)])
    assert await stored(gateway) is None
    # A new object under the name is welcome, and carries no time to live of the one before.
    await gateway.put_objects([workload("a", 13, uid="reborn")])
    assert await stored(gateway) == ("Workload", 13, "reborn")
    raw = await gateway._connection.request(
        "$JS.API.STREAM.MSG.GET.OBJECTS", b'{"last_by_subj":"%b"}' % SUBJECT.encode()
    )
    assert b"TTL" not in raw.payload
    assert await stored(gateway, subjects.objects("workload", "team-a", "stays")) is not None


async def test_a_deposed_gateway_neither_overwrites_nor_raises_the_dead(
    gateway: NatsGatewayBus, another_gateway: ConnectGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects_store, "TOMBSTONE_TTL_S", 1)
    await gateway.put_objects([workload("a", 10), workload("b", 10)])
    new = await another_gateway()
    await new.ensure_streams()
    assert set(await new.load_objects()) == {SUBJECT, subjects.objects("workload", "team-a", "b")}
    await new.put_objects([workload("a", 20), tombstone("b", 20)])
    # The old one wakes up with what it meant to write.
    position = await gateway.put_objects([workload("a", 15)])
    assert await stored(gateway) == ("Workload", 20, "uid-a")
    assert position == 3
    assert gateway.counters.objects_conflicts == 1

    async def expired() -> bool:
        return await stored(gateway, subjects.objects("workload", "team-a", "b")) is None

    await eventually(expired)
    await gateway.put_objects([workload("b", 15)])
    assert await stored(gateway, subjects.objects("workload", "team-a", "b")) is None


async def test_two_gateways_at_once_leave_the_newest_of_each(
    gateway: NatsGatewayBus, another_gateway: ConnectGateway
) -> None:
    new = await another_gateway()
    await new.ensure_streams()
    for round_ in range(1, 6):
        await asyncio.gather(
            gateway.put_objects([workload(f"w{i}", 10 * round_ + i % 2) for i in range(200)]),
            new.put_objects([workload(f"w{i}", 10 * round_ + 1 - i % 2) for i in range(200)]),
        )
        found = await new.load_objects()
        assert {o.version for _, o in found.values()} == {10 * round_ + 1}
        assert len(found) == 200


async def test_what_cannot_be_read_is_replaced(gateway: NatsGatewayBus) -> None:
    await gateway._publisher.try_one(Outgoing(SUBJECT, b"\xc1"))
    assert await gateway.load_objects() == {}
    await gateway.put_objects([workload("a", 1)])
    assert await stored(gateway) == ("Workload", 1, "uid-a")


async def test_a_projection_that_is_too_large_stops_nobody(gateway: NatsGatewayBus) -> None:
    large = workload("huge", 1, annotations={"x": "y" * (5 << 20)})
    await gateway.put_objects([large, workload("a", 1)])
    assert await stored(gateway) == ("Workload", 1, "uid-a")
    assert set(await gateway.load_objects()) == {SUBJECT}


async def test_loading_gives_back_what_was_put(gateway: NatsGatewayBus) -> None:
    writes = [workload(f"w.{i}", i + 1, priority=i) for i in range(3000)]
    await gateway.put_objects(writes)
    found = await gateway.load_objects()
    assert {s: o for s, (_, o) in found.items()} == {subjects.objects(*w.name): w.object for w in writes}
    assert sorted(sequence for sequence, _ in found.values()) == list(range(1, 3001))


async def test_a_missing_stream_is_said_and_mended(server: Server, gateway: NatsGatewayBus) -> None:
    await gateway.put_objects([workload("a", 1)])
    await server.wipe()
    async with asyncio.timeout(20):
        with pytest.raises(StreamsLost):
            await gateway.put_objects([workload("a", 2)])
    await gateway.ensure_streams()
    await gateway.load_objects()
    assert await gateway.put_objects([workload("a", 2)]) == 1
