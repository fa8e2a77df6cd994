"""The table of job kinds for test_kinds.py: how an object of each is made, and what its controller would write into its status.

A row knows no more than the API of its kind. Definitions are the published ones where they are at hand, else permissive ones of our own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from shared.jobs.jobset import JobSet
from shared.jobs.protocol import JobKind
from shared.jobs.training_job import JAX_JOB, MPI_JOB, PADDLE_JOB, PYTORCH_JOB, TF_JOB, XGBOOST_JOB, TrainingJob
from tests.integration.stack.manifests import Manifest

PUBLISHED = Path(__file__).resolve().parents[4] / "shared" / "crds"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One kind. `pod_sets`: of the object that `spec` makes; `templates`: where its pod templates are; `running` to `failed`: what its controller tells."""

    kind: JobKind
    spec: Manifest
    pod_sets: dict[str, int]
    suspended: tuple[str, ...] = ("spec", "suspend")
    templates: Callable[[Manifest], list[Manifest]]
    running: Manifest
    stopped: Manifest
    succeeded: Manifest
    failed: Manifest

    def __str__(self) -> str:
        return self.kind.kind

    def made(self, name: str, queue: str) -> Manifest:
        """An object that wants to run at once."""
        labels = {"kueue.x-k8s.io/queue-name": queue}
        return {
            "apiVersion": f"{self.kind.group}/{self.kind.version}",
            "kind": self.kind.kind,
            "metadata": {"name": name, "namespace": "default", "labels": labels},
            "spec": copy.deepcopy(self.spec),
        }


def definition(kind: JobKind) -> Manifest:
    """Its CustomResourceDefinition."""
    published = PUBLISHED / f"{kind.group}_{kind.plural}.yaml"
    if published.exists():
        loaded: Manifest = yaml.safe_load(published.read_text())
        return loaded
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}},
    }
    names = {"plural": kind.plural, "singular": kind.kind.lower(), "kind": kind.kind}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {"group": kind.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def pod_spec(cpu: str = "1") -> Manifest:
    container = {"name": "c", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": cpu}}}
    return {"restartPolicy": "Never", "containers": [container]}


def _condition(type_: str, message: str) -> dict[str, Any]:
    return {
        "type": type_,
        "status": "True",
        "reason": type_,
        "message": message,
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }


def _replicated(name: str, replicas: int, parallelism: int) -> Manifest:
    job = {"parallelism": parallelism, "completions": parallelism, "template": {"spec": pod_spec()}}
    return {"name": name, "replicas": replicas, "template": {"spec": job}}


def _jobs(**active: int) -> Manifest:
    zero = {"ready": 0, "succeeded": 0, "failed": 0, "suspended": 0}
    return {"replicatedJobsStatus": [{"name": name, "active": count, **zero} for name, count in active.items()]}


def _training(kind: TrainingJob, specs: str, **pods: int) -> Row:
    """A kind of a training operator, with replicas by type."""
    templates = {type_: {"replicas": count, "template": {"spec": pod_spec()}} for type_, count in pods.items()}

    def status(active: bool, condition: str) -> Manifest:
        replicas = {type_: {"active": count if active else 0} for type_, count in pods.items()}
        return {"replicaStatuses": replicas, "conditions": [_condition(condition, condition.lower())]}

    return Row(
        kind=kind,
        spec={"runPolicy": {}, specs: templates},
        pod_sets={type_.lower(): count for type_, count in pods.items()},
        suspended=("spec", "runPolicy", "suspend"),
        templates=lambda job: [job["spec"][specs][type_]["template"] for type_ in pods],
        running=status(True, "Running"),
        stopped=status(False, "Suspended"),
        succeeded=status(False, "Succeeded"),
        failed=status(False, "Failed"),
    )


ROWS: tuple[Row, ...] = (
    Row(
        kind=JobSet(),
        spec={"replicatedJobs": [_replicated("driver", 1, 1), _replicated("workers", 2, 2)]},
        pod_sets={"driver": 1, "workers": 4},
        templates=lambda job: [j["template"]["spec"]["template"] for j in job["spec"]["replicatedJobs"]],
        running=_jobs(driver=1, workers=2),
        stopped={**_jobs(driver=0, workers=0), "conditions": [_condition("Suspended", "held back")]},
        succeeded={**_jobs(driver=0, workers=0), "conditions": [_condition("Completed", "all done")]},
        failed={**_jobs(driver=0, workers=0), "conditions": [_condition("Failed", "it broke")]},
    ),
    _training(PYTORCH_JOB, "pytorchReplicaSpecs", Master=1, Worker=2),
    _training(TF_JOB, "tfReplicaSpecs", Chief=1, PS=1, Worker=2),
    _training(XGBOOST_JOB, "xgbReplicaSpecs", Master=1, Worker=1),
    _training(PADDLE_JOB, "paddleReplicaSpecs", Master=1, Worker=1),
    _training(JAX_JOB, "jaxReplicaSpecs", Worker=2),
    _training(MPI_JOB, "mpiReplicaSpecs", Launcher=1, Worker=2),
)
