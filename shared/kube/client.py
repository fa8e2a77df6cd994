"""Calls to the API server: raw JSON in, raw JSON out, typed errors, every call bounded in time.

No object models (they cost more than the call) and no retries beyond what is always safe: waiting out a 429 that fits into the call's own
time-out, and one new try after the credentials were renewed. Everything else is the caller's decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Self

import aiohttp
import msgspec
from multidict import CIMultiDict

from shared.kube import credentials
from shared.kube.errors import ApiError, TooManyRequests, Unauthorized, Unreachable, WritesHeld, error_of
from shared.kube.resources import LEASES, Resource
from shared.kube.transport import NO_QUERY, HttpTransport, Request, Transport

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
"""Merges lists of Kubernetes' own kinds by the key that their schema names; other kinds do not know it."""
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

READS = ("get", "list", "watch")

OnCall = Callable[[str, str, str, int, float], None]
"""(verb, plural, subresource, HTTP status or 0, seconds) of every call, for counting."""

_DRY_RUN = {"dryRun": "All"}
"""Everything but the storing."""
_DISCOVERY = Resource("", "", "", "")
"""Its documents belong to no resource."""


PAGE = 500
"""Objects of a page, as kubectl asks for them."""


class _ListMetadata(msgspec.Struct, rename={"token": "continue"}):
    token: str = ""


class _List(msgspec.Struct):
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)


_rest = msgspec.json.Decoder(_List)


class _Preconditions(msgspec.Struct, omit_defaults=True, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _DeleteOptions(msgspec.Struct, omit_defaults=True, rename="camel"):
    preconditions: _Preconditions | None = None
    propagation_policy: str = ""
    grace_period_seconds: int | None = None
    dry_run: tuple[str, ...] = ()
    """Here, not in the query, which the server does not read where there is a body."""


class KubeClient:
    """One identity at one API server; use `connect`. Safe to share between tasks."""

    def __init__(self, transport: Transport, *, timeout_s: float = 2.0, on_call: OnCall | None = None) -> None:
        self._transport = transport
        self._on_call = on_call
        self.may_write: Callable[[], bool] = lambda: True
        """Asked before each write but that of a Lease: while it says no, writes raise WritesHeld instead of being sent."""
        self.timeout_s = timeout_s
        """Time-out of a call in seconds, unless the call gives its own."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; calls in flight end with Unreachable."""
        await self._transport.close()

    async def get(
        self, resource: Resource, namespace: str, name: str, *, subresource: str = "", timeout_s: float | None = None
    ) -> bytes:
        """One object. Raises NotFound and other ApiErrors."""
        return await self._call(Request("get", resource, namespace, name, subresource), timeout_s=timeout_s)

    async def discover(self, path: str) -> bytes:
        """A document of discovery: `/apis`, `/apis/batch/v1`, `/version`. Raises ApiErrors."""
        deadline = asyncio.get_running_loop().time() + self.timeout_s
        return await self._once(Request("get", _DISCOVERY, document=path), deadline)

    async def list_page(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        query: Mapping[str, str] = NO_QUERY,
        timeout_s: float | None = None,
    ) -> bytes:
        """One page of a list (`limit` and `continue` go into the query)."""
        return await self._call(Request("list", resource, namespace, query=query), timeout_s=timeout_s)

    async def pages(
        self, resource: Resource, namespace: str = "", *, query: Mapping[str, str] = NO_QUERY, limit: int = PAGE
    ) -> AsyncGenerator[bytes, None]:
        """A whole list, the body of one page after the other; `limit`: objects of a page. Raises Gone when it changed too fast to be read like that."""
        asked = {"limit": str(limit), **query}
        while True:
            body = await self.list_page(resource, namespace, query=asked)
            yield body
            rest = _rest.decode(body).metadata.token
            if not rest:
                return
            asked["continue"] = rest

    async def create(
        self, resource: Resource, namespace: str, body: bytes, *, field_manager: str = "", dry_run: bool = False
    ) -> bytes:
        """The object as created. Raises AlreadyExists and other ApiErrors."""
        query = _query(field_manager, dry_run)
        return await self._call(Request("create", resource, namespace, query=query, body=body))

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: bytes,
        *,
        subresource: str = "",
        field_manager: str = "",
        content_type: str = MERGE_PATCH,
        dry_run: bool = False,
        patient: bool = True,
    ) -> bytes:
        """The object as patched. A `metadata.resourceVersion` in the body is a precondition: Conflict if it is not the current one. Not `patient`:
        raises TooManyRequests at once, for a caller whose reasons for the write may pass while it waits."""
        query = _query(field_manager, dry_run)
        request = Request("patch", resource, namespace, name, subresource, query, body, content_type)
        return await self._call(request, patient=patient)

    async def apply(self, resource: Resource, namespace: str, name: str, body: bytes, *, field_manager: str) -> bytes:
        """Server-side apply of a whole manifest (JSON or YAML), taking over the fields that others set. The object as applied."""
        query = {"force": "true", "fieldManager": field_manager}
        return await self._call(Request("patch", resource, namespace, name, "", query, body, APPLY_PATCH))

    async def put(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: bytes,
        *,
        subresource: str = "",
        field_manager: str = "",
    ) -> bytes:
        """The object as replaced."""
        query = _query(field_manager)
        return await self._call(Request("update", resource, namespace, name, subresource, query, body))

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        version: int = 0,
        propagation: str = "",
        grace_s: int | None = None,
        dry_run: bool = False,
    ) -> bytes:
        """The object (or a Status). With `uid` or `version` only that very object or state: Conflict otherwise. `grace_s`: seconds that a pod may take to
        end; None: as it says itself."""
        conditions = _Preconditions(uid, str(version) if version else "") if uid or version else None
        body = msgspec.json.encode(_DeleteOptions(conditions, propagation, grace_s, ("All",) if dry_run else ()))
        return await self._call(Request("delete", resource, namespace, name, body=body))

    def watch(
        self, resource: Resource, namespace: str, *, query: Mapping[str, str], idle_s: float
    ) -> AsyncGenerator[list[bytes], None]:
        """First an empty list: the watch is open. Then its lines as they come, at least one a step; ends when the server ends it.
        Raises ApiErrors when it cannot begin, Unreachable when the connection breaks or nothing came for `idle_s`."""
        request = Request("watch", resource, namespace, query={**query, "watch": "1"})
        return self._transport.stream(request, connect_s=self.timeout_s, idle_s=idle_s)

    async def renew(self) -> None:
        """Load the credentials anew, e.g. after a token file rotated. Raises CredentialsError."""
        await self._transport.renew()

    async def _call(self, request: Request, *, timeout_s: float | None = None, patient: bool = True) -> bytes:
        if request.verb not in READS and request.resource != LEASES and not self.may_write():
            raise WritesHeld(0, "WritesHeld", "not the time to write")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self.timeout_s if timeout_s is None else timeout_s)
        renewed = False
        while True:
            started = loop.time()
            try:
                data = await self._once(request, deadline)
            except ApiError as error:
                self._count(request, error.status, loop.time() - started)
                if isinstance(error, Unauthorized) and not renewed:
                    renewed = True
                    await self.renew()
                elif patient and isinstance(error, TooManyRequests) and loop.time() + error.retry_after < deadline:
                    await asyncio.sleep(error.retry_after or 0.05)
                else:
                    raise
            else:
                self._count(request, 200, loop.time() - started)
                return data

    async def _once(self, request: Request, deadline: float) -> bytes:
        try:
            async with asyncio.timeout_at(deadline):
                answer = await self._transport.call(request)
        except TimeoutError as error:
            raise Unreachable(0, "Unreachable", "no answer in time") from error
        if answer.status >= 300:
            raise error_of(answer.status, answer.body, answer.retry_after)
        return answer.body

    def _count(self, request: Request, status: int, seconds: float) -> None:
        if self._on_call is not None:
            self._on_call(request.verb, request.resource.plural, request.subresource, status, seconds)


def _query(field_manager: str, dry_run: bool = False) -> Mapping[str, str]:
    if not field_manager:
        return _DRY_RUN if dry_run else NO_QUERY
    managed = {"fieldManager": field_manager}
    return {**managed, **_DRY_RUN} if dry_run else managed


async def connect(
    kubeconfig: str = "",
    *,
    context: str = "",
    user_agent: str = "sluice",
    timeout_s: float = 2.0,
    on_call: OnCall | None = None,
    impersonate_user: str = "",
    impersonate_groups: Sequence[str] = (),
) -> KubeClient:
    """A client as the kubeconfig (or $KUBECONFIG, or the pod's service account) says. Makes no call yet. Raises CredentialsError.

    `impersonate_user` and `impersonate_groups`: act as them; the credentials must allow it.
    """
    who = await credentials.load(kubeconfig, context)
    connector = aiohttp.TCPConnector(limit=0, ssl=who.tls(), keepalive_timeout=60)
    headers = [
        ("User-Agent", user_agent),
        ("Accept", "application/json"),
        # Compression costs the API server more than the loopback or the pod network costs us.
        ("Accept-Encoding", "identity"),
    ]
    if impersonate_user:
        headers.append(("Impersonate-User", impersonate_user))
        headers.extend(("Impersonate-Group", group) for group in impersonate_groups)
    session = aiohttp.ClientSession(connector=connector, headers=CIMultiDict(headers), read_bufsize=1 << 20)
    return KubeClient(HttpTransport(who, session), timeout_s=timeout_s, on_call=on_call)
