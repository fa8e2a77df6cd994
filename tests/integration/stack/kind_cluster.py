"""What tests of kinds of jobs ask of the API server of a running stack, and how long they wait for it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from cli.integrations import component
from devcluster.audit import read_events
from devcluster.options import ClusterOptions, NodeGroup
from devcluster.stack import Stack
from shared.kube.client import KubeClient, connect
from shared.kube.errors import NotFound
from shared.kube.resources import WORKLOADS, Resource
from tests.eventually import eventually
from tests.integration.stack.configured import configured_stack
from tests.integration.stack.kind_rows import ROWS, Row, definition
from tests.integration.stack.manifests import Manifest, as_list, cluster_queue, flavor, local_queue

FRAMEWORKS = ("batch/job", "pod", "deployment", *(row.kind.framework for row in ROWS))
NODES = (NodeGroup(name="node", count=2, labels={"node-type": "plain"}),)
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob")
SECONDS = 40
TAINT = {"key": "kind-test", "value": "x", "effect": "NoSchedule"}


class Cluster:
    """What the tests ask of the API server."""

    def __init__(self, stack: Stack, client: KubeClient) -> None:
        self.stack, self.client = stack, client

    async def apply(self, *items: Manifest) -> None:
        await self.stack.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=as_list(*items))

    async def queue(self, name: str, cpu: str = "8") -> None:
        on_nodes = flavor(name, **{"node-type": "plain"})
        on_nodes["spec"]["tolerations"] = [{"key": TAINT["key"], "operator": "Exists"}]
        queue = cluster_queue(name, cpu)
        # Some kinds say what memory they need, whoever asks.
        (group,) = queue["spec"]["resourceGroups"]
        group["coveredResources"] += ["memory"]
        group["flavors"][0]["resources"] += [{"name": "memory", "nominalQuota": "64Gi"}]
        await self.apply(on_nodes, queue, local_queue(name))

    async def create(self, resource: Resource, manifest: Manifest) -> Manifest:
        made = await self.client.create(
            resource, manifest["metadata"].get("namespace", "default"), msgspec.json.encode(manifest)
        )
        return dict(msgspec.json.decode(made))

    async def get(self, resource: Resource, name: str, namespace: str = "default") -> Manifest:
        """Empty when it is gone."""
        try:
            return dict(msgspec.json.decode(await self.client.get(resource, namespace, name)))
        except NotFound:
            return {}

    async def patch(self, resource: Resource, name: str, change: Manifest, subresource: str = "") -> None:
        await self.client.patch(resource, "default", name, msgspec.json.encode(change), subresource=subresource)

    async def workloads(self, namespace: str = "default") -> list[Manifest]:
        page = msgspec.json.decode(await self.client.list_page(WORKLOADS, namespace))
        return list(page["items"])

    async def workload_of(self, uid: str) -> Manifest:
        """The newest one that this object owns."""
        found = [
            workload
            for workload in await self.workloads()
            if any(owner["uid"] == uid for owner in workload["metadata"].get("ownerReferences", ()))
        ]
        return max(found, key=lambda w: int(w["metadata"]["resourceVersion"]), default={})

    def written(self, resource: str, name: str) -> int:
        """How often the gateway has written to an object."""
        log = self.stack.cluster.audit_log
        assert log is not None
        return sum(
            event.user.username.endswith(":sluice-watcher")
            and (event.object_ref.resource, event.object_ref.name) == (resource, name)
            for event in read_events(log)
        )

    async def reserving(self, queue: str) -> int:
        raw = await self.stack.cluster.kubectl("get", "clusterqueue", queue, "-o", "json")
        return int(json.loads(raw).get("status", {}).get("reservingWorkloads", 0))


async def served(cluster: Cluster, resource: Resource) -> None:
    """Returns when objects of the kind can be made."""

    async def listed() -> bool:
        try:
            await cluster.client.list_page(resource)
        except NotFound:
            return False
        return True

    assert await eventually(listed, SECONDS), resource


async def holds(look: Callable[[], Awaitable[Any]], what: str) -> Any:
    found = await eventually(look, SECONDS)
    assert found, what
    return found


def condition(workload: Manifest, type_: str) -> tuple[str, str] | None:
    conditions = workload.get("status", {}).get("conditions", ())
    return next(((c["status"], c["reason"]) for c in conditions if c["type"] == type_), None)


def resource_of(row: Row) -> Resource:
    kind = row.kind
    return Resource(kind.group, kind.version, kind.plural, kind.kind)


@asynccontextmanager
async def stack_of_kinds(
    folder: Path, frameworks: tuple[str, ...], options: ClusterOptions
) -> AsyncIterator[tuple[Stack, KubeClient]]:
    """A running stack that manages these kinds."""
    document = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "integrations": {"frameworks": list(frameworks)},
        "featureGates": {"SparkApplicationIntegration": True},
    }
    components = tuple(component(framework) for framework in frameworks if framework != "batch/job")
    async with (
        configured_stack(folder, json.dumps(document), options, components) as stack,
        await connect(str(stack.cluster.kubeconfig), user_agent="test", timeout_s=10.0) as client,
    ):
        yield stack, client


@asynccontextmanager
async def cluster_of_all_kinds(folder: Path) -> AsyncIterator[Cluster]:
    """Every kind of the table is enabled from the start; its definition comes when everything runs already."""
    options = ClusterOptions(nodes=NODES, default_pod_seconds=0.5, audit=True)
    async with stack_of_kinds(folder, FRAMEWORKS, options) as (stack, client):
        made = Cluster(stack, client)
        needed = [need for row in ROWS for need in row.needs]
        resources = [*(resource_of(row) for row in ROWS), *(resource for resource, _ in needed)]
        definitions = [*(definition(row.kind) for row in ROWS), *(definition(resource) for resource, _ in needed)]
        await made.apply(*definitions)
        for resource in resources:
            await served(made, resource)
        await made.apply(*(manifest for _, manifest in needed))
        yield made
