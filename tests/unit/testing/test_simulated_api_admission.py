"""The webhooks that ship, asked by the simulated API server: configurations from k8s/webhooks, answers from the webhook's own handlers."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest

from services.webhook.handlers import Handlers
from services.webhook.known_objects import KnownObjects
from services.webhook.service import respond
from services.webhook.settings import WebhookSettings
from shared.api import names
from shared.jobs.manifest import JsonObject
from shared.kube import errors
from shared.kube.resources import CLUSTER_QUEUES, JOBS, NAMESPACES, WORKLOADS, Resource
from shared.testing.simulated_api import SimulatedApi, shipped_webhooks, webhooks_of

WATCHER = "system:serviceaccount:kueue-system:sluice-watcher"
POD = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
QUEUE: JsonObject = {
    "metadata": {"name": "cq"},
    "spec": {
        "namespaceSelector": {},
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "9"}]}],
            }
        ],
    },
}


class Cluster:
    """A server with the shipped webhooks; `asked` are the paths that were called."""

    def __init__(self) -> None:
        self.api = SimulatedApi(lambda: 1e9, random.Random(1))
        self.asked: list[str] = []
        self.broken = False
        settings = WebhookSettings(nats_url="nats://nowhere")
        client = self.api.client(user="system:serviceaccount:kueue-system:sluice-webhook")
        self._routes = Handlers(settings, KnownObjects(client), client).routes()
        self.api.webhooks += shipped_webhooks(self._respond)
        for name in ("kueue-system", "team"):
            self.api.create(NAMESPACES, {"metadata": {"name": name}})

    async def create(self, resource: Resource, namespace: str, document: JsonObject, user: str = "alice") -> Any:
        client = self.api.client(user=user)
        return msgspec.json.decode(await client.create(resource, namespace, msgspec.json.encode(document)))

    async def _respond(self, path: str, body: bytes) -> bytes:
        self.asked.append(path)
        await asyncio.sleep(0)
        if self.broken:
            raise ConnectionError("refused")
        return await respond(body, self._routes[path])


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def job(name: str, **labels: str) -> JsonObject:
    return {"metadata": {"name": name, "labels": labels}, "spec": {"template": {"spec": POD}}}


async def test_a_job_with_a_queue_is_suspended(cluster: Cluster) -> None:
    made = await cluster.create(JOBS, "team", job("j", **{names.QUEUE_NAME_LABEL: "lq"}))
    assert made["spec"]["suspend"] is True
    assert cluster.asked == ["/mutate-batch-v1-job", "/validate-batch-v1-job"]


async def test_a_bad_job_is_refused(cluster: Cluster) -> None:
    with pytest.raises(errors.Forbidden, match=r"vjob\.kb\.io"):
        await cluster.create(JOBS, "team", job("j", **{names.QUEUE_NAME_LABEL: "Not A Name"}))
    assert cluster.api.get(JOBS, "team", "j") is None


async def test_a_namespace_that_is_left_out(cluster: Cluster) -> None:
    made = await cluster.create(JOBS, "kueue-system", job("j", **{names.QUEUE_NAME_LABEL: "lq"}))
    assert made["spec"]["suspend"] is False
    assert not cluster.asked


async def test_a_cluster_queue_gets_its_finalizer_and_is_checked(cluster: Cluster) -> None:
    made = await cluster.create(CLUSTER_QUEUES, "", QUEUE)
    assert made["metadata"]["finalizers"] == [names.RESOURCE_IN_USE]
    document: Any = made
    document["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "-1"
    client = cluster.api.client(user="alice")
    with pytest.raises(errors.Forbidden, match="nominalQuota"):
        await client.put(CLUSTER_QUEUES, "", "cq", msgspec.json.encode(document))
    assert cluster.asked[-1] == "/validate-kueue-x-k8s-io-v1beta2-clusterqueue"


async def test_the_watcher_writes_while_the_webhook_is_down(cluster: Cluster) -> None:
    cluster.broken = True
    workload: JsonObject = {
        "metadata": {"name": "w"},
        "spec": {"podSets": [{"count": 1, "template": {"spec": POD}}]},
    }
    with pytest.raises(errors.ServerTimeout, match="failed calling webhook"):
        await cluster.create(WORKLOADS, "team", workload)
    await cluster.create(WORKLOADS, "team", workload, user=WATCHER)
    assert cluster.api.get(WORKLOADS, "team", "w") is not None


async def test_a_webhook_that_does_not_answer_in_time(cluster: Cluster) -> None:
    never = asyncio.Event()

    async def waits(path: str, body: bytes) -> bytes:
        await never.wait()
        return b""

    cluster.api.webhooks = [msgspec.structs.replace(one, timeout_s=0.01) for one in shipped_webhooks(waits)]
    with pytest.raises(errors.ServerTimeout, match=r"mclusterqueue\.kb\.io"):
        await cluster.create(CLUSTER_QUEUES, "", QUEUE)


async def test_a_restart_while_a_webhook_thinks(cluster: Cluster) -> None:
    asked = asyncio.Event()
    answer = asyncio.Event()

    async def thinks(path: str, body: bytes) -> bytes:
        asked.set()
        await answer.wait()
        request = msgspec.json.decode(body)["request"]
        return msgspec.json.encode({"response": {"uid": request["uid"], "allowed": True}})

    cluster.api.webhooks = shipped_webhooks(thinks)
    write = asyncio.create_task(cluster.create(CLUSTER_QUEUES, "", QUEUE))
    await asyncio.wait_for(asked.wait(), 2)
    cluster.api.restart()
    answer.set()
    with pytest.raises(errors.Unreachable):
        await write
    assert cluster.api.get(CLUSTER_QUEUES, "", "cq") is None


def test_a_condition_that_is_not_simulated_is_said() -> None:
    async def never(path: str, body: bytes) -> bytes:
        raise AssertionError

    entry = {"name": "x", "matchConditions": [{"name": "c", "expression": "object.spec.x == 1"}]}
    with pytest.raises(ValueError, match=r"object\.spec"):
        webhooks_of({"kind": "ValidatingWebhookConfiguration", "webhooks": [entry]}, never)
