"""How long jobs waited for their Workloads: only jobs that nobody changed count."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from services.watcher.creation_latency import creation_latency, not_measured
from services.watcher.job_control import Job, job_of
from services.watcher.kinds import read
from services.watcher.store import Store
from shared.config.configuration import Configuration, Configured, CustomLabel, LeaderElection, Metrics
from shared.config.feature_gates import resolve
from shared.jobs.registry import INTEGRATED
from tests.unit.watcher.manifests import TIME_S, job, metadata, raw

NAME = "kueue_workload_creation_latency_seconds"


def a_job(generation: int = 1) -> Job:
    meta = {"generation": generation, "labels": {"kueue.x-k8s.io/queue-name": "lq"}}
    return job_of(INTEGRATED[0], read("job", raw(job(meta=meta))))


@pytest.mark.parametrize(("generation", "expected"), [(1, 2.5), (2, None)])
def test_only_jobs_of_the_first_generation_count(generation: int, expected: float | None) -> None:
    registry = CollectorRegistry()
    creation_latency(Configured(), registry, Store(), lambda: TIME_S + 2.5)(a_job(generation))
    labels = {"job_kind": "Job", "replica_role": "leader"}
    assert registry.get_sample_value(f"{NAME}_sum", labels) == expected


def test_custom_labels_are_those_of_the_local_queue() -> None:
    configured = Configured(
        configuration=Configuration(
            leader_election=LeaderElection(leader_elect=False),
            metrics=Metrics(custom_labels=(CustomLabel(name="room", source_kind="LocalQueue"),)),
        ),
        gates=resolve({"CustomMetricLabels": True}),
    )
    registry, store = CollectorRegistry(), Store()
    queue = {"metadata": metadata("lq", namespace="team", labels={"room": "7"}), "spec": {"clusterQueue": "cq"}}
    store.upsert("localqueue", raw(queue))
    creation_latency(configured, registry, store, lambda: TIME_S)(a_job())
    labels = {"job_kind": "Job", "custom_room": "7", "replica_role": "standalone"}
    assert registry.get_sample_value(f"{NAME}_count", labels) == 1


def test_the_gate() -> None:
    configured = Configured(gates=resolve({"MetricForWorkloadCreationLatency": False}))
    assert creation_latency(configured, CollectorRegistry(), Store(), lambda: 0.0) is not_measured
