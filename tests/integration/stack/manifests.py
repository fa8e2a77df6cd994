"""Small queues and Jobs for tests, each test with names of its own."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from shared.api.meta import ObjectMeta
from shared.kube.client import KubeClient
from shared.kube.resources import JOBS

API = "kueue.x-k8s.io/v1beta2"
Manifest = dict[str, Any]


def flavor(name: str, **labels: str) -> Manifest:
    spec = {"nodeLabels": labels} if labels else {}
    return {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}


def cluster_queue(name: str, cpu: str = "4", *, flavors: tuple[str, ...] = (), **spec: Any) -> Manifest:
    """`flavors` default to one that is named like the queue."""
    quotas = [{"name": f, "resources": [{"name": "cpu", "nominalQuota": cpu}]} for f in flavors or (name,)]
    group = {"coveredResources": ["cpu"], "flavors": quotas}
    whole = {"namespaceSelector": {}, "resourceGroups": [group], **spec}
    return {"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": whole}


def local_queue(name: str, namespace: str = "default", queue: str = "") -> Manifest:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": API, "kind": "LocalQueue", "metadata": metadata, "spec": {"clusterQueue": queue or name}}


def priority_class(name: str, value: int) -> Manifest:
    return {"apiVersion": API, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}


def cohort(name: str, parent: str = "", **spec: Any) -> Manifest:
    whole = {"parentName": parent, **spec} if parent else spec
    return {"apiVersion": API, "kind": "Cohort", "metadata": {"name": name}, "spec": whole}


def queue(name: str, cpu: str = "4", **spec: Any) -> list[Manifest]:
    """Flavor, ClusterQueue and LocalQueue (in `default`), all with that name."""
    return [flavor(name), cluster_queue(name, cpu, **spec), local_queue(name)]


def job(
    name: str, queue: str, cpu: str = "1", *, pods: int = 1, labels: dict[str, str] | None = None, **annotations: str
) -> Manifest:
    """`annotations` are those of `sluice.dev/` on its pods, with `_` for `-`: run_seconds, fail."""
    pod = {f"sluice.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    container = {"name": "c", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"kueue.x-k8s.io/queue-name": queue, **(labels or {})},
        },
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "template": {
                "metadata": {"annotations": pod},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }


def as_list(*items: Manifest) -> str:
    """For `kubectl apply -f -`."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})


class _Created(msgspec.Struct):
    metadata: ObjectMeta


async def create_job(client: KubeClient, manifest: Manifest) -> str:
    """Create a Job; returns its UID."""
    body = await client.create(JOBS, manifest["metadata"]["namespace"], msgspec.json.encode(manifest))
    return msgspec.json.decode(body, type=_Created).metadata.uid
