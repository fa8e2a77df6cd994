"""What every service has of the bus: read a feed, append, command, hold a lease, ask and answer.

Puts the parts of this folder together behind `interface.Bus`; the semantics live in the parts.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from shared.bus import rpc
from shared.bus.connection import Connection
from shared.bus.consumer import Received
from shared.bus.counters import Counters
from shared.bus.feed import NatsFeed
from shared.bus.interface import Appended, AppendResult, Handler, LostRace, Refused, Unknown
from shared.bus.jetstream import JetStream
from shared.bus.lease import NatsLease
from shared.bus.publishing import EXPECTED_LAST, EXPECTED_STREAM, MESSAGE_ID, TRACEPARENT, Ack, Outgoing, Publisher
from shared.events import commands, deadletters, decisions, streams, subjects

log = logging.getLogger(__name__)

APPEND_TIMEOUT_S = 2.0
DEAD_LETTER_TIMEOUT_S = 2.0


class NatsBus:
    """See `interface.Bus`."""

    def __init__(self, connection: Connection, *, shard: str) -> None:
        self.service = connection.user
        self.shard = shard
        self.counters = Counters()
        self._connection = connection
        self._js = JetStream(connection)
        self._publisher = Publisher(connection)
        self._leases: list[NatsLease] = []
        self._feed: NatsFeed | None = None
        """The first one, by which others see that we live."""

    @property
    def connected(self) -> bool:
        return self._connection.connected

    @property
    def trouble(self) -> str:
        """Why something could not be published for a while, and is still tried; empty if all is well."""
        return self._publisher.trouble

    @property
    def behind(self) -> dict[str, int]:
        """Consumer -> messages of its stream that are yet to be taken."""
        return {consumer: count() for consumer, count in self._connection.behind.items()}

    def feed(self, *, kinds: Sequence[str], decisions: bool = False, outcomes: bool = False) -> NatsFeed:
        """See `Bus.feed`."""
        feed = NatsFeed(
            self._connection,
            service=self.service,
            shard=self.shard,
            kinds=kinds,
            decisions=decisions,
            outcomes=outcomes,
            counters=self.counters,
            move_aside=self._move_aside,
        )
        self._feed = self._feed or feed
        return feed

    async def append(self, batch: decisions.Batch) -> AppendResult:
        epoch, last = batch.positions.epoch, batch.positions.decisions
        trace = next((d.trace for d in batch.decisions if d.trace), "")
        message = Outgoing(
            subjects.decisions(self.shard, epoch),
            decisions.codec.encode(batch),
            {
                EXPECTED_STREAM: subjects.decisions_stream(self.shard, epoch),
                EXPECTED_LAST: str(last),
                **({TRACEPARENT: trace} if trace else {}),
            },
        )
        result = await self._publisher.try_one(message, timeout_s=APPEND_TIMEOUT_S)
        if isinstance(result, Ack):
            self.counters.appended += 1
            return Appended(result.seq)
        if result.sent:
            self.counters.appends_unknown += 1
            return Unknown(result.why)
        if result.refused:
            self.counters.appends_refused += 1
            return Refused(result.why)
        self.counters.races_lost += 1
        return LostRace(result.why)

    async def command(self, commands_: Sequence[commands.Command]) -> None:
        await self._publisher.all_stored(
            [
                Outgoing(
                    commands.subject_of(self.service, c),
                    commands.codec.encode(c),
                    {MESSAGE_ID: c.id, **({TRACEPARENT: c.trace} if c.trace else {})},
                )
                for c in commands_
            ],
            on_missing_stream=self._on_missing_stream,
        )

    async def dead_letter(
        self, *, stream: str, subject: str, sequence: int, attempts: int, error: str, payload: bytes
    ) -> None:
        self.counters.dead_letters += 1
        await self._publisher.all_stored(
            [self._dead_letter(stream, subject, sequence, attempts, error, payload)],
            on_missing_stream=self._on_missing_stream,
        )

    def lease(self, role: str) -> NatsLease:
        if role not in streams.LEASE_HOLDERS:
            raise ValueError(f"no such role: {role!r}")
        holder = f"{self.service}-{self._connection.unique()}"
        lease = NatsLease(
            self._connection,
            self._publisher,
            role=role,
            shard=self.shard,
            holder=holder,
            reads_by=lambda: self._feed.listens_to if self._feed is not None else "",
        )
        self._leases.append(lease)
        return lease

    async def request(self, service: str, method: str, payload: bytes, timeout_s: float) -> bytes:
        """See `Bus.request`; raises `rpc.RpcError` when the other side failed."""
        return await rpc.request(self._connection, service, method, payload, timeout_s)

    async def serve(self, method: str, handler: Handler) -> None:
        await rpc.serve(self._connection, method, handler)

    async def close(self) -> None:
        # A standby need not wait until they expire.
        for lease in self._leases:
            await lease.release()
        await self._connection.close()

    def _dead_letter(
        self, stream: str, subject: str, sequence: int, attempts: int, error: str, payload: bytes
    ) -> Outgoing:
        letter = deadletters.DeadLetter(
            service=self.service,
            stream=stream,
            subject=subject,
            sequence=sequence,
            attempts=attempts,
            error=error,
            at_ns=self._connection.now_ns(),
            payload=payload[:65536],
        )
        # Every replay meets it again: one letter for all of them.
        once = {MESSAGE_ID: f"{self.service}:{stream}:{sequence}"}
        return Outgoing(subjects.dead_letter(self.service), deadletters.codec.encode(letter), once)

    async def _move_aside(self, stream: str, message: Received, error: str) -> None:
        """Of a reader, which must go on: one attempt."""
        log.warning("malformed message", extra={"stream": stream, "sequence": message.sequence, "error": error})
        self.counters.dead_letters += 1
        letter = self._dead_letter(stream, message.subject, message.sequence, 1, error, message.payload)
        result = await self._publisher.try_one(letter, timeout_s=DEAD_LETTER_TIMEOUT_S)
        if not isinstance(result, Ack):
            log.error("no dead letter was written", extra={"stream": stream, "why": result.why})

    async def _on_missing_stream(self, subject: str) -> None:
        """A service waits until the gateway has made it again."""
