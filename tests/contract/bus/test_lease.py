"""Leases over a real bucket: one holder, quick handover, and nobody believes in a lease that may have passed on."""

import asyncio

import pytest

from shared.bus import lease
from shared.bus.nats_bus import NatsGatewayBus
from shared.events.streams import LEASE_TTL_S
from tests.contract.bus.conftest import Connect, eventually
from tests.contract.bus.servers import Server


async def test_one_holds_and_the_next_takes_over_at_once_when_released(
    gateway: NatsGatewayBus, service: Connect
) -> None:
    first, second = await service("scheduler"), await service("scheduler")
    one = first.lease("scheduler")
    async with asyncio.timeout(5):
        await one.wait_until_held()
    two = second.lease("scheduler")
    # Longer than the time to live: renewing is what keeps it.
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(LEASE_TTL_S + 1):
            await two.wait_until_held()
    assert (one.held, two.held) == (True, False)
    began = asyncio.get_running_loop().time()
    await one.release()
    assert not one.held
    async with asyncio.timeout(10):
        await two.wait_until_held()
    assert asyncio.get_running_loop().time() - began < LEASE_TTL_S - 1
    with pytest.raises(RuntimeError, match="released"):
        await one.wait_until_held()


async def test_a_holder_that_dies_is_replaced(gateway: NatsGatewayBus, service: Connect) -> None:
    first, second = await service("preemptor"), await service("preemptor")
    one = first.lease("preemptor")
    async with asyncio.timeout(5):
        await one.wait_until_held()
    two = second.lease("preemptor")
    one._task.cancel()
    async with asyncio.timeout(LEASE_TTL_S * 3):
        await two.wait_until_held()
    # Whoever stopped renewing had stopped believing before.
    assert not one.held


async def test_two_may_believe_for_a_moment_and_then_one_does(gateway: NatsGatewayBus, service: Connect) -> None:
    first, second = await service("scheduler"), await service("scheduler")
    one = first.lease("scheduler")
    async with asyncio.timeout(5):
        await one.wait_until_held()
    two = second.lease("scheduler")
    # The bucket lost the key, as a host does that lost its last seconds; it cannot be deleted, but it can be purged. Its holder has just stopped to look.
    stream = lease.STREAM
    last = (await gateway._js.stream_info(stream)).state.last_seq
    await gateway._js.delete_message(stream, last)
    assert (await gateway._js.stream_info(stream)).state.messages == 1
    one._task.cancel()
    await gateway._js.purge_below(stream, last + 1)
    async with asyncio.timeout(5):
        await two.wait_until_held()
    assert (one.held, two.held) == (True, True)

    async def lost() -> bool:
        return not one.held

    await eventually(lost)
    assert two.held


async def test_lost_with_the_server_and_taken_again(server: Server, gateway: NatsGatewayBus, service: Connect) -> None:
    queue_lease = (await service("queue_manager")).lease("queue_manager")
    async with asyncio.timeout(5):
        await queue_lease.wait_until_held()
    await server.stop()

    async def lost() -> bool:
        return not queue_lease.held

    await eventually(lost)
    await server.wipe()
    async with asyncio.timeout(20):
        await gateway.wait_reconnect(0)
        await gateway.ensure_streams()
        await queue_lease.wait_until_held()


async def test_roles_are_those_of_the_table(gateway: NatsGatewayBus, service: Connect) -> None:
    with pytest.raises(ValueError, match="no such role"):
        (await service("webhook")).lease("webhook")
    foreign = (await service("preemptor")).lease("scheduler")
    async with asyncio.timeout(5):
        with pytest.raises(PermissionError):
            await foreign.wait_until_held()


async def test_requests_and_their_failures(gateway: NatsGatewayBus, service: Connect) -> None:
    caller = await service("provisioning_request")

    async def double(payload: bytes) -> bytes:
        if not payload:
            raise ValueError("nothing to double")
        return payload * 2

    await gateway.serve("double", double)
    await gateway.serve("huge", lambda _: asyncio.sleep(0, b"x" * (5 << 20)))
    assert await caller.request("watcher", "double", b"ab", 5) == b"abab"
    with pytest.raises(RuntimeError, match="ValueError: nothing to double"):
        await caller.request("watcher", "double", b"", 5)
    with pytest.raises(RuntimeError, match="too large"):
        await caller.request("watcher", "huge", b"", 5)
    with pytest.raises(TimeoutError):
        await caller.request("watcher", "nobody", b"", 5)
    never = asyncio.Event()

    async def hang(_: bytes) -> bytes:
        await never.wait()
        return b""

    await gateway.serve("hang", hang)
    with pytest.raises(TimeoutError):
        await caller.request("watcher", "hang", b"", 0.2)
    # One that hangs holds up nobody else.
    assert await caller.request("watcher", "double", b"c", 5) == b"cc"
