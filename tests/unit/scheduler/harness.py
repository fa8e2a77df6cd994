"""A scheduler on the simulated bus, with a clock that only the test moves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable

import msgspec
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from services.scheduler.service import Scheduler
from services.scheduler.settings import SchedulerSettings
from shared.bus.interface import ObjectWrite
from shared.events.commands import ReportPending
from shared.events.decisions import Admit, Batch, DecisionId, Preempt
from shared.events.objects import Admission, Object, Tombstone, Workload
from shared.events.outcomes import CommandOutcome, DecisionOutcome
from shared.state.validation import validate
from shared.testing.simulated_bus import DecodedBroker
from tests.unit.state.builders import NOW, condition, name_of, with_condition


class Harness:
    """The other side of a scheduler: writes objects, applies decisions, waits for conditions."""

    def __init__(self) -> None:
        self.broker = DecodedBroker()
        self.gateway = self.broker.gateway()
        self.now = NOW
        self.version = 0
        self.ready: list[tuple[bool, str]] = []
        self.spans = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self.registry = CollectorRegistry()

    def scheduler(
        self, settings: SchedulerSettings | None = None, registry: CollectorRegistry | None = None
    ) -> Scheduler:
        """A new instance."""
        return Scheduler(
            self.broker.bus("scheduler"),
            settings or SchedulerSettings(retry_delay_s=0.0, race_wait_s=0.2),
            now=lambda: self.now,
            tracer=self.provider.get_tracer("test"),
            registry=registry or self.registry,
            ready=lambda is_ready, why: self.ready.append((is_ready, why)),
        )

    @contextlib.asynccontextmanager
    async def running(self, *schedulers: Scheduler) -> AsyncIterator[None]:
        """Run them until the end of the block."""
        tasks = [asyncio.create_task(s.run()) for s in schedulers]
        try:
            yield
            for task in tasks:
                assert not task.done() or task.exception() is None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def put(self, *objects: Object, trace: str = "") -> None:
        """Write objects, each one version newer than all before."""
        writes = []
        for object_ in objects:
            self.version += 1
            writes.append(ObjectWrite(name_of(object_), msgspec.structs.replace(object_, version=self.version), trace))
        await self.gateway.put_objects(writes)

    async def delete(self, object_: Object) -> None:
        """Write a tombstone."""
        self.version += 1
        gone = Tombstone(namespace=object_.namespace, name=object_.name, uid=object_.uid, version=self.version)
        await self.gateway.put_objects([ObjectWrite(name_of(object_), gone)])

    async def open(self, epoch: int = 1) -> None:
        """Open an epoch behind what OBJECTS holds."""
        await self.gateway.open_epoch(shard="0", epoch=epoch, objects_position=self.broker.sequence, why="test")

    def admits(self, epoch: int = 1) -> list[Admit]:
        """All admissions in the log."""
        return [admit for _, admit in self.identified_admits(epoch)]

    def identified_admits(self, epoch: int = 1) -> list[tuple[DecisionId, Admit]]:
        """All admissions in the log, with their ids."""
        return [
            (DecisionId(epoch, item.position, index), decision)
            for item in self.broker.log(epoch)
            if isinstance(item.entry, Batch)
            for index, decision in enumerate(item.entry.decisions)
            if isinstance(decision, Admit)
        ]

    def identified_preempts(self, epoch: int = 1) -> list[tuple[DecisionId, Preempt]]:
        """All preemptions in the log, with their ids."""
        return [
            (DecisionId(epoch, item.position, index), decision)
            for item in self.broker.log(epoch)
            if isinstance(item.entry, Batch)
            for index, decision in enumerate(item.entry.decisions)
            if isinstance(decision, Preempt)
        ]

    def stored(self, key: str) -> Workload:
        """The newest projection of a workload."""
        found = next(c.object for c in self.broker.objects.values() if c.name.kind == "workload" and c.name.key == key)
        assert isinstance(found, Workload)
        return found

    async def apply(self, admits: Iterable[tuple[DecisionId, Admit]]) -> None:
        """What the gateway does with decisions: objects, then outcomes."""
        for id_, admit in admits:
            before = self.stored(admit.key)
            admission = Admission(admit.cluster_queue, admit.pod_sets)
            held = (condition("QuotaReserved", True, changed=self.version + 1), condition("Admitted", True))
            await self.put(with_condition(before, *held, admission=admission))
            await self.gateway.settle(
                [DecisionOutcome(decision=id_, key=admit.key, uid=admit.uid, status="applied", version=self.version)]
            )

    async def evict(self, id_: DecisionId, preempt: Preempt) -> None:
        """What the gateway does with a preemption: object, then outcome."""
        before = self.stored(preempt.key)
        evicted = condition("Evicted", True, preempt.eviction, self.version + 1)
        await self.put(with_condition(before, evicted, evictions=before.evictions + 1))
        await self.gateway.settle(
            [DecisionOutcome(decision=id_, key=preempt.key, uid=preempt.uid, status="applied", version=self.version)]
        )

    async def reject(self, id_: DecisionId, decision: Admit | Preempt, version: int) -> None:
        """Refuse a decision."""
        await self.gateway.settle(
            [
                DecisionOutcome(
                    decision=id_, key=decision.key, uid=decision.uid, status="rejected", version=version, why="edited"
                )
            ]
        )

    def reports(self, key: str = "") -> list[ReportPending]:
        """Reports sent so far."""
        return [c for c in self.broker.command_history if isinstance(c, ReportPending) and key in ("", c.key)]

    async def report_applied(self, command: ReportPending, version: int) -> None:
        """The outcome of a report."""
        outcome = CommandOutcome(command=command.id, subject="s", status="applied", version=version)
        await self.gateway.settle([outcome])

    async def check(self, scheduler: Scheduler) -> None:
        """Let it hear of its last append, then validate its state."""
        await quiet()
        validate(scheduler.state, self.now)

    def metric(self, name: str, **labels: str) -> float:
        """Value of one series; 0 if there is none."""
        return self.registry.get_sample_value(name, labels) or 0.0


async def until(condition_: Callable[[], object], timeout_s: float = 5.0) -> None:
    """Let the others run until it holds. Raises TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while not condition_():  # noqa: ASYNC110 - what is waited for is any state, not an event
            await asyncio.sleep(0)


async def quiet(rounds: int = 50) -> None:
    """Let everybody run for a while, to show that something does not happen."""
    for _ in range(rounds):
        await asyncio.sleep(0)
