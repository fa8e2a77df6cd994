"""The simulated server for tests of one service: its streams are there from the start, and what they hold can be read as messages."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import TypeVar, cast

from shared.bus.commands import open_command
from shared.bus.consumer import Received
from shared.bus.interface import Logged, ObjectChanged, OpenCommand, Settled
from shared.bus.jetstream import stream_config
from shared.bus.lease import bucket_config
from shared.bus.streams import PERMANENT
from shared.events import commands, deadletters, decisions, objects, outcomes, subjects
from shared.events.commands import Command
from shared.events.deadletters import DeadLetter
from shared.events.objects import Epoch
from shared.events.subjects import ObjectName
from shared.testing.simulated_bus.broker import Fault, Publish, SimulatedBroker
from shared.testing.simulated_bus.stream import StoredMessage

T = TypeVar("T")


class DecodedBroker(SimulatedBroker):
    """Everything is decoded when it is asked for; nothing here changes what the server does but `append_faults`. `streams_ready` False: the gateway
    has to make the streams, as it has to make them again after a wipe."""

    def __init__(
        self, now: Callable[[], float] = time.time, random: Random | None = None, *, streams_ready: bool = True
    ) -> None:
        super().__init__(now, random)
        self.append_faults: deque[Fault] = deque()
        """What happens to the next appends, first one first."""
        self.command_history: list[Command] = []
        """All commands since the last wipe, closed ones included."""
        self._streams_ready = streams_ready
        self._listeners: list[asyncio.Event] = []
        self._decoded: dict[tuple[str, int], object] = {}
        self.fault = self._append_fault
        self.subscribe(self._note)
        if streams_ready:
            self._make_streams()

    def _make_streams(self) -> None:
        for stream in PERMANENT:
            self.make_stream(stream_config(stream, 1))
        self.make_stream(bucket_config(1))

    def wipe(self) -> None:
        """See `SimulatedBroker.wipe`; where the streams were there from the start, they are there again."""
        super().wipe()
        self.command_history.clear()
        if self._streams_ready:
            self._make_streams()

    def listen(self) -> asyncio.Event:
        """An event that is set whenever something was stored."""
        event = asyncio.Event()
        self._listeners.append(event)
        return event

    @property
    def sequence(self) -> int:
        """Where OBJECTS ends."""
        return self.streams["OBJECTS"].last

    @property
    def objects(self) -> dict[ObjectName, ObjectChanged]:
        """The newest state of each object, tombstones included."""
        return {
            name: ObjectChanged(name, self._read(m, objects.codec.decode), m.sequence)
            for m in self._held("OBJECTS")
            if (name := subjects.parse_objects(m.subject)).kind != "epoch"
        }

    @property
    def epochs(self) -> dict[str, Epoch]:
        """Shard -> the epoch that OBJECTS names."""
        found = (self._read(m, objects.codec.decode) for m in self._held("OBJECTS"))
        return {e.name: e for e in found if isinstance(e, Epoch)}

    def log(self, epoch: int = 1, shard: str = "0") -> list[Logged]:
        """What the log of an epoch holds; empty if there is none."""
        stream = subjects.decisions_stream(shard, epoch)
        return [Logged(self._read(m, decisions.codec.decode), m.sequence) for m in self._held(stream)]

    @property
    def outcomes(self) -> list[Settled]:
        """What OUTCOMES holds."""
        return [Settled(self._read(m, outcomes.codec.decode), m.sequence) for m in self._held("OUTCOMES")]

    @property
    def commands(self) -> dict[str, OpenCommand]:
        """Subject -> the command that is open."""
        return {
            m.subject: open_command(
                Received(m.subject, m.sequence, m.stamp, m.payload, m.headers), self.streams["COMMANDS"].created
            )
            for m in self._held("COMMANDS")
        }

    @property
    def events(self) -> list[tuple[str, bytes]]:
        """Public events."""
        return [(m.subject, m.payload) for m in self._held("EVENTS")]

    @property
    def dead(self) -> list[DeadLetter]:
        """What was moved aside."""
        return [self._read(m, deadletters.codec.decode) for m in self._held("DEADLETTER")]

    def clear(self, stream: str) -> None:
        """Drop everything a stream holds; its sequences go on."""
        found = self.streams[stream]
        found.purge_below(found.last + 1)

    def _held(self, stream: str) -> Iterator[StoredMessage]:
        found = self.streams.get(stream)
        return iter(list(found.messages.values()) if found is not None else [])

    def _read(self, message: StoredMessage, decode: Callable[[bytes], T]) -> T:
        """Decoded once: tests look again and again."""
        key = (message.stream, message.stamp)
        found = self._decoded.get(key)
        if found is None:
            found = self._decoded[key] = decode(message.payload)
        return cast("T", found)

    def _note(self, message: StoredMessage) -> None:
        if message.stream == "COMMANDS":
            self.command_history.append(commands.codec.decode(message.payload))
        for event in self._listeners:
            event.set()

    def _append_fault(self, publish: Publish) -> Fault | None:
        if self.append_faults and publish.user == "scheduler" and publish.stream.startswith("DECISIONS"):
            return self.append_faults.popleft()
        return None
