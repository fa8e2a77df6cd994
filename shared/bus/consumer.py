"""One ordered reader of one stream: a push consumer, made anew wherever the order broke.

Its name is one of those that permissions list for the service: the first that no other instance reads under, found out by creating it. The server
arbitrates, so instances need no numbers from whoever starts them; a reader that is gone leaves its name after INACTIVE_S, or at once when no other
is left.

It reports what it sees (messages, a gap, silence, caught up) and decides nothing: whether a break means "go on behind the last message" or "start
over" is the feed's business. The server needs no memory of us: the position is ours.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from shared.bus.client import header
from shared.bus.connection import Connection
from shared.bus.jetstream import S_NS, ConsumerConfig, ConsumerInfo, JetStream, JetStreamError
from shared.events.streams import TOMBSTONE_TTL_S

HEARTBEAT_S = 2.0
SILENT_AFTER_S = 3 * HEARTBEAT_S
"""Without a message or heartbeat for so long the consumer is taken for dead."""
INACTIVE_S = 5
AWAY_LIMIT_S = TOMBSTONE_TTL_S / 2
"""A reader away for longer may have missed a tombstone that expired."""
TAKE_AT_ONCE = 2000
"""Messages a reader gets in one go: some 40 ms of decoding."""


class Received(msgspec.Struct, frozen=True, gc=False):
    """A message as it came, undecoded."""

    subject: str
    sequence: int
    stamp: int
    """When the stream stored it, nanoseconds: with `sequence`, its identity."""
    payload: bytes
    headers: bytes | None


def parse_reply(reply: str) -> tuple[int, int, int, int]:
    """(stream sequence, consumer sequence, time stamp, messages still pending) of a delivery's reply subject, in both of its forms."""
    tokens = reply.split(".")
    at = 5 if len(tokens) == 9 else 7
    return int(tokens[at]), int(tokens[at + 1]), int(tokens[at + 2]), int(tokens[at + 3])


class _Held(msgspec.Struct, frozen=True, gc=False):
    """The consumer that was made last: ours as long as it delivers to `inbox`."""

    stream: str
    name: str
    inbox: str


class Source:
    """States: closed; open (messages come); broken (`broken` says why; nothing more comes until it is opened again)."""

    def __init__(
        self,
        connection: Connection,
        *,
        stream: str,
        consumers: tuple[str, ...],
        filters: tuple[str, ...],
        contiguous: bool = False,
        last_per_subject: bool = False,
        away_limit_s: float = AWAY_LIMIT_S,
        on_activity: Callable[[], None],
    ) -> None:
        self.stream = stream
        self.consumer = ""
        """The name under which it reads, once it has been open."""
        self.contiguous = contiguous
        """A jump in stream sequences means that messages went unseen."""
        self.position = 0
        """Stream sequence of the last message taken."""
        self.stamp = 0
        """Its time stamp; 0 if none was taken."""
        self.broken = ""
        self.missed = False
        """Broken for good: messages were removed before we saw them, or those that we saw were lost."""
        self._connection = connection
        self._js = JetStream(connection)
        self.filters = filters
        self._names = consumers
        self._token = f"{consumers[0]}@{id(self)}"
        self._held: _Held | None = None
        self._last_per_subject = last_per_subject
        self._away_limit_s = away_limit_s
        self._on_activity = on_activity
        self._sid: int | None = None
        self._expect_first: int | None = None
        self._expected: int | None = None
        self._first_seen = 0
        self._messages: list[Received] = []
        self._flow_replies: list[str] = []
        self._next_consumer_seq = 1
        self._received = 0
        self._backlog = 0
        self._pending = 0
        self._caught_up = False
        self._heard = connection.now()

    @property
    def is_open(self) -> bool:
        return self._sid is not None and not self.broken

    @property
    def listens_to(self) -> str:
        """Stream, name and inbox of the consumer by which it reads now, by spaces; empty if there is none."""
        return f"{self._held.stream} {self._held.name} {self._held.inbox}" if self._held and self.is_open else ""

    @property
    def has_some(self) -> bool:
        """There is something to take, or a question of the server to answer."""
        return bool(self._messages or self._flow_replies)

    @property
    def caught_up(self) -> bool:
        """All that was there when the source was opened has been taken."""
        return self._caught_up and not self._messages

    @property
    def heard(self) -> float:
        """Monotonic time of the last sign of life."""
        return self._heard

    def behind(self) -> int:
        """Messages that the reader has yet to take: those here, and those that the server said it would still send."""
        return len(self._messages) + self._pending

    def check_alive(self, now: float) -> None:
        """Mark as broken after too long a silence."""
        if self.is_open and now - self._heard > SILENT_AFTER_S:
            self._break("no heartbeat")

    def break_off(self, why: str) -> None:
        """Nothing of the present consumer is wanted any more."""
        if self.is_open:
            self._break(why)

    async def resume(self) -> ConsumerInfo:
        """Make the consumer anew behind `position`, comparing the message there with the one that was taken: after a loss of the stream's tail another one
        may stand in its place. Raises as JetStream does."""
        return await self.open(after=self.position, stamp=self.stamp, expect_first=self._expect_first)

    async def open(self, *, after: int = 0, stamp: int = 0, expect_first: int | None = None) -> ConsumerInfo:
        """Make the consumer, delivering what lies behind `after` (0: everything; ignored with `last_per_subject`); `stamp` of that message, if it was
        taken. `expect_first`: where a contiguous source has to begin, None if anywhere. What was not taken yet is dropped: it comes again.
        Raises as JetStream does."""
        await self._drop_subscription()
        self._connection.on_return[self._token] = self._on_activity
        await self._give_name_back()
        self._messages.clear()
        self._flow_replies.clear()
        self.broken, self.missed, self._caught_up = "", False, False
        self._next_consumer_seq, self._received = 1, 0
        # Until the server has answered, the number of messages there is unknown: not to be taken for none.
        self._backlog = -1
        self.position, self.stamp = after, stamp
        inbox = f"{self._connection.inbox_prefix}.{self._connection.unique()}"
        if self._last_per_subject:
            policy, start = "last_per_subject", 0
        else:
            start = after if stamp else after + 1 if after else 0
            policy = "by_start_sequence" if start else "all"
        one = self.filters[0] if len(self.filters) == 1 else ""
        overlap = start if stamp else 0
        self._expect_first, self._expected, self._first_seen = expect_first, start or expect_first, 0
        self._sid = await self._connection.subscribe_direct(inbox, self._receiver(overlap, stamp))
        try:
            info = await self._create(
                ConsumerConfig(
                    name="",
                    deliver_subject=inbox,
                    deliver_policy=policy,
                    opt_start_seq=start,
                    filter_subject=one,
                    filter_subjects=() if one else self.filters,
                    idle_heartbeat=int(HEARTBEAT_S * S_NS),
                    inactive_threshold=INACTIVE_S * S_NS,
                )
            )
        except BaseException:
            await self._drop_subscription()
            raise
        self._backlog = info.num_pending
        if not self._received:
            self._pending = info.num_pending
        self._heard = self._connection.now()
        if self.contiguous:
            self._check_beginning(overlap, info)
        self._note_progress(pending=None)
        self._on_activity()
        return info

    async def take(self) -> list[Received]:
        """The next messages, at most TAKE_AT_ONCE; moves `position`, and lets the server go on once all are taken."""
        taken, self._messages = self._messages[:TAKE_AT_ONCE], self._messages[TAKE_AT_ONCE:]
        if taken:
            self.position, self.stamp = taken[-1].sequence, taken[-1].stamp
        if self._messages:
            self._on_activity()
            return taken
        replies, self._flow_replies = self._flow_replies, []
        for reply in replies:
            await self._connection.send(reply, b"")
        return taken

    async def close(self) -> None:
        """Stop listening; the server drops the consumer by itself."""
        await self._drop_subscription()
        self._messages.clear()
        self._connection.behind.pop(self.consumer, None)
        self._connection.on_return.pop(self._token, None)

    async def _create(self, config: ConsumerConfig) -> ConsumerInfo:
        """Under the first name that nobody uses. Raises TimeoutError if as many instances read as there may be."""
        for name in self._names:
            info = await self._create_as(name, config)
            if info is not None:
                return info
        # Some may be of readers that are gone and have not lapsed yet.
        for name in self._names:
            other = await self._js.consumer_info(self.stream, name)
            if other is not None and not other.push_bound:
                await self._js.delete_consumer(self.stream, name)
            if other is None or not other.push_bound:
                info = await self._create_as(name, config)
                if info is not None:
                    return info
        raise TimeoutError(
            f"{self.stream} is read by {len(self._names)} others, as {self._names[0]} to {self._names[-1]}"
        )

    async def _create_as(self, name: str, config: ConsumerConfig) -> ConsumerInfo | None:
        """None if somebody else reads under that name."""
        try:
            info = await self._js.create_consumer(self.stream, msgspec.structs.replace(config, name=name))
        except JetStreamError as error:
            if error.taken:
                return None
            raise
        if name != self.consumer:
            self._connection.behind.pop(self.consumer, None)
        self.consumer, self._held = name, _Held(self.stream, name, config.deliver_subject)
        self._connection.behind[name] = self.behind
        return info

    async def _give_name_back(self) -> None:
        """Delete the consumer made last, unless it lapsed meanwhile and its name is another instance's now."""
        held, self._held = self._held, None
        if held is None:
            return
        found = await self._js.consumer_info(held.stream, held.name)
        if found is not None and found.config.deliver_subject == held.inbox:
            await self._js.delete_consumer(held.stream, held.name)

    async def _drop_subscription(self) -> None:
        if self._sid is not None:
            await self._connection.unsubscribe(self._sid)
            self._sid = None

    def _break(self, why: str, *, missed: bool = False) -> None:
        self.broken, self.missed = why, missed
        self._on_activity()

    def _receiver(self, overlap: int, known_stamp: int) -> Callable[[str, str, bytes, bytes | None], None]:
        clock = self._connection.now

        def receive(subject: str, reply: str, payload: bytes, headers: bytes | None) -> None:
            if self.broken:
                return
            now = clock()
            if now - self._heard > self._away_limit_s and self._backlog >= 0:
                # We slept, and read now what waited for us: what the stream dropped meanwhile will not come.
                self._break(f"away for {now - self._heard:.0f} s", missed=True)
                return
            self._heard = now
            if headers is not None and headers.startswith(b"NATS/1.0 "):
                if headers.startswith(b"NATS/1.0 1"):
                    self._control(reply, headers)
                else:
                    self._break(f"status {headers[9:].splitlines()[0].decode(errors='replace')}")
                return
            sequence, consumer_seq, stamp, pending = parse_reply(reply)
            if consumer_seq != self._next_consumer_seq:
                self._break(f"gap: delivery {consumer_seq} instead of {self._next_consumer_seq}")
                return
            if self.contiguous:
                if self._expected is not None and sequence != self._expected:
                    self._break(f"messages {self._expected} to {sequence - 1} were removed unseen", missed=True)
                    return
                self._expected = sequence + 1
            self._first_seen = self._first_seen or sequence
            self._next_consumer_seq += 1
            self._received += 1
            self._pending = pending
            if sequence != overlap:
                self._messages.append(Received(subject, sequence, stamp, payload, headers))
            elif stamp != known_stamp:
                self._break(f"message {sequence} is not the one that was there", missed=True)
                return
            self._note_progress(pending)
            self._on_activity()

        return receive

    def _check_beginning(self, overlap: int, info: ConsumerInfo) -> None:
        if overlap:
            if info.num_pending == 0:
                self._break(f"message {overlap} is gone", missed=True)
            return
        if self._expect_first is None:
            # What is removed from here on, before it was delivered, counts as missed.
            self._expect_first = info.delivered.stream_seq + 1
        if self._first_seen:
            if self._first_seen != self._expect_first:
                self._break(f"messages before {self._first_seen} were removed unseen", missed=True)
        elif self._expected is None:
            self._expected = self._expect_first

    def _control(self, reply: str, headers: bytes) -> None:
        if reply:
            # A flow control request: answered once the reader has taken what came before it.
            self._flow_replies.append(reply)
            self._on_activity()
            return
        if stalled := header(headers, b"Nats-Consumer-Stalled"):
            self._flow_replies.append(stalled)
            self._on_activity()
        last = header(headers, b"Nats-Last-Consumer")
        if last and int(last) != self._next_consumer_seq - 1:
            self._break(f"gap: {last} deliveries, {self._next_consumer_seq - 1} came")
        elif not stalled and self._backlog >= 0:
            # A heartbeat comes only when there is nothing to deliver.
            self._pending = 0
            if not self._caught_up:
                self._caught_up = True
                self._on_activity()

    def _note_progress(self, pending: int | None) -> None:
        # Deliveries come in the order of the stream: after as many as were there at first, all of those (that still exist) have come.
        if pending == 0 or (self._backlog >= 0 and self._received >= self._backlog):
            self._caught_up = True
