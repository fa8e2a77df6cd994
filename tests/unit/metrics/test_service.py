"""Two instances on the simulated bus: which of them counts, and what the other one tells."""

from __future__ import annotations

import asyncio

from opentelemetry.trace import NoOpTracer
from prometheus_client import CollectorRegistry

from services.metrics.service import serve
from services.metrics.settings import MetricsSettings
from shared.bus.interface import Bus
from shared.runtime.health import Health
from shared.runtime.service import Context
from tests.unit.scheduler.harness import Harness, until
from tests.unit.state.builders import basics, reserved, workload


class Instance:
    """One instance with a registry of its own."""

    def __init__(self, bus: Bus) -> None:
        self.registry, self.health = CollectorRegistry(), Health()
        context = Context("metrics", MetricsSettings(), bus, self.health, self.registry, NoOpTracer())
        self.task = asyncio.create_task(serve(context))

    def roles(self, name: str) -> set[str]:
        """Values of replica_role on the series of a family that are not 0."""
        samples = (s for m in self.registry.collect() for s in m.samples if s.name == f"kueue_{name}" and s.value)
        return {sample.labels["replica_role"] for sample in samples}


async def test_the_holder_of_the_lease_counts_and_the_other_one_tells_gauges() -> None:
    harness = Harness()
    await harness.put(*basics())
    await harness.open()
    instances = [Instance(harness.broker.bus("metrics")) for _ in range(2)]
    try:
        await until(lambda: all(one.health.is_ready for one in instances))
        waiting = workload("a", "1")
        await harness.put(waiting)
        await until(lambda: all(one.roles("pending_workloads") for one in instances))
        roles = [next(iter(one.roles("pending_workloads"))) for one in instances]
        assert sorted(roles) == ["follower", "leader"]
        await harness.put(reserved(waiting))
        await until(lambda: all(one.roles("admitted_active_workloads") for one in instances))
        counted = [one.roles("admitted_workloads_total") for one in instances]
        assert counted == [{"leader"} if role == "leader" else set() for role in roles]
    finally:
        for one in instances:
            one.task.cancel()
        await asyncio.gather(*(one.task for one in instances), return_exceptions=True)
