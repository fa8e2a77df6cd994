"""A small API server for tests below KubeClient: objects, versions, paged lists, watches with a history, and faults on demand.

It keeps what the client side relies on (one version counter, conflicts, 410, bookmarks, Status bodies) and checks nothing else.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from shared.kube.client import KubeClient, OnCall, connect
from shared.kube.resources import Resource

Document = dict[str, Any]
Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


def status(
    code: int, reason: str, message: str = "", seconds: int = 0, headers: dict[str, str] | None = None
) -> web.Response:
    """A metav1.Status."""
    body: Document = {"kind": "Status", "code": code, "reason": reason, "message": message or reason}
    if seconds:
        body["details"] = {"retryAfterSeconds": seconds}
    return web.json_response(body, status=code, headers=headers)


class ApiServer:
    """`objects` by collection path; every change has the next version and goes to all watches."""

    def __init__(self) -> None:
        self.version = 100
        self.objects: dict[str, dict[tuple[str, str], Document]] = {}
        self.served: set[str] | None = None
        """Plurals that exist; None: all."""
        self.oldest = 0
        """Watches from versions below this are Gone."""
        self.faults: deque[Fault] = deque()
        """Taken one by one by the next requests; None from a fault means: answer normally."""
        self.requests: list[tuple[str, str, dict[str, str], dict[str, str]]] = []
        """(method, path, query, headers)"""
        self.watches = 0
        """Watches open now."""
        self._history: list[tuple[int, str, str, str, bytes]] = []
        self._changed = asyncio.Condition()
        self._broken = asyncio.Event()

    # What a test does to the cluster.

    async def put(self, resource: Resource, document: Document) -> int:
        """Create or replace an object, as another client would; its version."""
        namespace, name = document["metadata"].get("namespace", ""), document["metadata"]["name"]
        kept = self.objects.setdefault(resource.plural, {})
        old = kept.get((namespace, name))
        self.version += 1
        metadata = {"uid": f"uid-{name}", **document["metadata"], "resourceVersion": str(self.version)}
        kept[(namespace, name)] = {**document, "metadata": metadata}
        await self._tell("MODIFIED" if old else "ADDED", resource.plural, namespace, kept[(namespace, name)])
        return self.version

    async def remove(self, resource: Resource, namespace: str, name: str, *, quietly: bool = False) -> int:
        """Delete an object; `quietly`: watches never hear of it."""
        gone = self.objects[resource.plural].pop((namespace, name))
        self.version += 1
        gone["metadata"]["resourceVersion"] = str(self.version)
        if not quietly:
            await self._tell("DELETED", resource.plural, namespace, gone)
        return self.version

    async def bookmark(self, resource: Resource) -> int:
        """Let the version move on, and tell the watches of this resource."""
        self.version += 1
        document = {"metadata": {"resourceVersion": str(self.version)}}
        await self._tell("BOOKMARK", resource.plural, "", document)
        return self.version

    async def send(self, resource: Resource, line: bytes) -> None:
        """Any bytes, to all watches of the resource."""
        self._history.append((self.version, resource.plural, "", "RAW", line))
        async with self._changed:
            self._changed.notify_all()

    async def restore(self, version: int, *kept: str) -> None:
        """The data of an earlier time, but for these plurals; watches break."""
        self.objects = {plural: found for plural, found in self.objects.items() if plural in kept}
        self.version = version
        self._history.clear()
        await self.break_watches()

    async def forget_history(self) -> None:
        """Versions before now are too old to watch from."""
        self.oldest = self.version
        self._history.clear()

    async def break_watches(self) -> None:
        """Cut all open watches."""
        self._broken.set()
        self._broken = asyncio.Event()
        async with self._changed:
            self._changed.notify_all()

    # What clients see.

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path, dict(request.query), dict(request.headers)))
        if self.faults:
            answer = await self.faults.popleft()(request)
            if answer is not None:
                return answer
        parts = request.path.strip("/").split("/")
        parts = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        plural, name = parts[0], parts[1] if len(parts) > 1 else ""
        if self.served is not None and plural not in self.served:
            return web.Response(status=404, text="404 page not found\n")
        if request.method == "POST":
            return await self._create(request, plural, namespace)
        if name:
            return await self._one(request, plural, namespace, name)
        if request.query.get("watch"):
            return await self._watch(request, plural)
        return self._list(request, plural, namespace)

    async def _create(self, request: web.Request, plural: str, namespace: str) -> web.Response:
        document = await request.json()
        if (namespace, document["metadata"]["name"]) in self.objects.get(plural, {}):
            return status(409, "AlreadyExists")
        document["metadata"]["namespace"] = namespace
        await self.put(Resource("", "", plural, ""), document)
        return web.json_response(self.objects[plural][(namespace, document["metadata"]["name"])], status=201)

    async def _one(self, request: web.Request, plural: str, namespace: str, name: str) -> web.Response:
        found = self.objects.get(plural, {}).get((namespace, name))
        if found is None:
            return status(404, "NotFound", f"{plural} {name!r} not found")
        if request.method == "GET":
            return web.json_response(found)
        body = await request.json()
        if request.method == "DELETE":
            wanted = body.get("preconditions", {})
            if any(found["metadata"].get(key) != value for key, value in wanted.items()):
                return status(409, "Conflict")
            await self.remove(Resource("", "", plural, ""), namespace, name)
            return web.json_response(found)
        expected = body.get("metadata", {}).get("resourceVersion")
        if expected and expected != found["metadata"]["resourceVersion"]:
            return status(409, "Conflict", "the object has been modified")
        await self.put(Resource("", "", plural, ""), merged(found, body) if request.method == "PATCH" else body)
        return web.json_response(self.objects[plural][(namespace, name)])

    def _list(self, request: web.Request, plural: str, namespace: str) -> web.Response:
        least = int(request.query.get("resourceVersion") or 0)
        if least > self.version:
            return status(504, "Timeout", f"Timeout: Too large resource version: {least}, current: {self.version}")
        found = [d for (ns, _), d in self.objects.get(plural, {}).items() if not namespace or ns == namespace]
        start = int(request.query.get("continue") or 0)
        limit = int(request.query.get("limit") or 0) or len(found)
        metadata = {"resourceVersion": str(self.version)}
        if start + limit < len(found):
            metadata["continue"] = str(start + limit)
        return web.json_response({"metadata": metadata, "items": found[start : start + limit]})

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        # One from a version that was never reached opens, and is told nothing until then.
        after = int(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        if after < self.oldest:
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
            await response.write(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
            return response
        broken = self._broken
        self.watches += 1
        sent = next((i for i, entry in enumerate(self._history) if entry[0] > after), len(self._history))
        try:
            while not broken.is_set():
                for version, of, _, kind, body in self._history[sent:]:
                    if of == plural and (version > after or kind == "RAW"):
                        line = body if kind == "RAW" else b'{"type":"%s","object":%s}\n' % (kind.encode(), body)
                        await response.write(line)
                sent = len(self._history)
                async with self._changed:
                    while len(self._history) == sent and not broken.is_set():
                        await self._changed.wait()
        finally:
            self.watches -= 1
        assert request.transport is not None
        request.transport.abort()
        return response

    async def _tell(self, kind: str, plural: str, namespace: str, document: Document) -> None:
        self._history.append((self.version, plural, namespace, kind, json.dumps(document).encode()))
        async with self._changed:
            self._changed.notify_all()


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


@asynccontextmanager
async def serve(api: ApiServer) -> AsyncIterator[str]:
    """Its base URL while the block runs."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", api.handle)
    server = TestServer(application)
    await server.start_server()
    try:
        yield str(server.make_url("")).rstrip("/")
    finally:
        await api.break_watches()
        await server.close()


def kubeconfig(folder: Path, url: str, token: str = "secret") -> Path:
    """A kubeconfig with a bearer token."""
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "test",
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
                "clusters": [{"name": "test", "cluster": {"server": url}}],
                "users": [{"name": "test", "user": {"token": token}}],
            }
        )
    )
    return path


@asynccontextmanager
async def client_of(
    api: ApiServer, *, timeout_s: float = 2.0, on_call: OnCall | None = None
) -> AsyncIterator[KubeClient]:
    """A client of a server that runs as long as the block."""
    with tempfile.TemporaryDirectory() as folder:
        async with serve(api) as url:
            path = kubeconfig(Path(folder), url)
            async with await connect(
                str(path), user_agent="sluice-test", timeout_s=timeout_s, on_call=on_call
            ) as client:
                yield client


async def until(condition: Callable[[], bool], *, within_s: float = 5.0) -> None:
    """Wait, bounded, until the condition holds."""
    async with asyncio.timeout(within_s):
        while True:
            if condition():
                return
            await asyncio.sleep(0.005)
