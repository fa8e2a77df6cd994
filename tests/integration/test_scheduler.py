"""Schedulers on a real NATS with its real permissions; the gateway is played by the test."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path

import msgspec
import pytest
from opentelemetry.trace import NoOpTracer
from prometheus_client import CollectorRegistry

from devcluster.nats_server import NatsServer
from services.scheduler.service import Scheduler
from services.scheduler.settings import SchedulerSettings
from shared.bus.interface import ObjectWrite, StreamsLost
from shared.bus.nats_bus import NatsBus, NatsGatewayBus, connect
from shared.events.decisions import Admit, Batch, DecisionId
from shared.events.objects import Admission, Object, Workload
from shared.events.outcomes import DecisionOutcome
from tests.unit.state.builders import (
    cluster_queue,
    condition,
    flavor,
    local_queue,
    name_of,
    namespace,
    with_condition,
    workload,
)

pytestmark = pytest.mark.integration

QUOTA = 4000


class AlwaysActive:
    """A lease that everybody holds, to have two schedulers decide at once."""

    held = True

    async def wait_until_held(self) -> None:
        return

    async def release(self) -> None:
        return


class Gateway:
    """Holds the truth, applies the log, and finishes what it has admitted; notes every breach of quota."""

    def __init__(self, bus: NatsGatewayBus) -> None:
        self.bus = bus
        self.version = 0
        self.epoch = 1
        self.truth: dict[str, Workload] = {}
        self.admitted: list[str] = []
        self.rejected = 0
        self.most_used = 0

    async def put(self, objects: Sequence[Object]) -> int:
        writes = []
        for object_ in objects:
            self.version += 1
            new = msgspec.structs.replace(object_, version=self.version)
            if isinstance(new, Workload):
                self.truth[new.key] = new
            writes.append(ObjectWrite(name_of(new), new))
        return await self.bus.put_objects(writes)

    def used(self) -> int:
        return sum(
            sum(part.usage["cpu"] for part in w.admission.pod_sets)
            for w in self.truth.values()
            if w.admission is not None and not w.finished
        )

    async def run(self) -> None:
        while True:
            try:
                await self._follow()
            except StreamsLost as error:
                # As the real one does: a server that was started again may have forgotten something.
                await self.bus.ensure_streams()
                position = await self.put(list(self.truth.values()))
                self.epoch += 1
                await self.bus.open_epoch(shard="0", epoch=self.epoch, objects_position=position, why=str(error))

    async def _follow(self) -> None:
        async for items in self.bus.log(shard="0", epoch=self.epoch, after=0):
            for item in items:
                if isinstance(item.entry, Batch):
                    await self._apply(item.entry, item.position)

    async def _apply(self, batch: Batch, position: int) -> None:
        outcomes = []
        for index, admit in enumerate(batch.decisions):
            assert isinstance(admit, Admit)
            id_ = DecisionId(self.epoch, position, index)
            found = self.truth[admit.key]
            fits = found.incarnation == admit.incarnation and found.admission is None and not found.finished
            if fits:
                held = (condition("QuotaReserved", True, changed=self.version), condition("Admitted", True))
                await self.put([with_condition(found, *held, admission=Admission(admit.cluster_queue, admit.pod_sets))])
                self.admitted.append(admit.key)
                self.most_used = max(self.most_used, self.used())
            else:
                self.rejected += 1
            outcomes.append(
                DecisionOutcome(
                    decision=id_,
                    key=admit.key,
                    uid=admit.uid,
                    status="applied" if fits else "rejected",
                    version=self.truth[admit.key].version,
                )
            )
        await self.bus.settle(outcomes)
        done = [
            msgspec.structs.replace(w, finished=True) for w in self.truth.values() if w.admission and not w.finished
        ]
        if len(done) > 1:
            await self.put(done[:-1])

    async def finish_all(self) -> None:
        done = [
            msgspec.structs.replace(w, finished=True) for w in self.truth.values() if w.admission and not w.finished
        ]
        await self.put(done)


@pytest.fixture
async def nats(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with NatsServer(tmp_path) as server:
        yield server


@contextlib.asynccontextmanager
async def connected(nats: NatsServer) -> AsyncIterator[tuple[Gateway, list[NatsBus]]]:
    """A gateway with its streams and an epoch, and two connections of the scheduler."""
    bus = await connect("watcher", nats.url, "watcher", nats.password("watcher"), gateway=True)
    assert isinstance(bus, NatsGatewayBus)
    others = [await connect("scheduler", nats.url, "scheduler", nats.password("scheduler")) for _ in range(2)]
    try:
        await bus.ensure_streams()
        await bus.load_objects()
        gateway = Gateway(bus)
        position = await gateway.put([namespace(), flavor(), cluster_queue("cq", "4"), local_queue()])
        await bus.open_epoch(shard="0", epoch=1, objects_position=position, why="test")
        yield gateway, others
    finally:
        for connection in (*others, bus):
            await connection.close()


def scheduler(bus: NatsBus) -> Scheduler:
    return Scheduler(
        bus,
        SchedulerSettings(retry_delay_s=0.01, batch_decisions=3),
        now=time.time,
        tracer=NoOpTracer(),
        registry=CollectorRegistry(),
        ready=lambda is_ready, why: None,
    )


async def wait_for(condition_: Callable[[], bool], timeout_s: float = 15.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition_():  # noqa: ASYNC110 - what is waited for is a state of another process
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def in_background(*coroutines: Coroutine[None, None, None]) -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_two_schedulers_racing_on_one_log_admit_nobody_twice(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(nats) as (gateway, buses):
        racers = [scheduler(bus) for bus in buses]
        for bus in buses:
            monkeypatch.setattr(bus, "lease", lambda role: AlwaysActive())
        async with in_background(gateway.run(), *(racer.run() for racer in racers)) as tasks:
            await wait_for(lambda: all(racer.state.caught_up for racer in racers))
            for round_ in range(10):
                await gateway.put([workload(f"w{round_}-{i}", "1", created=i) for i in range(6)])
            async with asyncio.timeout(25):
                while len(gateway.admitted) < 60:
                    await asyncio.sleep(0.02)
                    await gateway.finish_all()
                    assert not any(task.done() for task in tasks)
        assert len(set(gateway.admitted)) == len(gateway.admitted) == 60
        assert gateway.most_used <= QUOTA
        # On a busy machine one may win every time; then the other must have lost to the fence, or nothing was tried.
        appended, lost = (
            [r.metrics.appended._value.get() for r in racers],
            [r.metrics.lost._value.get() for r in racers],
        )
        assert all(appended) or any(lost), (appended, lost)


async def test_the_standby_takes_over_when_the_active_one_stops(nats: NatsServer) -> None:
    async with connected(nats) as (gateway, buses):
        first, second = (scheduler(bus) for bus in buses)
        async with in_background(gateway.run(), second.run()):
            await wait_for(lambda: second.state.caught_up)
            async with in_background(first.run()):
                await wait_for(lambda: first.state.caught_up)
                await gateway.put([workload("a", "1")])
                await wait_for(lambda: gateway.admitted == ["ns/a"])
            await buses[0].close()
            await gateway.put([workload("b", "1")])
            await wait_for(lambda: gateway.admitted == ["ns/a", "ns/b"])


async def test_a_scheduler_goes_on_after_nats_was_killed(nats: NatsServer) -> None:
    async with connected(nats) as (gateway, buses):
        one = scheduler(buses[0])
        async with in_background(gateway.run(), one.run()):
            await gateway.put([workload("a", "1")])
            await wait_for(lambda: gateway.admitted == ["ns/a"])
            await nats.kill()
            await nats.start()
            await gateway.put([workload("b", "1")])
            await wait_for(lambda: gateway.admitted == ["ns/a", "ns/b"])
