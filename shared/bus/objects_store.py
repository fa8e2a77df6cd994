"""Writes projections to OBJECTS by compare-and-set per subject, so that no order of writers and replays lets an older state win (R5).

The rule, per subject, by `version` alone, since the resourceVersions of a kind are one sequence over all objects and uids:

- a higher version replaces; so does the same version with other content (a newer program projects the same object in another way);
- a lower version never replaces, whatever its uid: it is late;
- a tombstone replaces a state that is not newer than it, and expires after TOMBSTONE_TTL_S; what came before it stays refused as long as it is remembered here;
- where we knew a live state and find nothing, somebody newer has buried it and the tombstone expired: nothing is written.

One batch is written at a time; what we believe about a subject is what the server acknowledged, or what a read after a conflict showed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from shared.bus.connection import Connection, Disconnected, NoResponders
from shared.bus.counters import Counters
from shared.bus.interface import ObjectWrite
from shared.bus.jetstream import JetStream, JetStreamError
from shared.bus.publishing import (
    BACKOFF_S,
    EXPECTED_LAST_OF_SUBJECT,
    EXPECTED_STREAM,
    MESSAGE_TTL,
    TRACEPARENT,
    Ack,
    Outgoing,
    Publisher,
)
from shared.events import objects, subjects
from shared.events.codec import MalformedMessage
from shared.events.streams import TOMBSTONE_TTL_S

log = logging.getLogger(__name__)

STREAM = "OBJECTS"
UNREADABLE = -1
"""Version of a stored message that cannot be decoded: anything replaces it."""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """What a subject holds. `sequence` 0: nothing, and nothing is known to have been there."""

    sequence: int = 0
    version: int = UNREADABLE
    digest: int = 0
    tombstone: bool = False
    at: float = 0.0
    """Monotonic time at which we learned of a tombstone."""


NOTHING = Stored()


def stored_of(sequence: int, payload: bytes, found: objects.Object | None, now: float) -> Stored:
    """The entry for a message read from the stream at `now`, monotonic; None: unreadable."""
    if found is None:
        return Stored(sequence)
    buried = isinstance(found, objects.Tombstone)
    return Stored(sequence, found.version, hash(payload), buried, now if buried else 0.0)


def supersedes(version: int, digest: int, tombstone: bool, known: Stored) -> bool:
    """May this state replace what is known?"""
    if known.sequence == 0 or version > known.version:
        return True
    if version < known.version:
        return False
    if tombstone != known.tombstone:
        return tombstone
    return not tombstone and digest != known.digest


class _Write(msgspec.Struct, frozen=True, gc=False):
    subject: str
    payload: bytes
    version: int
    tombstone: bool
    trace: str

    def message(self, expected: int) -> Outgoing:
        headers = {EXPECTED_STREAM: STREAM, EXPECTED_LAST_OF_SUBJECT: str(expected)}
        if self.trace:
            headers[TRACEPARENT] = self.trace
        if self.tombstone:
            headers[MESSAGE_TTL] = f"{TOMBSTONE_TTL_S}s"
        return Outgoing(self.subject, self.payload, headers)


class ObjectsStore:
    """The gateway's side of OBJECTS."""

    def __init__(
        self,
        connection: Connection,
        publisher: Publisher,
        jetstream: JetStream,
        counters: Counters,
        on_missing_stream: Callable[[str], Awaitable[None]],
        on_stored: Callable[[str, int], None],
    ) -> None:
        self._connection = connection
        self._publisher = publisher
        self._js = jetstream
        self._counters = counters
        self._on_missing_stream = on_missing_stream
        self._on_stored = on_stored
        self._known: dict[str, Stored] = {}
        self._lock = asyncio.Lock()
        self._pruned = connection.now()

    def learn(self, stored: dict[str, Stored]) -> None:
        """Replace everything known by what the stream was found to hold."""
        self._known = stored

    def version_of(self, subject: str) -> int:
        """Version that the subject is known to hold; UNREADABLE for none."""
        return self._known.get(subject, NOTHING).version

    async def put(self, writes: Sequence[ObjectWrite]) -> int:
        """See `GatewayBus.put_objects`. Raises StreamsLost."""
        newest: dict[str, _Write] = {}
        for write in writes:
            subject = subjects.objects(*write.name)
            version, buried = write.object.version, isinstance(write.object, objects.Tombstone)
            before = newest.get(subject)
            # Of two states in one batch the later version counts; of equal ones the tombstone, then the one given last.
            if before is None or (version, buried) >= (before.version, before.tombstone):
                payload = objects.codec.encode(write.object)
                newest[subject] = _Write(subject, payload, version, buried, write.trace)
        async with self._lock:
            self._prune()
            pending = list(newest.values())
            while pending:
                pending = await self._attempt(pending)
            return max((self._known.get(s, NOTHING).sequence for s in newest), default=0)

    async def _attempt(self, writes: list[_Write]) -> list[_Write]:
        """Write what supersedes the known; returns those to look at again after a conflict."""
        todo = []
        for write in writes:
            if supersedes(write.version, hash(write.payload), write.tombstone, self._known.get(write.subject, NOTHING)):
                todo.append(write)
            else:
                self._counters.objects_skipped += 1
        results = await self._publisher.all_stored(
            [w.message(self._known.get(w.subject, NOTHING).sequence) for w in todo],
            on_missing_stream=self._on_missing_stream,
        )
        again = []
        for write, result in zip(todo, results, strict=True):
            if isinstance(result, Ack):
                self._counters.objects_written += 1
                self._on_stored(STREAM, result.seq)
                self._known[write.subject] = Stored(
                    result.seq,
                    write.version,
                    hash(write.payload),
                    write.tombstone,
                    self._connection.now() if write.tombstone else 0.0,
                )
            elif result.lost_race:
                self._counters.objects_conflicts += 1
                if await self._look(write):
                    again.append(write)
            else:
                log.error("a projection cannot be stored", extra={"subject": write.subject, "why": result.why})
        return again

    async def _look(self, write: _Write) -> bool:
        """Read what the subject holds; False if the write is not to be tried again."""
        before = self._known.get(write.subject, NOTHING)
        found = await self._read(write.subject)
        if found is not None:
            self._known[write.subject] = found
            return True
        if before.sequence and not before.tombstone:
            log.warning("not written: its newer state was buried", extra={"subject": write.subject})
            self._known.pop(write.subject, None)
            self._counters.objects_skipped += 1
            return False
        # Our tombstone expired; the write is newer than that, or it would not have been tried.
        self._known.pop(write.subject, None)
        return True

    async def _read(self, subject: str) -> Stored | None:
        for attempt in range(1_000_000):
            try:
                message = await self._js.last_message(STREAM, subject)
                break
            except (Disconnected, NoResponders, TimeoutError) as error:
                log.info("reading again: %s", error, extra={"subject": subject})
            except JetStreamError as error:
                if error.not_found:
                    await self._on_missing_stream(subject)
            await asyncio.sleep(BACKOFF_S[min(attempt, len(BACKOFF_S) - 1)])
        if message is None:
            return None
        try:
            return stored_of(message.seq, message.data, objects.codec.decode(message.data), self._connection.now())
        except MalformedMessage:
            return stored_of(message.seq, message.data, None, self._connection.now())

    def _prune(self) -> None:
        """Forget tombstones that expired long ago."""
        now = self._connection.now()
        if now - self._pruned < TOMBSTONE_TTL_S / 4:
            return
        self._pruned = now
        limit = now - 2 * TOMBSTONE_TTL_S
        self._known = {s: k for s, k in self._known.items() if not k.tombstone or k.at > limit}
