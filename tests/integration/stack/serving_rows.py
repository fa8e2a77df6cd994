"""The table of kinds whose pods queue, for test_serving.py: how an object of each is made, what it asks for, and who plays its controller where the real one is
not there (StatefulSets and Deployments have theirs).
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from shared.jobs.deployment import Deployment
from shared.jobs.leader_worker_set import LeaderWorkerSet
from shared.jobs.queueing_parent import QueueingParent
from shared.jobs.stateful_set import StatefulSet
from shared.kube.errors import NotFound
from shared.kube.resources import PODS, STATEFUL_SETS
from tests.integration.stack.kind_cluster import Cluster
from tests.integration.stack.kind_rows import pod_spec
from tests.integration.stack.manifests import Manifest

LWS = "leaderworkerset.sigs.k8s.io"
Controller = Callable[[Cluster, Manifest], Awaitable[None]]


def template(name: str) -> Manifest:
    return {"metadata": {"labels": {"app": name}}, "spec": {**pod_spec(), "restartPolicy": "Always"}}


async def nobody(cluster: Cluster, parent: Manifest) -> None:
    """Its controller runs."""


async def play(cluster: Cluster, parent: Manifest) -> None:
    """What the controller of LeaderWorkerSets does: a StatefulSet of leaders, and one of the workers of each leader. It gives pods their labels, too."""
    name, namespace = parent["metadata"]["name"], parent["metadata"]["namespace"]
    groups, replicas = parent["spec"]["leaderWorkerTemplate"], parent["spec"].get("replicas", 1)
    await _apply(cluster, parent, name, replicas, groups.get("leaderTemplate") or groups["workerTemplate"], {}, 0)
    page = await cluster.client.list_page(PODS, namespace, query={"labelSelector": f"{LWS}/name={name}"})
    for pod in msgspec.json.decode(page)["items"]:
        labels, ordinal = pod["metadata"]["labels"], pod["metadata"]["name"].removeprefix(f"{name}-")
        if ordinal.isdigit() and f"{LWS}/group-index" not in labels:
            change = {"metadata": {"labels": {f"{LWS}/group-index": ordinal}}}
            with contextlib.suppress(NotFound):
                await cluster.client.patch(PODS, namespace, pod["metadata"]["name"], msgspec.json.encode(change))
        if ordinal.isdigit() and int(ordinal) < replicas:
            of_group = {f"{LWS}/group-index": ordinal}
            await _apply(
                cluster, parent, f"{name}-{ordinal}", groups["size"] - 1, groups["workerTemplate"], of_group, 1
            )
    made = await cluster.client.list_page(STATEFUL_SETS, namespace, query={"labelSelector": f"{LWS}/name={name}"})
    for found in msgspec.json.decode(made)["items"]:
        ordinal = found["metadata"]["name"].removeprefix(f"{name}-")
        if ordinal.isdigit() and int(ordinal) >= replicas:
            with contextlib.suppress(NotFound):
                await cluster.client.delete(
                    STATEFUL_SETS, namespace, found["metadata"]["name"], propagation="Background"
                )


async def _apply(
    cluster: Cluster, parent: Manifest, name: str, replicas: int, pods: Manifest, labels: dict[str, str], first: int
) -> None:
    meta = parent["metadata"]
    owner = {"apiVersion": parent["apiVersion"], "kind": parent["kind"], "name": meta["name"], "uid": meta["uid"]}
    labels = {f"{LWS}/name": meta["name"], **labels}
    told = {f"{LWS}/leader-name": name} if first else {}
    pods = copy.deepcopy(pods)
    own = pods.setdefault("metadata", {})
    own["labels"] = {**own.get("labels", {}), **labels, f"{LWS}/of": name}
    own["annotations"] = {**own.get("annotations", {}), **told}
    spec = {
        "replicas": replicas,
        "podManagementPolicy": "Parallel",
        "serviceName": name,
        "selector": {"matchLabels": {f"{LWS}/of": name}},
        "template": pods,
        "ordinals": {"start": first},
    }
    metadata = {
        "name": name,
        "namespace": meta["namespace"],
        "labels": labels,
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
    }
    found = await cluster.get(STATEFUL_SETS, name, meta["namespace"])
    if not found:
        body = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}
        await cluster.create(STATEFUL_SETS, body)
    elif found["spec"]["replicas"] != replicas:
        change = msgspec.json.encode({"spec": {"replicas": replicas}})
        await cluster.client.patch(STATEFUL_SETS, meta["namespace"], name, change)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One kind. `pod_sets`: of each workload; `pods`, `first`: how many there are, and how many before any was admitted; `own`: each pod has a workload."""

    kind: QueueingParent
    spec: Callable[[str], Manifest]
    pod_sets: list[dict[str, int]]
    pods: int
    first: int
    own: bool = False
    controller: Controller = nobody

    def __str__(self) -> str:
        return self.kind.kind

    def made(self, name: str, queue: str, namespace: str = "default") -> Manifest:
        labels = {"kueue.x-k8s.io/queue-name": queue}
        return {
            "apiVersion": f"{self.kind.group}/{self.kind.version}",
            "kind": self.kind.kind,
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": self.spec(name),
        }


def _replicas(name: str, **more: Any) -> Manifest:
    return {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template(name), **more}


ROWS: tuple[Row, ...] = (
    Row(kind=Deployment(), spec=_replicas, pod_sets=[{"main": 1}] * 2, pods=2, first=2, own=True),
    Row(
        kind=StatefulSet(), spec=lambda name: _replicas(name, serviceName=name), pod_sets=[{"main": 2}], pods=2, first=1
    ),
    Row(
        kind=LeaderWorkerSet(),
        spec=lambda name: {
            "replicas": 2,
            "leaderWorkerTemplate": {"size": 2, "leaderTemplate": template(name), "workerTemplate": template(name)},
        },
        pod_sets=[{"leader": 1, "worker": 1}] * 2,
        pods=4,
        first=4,
        controller=play,
    ),
)
