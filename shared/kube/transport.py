"""How a request reaches an API server and its answer comes back: over HTTPS here, in memory where a server is simulated (shared.testing.simulated_api).

A transport knows connections and credentials. Time-outs of whole calls, retries and what an error status means are KubeClient's.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import NamedTuple, Protocol

import aiohttp
import msgspec
from yarl import URL

from shared.kube import credentials
from shared.kube.errors import Unreachable, error_of
from shared.kube.resources import Resource

NO_QUERY: Mapping[str, str] = {}

_METHODS = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "patch": "PATCH",
    "update": "PUT",
    "delete": "DELETE",
}


class Request(msgspec.Struct, frozen=True, gc=False):
    """One call. `verb` is the API's word for it: get, list, watch, create, patch, update, delete."""

    verb: str
    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: Mapping[str, str] = NO_QUERY
    body: bytes | None = None
    content_type: str = "application/json"
    document: str = ""
    """Path of a document of discovery; the rest is empty then."""

    @property
    def path(self) -> str:
        """Path of the URL, without the query."""
        return self.document or self.resource.path(self.namespace, self.name, self.subresource)


class Answer(NamedTuple):
    """What came back: the HTTP status, the body, and the Retry-After header (empty: none)."""

    status: int
    body: bytes
    retry_after: str = ""


class Transport(Protocol):
    """One identity at one API server. Used by many tasks at once."""

    async def call(self, request: Request) -> Answer:
        """The answer, whatever its status. Raises Unreachable; the caller bounds the time."""
        ...

    def stream(self, request: Request, *, connect_s: float, idle_s: float) -> AsyncGenerator[list[bytes], None]:
        """First an empty list: the stream is open. Then its lines as they come, at least one a step; ends when the server ends it.
        Raises the ApiError of an answer that refuses it, Unreachable when the connection breaks or nothing came for `idle_s` seconds."""
        ...

    async def renew(self) -> None:
        """Load the credentials anew. Raises CredentialsError."""
        ...

    async def close(self) -> None:
        """Close all connections; calls in flight end with Unreachable."""
        ...


class HttpTransport:
    """The API server that the credentials name, through one aiohttp session, which is closed with this."""

    def __init__(self, who: credentials.Credentials, session: aiohttp.ClientSession) -> None:
        self._who = who
        self._session = session

    async def call(self, request: Request) -> Answer:
        try:
            async with self._request(request, aiohttp.ClientTimeout(total=None)) as response:
                return Answer(response.status, await response.read(), response.headers.get("Retry-After", ""))
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(0, "Unreachable", _text(error)) from error

    async def stream(self, request: Request, *, connect_s: float, idle_s: float) -> AsyncGenerator[list[bytes], None]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_s, sock_read=idle_s)
        rest = b""
        try:
            async with self._request(request, timeout) as response:
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
        await self._who.renew()

    async def close(self) -> None:
        await self._session.close()

    @contextlib.asynccontextmanager
    async def _request(self, request: Request, timeout: aiohttp.ClientTimeout) -> AsyncIterator[aiohttp.ClientResponse]:
        authorization = await self._who.authorization()
        headers = {"Content-Type": request.content_type} if request.body is not None else {}
        if authorization:
            headers["Authorization"] = authorization
        url = URL(self._who.server + request.path, encoded=True)
        async with self._session.request(
            _METHODS[request.verb], url.with_query(request.query) if request.query else url, data=request.body,
            headers=headers, timeout=timeout, server_hostname=self._who.server_name, proxy=self._who.proxy,
        ) as response:  # fmt: skip
            yield response


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
