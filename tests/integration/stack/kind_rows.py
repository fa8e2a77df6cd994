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
)
