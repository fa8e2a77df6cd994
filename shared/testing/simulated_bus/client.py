"""One simulated connection: the place of the NATS library below `shared.bus.connection`, with a link for the network.

What is sent in one moment travels together and arrives in order; answers come back in order; each consumer's deliveries have a way of their own. When
the link breaks, what was on its way to the server is lost: our client sends nothing of it on the next connection. What is sent while the connection is
away waits for its return.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from nats import errors

from shared.bus.client import RECONNECT_WAIT_S, DirectHandler, Request, raw_headers
from shared.bus.permissions import of_reader, of_service
from shared.bus.server_config import MAX_PAYLOAD
from shared.events import streams
from shared.testing.link import Link
from shared.testing.simulated_bus.subjects import matcher, matches

if TYPE_CHECKING:
    from shared.testing.simulated_bus.broker import SimulatedBroker

log = logging.getLogger(__name__)


class Sent(msgspec.Struct, frozen=True, gc=False):
    """A message on its way to the server."""

    subject: str
    payload: bytes
    reply: str
    headers: dict[str, str] | None

    def raw_headers(self) -> bytes | None:
        return raw_headers(self.headers) if self.headers else None


class Allowed:
    """What a user may do, by the table of permissions; the last answers are remembered."""

    def __init__(self, user: str) -> None:
        permissions = of_service(user) if user in streams.SERVICES else of_reader(user)
        nothing = not permissions.publish
        self._publish = matcher(permissions.publish)
        self._listen = permissions.subscribe
        self._known: dict[str, bool] = {}
        self.answers: set[str] = set()
        """Subjects on which a request waits for its answer."""
        if nothing:
            self._publish = lambda _: False

    def publish(self, subject: str) -> bool:
        known = self._known.get(subject)
        if known is None:
            known = self._known[subject] = self._publish(subject)
        if not known and subject in self.answers:
            self.answers.discard(subject)
            return True
        return known

    def listen(self, subject: str) -> bool:
        return any(matches(pattern, subject) for pattern in self._listen)


class Asked(msgspec.Struct, frozen=True, gc=False):
    """A request for one of a queue group."""

    data: bytes
    reply: str


class SimulatedClient:
    """See `shared.bus.client.BusClient`. `link` None: nothing takes time, nothing breaks but the server. What reaches the process runs in the context
    in which this was made, what reaches the server in the server's."""

    def __init__(self, broker: SimulatedBroker, user: str, link: Link | None) -> None:
        self.user = user
        self.link = link
        self.direct: dict[int, DirectHandler] = {}
        self.listening: dict[str, int] = {}
        """Literal subject, or prefix of an inbox that ends with `.`, -> id."""
        self.wild: dict[str, int] = {}
        self.serving: dict[str, Callable[[Request], Awaitable[None]]] = {}
        self.allows = Allowed(user)
        self._broker = broker
        self._context = copy_context()
        self._time: Callable[[], float] | None = None
        self._server = broker.run
        self._connected = True
        self._closed = False
        self._out: list[Sent] = []
        self._in: list[tuple[str, str, bytes, bytes | None]] = []
        self._sid = 0
        self._error: Callable[[Exception], None] = lambda _: None
        self._lost: Callable[[], None] = lambda: None
        self._back: Callable[[], None] = lambda: None
        self._tasks: set[asyncio.Future[None]] = set()
        if link is not None:
            link.on_break(self.broken)
            self._connected = not link.down
        if broker.down or not self._connected:
            self._connected = False
            self._later(RECONNECT_WAIT_S, self._reconnect)

    # What the connection asks.

    @property
    def is_connected(self) -> bool:
        return self._connected

    @property
    def max_payload(self) -> int:
        return MAX_PAYLOAD

    @property
    def server(self) -> str:
        return self._server

    def now(self) -> float:
        if self._time is None:
            try:
                self._time = asyncio.get_running_loop().time
            except RuntimeError:
                return 0.0
        return self._time()

    def now_ns(self) -> int:
        return self._broker.now_ns()

    def unique(self) -> str:
        return self._broker.unique()

    def notify(self, error: Callable[[Exception], None], lost: Callable[[], None], back: Callable[[], None]) -> None:
        self._error, self._lost, self._back = error, lost, back

    async def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        if self._closed:
            raise errors.ConnectionClosedError
        if len(payload) > MAX_PAYLOAD:
            raise errors.MaxPayloadError
        if not self._out and self._connected:
            self.fly(self._arrive, self._broker.context)
        self._out.append(Sent(subject, payload, reply, headers))

    async def listen(self, subject: str, handler: DirectHandler) -> int:
        self._sid += 1
        if not self.allows.listen(subject):
            self._denied("subscription", subject)
            return self._sid
        self.direct[self._sid] = handler
        if subject.endswith(".*") and "*" not in subject[:-1]:
            self.listening[subject[:-1]] = self._sid
        elif "*" in subject or subject.endswith(">"):
            self.wild[subject] = self._sid
        else:
            self.listening[subject] = self._sid
        return self._sid

    async def unlisten(self, sid: int) -> None:
        self.direct.pop(sid, None)
        for found in (self.listening, self.wild):
            for subject in [s for s, i in found.items() if i == sid]:
                del found[subject]
                self._broker.lost_interest(self, subject)

    def listens_to(self, subject: str) -> int:
        """The id of the subscription to a literal subject or to an inbox; 0 if there is none."""
        return self.listening.get(subject) or self.listening.get(subject[: subject.rfind(".") + 1], 0)

    async def answer(self, subject: str, queue: str, callback: Callable[[Request], Awaitable[None]]) -> None:
        if not self.allows.listen(subject):
            self._denied("subscription", subject)
            return
        self.serving[subject] = callback
        self._broker.serve(self, subject)

    async def flush(self, timeout: int = 10) -> None:
        """What was sent has arrived, or is lost."""
        deadline = self.now() + timeout
        while self._out and self._connected:
            if self.now() >= deadline:
                raise errors.FlushTimeoutError
            await asyncio.sleep(0.001 if self.link is not None else 0)

    async def close(self) -> None:
        self._closed = True
        self._connected = False
        self._broker.left(self)

    # The way there.

    def fly(self, arrive: Callable[[], None], context: Context | None = None) -> None:
        """Have `arrive` called after one way, in this process unless another context is given: one that is stopped does not read what has arrived."""
        loop = asyncio.get_running_loop()
        context = context or self._context
        if self.link is None:
            loop.call_soon(arrive, context=context)
        else:
            loop.call_later(self.link.draw(), arrive, context=context)

    def _arrive(self) -> None:
        if not self._connected:
            return
        out, self._out = self._out, []
        link = self.link
        for sent in out:
            if not self._connected:
                # It broke while this was under way: what is left of the batch is lost.
                return
            if link is not None and not link.passes("there", sent.subject):
                continue
            self._broker.receive(self, sent)

    # The way back.

    def reply(self, subject: str, payload: bytes, headers: bytes | None = None) -> None:
        """An answer of the server to this connection's inbox, or a message of another one's."""
        if self.link is not None and not self.link.passes("back", subject):
            return
        if not self._in:
            self.fly(self._arrive_back)
        self._in.append((subject, "", payload, headers))

    def _arrive_back(self) -> None:
        arrived, self._in = self._in, []
        for subject, reply, payload, headers in arrived:
            self.hand(self.listens_to(subject), subject, reply, payload, headers)

    def hear(self, subject: str, payload: bytes, headers: bytes | None) -> bool:
        """A message that any subscription may want; for the few that have wildcards. False if none does."""
        heard = False
        for pattern, sid in self.wild.items():
            if matches(pattern, subject):
                self.fly(partial(self.hand, sid, subject, "", payload, headers))
                heard = True
        return heard

    def hand(self, sid: int, subject: str, reply: str, payload: bytes, headers: bytes | None) -> None:
        """To the process, as the library does."""
        handler = self.direct.get(sid)
        if handler is None or not self._connected:
            return
        try:
            handler(subject, reply, payload, headers)
        except Exception:
            log.exception("handling a message failed", extra={"subject": subject})

    def ask(self, subject: str, payload: bytes, reply: str) -> None:
        """A request to this connection's handler."""
        callback = self.serving[subject]

        def begin() -> None:
            if self._connected:
                task = asyncio.ensure_future(callback(Asked(payload, reply)))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

        self.fly(begin)

    def denied(self, what: str, subject: str) -> None:
        """The server refuses; it says so in lower case by way of the library."""
        self.fly(lambda: self._denied(what, subject))

    def _denied(self, what: str, subject: str) -> None:
        if self._connected:
            self._error(errors.Error(f'permissions violation for {what} to "{subject}"'.lower()))

    # Breaking and coming back.

    def broken(self) -> None:
        """The link or the server is gone."""
        if not self._connected:
            return
        self._connected = False
        self._in.clear()
        self._out.clear()
        self._broker.left(self)
        if self.killed:
            return
        self._later(0.0, self._lost)
        self._later(RECONNECT_WAIT_S, self._reconnect)

    def cut(self) -> None:
        """Break the connection, from the server's side."""
        if self.link is not None:
            self.link.cut()
        else:
            self.broken()

    @property
    def killed(self) -> bool:
        """Its process is gone."""
        return self.link is not None and self.link.dead

    @property
    def gone(self) -> bool:
        """It will not come back."""
        return self._closed or self.killed

    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, what, context=self._context)

    def _reconnect(self) -> None:
        if self.gone or self._connected:
            return
        if self._broker.down or (self.link is not None and self.link.down):
            self._later(RECONNECT_WAIT_S, self._reconnect)
            return
        self._connected = True
        self._server = self._broker.run
        if self.link is not None:
            self.link.on_break(self.broken)
        self._broker.joined(self)
        if self._out:
            self.fly(self._arrive, self._broker.context)
        self._back()
