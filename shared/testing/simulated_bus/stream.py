"""One stream as JetStream keeps it: sequences, the newest message per subject, limits, ages, expectations, duplicates, and the loss of its end.

Values and indices only; who publishes, who reads and when is the broker's business. Ages are in seconds of the clock that the caller names.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping

import msgspec

from shared.bus.client import raw_headers
from shared.bus.jetstream import S_NS, STREAM_MISMATCH, WRONG_LAST_SEQUENCE, StreamConfig
from shared.bus.publishing import EXPECTED_LAST, EXPECTED_LAST_OF_SUBJECT, EXPECTED_STREAM, MESSAGE_ID, MESSAGE_TTL

STORE_FAILED = 10077
TTL_DISABLED = 10166
OVERHEAD_BYTES = 30
"""What the server counts for a message besides its subject, headers and payload."""
REMEMBERED = 256
"""Of so many last messages it is known what they replaced, so that they can be lost again."""


class StoredMessage(msgspec.Struct, frozen=True, gc=False):
    """`stamp`: when it was stored, wall clock in nanoseconds; never the same twice in one server."""

    stream: str
    subject: str
    sequence: int
    stamp: int
    payload: bytes
    headers: bytes | None
    size: int


class Refused(Exception):
    """The stream does not take it."""

    def __init__(self, err_code: int, description: str, code: int = 400) -> None:
        super().__init__(description)
        self.code = code
        self.err_code = err_code
        self.description = description


class Duplicate(Exception):
    """A message of that id is there already, or was within the window."""

    def __init__(self, sequence: int) -> None:
        super().__init__(sequence)
        self.sequence = sequence


class SimulatedStream:
    """`first`: sequence of the first message, or of the next one if there is none, as the server says it; `last`: the last sequence ever given."""

    def __init__(self, config: StreamConfig, *, created: str) -> None:
        self.config = config
        self.name = config.name
        self.created = created
        self.first = 0
        self.last = 0
        self.messages: dict[int, StoredMessage] = {}
        """By sequence, ascending."""
        self.bytes = 0
        self.full = False
        """Whatever comes is refused, as on a full disk."""
        self._newest: dict[str, int] = {}
        self._ids: dict[str, tuple[float, int]] = {}
        self._expiries: list[tuple[float, int]] = []
        self._due: dict[int, float] = {}
        """When each message that ages is too old."""
        self._undo: deque[tuple[int, str, StoredMessage | None, float]] = deque(maxlen=REMEMBERED)
        """(sequence, message id, what it replaced, when that is too old)"""

    def newest(self, subject: str) -> StoredMessage | None:
        """The last message of a subject that is still there."""
        sequence = self._newest.get(subject)
        return None if sequence is None else self.messages[sequence]

    def store(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None, *, now: float, stamp: int
    ) -> StoredMessage:
        """Raises Refused or Duplicate."""
        if self._expiries:
            self.expire(now)
        id_, ttl = "", 0.0
        if headers:
            id_, ttl = self._expectations(subject, headers, now)
        config = self.config
        raw = raw_headers(headers) if headers else None
        size = len(subject) + len(payload) + OVERHEAD_BYTES + (len(raw) if raw else 0)
        before = self._newest.get(subject) if config.max_msgs_per_subject == 1 else None
        if self.full:
            raise Refused(STORE_FAILED, "no space left on device", 503)
        if 0 < config.max_bytes < self.bytes + size:
            if config.discard == "new":
                raise Refused(STORE_FAILED, "maximum bytes exceeded", 503)
            while self.messages and self.bytes + size > config.max_bytes:
                self.remove(next(iter(self.messages)))
            before = None
        self.last += 1
        message = StoredMessage(self.name, subject, self.last, stamp, payload, raw, size)
        replaced = self.messages.get(before) if before is not None else None
        self._undo.append((self.last, id_, replaced, self._due.get(before or 0, 0.0)))
        self.messages[self.last] = message
        if len(self.messages) == 1:
            self.first = self.last
        self._newest[subject] = self.last
        self.bytes += size
        if before is not None:
            self._forget(before)
        if id_:
            self._ids[id_] = (now, self.last)
        age = ttl or config.max_age / S_NS
        if age:
            self._age(self.last, now + age)
        return message

    def _expectations(self, subject: str, headers: Mapping[str, str], now: float) -> tuple[str, float]:
        """(message id, time to live) of a message whose expectations hold."""
        stream = headers.get(EXPECTED_STREAM)
        if stream is not None and stream != self.name:
            raise Refused(STREAM_MISMATCH, "expected stream does not match")
        ttl = headers.get(MESSAGE_TTL)
        if ttl is not None and not self.config.allow_msg_ttl:
            raise Refused(TTL_DISABLED, "per-message TTL is disabled")
        expected = headers.get(EXPECTED_LAST_OF_SUBJECT)
        if expected is not None and int(expected) != (last := self._newest.get(subject, 0)):
            raise Refused(WRONG_LAST_SEQUENCE, f"wrong last sequence: {last}")
        expected = headers.get(EXPECTED_LAST)
        if expected is not None and int(expected) != self.last:
            raise Refused(WRONG_LAST_SEQUENCE, f"wrong last sequence: {self.last}")
        id_ = headers.get(MESSAGE_ID, "")
        if id_ and (seen := self._ids.get(id_)) is not None:
            if now - seen[0] < self.config.duplicate_window / S_NS:
                raise Duplicate(seen[1])
            del self._ids[id_]
        return id_, float(ttl.removesuffix("s")) if ttl else 0.0

    def _age(self, sequence: int, due: float) -> None:
        self._due[sequence] = due
        heapq.heappush(self._expiries, (due, sequence))

    def expire(self, now: float) -> None:
        """Drop what is older than it may be."""
        while self._expiries and self._expiries[0][0] <= now:
            self.remove(heapq.heappop(self._expiries)[1])

    def remove(self, sequence: int) -> bool:
        """Drop one message; False if it is not there."""
        message = self.messages.get(sequence)
        if message is None:
            return False
        if self._newest.get(message.subject) == sequence:
            earlier = None
            if self.config.max_msgs_per_subject != 1:
                earlier = next(
                    (
                        s
                        for s in reversed(self.messages)
                        if s != sequence and self.messages[s].subject == message.subject
                    ),
                    None,
                )
            if earlier is None:
                del self._newest[message.subject]
            else:
                self._newest[message.subject] = earlier
        self._forget(sequence)
        return True

    def _forget(self, sequence: int) -> None:
        self.bytes -= self.messages.pop(sequence).size
        self._due.pop(sequence, None)
        if sequence == self.first:
            self.first = next(iter(self.messages), self.last + 1)

    def purge_below(self, sequence: int) -> int:
        """Drop what is before `sequence`; returns how many. Beyond the end, the next message gets that sequence, as the server has it."""
        gone = [s for s in self.messages if s < sequence]
        if len(gone) == len(self.messages):
            self.messages.clear()
            self._newest.clear()
            self._due.clear()
            self.bytes = 0
            if sequence > self.last:
                self.last = sequence - 1
            self.first = self.last + 1
            return len(gone)
        for s in gone:
            message = self.messages[s]
            if self._newest[message.subject] == s:
                del self._newest[message.subject]
            self._forget(s)
        return len(gone)

    def lose_tail(self, count: int) -> int:
        """The last messages were never written to disk: what they replaced is there again, their ids are unknown. Returns how many were lost."""
        lost = 0
        while lost < count and self._undo:
            sequence, id_, before, due = self._undo.pop()
            self.remove(sequence)
            self._ids.pop(id_, None)
            if before is not None:
                self.messages[before.sequence] = before
                self.bytes += before.size
                self._newest[before.subject] = before.sequence
                if due:
                    self._age(before.sequence, due)
            self.last = sequence - 1
            lost += 1
        if lost:
            self.messages = dict(sorted(self.messages.items()))
            self.first = next(iter(self.messages), self.last + 1)
        return lost
