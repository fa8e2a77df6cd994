"""The few calls a starting cluster needs of its API server, over HTTPS as the administrator. Not a client library."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import aiohttp
import msgspec

from devcluster.certificates import KeyPair

POLL_SECONDS = 0.05
# A stranger on a port that ours lost may never answer, and then our own has long since died.
ANSWER_SECONDS = 2.0
CONCURRENT_CREATES = 16


class NotReadyError(RuntimeError):
    """Something did not become ready in its time; the message says what and what it last answered."""


class ApiRefusedError(RuntimeError):
    """The API server answered a call with an error."""


class NodeName(msgspec.Struct, frozen=True):
    name: str


class NodeCondition(msgspec.Struct, frozen=True):
    type: str
    status: str


class NodeConditions(msgspec.Struct, frozen=True):
    conditions: tuple[NodeCondition, ...] = ()


class NodeTaintKey(msgspec.Struct, frozen=True):
    key: str


class NodeTaints(msgspec.Struct, frozen=True):
    taints: tuple[NodeTaintKey, ...] = ()


class SeenNode(msgspec.Struct, frozen=True):
    """The part of a v1 Node that says whether pods can be scheduled on it."""

    metadata: NodeName
    spec: NodeTaints = NodeTaints()
    status: NodeConditions = NodeConditions()

    @property
    def usable(self) -> bool:
        ready = any(condition.type == "Ready" and condition.status == "True" for condition in self.status.conditions)
        return ready and not any(taint.key == "node.kubernetes.io/not-ready" for taint in self.spec.taints)


class NodeList(msgspec.Struct, frozen=True):
    items: tuple[SeenNode, ...]


class AdminApi:
    """An HTTPS session that trusts only `ca` and shows the administrator's certificate. Use as a context manager."""

    def __init__(self, server: str, ca: str, admin: KeyPair) -> None:
        self._server = server
        self._tls = ssl.create_default_context(cafile=ca)
        self._tls.load_cert_chain(admin.certificate, admin.key)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._tls)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=10))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str) -> bytes:
        """The body; raises ApiRefusedError on an error status, aiohttp.ClientError when nobody answers."""
        return await self._call("GET", path, None)

    async def create(self, path: str, item: msgspec.Struct) -> None:
        """Creates one object; one that exists already is left as it is. Raises ApiRefusedError."""
        await self._call("POST", path, msgspec.json.encode(item), fine=409)

    async def create_all(self, path: str, items: Sequence[msgspec.Struct]) -> None:
        gate = asyncio.Semaphore(CONCURRENT_CREATES)

        async def create_one(item: msgspec.Struct) -> None:
            async with gate:
                await self.create(path, item)

        async with asyncio.TaskGroup() as group:
            for item in items:
                group.create_task(create_one(item))

    async def wait_ok(self, url: str, what: str, seconds: float, still_runs: Callable[[], None]) -> None:
        """Returns once `url` (or a path of the server) answers 200; raises NotReadyError after `seconds`.

        `still_runs` is called between attempts and may raise, so that a dead process is not waited for.
        """
        deadline = asyncio.get_running_loop().time() + seconds
        last = "nothing yet"
        while True:
            still_runs()
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self.get(url)
            except (aiohttp.ClientError, ApiRefusedError, TimeoutError) as error:
                last = f"{type(error).__name__}: {error}"
            else:
                # Whoever answered may be another cluster's process on a port that ours lost.
                still_runs()
                return
            if asyncio.get_running_loop().time() > deadline:
                raise NotReadyError(f"{what} was not ready after {seconds:g} s; last answer: {last}")
            await asyncio.sleep(POLL_SECONDS)

    async def wait_nodes(self, names: frozenset[str], seconds: float, still_runs: Callable[[], None]) -> None:
        """Returns once all these nodes are Ready and none is tainted as not ready; raises NotReadyError."""
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            still_runs()
            nodes = msgspec.json.decode(await self.get("/api/v1/nodes"), type=NodeList)
            missing = names - {node.metadata.name for node in nodes.items if node.usable}
            if not missing:
                return
            if asyncio.get_running_loop().time() > deadline:
                raise NotReadyError(f"after {seconds:g} s these nodes are not Ready: {', '.join(sorted(missing))}")
            # A list of many nodes is work for the server that makes them ready.
            await asyncio.sleep(POLL_SECONDS + len(names) / 1000)

    async def _call(self, method: str, path: str, body: bytes | None, fine: int = 200) -> bytes:
        if self._session is None:
            raise RuntimeError("AdminApi is used outside of its context")
        url = path if path.startswith("https://") else self._server + path
        headers = {"Content-Type": "application/json"} if body is not None else {}
        async with self._session.request(method, url, data=body, headers=headers) as response:
            content = await response.read()
            if response.status >= 300 and response.status != fine:
                raise ApiRefusedError(f"{method} {path}: {response.status} {content[:500].decode(errors='replace')}")
            return content
