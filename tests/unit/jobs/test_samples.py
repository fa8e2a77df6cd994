"""Kueue's own sample manifests, unmodified: the pod sets that the integration specification says of them. Needs `../shared`, which a lone clone has not."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.config.feature_gates import DEFAULT_GATES
from shared.jobs.manifest import JsonObject
from shared.jobs.merge_patch import apply
from shared.jobs.podset_info import PodSetInfo
from shared.jobs.protocol import Circumstances, JobKind, JobPodSet
from shared.jobs.registry import PARENTS, job_kind, queueing_parent
from tests.unit.jobs.round_trip import assert_round_trip, requests

_SAMPLES = Path(__file__).parents[4] / "shared" / "samples"
AROUND = Circumstances(gates=DEFAULT_GATES)
SMALL = {"cpu": 1, "memory": "200Mi"}

JOBS: dict[str, list[tuple[str, int, object]]] = {
    "ray-cluster-sample": [
        ("head", 1, {"cpu": "1", "memory": "2G"}),
        ("small-group", 1, {"cpu": "1", "memory": "1G"}),
    ],
    "ray-job-sample": [
        ("head", 1, {"cpu": "1"}),
        ("small-group", 1, {"cpu": "1"}),
        ("submitter", 1, {"cpu": "500m", "memory": "200Mi"}),
    ],
    "sample-jaxjob": [("worker", 2, SMALL)],
    "sample-job": [("main", 3, {"cpu": "1", "memory": "200Mi"})],
    "sample-job-partial-admission": [("main", 20, SMALL)],
    "sample-jobset": [("workers", 1, SMALL), ("driver", 1, {"cpu": 2, "memory": "200Mi"})],
    "sample-mpijob": [("launcher", 1, None), ("worker", 2, None)],
    "sample-pytorchjob": [("master", 1, SMALL), ("worker", 1, SMALL)],
    "sample-sparkapplication": [
        ("driver", 1, {"cpu": "1", "memory": "1Gi"}),
        ("executor", 2, {"cpu": "1", "memory": "1Gi"}),
    ],
    "sample-tfjob": [("ps", 1, SMALL), ("worker", 2, SMALL)],
}
SERVING: dict[str, list[list[tuple[str, int, object]]]] = {
    "sample-deployment": [],
    "sample-statefulset": [[("main", 3, {"cpu": "100m"})]],
    "sample-leaderworkerset": [[("leader", 1, {"cpu": "100m"}), ("worker", 2, {"cpu": "200m"})]] * 2,
}


def samples(folder: str) -> list[str]:
    """Names of the manifests there."""
    return sorted(path.stem for path in (_SAMPLES / folder).glob("*.yaml"))


def read(folder: str, name: str) -> JsonObject:
    manifest: JsonObject = yaml.safe_load((_SAMPLES / folder / f"{name}.yaml").read_text())
    return manifest


def said(pod_sets: tuple[JobPodSet, ...]) -> list[tuple[str, int, object]]:
    """(name, count, what the first container asks for)."""
    return [(pod_set.name, pod_set.count, requests(pod_set)[0]) for pod_set in pod_sets]


@pytest.mark.parametrize("name", samples("jobs"))
def test_job(name: str) -> None:
    if name == "sample-cronjob":
        job = _job_of_cron_job(read("jobs", name))
        expected: list[tuple[str, int, object]] = [("main", 3, SMALL)]
    else:
        job, expected = read("jobs", name), JOBS[name]
    kind = job_kind(str(job["apiVersion"]), str(job["kind"]))
    assert kind is not None
    assert said(kind.pod_sets(job)) == expected
    assert not kind.suspended(job)
    assert not list(kind.errors(job, None, AROUND))
    _assert_takes_admission(kind, job)


def _job_of_cron_job(cron_job: Any) -> JsonObject:
    """A CronJob needs no integration: its runs are Jobs, with the labels that it gives them."""
    template = cron_job["spec"]["jobTemplate"]
    assert template["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "user-queue"
    return {"apiVersion": "batch/v1", "kind": "Job", **template}


def _assert_takes_admission(kind: JobKind, job: JsonObject) -> None:
    held = apply(job, kind.suspend(job))
    assert kind.suspended(held)
    running = assert_round_trip(kind, held, [PodSetInfo(name="x", node_selector={"type": "spot"})])
    assert not kind.suspended(running)


@pytest.mark.parametrize("name", samples("serving-workloads"))
def test_serving(name: str) -> None:
    manifest = read("serving-workloads", name)
    kind = queueing_parent(str(manifest["apiVersion"]), str(manifest["kind"]))
    assert kind in PARENTS
    assert kind is not None
    assert [said(workload.pod_sets) for workload in kind.workloads(manifest)] == SERVING[name]
    marked = kind.marked(manifest, DEFAULT_GATES)
    assert not list(kind.errors(marked, manifest, AROUND))
    assert "kueue.x-k8s.io/pod-suspending-parent" in str(marked)
    assert kind.marked(marked, DEFAULT_GATES) == marked


def test_every_sample_is_known() -> None:
    """Of a lone clone there is none; with `../shared` a new sample has to be added here."""
    assert set(samples("jobs")) <= {*JOBS, "sample-cronjob"}
    assert set(samples("serving-workloads")) <= set(SERVING)
