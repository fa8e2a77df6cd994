"""A cluster as a command sees it: one connection, objects as the API server gives them, and errors in one line.

Objects stay plain JSON values here, so that what is printed is all that the server said.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from cli.ctl import kubeconfig
from shared.kube import credentials
from shared.kube.client import KubeClient, connect
from shared.kube.errors import ApiError
from shared.kube.resources import Resource

T = TypeVar("T")
Json = dict[str, Any]

REQUEST_TIMEOUT_S = 30.0
FIELD_MANAGER = "kubectl-sluice"


class CommandError(Exception):
    """What a person can read and act on; ends the command with exit code 1."""


class ClusterFlags(msgspec.Struct, frozen=True, kw_only=True):
    """Which cluster, as whom, and in which namespace; empty fields are the kubeconfig's."""

    kubeconfig: str = ""
    context: str = ""
    cluster: str = ""
    user: str = ""
    as_user: str = ""
    as_group: tuple[str, ...] = ()
    namespace: str = ""
    request_timeout_s: float = REQUEST_TIMEOUT_S


class Session:
    """An open connection. Everything raises ApiError."""

    def __init__(self, client: KubeClient, namespace: str, server: str = "") -> None:
        self.client = client
        self.server = server
        """Base URL of the API server."""
        self.namespace = namespace
        """The namespace that is meant where none is said."""

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        return _json(await self.client.get(resource, self._in(resource, namespace), name))

    async def pages(
        self, resource: Resource, *, limit: int, everywhere: bool = False, query: Mapping[str, str] | None = None
    ) -> AsyncIterator[list[Json]]:
        """All objects of the namespace (or of all), page by page."""
        namespace = "" if everywhere else self._in(resource, "")
        async for body in self.client.pages(resource, namespace, query=query or {}, limit=limit):
            yield _json(body).get("items") or []

    async def all(
        self, resource: Resource, *, everywhere: bool = False, query: Mapping[str, str] | None = None
    ) -> list[Json]:
        """All objects of the namespace, or of all."""
        found: list[Json] = []
        async for page in self.pages(resource, limit=500, everywhere=everywhere, query=query):
            found += page
        return found

    async def create(self, resource: Resource, manifest: Json, *, dry_run: bool = False) -> Json:
        body = msgspec.json.encode(manifest)
        namespace = self._in(resource, manifest["metadata"].get("namespace", ""))
        return _json(await self.client.create(resource, namespace, body, field_manager=FIELD_MANAGER, dry_run=dry_run))

    async def patch(self, resource: Resource, name: str, change: Json, *, dry_run: bool = False) -> Json:
        body = msgspec.json.encode(change)
        namespace = self._in(resource, "")
        return _json(
            await self.client.patch(resource, namespace, name, body, field_manager=FIELD_MANAGER, dry_run=dry_run)
        )

    async def delete(self, resource: Resource, namespace: str, name: str, *, dry_run: bool = False) -> None:
        await self.client.delete(resource, namespace, name, propagation="Background", dry_run=dry_run)

    async def discover(self, path: str) -> Json:
        """A document of discovery."""
        return _json(await self.client.discover(path))

    async def preferred_versions(self) -> list[str]:
        """The preferred apiVersion of every group, the core group first."""
        groups = (await self.discover("/apis")).get("groups", ())
        return ["v1", *(str(group["preferredVersion"]["groupVersion"]) for group in groups)]

    def _in(self, resource: Resource, namespace: str) -> str:
        return (namespace or self.namespace) if resource.namespaced else ""


class Cluster:
    """The cluster that the flags name."""

    def __init__(self, flags: ClusterFlags) -> None:
        self.flags = flags

    def run(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Connect, do the work, disconnect. Raises CommandError for what the cluster or the kubeconfig refuses."""
        try:
            return asyncio.run(self._run(work))
        except ApiError as error:
            raise CommandError(error.message or str(error)) from error
        except credentials.CredentialsError as error:
            raise CommandError(str(error)) from error

    async def _run(self, work: Callable[[Session], Awaitable[T]]) -> T:
        async with self.connected() as session:
            return await work(session)

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[Session]:
        """A session; for commands that do more than one thing at a time."""
        flags = self.flags
        own = kubeconfig.files(flags.kubeconfig)
        namespace = flags.namespace or kubeconfig.namespace(own, flags.context) or "default"
        with kubeconfig.mixed(own, flags.context, flags.cluster, flags.user) as (files, context):
            client = await connect(
                files,
                context=context,
                user_agent="kubectl-sluice",
                timeout_s=flags.request_timeout_s,
                impersonate_user=flags.as_user,
                impersonate_groups=flags.as_group,
            )
            async with client:
                yield Session(client, namespace, (await credentials.load(files, context)).server)


def _json(data: bytes) -> Json:
    loaded: Json = msgspec.json.decode(data)
    return loaded
