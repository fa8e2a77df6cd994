"""What a contract test needs of an API server, simulated or real, and how it looks at watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import msgspec

from shared.kube.client import MERGE_PATCH, KubeClient
from shared.kube.errors import NotFound
from shared.kube.resources import Resource
from tests.eventually import eventually

WITHIN_S = 20.0

Document = dict[str, Any]
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
Review = Callable[[Document], Awaitable[Document]]
"""The request of an AdmissionReview -> its response, without the uid. What it raises makes the webhook fail."""


class Server(Protocol):
    """One API server with our definitions installed, and a namespace of its own for each test."""

    client: KubeClient
    """May do everything."""
    namespace: str
    user: str
    """Who the client is."""

    async def expired_version(self) -> int:
        """A version that is too old to watch from."""
        ...

    async def restart(self) -> None:
        """End the server and start it again on its data."""
        ...

    def webhook(self, kind: str, review: Review, **fields: object) -> AbstractAsyncContextManager[None]:
        """A webhook for the test's namespace while the block runs; `kind` is Mutating or Validating, `fields` are of its configuration."""
        ...


def config_map(name: str, **metadata: object) -> Document:
    return {"metadata": {"name": name, **metadata}, "data": {"a": "1"}}


def local_queue(name: str, **metadata: object) -> Document:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": name, **metadata},
        "spec": {"clusterQueue": "cq"},
    }


def job(name: str, **spec: object) -> Document:
    container = {"name": "c", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"metadata": {"name": name}, "spec": {"suspend": True, "template": template, **spec}}


def workload(name: str) -> Document:
    container = {"name": "c", "image": "registry.k8s.io/pause:3.10"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name},
        "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]},
    }


def condition(type_: str, status: str = "True") -> Document:
    return {
        "type": type_,
        "status": status,
        "reason": "Test",
        "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }


def webhook_configuration(kind: str, name: str, namespace: str, fields: Mapping[str, object]) -> Document:
    """With one webhook, at the path `/name`, for one namespace."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": f"{name}.contract.test",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "clientConfig": {"service": {"name": "webhook", "namespace": "default", "path": f"/{name}"}},
                **fields,
            }
        ],
    }


async def respond(body: bytes, review: Review) -> bytes:
    """The answer to an AdmissionReview."""
    asked = _object(body)
    response = await review(asked["request"])
    return msgspec.json.encode(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {"uid": asked["request"]["uid"], **response},
        }
    )


class Caller:
    """The calls of the contract, with documents instead of bytes."""

    def __init__(self, server: Server) -> None:
        self.client = server.client
        self.namespace = server.namespace

    async def create(self, resource: Resource, document: Document) -> Document:
        return _object(await self.client.create(resource, self._in(resource), msgspec.json.encode(document)))

    async def get(self, resource: Resource, name: str) -> Document:
        return _object(await self.client.get(resource, self._in(resource), name))

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: object,
        *,
        subresource: str = "",
        content_type: str = MERGE_PATCH,
    ) -> Document:
        body = msgspec.json.encode(patch)
        return _object(
            await self.client.patch(
                resource, self._in(resource), name, body, subresource=subresource, content_type=content_type
            )
        )

    async def put(self, resource: Resource, name: str, document: Document, *, subresource: str = "") -> Document:
        body = msgspec.json.encode(document)
        return _object(await self.client.put(resource, self._in(resource), name, body, subresource=subresource))

    async def apply(self, resource: Resource, name: str, document: Document, *, manager: str) -> Document:
        body = msgspec.json.encode(document)
        return _object(await self.client.apply(resource, self._in(resource), name, body, field_manager=manager))

    async def delete(
        self, resource: Resource, name: str, *, uid: str = "", version: int = 0, propagation: str = ""
    ) -> Document:
        return _object(
            await self.client.delete(
                resource, self._in(resource), name, uid=uid, version=version, propagation=propagation
            )
        )

    async def list(self, resource: Resource, **query: str) -> Document:
        return _object(await self.client.list_page(resource, self._in(resource), query=query))

    async def exists(self, resource: Resource, name: str) -> bool:
        try:
            await self.get(resource, name)
        except NotFound:
            return False
        return True

    async def gone(self, resource: Resource, name: str) -> bool:
        """Wait, bounded, until it does not exist any more."""

        async def probe() -> bool:
            return not await self.exists(resource, name)

        return await eventually(probe, WITHIN_S)

    @asynccontextmanager
    async def watching(self, resource: Resource, **query: str) -> AsyncIterator[Events]:
        """Follow a watch while the block runs."""
        events = Events()
        task = asyncio.create_task(self._follow(events, resource, query))
        try:
            async with asyncio.timeout(WITHIN_S):
                await asyncio.wait({task, asyncio.ensure_future(events.open.wait())}, return_when="FIRST_COMPLETED")
            yield events
        finally:
            task.cancel()
            await asyncio.wait({task})
            events.raise_unless_cancelled(task)

    async def _follow(self, events: Events, resource: Resource, query: Mapping[str, str]) -> None:
        steps = self.client.watch(resource, self._in(resource), query=query, idle_s=WITHIN_S)
        try:
            async for lines in steps:
                events.open.set()
                for line in lines:
                    events.add(_object(line))
        finally:
            events.ended.set()

    def _in(self, resource: Resource) -> str:
        return self.namespace if resource.namespaced else ""


class Events:
    """What a watch told, bookmarks apart."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.ended = asyncio.Event()
        self.all: list[Document] = []
        self.bookmarks: list[Document] = []
        self._came = asyncio.Event()

    def add(self, event: Document) -> None:
        (self.bookmarks if event["type"] == "BOOKMARK" else self.all).append(event)
        self._came.set()

    async def first(self, count: int) -> list[Document]:
        """The first events, once there are as many."""
        async with asyncio.timeout(WITHIN_S):
            while len(self.all) < count:
                self._came.clear()
                await self._came.wait()
        return self.all[:count]

    def raise_unless_cancelled(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            raise task.exception() or AssertionError


def told(event: Document) -> tuple[str, str]:
    """(type, name) of an event."""
    return event["type"], event["object"]["metadata"]["name"]


def version(document: Document) -> int:
    return int(document["metadata"]["resourceVersion"])


def _object(raw: bytes) -> Document:
    found: Document = msgspec.json.decode(raw)
    return found
