"""What `Connection` needs of a client of NATS, and the library's client fitted to it. Nothing else of ours touches the library's inside."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, cast

from nats import errors
from nats.aio.client import Client

log = logging.getLogger(__name__)

RECONNECT_WAIT_S = 0.2
BUFFER_BYTES = 8 << 20
"""What may wait in the client for a connection that is gone; beyond it callers wait instead."""

DirectHandler = Callable[[str, str, bytes, bytes | None], None]
"""(subject, reply, payload, raw headers): called by the read loop itself, so it must be quick."""


class Request(Protocol):
    """A request to answer, or a message without `reply`."""

    @property
    def data(self) -> bytes: ...

    @property
    def reply(self) -> str: ...


class BusClient(Protocol):
    """One connection that comes back by itself, and the time by which it is measured. Raises the library's errors.

    After `notify` it tells of an error of the server, of the loss of the connection, and of its return.
    """

    direct: dict[int, DirectHandler]
    """Subscription -> the function that takes what comes."""

    @property
    def is_connected(self) -> bool: ...

    @property
    def max_payload(self) -> int: ...

    @property
    def server(self) -> str:
        """Which run of which server this is, or was last, a connection to; a server that was started again has another one."""
        ...

    def now(self) -> float:
        """Monotonic seconds."""
        ...

    def now_ns(self) -> int:
        """Wall clock, nanoseconds since the epoch."""
        ...

    def unique(self) -> str:
        """A token that no other connection makes."""
        ...

    def notify(
        self, error: Callable[[Exception], None], lost: Callable[[], None], back: Callable[[], None]
    ) -> None: ...

    async def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None: ...

    async def listen(self, subject: str, handler: DirectHandler) -> int:
        """Subscribe with a function; survives reconnects. Returns the id for `unlisten`."""
        ...

    async def unlisten(self, sid: int) -> None:
        """Idempotent; works while the connection is away."""
        ...

    async def answer(self, subject: str, queue: str, callback: Callable[[Request], Awaitable[None]]) -> None:
        """Subscribe as one of a queue group; returns when the server knows."""
        ...

    async def flush(self, timeout: int = 10) -> None: ...

    async def close(self) -> None: ...


class DirectClient(Client):
    """The library's client, changed in three ways: an error of the server is a reason to connect again, never to stay closed; messages of some
    subscriptions go straight to a function, because a queue and a task per message cost more than decoding it; and what was not sent when a connection
    broke is not sent on the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.direct: dict[int, DirectHandler] = {}
        self._told_error: Callable[[Exception], None] = lambda _: None
        self._told_lost: Callable[[], None] = lambda: None
        self._told_back: Callable[[], None] = lambda: None

    now = staticmethod(time.monotonic)
    now_ns = staticmethod(time.time_ns)

    @property
    def server(self) -> str:
        return str(self._server_info.get("server_id", ""))

    def unique(self) -> str:
        return str(self._nuid.next().decode())

    def notify(self, error: Callable[[Exception], None], lost: Callable[[], None], back: Callable[[], None]) -> None:
        self._told_error, self._told_lost, self._told_back = error, lost, back

    async def dial(
        self, servers: list[str], user: str, password: str, *, name: str, inbox_prefix: str, tls: ssl.SSLContext | None
    ) -> None:
        """Connect, however long it takes."""
        await self.connect(
            servers=servers,
            user=user,
            password=password,
            name=name,
            inbox_prefix=inbox_prefix,
            max_reconnect_attempts=-1,
            reconnect_time_wait=cast("int", RECONNECT_WAIT_S),
            ping_interval=5,
            max_outstanding_pings=2,
            pending_size=BUFFER_BYTES,
            error_cb=self._on_error,
            disconnected_cb=self._on_lost,
            reconnected_cb=self._on_back,
            tls=tls,
            skip_subject_validation=True,
        )

    async def listen(self, subject: str, handler: DirectHandler) -> int:
        sid = int(self._sid) + 1
        # Known before the server can answer, so that no message takes the slow path.
        self.direct[sid] = handler
        subscription = await self.subscribe(subject)
        if subscription._id != sid:
            raise RuntimeError("the client library numbers subscriptions in another way")
        return sid

    async def unlisten(self, sid: int) -> None:
        self.direct.pop(sid, None)
        if self._subs.pop(sid, None) is not None and self.is_connected:
            try:
                await self._send_unsubscribe(sid)
            except errors.Error as error:
                log.debug("unsubscribing: %s", error)

    async def answer(self, subject: str, queue: str, callback: Callable[[Request], Awaitable[None]]) -> None:
        await self.subscribe(subject, queue=queue, cb=callback)
        # After a round trip the server knows it, and whoever asks next is heard.
        try:
            await self.flush(timeout=2)
        except (errors.Error, TimeoutError, OSError) as error:
            log.debug("subscribing: %s", error)

    async def _on_error(self, error: Exception) -> None:
        self._told_error(error)

    async def _on_lost(self) -> None:
        # What was meant for that run of the server is not for the next one, to which sequences may mean something else; who waits for an answer hears
        # that there will be none. Subscriptions are repeated from another list.
        self._pending, self._pending_data_size = [], 0
        self._told_lost()

    async def _on_back(self) -> None:
        self._told_back()

    async def _process_err(self, err_msg: str) -> None:
        error = errors.Error(err_msg.strip("'"))
        if "permissions violation" in err_msg:
            await self._error_cb(error)
        elif "authorization violation" in err_msg and self.is_connecting:
            await super()._process_err(err_msg)
        else:
            await self._process_op_err(error)

    async def _process_pong(self) -> None:
        # The answer to a round trip that nobody waits for any more: setting it would end the library's reading, and with it the connection.
        if self._pongs and self._pongs[0].done():
            self._pongs.pop(0)
            self._pings_outstanding = 0
        else:
            await super()._process_pong()

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        handler = self.direct.get(sid)
        if handler is None:
            await super()._process_msg(sid, subject, reply, data, cast("bytes", headers))
            return
        try:
            handler(subject.decode(), reply.decode(), data, headers)
        except Exception:
            log.exception("handling a message failed", extra={"subject": subject.decode(errors="replace")})


def raw_headers(headers: Mapping[str, str]) -> bytes:
    """Header lines as they travel."""
    lines = "".join([f"{k}: {v}\r\n" for k, v in headers.items()])
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def header(raw: bytes | None, name: bytes) -> str:
    """One header's value, empty without it: a tenth of the cost of parsing them all."""
    if raw is None:
        return ""
    start = raw.find(b"\r\n" + name + b": ")
    if start < 0:
        return ""
    start += len(name) + 4
    return raw[start : raw.find(b"\r\n", start)].decode("utf-8", "replace")


def parse_headers(raw: bytes | None) -> dict[str, str]:
    """Header lines as a dict; empty without any."""
    if raw is None:
        return {}
    return Client._parse_header_lines(raw.partition(b"\r\n")[2])
