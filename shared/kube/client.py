"""Calls to the API server: raw JSON in, raw JSON out, typed errors, every call bounded in time.

No object models (they cost more than the call) and no retries beyond what is always safe: waiting out a 429 that fits into the call's own
time-out, and one new try after the credentials were renewed. Everything else is the caller's decision.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Self

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from shared.kube import credentials
from shared.kube.errors import ApiError, TooManyRequests, Unauthorized, Unreachable, WritesHeld, error_of
from shared.kube.resources import LEASES, Resource

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

READS = ("get", "list")

OnCall = Callable[[str, str, str, int, float], None]
"""(verb, plural, subresource, HTTP status or 0, seconds) of every call, for counting."""

NO_QUERY: Mapping[str, str] = {}
DRY_RUN: Mapping[str, str] = {"dryRun": "All"}
"""Everything but the storing."""


class _Preconditions(msgspec.Struct, omit_defaults=True, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _DeleteOptions(msgspec.Struct, omit_defaults=True, rename="camel"):
    preconditions: _Preconditions | None = None
    propagation_policy: str = ""


class KubeClient:
    """One identity at one API server; use `connect`. Safe to share between tasks."""

    def __init__(
        self, who: credentials.Credentials, session: aiohttp.ClientSession, *, timeout_s: float, on_call: OnCall | None
    ) -> None:
        self._who = who
        self._session = session
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
        await self._session.close()

    async def get(
        self, resource: Resource, namespace: str, name: str, *, subresource: str = "", timeout_s: float | None = None
    ) -> bytes:
        """One object. Raises NotFound and other ApiErrors."""
        return await self._call("get", "GET", resource, namespace, name, subresource, timeout_s=timeout_s)

    async def discover(self, path: str) -> bytes:
        """A document of discovery: `/apis`, `/apis/batch/v1`, `/version`. Raises ApiErrors."""
        deadline = asyncio.get_running_loop().time() + self.timeout_s
        return await self._once("GET", path, NO_QUERY, None, "application/json", deadline)

    async def list_page(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        query: Mapping[str, str] = NO_QUERY,
        timeout_s: float | None = None,
    ) -> bytes:
        """One page of a list (`limit` and `continue` go into the query). See list_watch for whole lists."""
        return await self._call("list", "GET", resource, namespace, query=query, timeout_s=timeout_s)

    async def create(
        self, resource: Resource, namespace: str, body: bytes, *, field_manager: str = "", dry_run: bool = False
    ) -> bytes:
        """The object as created. Raises AlreadyExists and other ApiErrors."""
        query = DRY_RUN if dry_run else NO_QUERY
        return await self._call(
            "create", "POST", resource, namespace, body=body, field_manager=field_manager, query=query
        )

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
    ) -> bytes:
        """The object as patched. A `metadata.resourceVersion` in the body is a precondition: Conflict if it is not the current one."""
        return await self._call(
            "patch", "PATCH", resource, namespace, name, subresource, body=body, content_type=content_type,
            field_manager=field_manager, query=DRY_RUN if dry_run else NO_QUERY,
        )  # fmt: skip

    async def apply(self, resource: Resource, namespace: str, name: str, body: bytes, *, field_manager: str) -> bytes:
        """Server-side apply of a whole manifest (JSON or YAML), taking over the fields that others set. The object as applied."""
        return await self._call(
            "patch", "PATCH", resource, namespace, name, body=body, content_type=APPLY_PATCH,
            field_manager=field_manager, query={"force": "true"},
        )  # fmt: skip

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
        return await self._call(
            "update", "PUT", resource, namespace, name, subresource, body=body, field_manager=field_manager
        )

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        version: int = 0,
        propagation: str = "",
        dry_run: bool = False,
    ) -> bytes:
        """The object (or a Status). With `uid` or `version` only that very object or state: Conflict otherwise."""
        conditions = _Preconditions(uid, str(version) if version else "") if uid or version else None
        body = msgspec.json.encode(_DeleteOptions(conditions, propagation))
        query = DRY_RUN if dry_run else NO_QUERY
        return await self._call("delete", "DELETE", resource, namespace, name, body=body, query=query)

    async def watch(
        self, resource: Resource, namespace: str, *, query: Mapping[str, str], idle_s: float
    ) -> AsyncGenerator[list[bytes], None]:
        """First an empty list: the watch is open. Then its lines as they come, at least one a step; ends when the server ends it, or nothing came for `idle_s`.
        Raises ApiErrors when it cannot begin, Unreachable when the connection breaks."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.timeout_s, sock_read=idle_s)
        rest = b""
        try:
            async with self._request("GET", resource.path(namespace), {**query, "watch": "1"}, timeout) as response:
                if response.status != 200:
                    raise error_of(response.status, await response.read(), response.headers.get("Retry-After", ""))
                yield []
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    if lines:
                        yield [line for line in lines if line]
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(0, "Unreachable", _text(error)) from error

    async def renew(self) -> None:
        """Load the credentials anew, e.g. after a token file rotated. Raises CredentialsError."""
        await self._who.renew()

    async def _call(
        self,
        verb: str,
        method: str,
        resource: Resource,
        namespace: str,
        name: str = "",
        subresource: str = "",
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        field_manager: str = "",
        query: Mapping[str, str] = NO_QUERY,
        timeout_s: float | None = None,
    ) -> bytes:
        if verb not in READS and resource != LEASES and not self.may_write():
            raise WritesHeld(0, "WritesHeld", "not the time to write")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self.timeout_s if timeout_s is None else timeout_s)
        path = resource.path(namespace, name, subresource)
        if field_manager:
            query = {**query, "fieldManager": field_manager}
        renewed = False
        while True:
            started = loop.time()
            try:
                data = await self._once(method, path, query, body, content_type, deadline)
            except ApiError as error:
                self._count(verb, resource, subresource, error.status, loop.time() - started)
                if isinstance(error, Unauthorized) and not renewed:
                    renewed = True
                    await self.renew()
                elif isinstance(error, TooManyRequests) and loop.time() + error.retry_after < deadline:
                    await asyncio.sleep(error.retry_after or 0.05)
                else:
                    raise
            else:
                self._count(verb, resource, subresource, 200, loop.time() - started)
                return data

    async def _once(
        self, method: str, path: str, query: Mapping[str, str], body: bytes | None, content_type: str, deadline: float
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(total=None)
        headers = {"Content-Type": content_type} if body is not None else {}
        try:
            async with (
                asyncio.timeout_at(deadline),
                self._request(method, path, query, timeout, headers, body) as response,
            ):
                data = await response.read()
                if response.status >= 300:
                    raise error_of(response.status, data, response.headers.get("Retry-After", ""))
                return data
        except TimeoutError as error:
            raise Unreachable(0, "Unreachable", "no answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(0, "Unreachable", _text(error)) from error

    @contextlib.asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        timeout: aiohttp.ClientTimeout,
        headers: Mapping[str, str] = NO_QUERY,
        body: bytes | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        authorization = await self._who.authorization()
        sent = {**headers, "Authorization": authorization} if authorization else dict(headers)
        url = URL(self._who.server + path, encoded=True)
        async with self._session.request(
            method, url.with_query(query) if query else url, data=body, headers=sent, timeout=timeout,
            server_hostname=self._who.server_name, proxy=self._who.proxy,
        ) as response:  # fmt: skip
            yield response

    def _count(self, verb: str, resource: Resource, subresource: str, status: int, seconds: float) -> None:
        if self._on_call is not None:
            self._on_call(verb, resource.plural, subresource, status, seconds)


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__


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
    return KubeClient(who, session, timeout_s=timeout_s, on_call=on_call)
