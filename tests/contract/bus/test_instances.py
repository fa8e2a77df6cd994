"""Several instances of one service: each reads everything under a name that it finds by itself, and none takes another's away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.bus import consumer
from shared.bus.nats_bus import NatsBus, NatsGatewayBus
from shared.bus.permissions import consumer_names
from shared.events.streams import LEASE_TTL_S, REPLICAS
from shared.testing.simulated_bus.client import SimulatedClient
from tests.contract.bus.conftest import WITHIN_S, Connect, Reader
from tests.contract.bus.messages import has, workload
from tests.contract.bus.test_feed import Read, open_epoch
from tests.contract.bus.test_permissions import over_nats


def name_of(reader: Reader) -> str:
    return reader.feed._objects.consumer


async def vanish(bus: NatsBus) -> None:
    """As a killed process does: the connection ends, and nothing was tidied up."""
    client: Any = bus._connection._client
    if isinstance(client, SimulatedClient):
        assert client.link is not None
        client.link.kill()
        return
    client.options["allow_reconnect"] = False
    client._transport.close()


async def test_all_read_everything_at_once(gateway: NatsGatewayBus, service: Connect, read: Read) -> None:
    await open_epoch(gateway, 1)
    readers = [read(await service("metrics"), kinds=["workload"], decisions=True) for _ in range(REPLICAS)]
    # All at the same moment: each has to find a name of its own.
    await asyncio.gather(*(reader.caught_up() for reader in readers))
    assert {name_of(reader) for reader in readers} == set(consumer_names("metrics", "objects"))
    await gateway.put_objects([workload("a", 1)])
    await asyncio.gather(*(reader.until(has("a")) for reader in readers))


@over_nats
async def test_one_too_many_waits_until_another_is_gone(gateway: NatsGatewayBus, service: Connect, read: Read) -> None:
    await open_epoch(gateway, 1)
    buses = [await service("metrics") for _ in range(REPLICAS)]
    readers = [read(bus, kinds=["workload"]) for bus in buses]
    await asyncio.gather(*(reader.caught_up() for reader in readers))
    late = read(await service("metrics"), kinds=["workload"])
    waiting = asyncio.create_task(late.caught_up())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await asyncio.shield(waiting)
    for reader in readers:
        assert reader.feed._objects.is_open, "its name was taken away"
    left = name_of(readers[3])
    await vanish(buses[3])
    began = asyncio.get_running_loop().time()
    await asyncio.wait_for(waiting, WITHIN_S)
    assert name_of(late) == left
    assert asyncio.get_running_loop().time() - began < consumer.INACTIVE_S, (
        "it waited until the server forgot the other"
    )


async def test_a_reader_that_was_away_does_not_delete_what_its_name_means_now(
    gateway: NatsGatewayBus, service: Connect, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "INACTIVE_S", 1)
    await open_epoch(gateway, 1)
    first = read(await service("metrics"), kinds=["workload"])
    await first.caught_up()
    name = name_of(first)
    # It stops listening, as if it were frozen: the server forgets its consumer.
    await first.feed._objects._drop_subscription()
    other = await service("metrics")
    second = read(other, kinds=["workload"])
    async with asyncio.timeout(WITHIN_S):
        while await other._js.consumer_info("OBJECTS", name) is not None:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.05)
    await second.caught_up()
    assert name_of(second) == name
    first.feed._objects._break("back again")
    await gateway.put_objects([workload("a", 1)])
    await asyncio.gather(first.until(has("a")), second.until(has("a")))
    assert name_of(first) != name
    assert second.feed._counters.resumes == 0, "its consumer was deleted"


async def test_a_holder_that_vanished_is_followed_before_its_time_is_over(
    gateway: NatsGatewayBus, service: Connect, read: Read
) -> None:
    await open_epoch(gateway, 1)
    first, second = await service("scheduler"), await service("scheduler")
    await read(first, kinds=["workload"]).caught_up()
    one = first.lease("scheduler")
    async with asyncio.timeout(5):
        await one.wait_until_held()
    two = second.lease("scheduler")
    # It has seen a renewal, as a warm standby has.
    async with asyncio.timeout(WITHIN_S):
        while not two._seen:  # noqa: ASYNC110 - what it saw is of the server
            await asyncio.sleep(0.01)
    began = asyncio.get_running_loop().time()
    await vanish(first)
    async with asyncio.timeout(WITHIN_S):
        await two.wait_until_held()
    assert asyncio.get_running_loop().time() - began < LEASE_TTL_S - 0.5


async def test_a_holder_that_is_only_slow_has_its_whole_time(
    gateway: NatsGatewayBus, service: Connect, read: Read
) -> None:
    await open_epoch(gateway, 1)
    first, second = await service("scheduler"), await service("scheduler")
    await read(first, kinds=["workload"]).caught_up()
    one = first.lease("scheduler")
    async with asyncio.timeout(5):
        await one.wait_until_held()
    two = second.lease("scheduler")
    # It renews no more, and still listens.
    one._task.cancel()
    async with asyncio.timeout(LEASE_TTL_S * 3):
        await two.wait_until_held()
    assert not one.held


async def test_an_orderly_end_hands_the_lease_over(gateway: NatsGatewayBus, service: Connect) -> None:
    first, second = await service("scheduler"), await service("scheduler")
    one = first.lease("scheduler")
    async with asyncio.timeout(5):
        await one.wait_until_held()
    two = second.lease("scheduler")
    began = asyncio.get_running_loop().time()
    await first.close()
    async with asyncio.timeout(WITHIN_S):
        await two.wait_until_held()
    assert asyncio.get_running_loop().time() - began < LEASE_TTL_S - 1
