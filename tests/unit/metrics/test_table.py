"""The table of metrics against what Kueue publishes (kueue_metrics.yaml), and against what the services really make of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest

from services.metrics.gauges import BuildInfo, StateCollector
from services.metrics.service import viewer
from services.metrics.settings import MetricsSettings
from services.scheduler.metrics import PendingCollector, SchedulerMetrics
from services.watcher.creation_latency import creation_latency
from services.watcher.gate_removal import gate_removal
from services.watcher.store import Store
from shared.config.configuration import Configuration, Configured, CustomLabel, Metrics
from shared.config.custom_labels import custom_labels
from shared.config.feature_gates import resolve
from shared.state.scheduling import SchedulerState
from shared.telemetry.metrics import FAMILIES, PREFIX, Recorder, labels_of

KINDS = {"C": "ClusterQueue", "L": "LocalQueue", "H": "Cohort", "W": "Workload"}
DOCUMENT: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "kueue_metrics.yaml").read_text())
ROWS: list[dict[str, Any]] = DOCUMENT["metrics"]
OURS = [row for row in ROWS if "later" not in row]

CONFIGURED = Configured(
    configuration=Configuration(
        metrics=Metrics(
            enable_cluster_queue_resources=True,
            custom_labels=tuple(
                CustomLabel(name=kind.lower(), source_kind=kind, tracked_values=("a",))  # type: ignore[arg-type]
                for kind in KINDS.values()
            ),
        )
    ),
    gates=resolve({"CustomMetricLabels": True}),
)


@pytest.mark.parametrize("row", OURS, ids=lambda row: row["name"])
def test_a_row_is_kueues(row: dict[str, Any]) -> None:
    family = FAMILIES[row["name"]]
    assert family.kind == row["type"]
    assert list(family.labels) == row["labels"]
    assert list(family.buckets) == pytest.approx(DOCUMENT["buckets"][row["buckets"]] if "buckets" in row else [])
    assert set(family.custom) == {KINDS[letter] for letter in row.get("custom", "")}
    assert "replica_role" in labels_of(family) or row["name"] == "build_info"


def test_nothing_is_published_under_kueues_prefix_that_kueue_has_not() -> None:
    assert set(FAMILIES) == {row["name"] for row in OURS}
    assert len(ROWS) == len({row["name"] for row in ROWS})


def _published() -> Iterator[Metric]:
    """What the three services register, as a scrape sees it."""
    registry = CollectorRegistry()
    view = viewer(MetricsSettings(), CONFIGURED)({})
    Recorder(registry, lambda: "leader", view.custom.names)
    registry.register(StateCollector(view, lambda: "leader"))
    registry.register(BuildInfo("v1", "abc", "today"))
    SchedulerMetrics(registry)
    registry.register(PendingCollector(SchedulerState(), lambda: "leader", custom_labels(CONFIGURED), resources=True))
    creation_latency(CONFIGURED, registry, Store(), lambda: 0.0)
    gate_removal(CONFIGURED, registry, lambda: 0.0)
    return (metric for metric in registry.collect() if metric.name.startswith(PREFIX))


def test_each_row_is_published_once() -> None:
    published = [(metric.name + ("_total" if metric.type == "counter" else ""), metric.type) for metric in _published()]
    assert sorted(published) == sorted((PREFIX + row["name"], row["type"]) for row in OURS)


def test_a_scrape_has_no_series_of_other_names() -> None:
    """Prometheus' library would tell of each counter and histogram when it was created."""
    registry = CollectorRegistry()
    recorder = Recorder(registry, lambda: "leader")
    recorder.record("admitted_workloads_total", ("cq", ""))
    recorder.record("admission_wait_time_seconds", ("cq", ""))
    names = {line.split("{")[0] for line in generate_latest(registry).decode().splitlines() if line[:1] != "#"}
    wait = "kueue_admission_wait_time_seconds"
    assert names == {"kueue_admitted_workloads_total", f"{wait}_bucket", f"{wait}_sum", f"{wait}_count"}
