"""One connection to NATS: it never gives up, and every request on it ends (an answer, a refusal, a lost connection, or a time-out).

Requests are pipelined: many are in flight at once over one inbox of this user. Knows nothing of what is sent; JetStream's API is in `jetstream`, publishing
with acknowledgement in `publishing`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import msgspec
from nats import errors

from shared.bus.client import BusClient, DirectClient, DirectHandler, Request

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 5.0

_DENIED = re.compile(r"permissions violation for (publish|subscription) to \"([^\"]+)\"")


class BusClosed(RuntimeError):
    """The bus was closed; nothing more will come or go."""


class Disconnected(ConnectionError):
    """The connection broke before an answer came: what was sent may have arrived or not."""


SCHEMES = ("nats", "tls", "ws", "wss")
TELL_AGAIN_S = 60.0
"""How often the same trouble of reconnecting is told."""


def without_credentials(url: str) -> str:
    """The address, or addresses, fit for a log."""
    return re.sub(r"//[^@/]*@", "//", url)


class NoResponders(LookupError):
    """Nobody listens on that subject: the stream or the service is missing. Nothing was received."""


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What came back; `headers` are raw lines, None without any."""

    payload: bytes
    headers: bytes | None

    @property
    def status(self) -> str:
        """`503`, `404`, ... of an answer that is only a status; else empty."""
        if self.headers is None or not self.headers.startswith(b"NATS/1.0 "):
            return ""
        return self.headers[9:12].decode("ascii", "replace")


class Connection:
    """States: connected, reconnecting (requests wait), closed (requests raise BusClosed). `client`: the library's if None."""

    def __init__(self, user: str, client: BusClient | None = None) -> None:
        self.user = user
        self.reconnects = 0
        """How often the connection came back; readers compare it to learn that they missed something."""
        self.behind: dict[str, Callable[[], int]] = {}
        """Consumer -> how many messages of its stream its reader has yet to take; for metrics."""
        self.on_return: dict[str, Callable[[], None]] = {}
        """Consumer -> what to call when the connection has come back: its reader has to make it anew."""
        self._client: BusClient = DirectClient() if client is None else client
        self._up = asyncio.Event()
        self._came_back = asyncio.Event()
        self._closed = False
        self._inbox = ""
        self._serial = 0
        self._waiting: dict[str, tuple[str, asyncio.Future[Answer]]] = {}
        self._refused: asyncio.Future[str] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers = ""
        self._trouble = ""
        self._trouble_told = 0.0
        self.now = self._client.now
        """Monotonic seconds: the time in which silence, leases and absences are measured."""
        self._client.notify(self._on_error, self._on_disconnect, self._on_reconnect)

    @property
    def connected(self) -> bool:
        return bool(self._client.is_connected)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def inbox_prefix(self) -> str:
        return f"_INBOX_{self.user}"

    @property
    def server(self) -> str:
        """Which run of which server this is, or was last, a connection to."""
        return self._client.server

    @property
    def max_payload(self) -> int:
        return int(self._client.max_payload)

    async def open(self, url: str, password: str, *, name: str, tls: ssl.SSLContext | None = None) -> None:
        """Connect, however long it takes. Raises PermissionError if user or password is wrong, ValueError if the address can be none."""
        for address in url.split(","):
            scheme, marker, _ = address.strip().partition("://")
            if marker and scheme not in SCHEMES:
                raise ValueError(f"{scheme}:// is none of {', '.join(f'{s}://' for s in SCHEMES)}")
        if not isinstance(self._client, DirectClient):
            raise TypeError("a client of another kind connects by itself")
        self._refused = asyncio.get_running_loop().create_future()
        self._servers = without_credentials(url)
        connecting = asyncio.create_task(
            self._client.dial(
                [u.strip() for u in url.split(",")],
                self.user,
                password,
                name=name,
                inbox_prefix=self.inbox_prefix,
                tls=tls,
            )
        )
        try:
            first: list[asyncio.Future[Any]] = [connecting, self._refused]
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not connecting.done():
                connecting.cancel()
                await asyncio.gather(connecting, return_exceptions=True)
        if self._refused.done():
            raise PermissionError(self._refused.result())
        connecting.result()
        await self.begin()

    async def begin(self) -> None:
        """The client is connected: listen for answers."""
        self._inbox = f"{self.inbox_prefix}.{self.unique()}"
        await self.subscribe_direct(f"{self._inbox}.*", self._on_answer)
        self._up.set()

    def unique(self) -> str:
        """A token that no other connection makes."""
        return self._client.unique()

    def now_ns(self) -> int:
        """Wall clock, nanoseconds since the epoch: only for stamps in messages."""
        return self._client.now_ns()

    async def wait_connected(self) -> None:
        """Raises BusClosed."""
        while not self.connected:
            if self._closed:
                raise BusClosed(self.user)
            self._up.clear()
            await self._up.wait()
        if self._closed:
            raise BusClosed(self.user)

    async def wait_reconnect(self, seen: int) -> int:
        """Wait until `reconnects` is more than `seen`; returns it. Raises BusClosed."""
        while self.reconnects <= seen:
            if self._closed:
                raise BusClosed(self.user)
            self._came_back.clear()
            await self._came_back.wait()
        return self.reconnects

    async def send(
        self, subject: str, payload: bytes, *, reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Publish without waiting for anything but room in the buffer."""
        while True:
            await self.wait_connected()
            try:
                await self._client.publish(subject, payload, reply=reply, headers=dict(headers) if headers else None)
            except errors.OutboundBufferLimitError:
                # It went down in between: the buffer of an absent connection is full.
                continue
            except errors.ConnectionClosedError as error:
                raise BusClosed(self.user) from error
            return

    async def start_request(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None
    ) -> asyncio.Future[Answer]:
        """Send; the future ends with an Answer, or raises NoResponders, Disconnected, PermissionError or BusClosed. It has no time-out."""
        await self.wait_connected()
        self._serial += 1
        token = format(self._serial, "x")
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[token] = (subject, future)
        future.add_done_callback(lambda _: self._waiting.pop(token, None))
        try:
            await self.send(subject, payload, reply=f"{self._inbox}.{token}", headers=headers)
        except BaseException:
            future.cancel()
            raise
        return future

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Answer:
        """One request and its answer. Raises TimeoutError besides what `start_request` may raise."""
        async with asyncio.timeout(timeout_s):
            return await (await self.start_request(subject, payload, headers))

    async def subscribe_direct(self, subject: str, handler: DirectHandler) -> int:
        """Subscribe with a function called by the read loop; survives reconnects. Returns the id for `unsubscribe`."""
        return await self._client.listen(subject, handler)

    async def unsubscribe(self, sid: int) -> None:
        """Idempotent; works while the connection is away."""
        await self._client.unlisten(sid)

    async def subscribe(self, subject: str, queue: str, callback: Callable[[Request], Awaitable[None]]) -> None:
        """Requests as one of a queue group; `callback` is awaited."""
        await self._client.answer(subject, queue, callback)

    def run(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """A task that ends with the connection at the latest; its failure is logged."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, BusClosed):
            log.error("a task of the bus failed", extra={"task": task.get_name()}, exc_info=error)

    def abandon(self) -> None:
        """As when the process is killed: tasks end, nobody is told."""
        for task in list(self._tasks):
            task.cancel()

    async def close(self) -> None:
        """Flush what was published, end the tasks, close. Idempotent."""
        if self._closed:
            return
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.connected:
            with contextlib.suppress(errors.Error, TimeoutError, OSError):
                await self._client.flush(timeout=2)
        self._closed = True
        self._up.set()
        self._came_back.set()
        self._fail_waiting(BusClosed(self.user))
        with contextlib.suppress(errors.Error, OSError):
            await self._client.close()

    def _on_answer(self, subject: str, reply: str, payload: bytes, headers: bytes | None) -> None:
        entry = self._waiting.get(subject.rpartition(".")[2])
        if entry is None or entry[1].done():
            return
        asked, future = entry
        answer = Answer(payload, headers)
        if not payload and answer.status == "503":
            future.set_exception(NoResponders(asked))
        else:
            future.set_result(answer)

    def _fail_waiting(self, error: Exception, *, subject: str | None = None) -> None:
        for asked, future in list(self._waiting.values()):
            # The client library hands the server's text over in lower case.
            if not future.done() and (subject is None or asked.lower() == subject):
                future.set_exception(error)
                # Nobody may be looking any more (a time-out): then the error is not worth a line in the log.
                future.exception()

    def _on_error(self, error: Exception) -> None:
        text = str(error).lower()
        if denied := _DENIED.search(text):
            log.error("not permitted", extra={"what": denied[1], "subject": denied[2]})
            self._fail_waiting(PermissionError(f"{self.user} may not use {denied[2]}"), subject=denied[2])
        elif "authorization violation" in text:
            if self._refused is not None and not self._refused.done() and not self._inbox:
                self._refused.set_result(f"NATS refused user {self.user!r}: wrong user or password")
            log.error("NATS refused the credentials", extra={"user": self.user})
        else:
            self._tell_trouble(str(error) or type(error).__name__)

    def _tell_trouble(self, what: str) -> None:
        """A warning when it begins or changes, then seldom: reconnecting goes on for ever, several times a second."""
        now = self.now()
        if what != self._trouble or now > self._trouble_told + TELL_AGAIN_S:
            self._trouble, self._trouble_told = what, now
            log.warning("cannot reach NATS: %s", what, extra={"servers": self._servers})

    def _on_disconnect(self) -> None:
        if not self._closed:
            log.warning("connection to NATS lost, reconnecting")
        self._fail_waiting(Disconnected("connection to NATS lost"))

    def _on_reconnect(self) -> None:
        self.reconnects += 1
        self._trouble = ""
        log.info("connected to NATS again")
        self._up.set()
        self._came_back.set()
        for tell in list(self.on_return.values()):
            tell()
