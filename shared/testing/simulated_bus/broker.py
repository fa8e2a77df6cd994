"""The simulated server: who is connected, where a message goes, and every fault that a test may want.

Publishing goes through the permissions of the real server's configuration. State is open to read for whoever checks invariants: `streams`, and
`subscribe` for a call at each store.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context
from datetime import UTC, datetime
from random import Random
from typing import Literal

import msgspec

from shared.bus.client import RECONNECT_WAIT_S
from shared.bus.connection import Connection
from shared.bus.consumer import HEARTBEAT_S
from shared.bus.gateway_bus import NatsGatewayBus
from shared.bus.jetstream import S_NS, ConsumerConfig, StreamConfig
from shared.bus.lease import STREAM as LEASES
from shared.bus.permissions import lease_subject
from shared.bus.service_bus import NatsBus
from shared.bus.streams import PURGE_GRACE_S
from shared.events import streams
from shared.testing.link import Link
from shared.testing.simulated_bus.api import JetStreamApi
from shared.testing.simulated_bus.client import Sent, SimulatedClient
from shared.testing.simulated_bus.consumer import SimulatedConsumer
from shared.testing.simulated_bus.stream import STORE_FAILED, Duplicate, Refused, SimulatedStream, StoredMessage
from shared.testing.simulated_bus.subjects import matcher

Fault = Literal["lose", "lose_ack", "twice", "full", "break_before", "break_after", "break_late"]
"""lose: never arrives; lose_ack: stored, no answer; twice: arrives twice; full: refused for want of room; break_before, break_after: the connection
breaks before the message arrives, or after it was stored; break_late: it breaks, and the server, unless it ends or
stalls, reads the message from the old connection when its sender has given up and is back."""

LATE_S = 2 * RECONNECT_WAIT_S


FULL = Refused(STORE_FAILED, "maximum bytes exceeded", 503)
NO_RESPONDERS = b"NATS/1.0 503\r\n\r\n"


class Publish(msgspec.Struct, frozen=True):
    """A message about to be stored."""

    user: str
    stream: str
    subject: str


class _Hold(msgspec.Struct, frozen=True):
    """Consumers that send nothing: of these purposes (none: all), of this service (empty: all)."""

    purposes: tuple[str, ...]
    service: str

    def covers(self, consumer: SimulatedConsumer) -> bool:
        owner, _, purpose = consumer.name.rpartition("-")
        service = owner.rpartition("-")[0]
        return (not self.purposes or purpose in self.purposes) and self.service in ("", service)


class SimulatedBroker:
    """`now`: wall clock in seconds, for time stamps alone; everything that ages does so by the event loop's time."""

    def __init__(self, now: Callable[[], float] = time.time, random: Random | None = None) -> None:
        self.random = random or Random(0)
        self.streams: dict[str, SimulatedStream] = {}
        self.consumers: dict[tuple[str, str], SimulatedConsumer] = {}
        self.fault: Callable[[Publish], Fault | None] | None = None
        """Asked for each message that is about to be stored."""
        self.down = False
        self.context = Context()
        """What the server does belongs to none of the processes that speak to it."""
        self._runs = 0
        self._now = now
        self._stamp = 0
        self._serial = 0
        self._api = JetStreamApi(self)
        self._told: list[Callable[[StoredMessage], None]] = []
        self._clients: dict[SimulatedClient, Connection] = {}
        self._servers: dict[str, list[SimulatedClient]] = {}
        self._routes: dict[str, SimulatedStream | None] = {}
        self._wanted: dict[str, dict[str, list[SimulatedConsumer]]] = {}
        self._holds: list[_Hold] = []
        self._stalled: deque[tuple[SimulatedClient, Sent]] | None = None
        self._beating = False

    # Connecting.

    def bus(self, service: str, link: Link | None = None, *, shard: str = "0") -> NatsBus:
        """Connect a service. Call it while the event loop runs."""
        return NatsBus(self._connect(service, link), shard=shard)

    def gateway(
        self,
        link: Link | None = None,
        *,
        shard: str = "0",
        purge_grace_s: float = PURGE_GRACE_S,
    ) -> NatsGatewayBus:
        """Connect as the gateway."""
        connection = self._connect(streams.GATEWAY, link)
        return NatsGatewayBus(connection, shard=shard, purge_grace_s=purge_grace_s)

    def connection(self, user: str, link: Link | None = None) -> Connection:
        """Connect as any user, without the bus above it."""
        client = SimulatedClient(self, user, link)
        connection = Connection(user, client)
        self._clients[client] = connection
        # Over this client nothing of it waits.
        try:
            connection.begin().send(None)
        except StopIteration:
            return connection
        raise RuntimeError("beginning a simulated connection waited")

    def _connect(self, service: str, link: Link | None) -> Connection:
        if service not in streams.SERVICES:
            raise ValueError(f"no such service: {service!r}")
        return self.connection(service, link)

    def now_ns(self) -> int:
        """The wall clock."""
        return int(self._now() * S_NS)

    def unique(self) -> str:
        """A token that is given once."""
        self._serial += 1
        return f"u{self._serial}"

    def elapsed(self) -> float:
        """The time by which things age."""
        return asyncio.get_running_loop().time()

    # What invariants look at.

    def subscribe(self, told: Callable[[StoredMessage], None]) -> None:
        """Have `told` called at each store, before anybody else learns of it."""
        self._told.append(told)

    # Messages.

    def receive(self, client: SimulatedClient, sent: Sent) -> None:
        """A message has arrived."""
        if self._stalled is not None:
            self._stalled.append((client, sent))
            return
        subject = sent.subject
        if not client.allows.publish(subject):
            client.denied("publish", subject)
            return
        if subject.startswith("$JS."):
            self._control(client, sent)
            return
        stream = self._route(subject)
        if stream is not None:
            self._take(client, stream, sent)
        elif not self._pass_on(sent) and sent.reply:
            client.reply(sent.reply, b"", NO_RESPONDERS)

    def _control(self, client: SimulatedClient, sent: Sent) -> None:
        what = sent.subject[4:]
        if what.startswith("API."):
            payload, headers = self._api.call(client, what[4:], sent.payload)
            if sent.reply:
                client.reply(sent.reply, payload, headers)
        elif what.startswith("FC."):
            _, stream, name, _ = what.split(".", 3)
            consumer = self.consumers.get((stream, name))
            if consumer is not None:
                consumer.answered(sent.subject)

    def _route(self, subject: str) -> SimulatedStream | None:
        if subject in self._routes:
            return self._routes[subject]
        found = next((s for s in self.streams.values() if matcher(s.config.subjects)(subject)), None)
        self._routes[subject] = found
        return found

    def _take(self, client: SimulatedClient, stream: SimulatedStream, sent: Sent) -> None:
        fault = self.fault(Publish(client.user, stream.name, sent.subject)) if self.fault is not None else None
        if fault in ("break_before", "break_late"):
            client.cut()
            if fault == "break_late":
                asyncio.get_running_loop().call_later(
                    LATE_S, self._take_late, stream, sent, self._runs, context=self.context
                )
            return
        if fault == "lose":
            return
        ack = _refusal(FULL) if fault == "full" else self._store(stream, sent)
        if fault == "twice":
            self._store(stream, sent)
        if fault == "break_after":
            client.cut()
        elif fault != "lose_ack" and sent.reply:
            client.reply(sent.reply, ack)

    def _take_late(self, stream: SimulatedStream, sent: Sent, run: int) -> None:
        """Nobody waits for the acknowledgement any more. A server that ended has lost what it had not read."""
        if self._runs == run and self._stalled is None and self.streams.get(stream.name) is stream:
            self._store(stream, sent)

    def _store(self, stream: SimulatedStream, sent: Sent) -> bytes:
        """The acknowledgement."""
        try:
            message = stream.store(
                sent.subject, sent.payload, sent.headers, now=self.elapsed(), stamp=self._next_stamp()
            )
        except Duplicate as duplicate:
            return b'{"stream":"%b","seq":%d,"duplicate":true}' % (stream.name.encode(), duplicate.sequence)
        except Refused as error:
            return _refusal(error)
        for told in self._told:
            told(message)
        for consumer in self._who_wants(stream, sent.subject):
            consumer.offer(message)
        self._hear(sent.subject, sent.payload, message.headers)
        return b'{"stream":"%b","seq":%d}' % (stream.name.encode(), message.sequence)

    def _who_wants(self, stream: SimulatedStream, subject: str) -> list[SimulatedConsumer]:
        wanted = self._wanted.setdefault(stream.name, {})
        found = wanted.get(subject)
        if found is None:
            found = wanted[subject] = [
                c for (name, _), c in self.consumers.items() if name == stream.name and c.wants(subject)
            ]
        return found

    def _pass_on(self, sent: Sent) -> bool:
        """Core NATS: to one of those who serve, to an inbox, and to whoever listens; False if nobody is there."""
        heard = self._hear(sent.subject, sent.payload, None)
        servers = self._servers.get(sent.subject)
        if servers:
            server = servers[0] if len(servers) == 1 else self.random.choice(servers)
            if sent.reply:
                server.allows.answers.add(sent.reply)
            server.ask(sent.subject, sent.payload, sent.reply)
            return True
        if sent.subject.startswith("_INBOX_"):
            for client in self._clients:
                if client.is_connected and client.listens_to(sent.subject):
                    client.reply(sent.subject, sent.payload, sent.raw_headers())
                    return True
        return heard

    def _hear(self, subject: str, payload: bytes, headers: bytes | None) -> bool:
        heard = False
        for client in self._clients:
            if client.wild and client.is_connected:
                heard = client.hear(subject, payload, headers) or heard
        return heard

    def _next_stamp(self) -> int:
        self._stamp = max(self.now_ns(), self._stamp + 1)
        return self._stamp

    # Streams and consumers, as the API makes them.

    def make_stream(self, config: StreamConfig) -> SimulatedStream:
        """A new and empty one."""
        stamp = self._next_stamp()
        whole = datetime.fromtimestamp(stamp // S_NS, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        stream = SimulatedStream(config, created=f"{whole}.{stamp % S_NS:09d}Z")
        self.streams[config.name] = stream
        self._routes.clear()
        return stream

    def drop_stream(self, name: str) -> None:
        """With its consumers."""
        self.streams.pop(name, None)
        self._routes.clear()
        for key in [k for k in self.consumers if k[0] == name]:
            self.drop_consumer(*key)

    def make_consumer(
        self, client: SimulatedClient, stream: SimulatedStream, config: ConsumerConfig
    ) -> SimulatedConsumer | None:
        """None: the name is taken."""
        key = (stream.name, config.name)
        if key in self.consumers:
            return None
        consumer = SimulatedConsumer(stream, config, client, client.listening.get(config.deliver_subject, 0))
        consumer.held = sum(h.covers(consumer) for h in self._holds)
        self.consumers[key] = consumer
        self._wanted.pop(stream.name, None)
        self._start_beating()
        return consumer

    def drop_consumer(self, stream: str, name: str) -> bool:
        """False if there is none."""
        consumer = self.consumers.pop((stream, name), None)
        if consumer is None:
            return False
        consumer.closed = True
        self._wanted.pop(stream, None)
        return True

    def expire(self, stream: SimulatedStream) -> None:
        """Drop what is too old."""
        stream.expire(self.elapsed())

    def _start_beating(self) -> None:
        if not self._beating:
            self._beating = True
            asyncio.get_running_loop().call_later(HEARTBEAT_S / 2, self._beat, context=self.context)

    def _beat(self) -> None:
        now = self.elapsed()
        if self._stalled is None:
            for consumer in self.consumers.values():
                consumer.beat(now)
        self._beating = bool(self.consumers)
        if self._beating:
            asyncio.get_running_loop().call_later(HEARTBEAT_S / 2, self._beat, context=self.context)

    # Connections, as they come and go.

    def left(self, client: SimulatedClient) -> None:
        """Its consumers have no reader any more, its requests no answer."""
        for key in [k for k, c in self.consumers.items() if c.client is client]:
            self.drop_consumer(*key)
        for subject in client.serving:
            if client in (servers := self._servers.get(subject, [])):
                servers.remove(client)
        if client.gone:
            connection = self._clients.pop(client, None)
            if connection is not None and client.killed:
                connection.abandon()

    def lost_interest(self, client: SimulatedClient, inbox: str) -> None:
        """Nobody listens there any more: a consumer that delivers to it ends. (The server gives it half a minute.)"""
        for key in [k for k, c in self.consumers.items() if c.client is client and c.config.deliver_subject == inbox]:
            self.drop_consumer(*key)

    def joined(self, client: SimulatedClient) -> None:
        """It is back, with its subscriptions."""
        for subject in client.serving:
            self.serve(client, subject)

    def serve(self, client: SimulatedClient, subject: str) -> None:
        """It answers requests to a subject."""
        servers = self._servers.setdefault(subject, [])
        if client not in servers:
            servers.append(client)

    # Faults.

    @property
    def run(self) -> str:
        """Which run of the server this is."""
        return f"run-{self._runs}"

    def stop(self) -> None:
        """The server is down: everybody is disconnected until `start`."""
        self.down = True
        self._runs += 1
        self._disconnect_all()

    def start(self) -> None:
        """The server is up again; clients come back within their pause."""
        self.down = False

    def restart(self) -> None:
        """Down and up."""
        self.stop()
        self.start()

    def disconnect(self) -> None:
        """All connections break; the server goes on."""
        self._disconnect_all()

    def _disconnect_all(self) -> None:
        for client in list(self._clients):
            client.cut()

    def stall(self) -> None:
        """The server does nothing until `resume`; connections stay."""
        if self._stalled is None:
            self._stalled = deque()
            self._hold(_Hold((), ""))

    def resume(self) -> None:
        """It goes on, with what has arrived meanwhile."""
        waiting, self._stalled = self._stalled, None
        if waiting is None:
            return
        self._unhold(_Hold((), ""))
        for client, sent in waiting:
            self.receive(client, sent)

    def wipe(self) -> None:
        """The disk is empty after a restart."""
        for name in list(self.streams):
            self.drop_stream(name)
        self.restart()

    def remake(self, name: str) -> None:
        """Somebody deleted a stream and made it again with the same settings."""
        config = self.streams[name].config
        self.drop_stream(name)
        self.make_stream(config)

    def lose_tail(self, count: int, stream: str = "") -> None:
        """The host lost the last messages of a stream (all if none is named): they were never written, and the server starts again."""
        for found in self.streams.values():
            if stream in ("", found.name):
                found.lose_tail(count)
        self.restart()

    def limit(self, stream: str, max_bytes: int) -> None:
        """How much a stream may hold; -1: anything."""
        found = self.streams[stream]
        found.config = msgspec.structs.replace(found.config, max_bytes=max_bytes)

    def hold(self, *purposes: str, service: str = "") -> None:
        """Deliver nothing to consumers of these purposes (objects, epoch, decisions, outcomes, commands; none: all) of a service (none: all)."""
        self._hold(_Hold(purposes, service))

    def release(self, *purposes: str, service: str = "") -> None:
        """The end of the same `hold`."""
        self._unhold(_Hold(purposes, service))

    def delay(self, seconds: float, *purposes: str, service: str = "") -> None:
        """A `hold` that ends by itself: what else is sent meanwhile overtakes."""
        hold = _Hold(purposes, service)
        self._hold(hold)
        asyncio.get_running_loop().call_later(seconds, self._unhold, hold, context=self.context)

    def _hold(self, hold: _Hold) -> None:
        self._holds.append(hold)
        for consumer in self.consumers.values():
            consumer.held += hold.covers(consumer)

    def _unhold(self, hold: _Hold) -> None:
        if hold not in self._holds:
            return
        self._holds.remove(hold)
        for consumer in list(self.consumers.values()):
            if hold.covers(consumer):
                consumer.held -= 1
                consumer.pump()

    def drop_delivery(self, *purposes: str, service: str = "") -> None:
        """The next delivery of each such consumer gets lost."""
        for consumer in self._covered(purposes, service):
            consumer.drop_next += 1

    def drop_consumers(self, *purposes: str, service: str = "") -> None:
        """Such consumers vanish, as those of a slow reader or a restarted server do."""
        for consumer in self._covered(purposes, service):
            self.drop_consumer(consumer.stream.name, consumer.name)

    def _covered(self, purposes: tuple[str, ...], service: str) -> list[SimulatedConsumer]:
        hold = _Hold(purposes, service)
        return [c for c in self.consumers.values() if hold.covers(c)]

    def drop_lease(self, role: str, shard: str = "0") -> None:
        """The key is gone: another may take it while its holder still believes."""
        stream = self.streams.get(LEASES)
        held = stream.newest(lease_subject(role, shard)) if stream is not None else None
        if stream is not None and held is not None:
            stream.remove(held.sequence)


def _refusal(error: Refused) -> bytes:
    return msgspec.json.encode(
        {"error": {"code": error.code, "err_code": error.err_code, "description": error.description}}
    )
