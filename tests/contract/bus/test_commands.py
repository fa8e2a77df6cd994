"""Commands: what is on the stream is what is open; malformed and poisonous ones get their outcome."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from shared.bus.commands import DeliveryCounter
from shared.bus.interface import OpenCommand, Settled
from shared.bus.nats_bus import NatsGatewayBus
from shared.bus.publishing import Ack, Failure, Outgoing
from shared.events import commands, subjects
from shared.events.outcomes import CommandOutcome
from shared.events.streams import DELIVERY_LIMIT
from tests.contract.bus.conftest import WITHIN_S, Connect, Reader, eventually
from tests.contract.bus.servers import Server


def priority(id_: str, value: int, name: str = "w") -> commands.SetPriority:
    return commands.SetPriority(id=id_, kind="workload", namespace="team-a", name=name, priority=value)


async def take(steps: AsyncIterator[list[OpenCommand]], count: int) -> list[OpenCommand]:
    found: list[OpenCommand] = []
    async with asyncio.timeout(WITHIN_S):
        while len(found) < count:
            found += await anext(steps)
    return found


async def open_ids(gateway: NatsGatewayBus, count: int) -> list[str]:
    """Of a reader that begins now."""
    steps = gateway.commands()
    try:
        return [o.command.id for o in await take(steps, count)]
    finally:
        await steps.aclose()  # type: ignore[attr-defined]


async def test_open_ones_come_first_then_live_ones(gateway: NatsGatewayBus, service: Connect) -> None:
    queue_manager, preemptor = await service("queue_manager"), await service("preemptor")
    await queue_manager.command([priority(f"q{i}", i, f"w{i}") for i in range(3)])
    await preemptor.command([commands.Evict(id="p", kind="workload", name="w", reason="r", message="m")])
    steps = gateway.commands()
    found = await take(steps, 4)
    assert [(o.writer, o.command.id, o.attempts) for o in found] == [
        ("queue_manager", "q0", 1),
        ("queue_manager", "q1", 1),
        ("queue_manager", "q2", 1),
        ("preemptor", "p", 1),
    ]
    await queue_manager.command([priority("live", 9)])
    assert [o.command for o in await take(steps, 1)] == [priority("live", 9)]
    await steps.aclose()  # type: ignore[attr-defined]


async def test_a_newer_command_replaces_and_closing_the_older_leaves_it(
    gateway: NatsGatewayBus, service: Connect
) -> None:
    queue_manager = await service("queue_manager")
    steps = gateway.commands()
    await queue_manager.command([priority("older", 1), priority("other", 1, "x")])
    older, other = await take(steps, 2)
    await queue_manager.command([priority("newer", 2)])
    await gateway.close_commands([older, other])
    assert await open_ids(gateway, 1) == ["newer"]
    await gateway.close_commands([older])
    assert await open_ids(gateway, 1) == ["newer"]
    state = (await gateway._js.stream_info("COMMANDS")).state
    assert state.messages == 1
    await steps.aclose()  # type: ignore[attr-defined]


async def test_the_same_attempt_published_twice_is_one(gateway: NatsGatewayBus, service: Connect) -> None:
    queue_manager = await service("queue_manager")
    await queue_manager.command([priority("once", 1)])
    await queue_manager.command([priority("once", 1)])
    assert (await gateway._js.stream_info("COMMANDS")).state.last_seq == 1


async def test_reading_goes_on_after_a_restart_and_after_a_wipe(
    server: Server, gateway: NatsGatewayBus, service: Connect
) -> None:
    queue_manager = await service("queue_manager")
    steps = gateway.commands()
    await queue_manager.command([priority("a", 1, "a"), priority("b", 1, "b")])
    assert len(await take(steps, 2)) == 2
    await server.restart()
    await queue_manager.command([priority("c", 1, "c")])
    # What is open is read again: where the reader stood means nothing to a server that may have lost its last seconds.
    assert {o.command.id for o in await take(steps, 3)} == {"a", "b", "c"}
    await server.wipe()
    commanding = asyncio.create_task(queue_manager.command([priority("d", 1, "d")]))
    async with asyncio.timeout(WITHIN_S):
        await gateway.wait_reconnect(1)
    await gateway.ensure_streams()
    assert [o.command.id for o in await take(steps, 1)] == ["d"]
    await commanding
    await steps.aclose()  # type: ignore[attr-defined]


async def test_closing_what_was_wiped_leaves_what_has_its_place_now(
    server: Server, gateway: NatsGatewayBus, service: Connect
) -> None:
    queue_manager = await service("queue_manager")
    steps = gateway.commands()
    await queue_manager.command([priority("before", 1, "a")])
    (before,) = await take(steps, 1)
    await server.wipe()
    commanding = asyncio.create_task(queue_manager.command([priority("after", 1, "b")]))
    async with asyncio.timeout(WITHIN_S):
        await gateway.wait_reconnect(0)
    await gateway.ensure_streams()
    await commanding
    (after,) = await take(steps, 1)
    assert after.sequence == before.sequence
    await gateway.close_commands([before])
    assert await open_ids(gateway, 1) == ["after"]
    await gateway.close_commands([after])
    assert (await gateway._js.stream_info("COMMANDS")).state.messages == 0
    await steps.aclose()  # type: ignore[attr-defined]


async def test_closing_what_was_lost_leaves_what_has_its_place_now(
    server: Server, gateway: NatsGatewayBus, service: Connect
) -> None:
    queue_manager = await service("queue_manager")
    steps = gateway.commands()
    await queue_manager.command([priority("kept", 1, "k")])
    (kept,) = await take(steps, 1)
    await server.remember()
    assert [o.command.id for o in await take(steps, 1)] == ["kept"]
    await queue_manager.command([priority("lost", 1, "a")])
    (lost,) = await take(steps, 1)
    seen = gateway.reconnects
    await server.go_back()
    async with asyncio.timeout(WITHIN_S):
        await gateway.wait_reconnect(seen)
    await queue_manager.command([priority("after", 1, "b")])
    again, after = await take(steps, 2)
    assert (again.command.id, after.command.id, after.sequence) == ("kept", "after", lost.sequence)
    # Of the stream as it was: neither may touch what stands there now.
    await gateway.close_commands([lost, kept])
    assert sorted(await open_ids(gateway, 2)) == ["after", "kept"]
    await gateway.close_commands([again, after])
    assert (await gateway._js.stream_info("COMMANDS")).state.messages == 0
    await steps.aclose()  # type: ignore[attr-defined]


async def test_what_took_the_place_of_lost_ones_is_read_though_the_reader_had_been_there(
    server: Server, gateway: NatsGatewayBus, service: Connect
) -> None:
    """The last one that was taken is closed and gone, so nothing where the reader stood tells one history from the other."""
    queue_manager = await service("queue_manager")
    await server.remember()
    steps = gateway.commands()
    await queue_manager.command([priority(f"lost{i}", 1, f"l{i}") for i in range(3)])
    await gateway.close_commands(await take(steps, 3))
    seen = gateway.reconnects
    await server.go_back()
    async with asyncio.timeout(WITHIN_S):
        await gateway.wait_reconnect(seen)
    await queue_manager.command([priority(f"new{i}", 1, f"n{i}") for i in range(4)])
    assert [o.command.id for o in await take(steps, 4)] == ["new0", "new1", "new2", "new3"]
    await steps.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("subject", "payload"),
    [
        (subjects.command("queue_manager", "evict", "workload", "team-a", "w"), b"\xc1 no message"),
        ("sluice.commands.queue_manager.short", commands.codec.encode(priority("x", 1))),
        # A command for one workload under the subject of another would replace that one's.
        (
            subjects.command("queue_manager", "set-priority", "workload", "team-a", "w2"),
            commands.codec.encode(priority("x", 1)),
        ),
    ],
)
async def test_malformed_ones_are_rejected_and_the_rest_goes_on(
    gateway: NatsGatewayBus, service: Connect, read: Callable[..., Reader], subject: str, payload: bytes
) -> None:
    queue_manager = await service("queue_manager")
    await gateway.open_epoch(shard="0", epoch=1, objects_position=0, why="test")
    reader = read(await service("provisioning_request"), kinds=["workload"], outcomes=True)
    assert isinstance(await queue_manager._publisher.try_one(Outgoing(subject, payload)), Ack)
    await queue_manager.command([priority("good", 1, "good")])
    assert await open_ids(gateway, 1) == ["good"]
    items = await reader.until(lambda items: any(isinstance(i, Settled) for i in items))
    (outcome,) = [i.outcome for i in items if isinstance(i, Settled)]
    assert isinstance(outcome, CommandOutcome)
    assert (outcome.command, outcome.subject, outcome.status) == ("", subject, "rejected")
    assert outcome.why.startswith("malformed: ")
    assert (await gateway._js.stream_info("DEADLETTER")).state.messages == 1
    assert (await gateway._js.stream_info("COMMANDS")).state.messages == 1


async def test_poison_is_moved_aside_at_the_limit(gateway: NatsGatewayBus, service: Connect) -> None:
    await (await service("queue_manager")).command([priority("poison", 1)])
    steps = gateway.commands()
    (poison,) = await take(steps, 1)
    counter = DeliveryCounter()
    attempts = 1
    while not counter.failed("COMMANDS", poison.sequence):
        attempts += 1
    assert attempts == DELIVERY_LIMIT
    await gateway.move_aside(poison, attempts=attempts, error="always fails")
    counter.forget("COMMANDS", poison.sequence)
    assert counter.attempts("COMMANDS", poison.sequence) == 0
    for stream, count in (("COMMANDS", 0), ("DEADLETTER", 1), ("OUTCOMES", 1)):
        assert (await gateway._js.stream_info(stream)).state.messages == count, stream
    message = await gateway._js.last_message("OUTCOMES", subjects.OUTCOMES_OF_COMMANDS)
    assert message is not None
    assert b"poison: always fails" in message.data
    await steps.aclose()  # type: ignore[attr-defined]


async def test_a_burst_survives_a_kill_and_is_there_once(
    server: Server, gateway: NatsGatewayBus, service: Connect
) -> None:
    queue_manager = await service("queue_manager")
    burst = [priority(f"c{i}", i, f"w{i}") for i in range(5000)]
    commanding = asyncio.create_task(queue_manager.command(burst))

    async def begun() -> bool:
        return (await gateway._js.stream_info("COMMANDS")).state.messages > 100

    await eventually(begun)
    await server.stop()
    await server.start()
    async with asyncio.timeout(WITHIN_S):
        await commanding
    state = (await gateway._js.stream_info("COMMANDS")).state
    assert (state.messages, state.last_seq) == (5000, 5000)
    assert set(await open_ids(gateway, 5000)) == {c.id for c in burst}


async def test_a_stalled_server_costs_one_time_out_not_one_per_message(
    server: Server, service: Connect, gateway: NatsGatewayBus
) -> None:
    publisher = (await service("queue_manager"))._publisher
    messages = [
        Outgoing(commands.subject_of("queue_manager", c), commands.codec.encode(c))
        for c in (priority(f"c{i}", i, f"w{i}") for i in range(6000))
    ]
    await server.stall()
    try:
        async with asyncio.timeout(WITHIN_S):
            results = await publisher.try_all(messages, timeout_s=0.5)
    finally:
        await server.resume()
    assert not any(isinstance(r, Ack) for r in results)
    assert {r.sent for r in results[-100:] if isinstance(r, Failure)} == {False}
    async with asyncio.timeout(WITHIN_S):
        assert all(isinstance(r, Ack) for r in await publisher.all_stored(messages))
