"""A push consumer of the simulated server: what it has still to send, what is on its way, flow control, and heartbeats.

States: sending; held (a test's wish, or a stalled server); stalled (the reader has not answered a flow control request). Messages leave in the order of
the stream; each consumer has its own way to its reader, so that two of one reader's may overtake each other, as they do in a real server.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from shared.bus.jetstream import S_NS, ConsumerConfig
from shared.testing.simulated_bus.stream import SimulatedStream, StoredMessage
from shared.testing.simulated_bus.subjects import matcher

if TYPE_CHECKING:
    from shared.testing.simulated_bus.client import SimulatedClient

WINDOW_BYTES = 2 << 20
WINDOW_LIMIT_BYTES = 32 << 20
FLOW_CONTROL = b"NATS/1.0 100 FlowControl Request\r\n\r\n"


class SimulatedConsumer:
    """`client`, and the number of its subscription: the reader; `start`: the sequence from which it reads."""

    def __init__(self, stream: SimulatedStream, config: ConsumerConfig, client: SimulatedClient, sid: int) -> None:
        self.stream = stream
        self.config = config
        self.client = client
        self.name = config.name
        self.held = 0
        """So many reasons to send nothing."""
        self.drop_next = 0
        """So many deliveries get lost."""
        self._sid = sid
        filters = (config.filter_subject,) if config.filter_subject else config.filter_subjects
        self.wants: Callable[[str], bool] = matcher(filters)
        self.start = self._first_sequence()
        self._waiting: deque[int] = deque(self._replay())
        self.num_pending = len(self._waiting)
        self._flight: list[tuple[str, StoredMessage | None, bytes | None]] = []
        self._sent = 0
        self._last_stream = self.start - 1
        self._window = WINDOW_BYTES
        self._unanswered = 0
        self._asked: tuple[str, int] | None = None
        self._questions = 0
        self._heard = client.now()
        """Time of the last thing sent."""
        self.closed = False
        self._prefix = f"$JS.ACK.{stream.name}.{config.name}.1."

    def _first_sequence(self) -> int:
        """Where it begins, as the server chooses it."""
        stream, start = self.stream, self.config.opt_start_seq
        if self.config.deliver_policy == "last_per_subject":
            return min((m.sequence for m in self._last_messages()), default=stream.last + 1)
        if start == 0:
            return stream.first or 1
        return max(stream.first, start)

    def _last_messages(self) -> list[StoredMessage]:
        stream = self.stream
        return [m for m in stream.messages.values() if self.wants(m.subject) and stream.newest(m.subject) is m]

    def _replay(self) -> list[int]:
        if self.config.deliver_policy == "last_per_subject":
            return [m.sequence for m in self._last_messages()]
        return [m.sequence for m in self.stream.messages.values() if m.sequence >= self.start and self.wants(m.subject)]

    def offer(self, message: StoredMessage) -> None:
        """Something was stored that it wants."""
        if message.sequence < self.start:
            return
        if self.held or self._waiting or self._unanswered > self._window:
            self._waiting.append(message.sequence)
            return
        self._send(message, 0)

    def pump(self) -> None:
        """Send what waits, as far as it may."""
        if self.closed or self.held or not self._waiting:
            return
        messages = self.stream.messages
        live = [m for s in self._waiting if (m := messages.get(s)) is not None]
        self._waiting.clear()
        for i, message in enumerate(live):
            if self._unanswered > self._window:
                self._waiting.extend(m.sequence for m in live[i:])
                return
            self._send(message, len(live) - 1 - i)

    def _send(self, message: StoredMessage, pending: int) -> None:
        self._sent += 1
        self._last_stream = message.sequence
        # Counted all the same: that is how the reader notices.
        if self.drop_next:
            self.drop_next -= 1
            return
        reply = f"{self._prefix}{message.sequence}.{self._sent}.{message.stamp}.{pending}"
        self._fly(reply, message, message.headers)
        self._unanswered += message.size
        if self._asked is None and self._unanswered > self._window // 2:
            self._questions += 1
            question = f"$JS.FC.{self.stream.name}.{self.name}.{self._questions}"
            self._asked = (question, self._unanswered)
            self._fly(question, None, FLOW_CONTROL)

    def _fly(self, reply: str, message: StoredMessage | None, headers: bytes | None) -> None:
        if not self._flight:
            self.client.fly(self.arrive)
        self._flight.append((reply, message, headers))
        self._heard = self.client.now()

    def arrive(self) -> None:
        """What was on its way is there."""
        flight, self._flight = self._flight, []
        hand, sid, inbox = self.client.hand, self._sid, self.config.deliver_subject
        for reply, message, headers in flight:
            if self.closed:
                return
            if message is None:
                hand(sid, inbox, reply, b"", headers)
            else:
                hand(sid, message.subject, reply, message.payload, headers)

    def answered(self, question: str) -> None:
        """The reader took what came before the question."""
        if self._asked is None or self._asked[0] != question:
            return
        self._unanswered -= self._asked[1]
        self._asked = None
        self._window = min(self._window * 2, WINDOW_LIMIT_BYTES)
        self.pump()

    def beat(self, now: float) -> None:
        """A heartbeat, if it is time for one and there is nothing else to send."""
        if self.held or self._flight or now - self._heard < self.config.idle_heartbeat / S_NS:
            return
        if self._waiting and self._asked is None:
            return
        stalled = f"Nats-Consumer-Stalled: {self._asked[0]}\r\n" if self._waiting and self._asked else ""
        text = f"Nats-Last-Consumer: {self._sent}\r\nNats-Last-Stream: {self._last_stream}\r\n{stalled}\r\n"
        self._fly("", None, f"NATS/1.0 100 Idle Heartbeat\r\n{text}".encode())
