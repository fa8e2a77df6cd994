"""The simulated server among processes that are stopped and killed, and one seed as one history; each test has a loop of its own."""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import msgspec

from shared.bus.interface import FeedItem
from shared.bus.nats_bus import NatsBus
from shared.testing.link import Link
from shared.testing.simulated_bus import Fault, Publish, SimulatedBroker, StoredMessage
from shared.testing.virtual_time import Process, VirtualTimeLoop
from tests.contract.bus.messages import batch, names, rejected, workload


async def steps(bus: NatsBus) -> AsyncIterator[list[FeedItem]]:
    async for items in bus.feed(kinds=["workload"], decisions=True, outcomes=True):
        yield items


def test_a_stopped_process_reads_later_and_a_killed_one_takes_nobody_along() -> None:
    loop = VirtualTimeLoop(Random(0))
    broker = SimulatedBroker(loop.wall, Random(0))
    reader, writer = Process("reader"), Process("writer")
    seen: list[str] = []

    async def follow() -> None:
        async for items in steps(broker.bus("metrics", Link(Random(1)))):
            seen.extend(names(items))

    async def prepare() -> None:
        gateway = broker.gateway()
        await gateway.ensure_streams()
        await gateway.open_epoch(shard="0", epoch=1, objects_position=0, why="test")

    async def write(first: int) -> None:
        bus = broker.gateway(Link(Random(2)))
        await bus.load_objects()
        for version in range(first, first + 5):
            await bus.put_objects([workload(f"w{version}", version)])
        await asyncio.Event().wait()

    loop.run_until_complete(prepare())
    loop.spawn(reader, follow())
    loop.run_until_complete(asyncio.sleep(1))
    loop.stop_process(reader)
    loop.spawn(writer, write(1))
    loop.run_until_complete(asyncio.sleep(1))
    assert seen == []
    loop.continue_process(reader)
    loop.run_until_complete(asyncio.sleep(1))
    assert seen == ["w1", "w2", "w3", "w4", "w5"]
    # Killed as soon as its message is stored: it is delivered all the same.
    broker.subscribe(lambda message: loop.kill_process(writer) if message.subject.endswith(".w11") else None)
    writer = Process("writer again")
    loop.spawn(writer, write(11))
    loop.run_until_complete(asyncio.sleep(5))
    assert seen[5:] == ["w11"]
    loop.close()


def history(seed: int) -> list[StoredMessage]:
    """All that is stored while services write, read and are disturbed."""
    random = Random(seed)
    loop = VirtualTimeLoop(random)
    broker = SimulatedBroker(loop.wall, random)
    found: list[StoredMessage] = []
    broker.subscribe(found.append)

    def disturb(publish: Publish) -> Fault | None:
        faults: tuple[Fault, ...] = ("lose_ack", "break_after", "break_late", "twice")
        return random.choice(faults) if random.random() < 0.1 else None

    async def schedule(bus: NatsBus, number: int) -> None:
        lease = bus.lease("scheduler")
        async for _ in steps(bus):
            if lease.held:
                await bus.append(msgspec.structs.replace(batch(number), decided_ns=1))

    async def run() -> None:
        gateway = broker.gateway(Link(random))
        await gateway.ensure_streams()
        await gateway.open_epoch(shard="0", epoch=1, objects_position=0, why="test")
        broker.fault = disturb
        tasks = [asyncio.create_task(schedule(broker.bus("scheduler", Link(random)), r)) for r in (0, 1)]
        for version in range(1, 60):
            await gateway.put_objects([workload(f"w{version % 7}", version)])
            await gateway.settle([rejected(version)])
            await asyncio.sleep(random.random())
            if version % 20 == 0:
                broker.restart()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    loop.run_until_complete(run())
    loop.close()
    return found


def test_one_seed_is_one_history() -> None:
    first = history(7)
    assert len(first) > 150
    assert first == history(7)
    assert first != history(8)
