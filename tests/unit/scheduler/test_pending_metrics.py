"""What the scheduler tells of pending workloads when it is scraped."""

from __future__ import annotations

import msgspec
from prometheus_client import CollectorRegistry

from services.scheduler.metrics import PendingCollector
from shared.config.configuration import CustomLabel
from shared.config.custom_labels import CustomLabels
from shared.events.objects import ClusterQueue
from shared.state.scheduling import SchedulerState
from tests.unit.scheduler.harness import Harness, until
from tests.unit.state.builders import basics, workload


async def test_shapes_and_requests_of_what_waits() -> None:
    harness = Harness()
    labelled = [
        msgspec.structs.replace(item, labels={"team": "a"}) if isinstance(item, ClusterQueue) else item
        for item in basics()
    ]
    await harness.put(*labelled)
    await harness.open()
    scheduler = harness.scheduler()
    registry = CollectorRegistry()
    registry.register(
        PendingCollector(scheduler.state, lambda: "leader", CustomLabels((CustomLabel(name="team"),)), resources=True)
    )

    def value(name: str, **labels: str) -> float | None:
        all_labels = {"cluster_queue": "cq", **labels, "custom_team": "a", "replica_role": "leader"}
        return registry.get_sample_value(f"kueue_{name}", all_labels)

    async with harness.running(scheduler):
        # Four cores in all: those of nine never fit and park together, whatever their number.
        await harness.put(*(workload(name, "9") for name in ("a", "b", "c")), workload("d", "7"))
        await until(lambda: value("pending_scheduling_hashes", status="inadmissible") == 2)
        assert value("pending_scheduling_hashes", status="active") == 0
        assert value("cluster_queue_resource_pending", resource="cpu") == 34


def test_without_hashing_and_resources_there_are_no_such_series() -> None:
    registry = CollectorRegistry()
    collector = PendingCollector(SchedulerState(), lambda: "leader", CustomLabels(), hashes=False)
    registry.register(collector)
    assert list(registry.collect()) == []
