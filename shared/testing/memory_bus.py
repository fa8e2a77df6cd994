"""The bus in memory, with the semantics of `shared.bus.interface`, and the faults of a real one on demand.

Order within a stream, compare-and-set on OBJECTS, the fence of the log, epochs and replays are those of the real bus; every message goes through its
codec. Streams can be held back one by one (`MemoryBroker.hold`), so a test chooses the interleaving; appends can be lost, raced or left without an
answer. It keeps no time: leases are granted in the order they were asked for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Literal

import msgspec

from shared.bus.interface import (
    Appended,
    AppendResult,
    CaughtUp,
    FeedItem,
    Handler,
    Logged,
    LostRace,
    ObjectChanged,
    ObjectWrite,
    OpenCommand,
    Reset,
    Settled,
    Unknown,
)
from shared.events import commands as command_events
from shared.events import decisions as decision_events
from shared.events import objects as object_events
from shared.events import outcomes as outcome_events
from shared.events import subjects
from shared.events.commands import Command
from shared.events.decisions import Batch, Entry, EpochOpened, Positions
from shared.events.objects import Epoch, Object, Tombstone
from shared.events.outcomes import CommandOutcome, DecisionOutcome, Outcome
from shared.events.subjects import ObjectName

StreamName = Literal["objects", "decisions", "outcomes"]
AppendFault = Literal["unknown_written", "unknown_lost"]


class DeadLettered(msgspec.Struct, frozen=True):
    """A message moved aside."""

    service: str
    stream: str
    subject: str
    error: str


class MemoryBroker:
    """The streams. One broker stands for one NATS server; every service connects with `bus` or `gateway`."""

    def __init__(self) -> None:
        self.wiped = 0
        self._listeners: list[asyncio.Event] = []
        self._held: set[StreamName] = set()
        self.append_faults: deque[AppendFault] = deque()
        """What happens to the next appends, first one first."""
        self.leases: dict[str, deque[tuple[MemoryBus, asyncio.Event]]] = {}
        self.handlers: dict[tuple[str, str], Handler] = {}
        self._clear()

    def _clear(self) -> None:
        self.sequence = 0
        self.objects: dict[ObjectName, ObjectChanged] = {}
        self.epochs: dict[str, Epoch] = {}
        self.logs: dict[tuple[str, int], list[Logged]] = {}
        self.tails: dict[tuple[str, int], int] = {}
        self.outcomes: list[Settled] = []
        self.outcome_sequence = 0
        self.commands: dict[str, OpenCommand] = {}
        self.command_sequence = 0
        self.command_history: list[Command] = []
        self.events: list[tuple[str, bytes]] = []
        self.dead: list[DeadLettered] = []

    def bus(self, service: str, *, shard: str = "0") -> MemoryBus:
        """Connect a service."""
        return MemoryBus(self, service, shard)

    def gateway(self, *, shard: str = "0") -> MemoryGatewayBus:
        """Connect as the gateway."""
        return MemoryGatewayBus(self, "watcher", shard)

    def wipe(self) -> None:
        """Lose all streams (leases and RPC stay: they are no streams of the gateway's)."""
        self.wiped += 1
        self._clear()
        self.notify()

    def hold(self, *streams: StreamName) -> None:
        """Deliver nothing of these streams to feeds until `release`."""
        self._held.update(streams)

    def release(self, *streams: StreamName) -> None:
        """Deliver again."""
        self._held.difference_update(streams)
        self.notify()

    def is_held(self, stream: StreamName) -> bool:
        """Is this stream held back?"""
        return stream in self._held

    def listen(self) -> asyncio.Event:
        """An event that is set whenever something changed."""
        event = asyncio.Event()
        self._listeners.append(event)
        return event

    def notify(self) -> None:
        """Wake everybody who listens."""
        for event in self._listeners:
            event.set()


class MemoryFeed:
    """A feed over the broker's streams. Live lists hold objects, then entries, then outcomes; hold streams for another order."""

    def __init__(
        self, broker: MemoryBroker, shard: str, kinds: Sequence[str], *, decisions: bool, outcomes: bool
    ) -> None:
        self._broker = broker
        self._shard = shard
        self._kinds = frozenset(kinds)
        self._decisions = decisions
        self._outcomes = outcomes
        self._event = broker.listen()
        self._generation: tuple[int, int] | None = None
        self._caught_up = False
        self._positions = Positions()

    @property
    def positions(self) -> Positions:
        """Where the reader stands."""
        return self._positions

    async def __aiter__(self) -> AsyncIterator[list[FeedItem]]:
        while True:
            self._event.clear()
            if items := self._collect():
                yield items
                continue
            await self._event.wait()

    def _collect(self) -> list[FeedItem]:
        broker = self._broker
        epoch = broker.epochs.get(self._shard)
        number = epoch.version if epoch is not None else 0
        items: list[FeedItem] = []
        if self._generation != (broker.wiped, number):
            why = "start" if self._generation is None else f"epoch {number} opened"
            self._generation = (broker.wiped, number)
            self._positions = Positions(epoch=number)
            self._caught_up = False
            items.append(Reset(number, why))
        at = self._positions
        objects, decisions, outcomes = at.objects, at.decisions, at.outcomes
        if not broker.is_held("objects"):
            changes = [c for c in broker.objects.values() if c.name.kind in self._kinds and c.position > objects]
            changes.sort(key=lambda change: change.position)
            items.extend(changes)
            objects = max(broker.sequence, objects)
        if self._decisions and not broker.is_held("decisions"):
            entries = [e for e in broker.logs.get((self._shard, number), ()) if e.position > decisions]
            items.extend(entries)
            decisions = entries[-1].position if entries else decisions
        if self._outcomes and not broker.is_held("outcomes"):
            settled = [s for s in broker.outcomes if s.position > outcomes]
            items.extend(settled)
            outcomes = settled[-1].position if settled else outcomes
        self._positions = Positions(epoch=number, objects=objects, decisions=decisions, outcomes=outcomes)
        if epoch is not None and not self._caught_up and not self._waits() and objects >= epoch.objects_position:
            self._caught_up = True
            items.append(CaughtUp(self._positions))
        return items

    def _waits(self) -> bool:
        held = self._broker.is_held
        return held("objects") or (self._decisions and held("decisions")) or (self._outcomes and held("outcomes"))


class MemoryLease:
    """First come, first served; the next in line gets it when the holder releases it."""

    def __init__(self, bus: MemoryBus, role: str) -> None:
        self._queue = bus.broker.leases.setdefault(role, deque())
        self._granted = asyncio.Event()
        self._entry = (bus, self._granted)
        self._queue.append(self._entry)
        self._grant()

    def _grant(self) -> None:
        if self._queue:
            self._queue[0][1].set()

    @property
    def held(self) -> bool:
        """Is it ours now?"""
        return bool(self._queue) and self._queue[0] is self._entry

    async def wait_until_held(self) -> None:
        """Return once it is ours."""
        await self._granted.wait()

    async def release(self) -> None:
        """Give it to the next in line."""
        if self._entry in self._queue:
            self._queue.remove(self._entry)
        self._granted.clear()
        self._grant()


class MemoryBus:
    """A service's connection."""

    def __init__(self, broker: MemoryBroker, service: str, shard: str) -> None:
        self.broker = broker
        self.service = service
        self.shard = shard
        self._leases: list[MemoryLease] = []

    def feed(self, *, kinds: Sequence[str], decisions: bool = False, outcomes: bool = False) -> MemoryFeed:
        """See `Bus.feed`."""
        return MemoryFeed(self.broker, self.shard, kinds, decisions=decisions, outcomes=outcomes)

    async def append(self, batch: Batch) -> AppendResult:
        """See `Bus.append`; `MemoryBroker.append_faults` says what goes wrong."""
        fault = self.broker.append_faults.popleft() if self.broker.append_faults else None
        if fault == "unknown_lost":
            return Unknown("no answer in time")
        log = (self.shard, batch.positions.epoch)
        if self.broker.epochs.get(self.shard) is None or self.broker.epochs[self.shard].version != log[1]:
            return LostRace(f"epoch {log[1]} is over")
        tail = self.broker.tails.get(log, 0)
        if tail != batch.positions.decisions:
            return LostRace(f"the log ends at {tail}")
        self._append(log, batch)
        return Unknown("no answer in time") if fault == "unknown_written" else Appended(tail + 1)

    def _append(self, log: tuple[str, int], entry: Entry) -> None:
        entry = decision_events.codec.decode(decision_events.codec.encode(entry))
        position = self.broker.tails.get(log, 0) + 1
        self.broker.tails[log] = position
        self.broker.logs.setdefault(log, []).append(Logged(entry, position))
        self.broker.notify()

    async def command(self, commands: Sequence[Command]) -> None:
        """See `Bus.command`."""
        broker = self.broker
        for command in commands:
            decoded = command_events.codec.decode(command_events.codec.encode(command))
            subject = command_events.subject_of(self.service, decoded)
            broker.command_sequence += 1
            broker.commands[subject] = OpenCommand(decoded, self.service, subject, broker.command_sequence)
            broker.command_history.append(decoded)
        broker.notify()

    async def dead_letter(
        self, *, stream: str, subject: str, sequence: int, attempts: int, error: str, payload: bytes
    ) -> None:
        """See `Bus.dead_letter`."""
        self.broker.dead.append(DeadLettered(self.service, stream, subject, error))

    def lease(self, role: str) -> MemoryLease:
        """See `Bus.lease`."""
        lease = MemoryLease(self, role)
        self._leases.append(lease)
        return lease

    async def request(self, service: str, method: str, payload: bytes, timeout_s: float) -> bytes:
        """See `Bus.request`; nobody serving it is a TimeoutError at once."""
        handler = self.broker.handlers.get((service, method))
        if handler is None:
            raise TimeoutError(f"nobody serves {service}.{method}")
        async with asyncio.timeout(timeout_s):
            return await handler(payload)

    async def serve(self, method: str, handler: Handler) -> None:
        """See `Bus.serve`."""
        self.broker.handlers[(self.service, method)] = handler

    async def close(self) -> None:
        """Release the leases; everything was written at once."""
        for lease in self._leases:
            await lease.release()


class MemoryGatewayBus(MemoryBus):
    """The gateway's connection."""

    @property
    def identities(self) -> dict[str, str]:
        """Every stream was made when the broker was last wiped."""
        return {name: str(self.broker.wiped) for name in ("OBJECTS", "OUTCOMES", "COMMANDS")}

    @property
    def reconnects(self) -> int:
        """A wipe counts as one."""
        return self.broker.wiped

    async def wait_reconnect(self, seen: int) -> int:
        """See `GatewayBus.wait_reconnect`."""
        event = self.broker.listen()
        while self.broker.wiped <= seen:
            await event.wait()
            event.clear()
        return self.broker.wiped

    async def epochs(self, shard: str) -> list[int]:
        """See `GatewayBus.epochs`."""
        return sorted(epoch for known, epoch in self.broker.tails if known == shard)

    async def drop_objects(self) -> None:
        """See `GatewayBus.drop_objects`: readers start over."""
        self.broker.wiped += 1
        self.broker.objects.clear()
        self.broker.sequence = 0
        self.broker.notify()

    async def move_aside(self, command: OpenCommand, *, attempts: int, error: str) -> None:
        """See `GatewayBus.move_aside`."""
        self.broker.dead.append(DeadLettered(self.service, "COMMANDS", command.subject, error))
        outcome = CommandOutcome(command=command.command.id, subject=command.subject, status="rejected", why=error)
        await self.settle([outcome])
        await self.close_commands([command])

    async def check_streams(
        self, *, applied: int, epoch: int, known: Mapping[str, str] | None = None, objects_position: int = 0
    ) -> str:
        """See `GatewayBus.check_streams`."""
        if known is not None and any(self.identities.get(name) != made for name, made in known.items()):
            return "a stream was made anew"
        if self.broker.sequence < objects_position:
            return f"OBJECTS ends at {self.broker.sequence}, it was at {objects_position}"
        tail = self.broker.tails.get((self.shard, epoch))
        if tail is None:
            return f"the log of epoch {epoch} is missing"
        return "" if tail >= applied else f"the log of epoch {epoch} ends at {tail}, applied is {applied}"

    async def ensure_streams(self) -> None:
        """Streams exist as soon as somebody writes to them."""

    async def load_objects(self) -> dict[str, tuple[int, Object]]:
        """See `GatewayBus.load_objects`."""
        return {subjects.objects(*name): (c.position, c.object) for name, c in self.broker.objects.items()}

    async def put_objects(self, writes: Sequence[ObjectWrite]) -> int:
        """See `GatewayBus.put_objects`."""
        highest = 0
        for write in writes:
            held = self.broker.objects.get(write.name)
            if held is not None and _stale(held.object, write.object):
                highest = max(highest, held.position)
                continue
            new = object_events.codec.decode(object_events.codec.encode(write.object))
            self.broker.sequence += 1
            highest = self.broker.sequence
            self.broker.objects[write.name] = ObjectChanged(write.name, new, highest, write.trace)
        self.broker.notify()
        return highest

    async def open_epoch(self, *, shard: str, epoch: int, objects_position: int, why: str) -> None:
        """See `GatewayBus.open_epoch`."""
        positions = Positions(epoch=epoch, objects=objects_position)
        opened = EpochOpened(epoch=epoch, shard=shard, positions=positions, opened_ns=0, why=why)
        self._append((shard, epoch), opened)
        self.broker.sequence += 1
        self.broker.epochs[shard] = Epoch(name=shard, version=epoch, objects_position=objects_position)
        self.broker.notify()

    async def log(self, *, shard: str, epoch: int, after: int) -> AsyncIterator[list[Logged]]:
        """See `GatewayBus.log`."""
        event = self.broker.listen()
        while True:
            event.clear()
            entries = [e for e in self.broker.logs.get((shard, epoch), ()) if e.position > after]
            if entries:
                after = entries[-1].position
                yield entries
                continue
            await event.wait()

    async def commands(self) -> AsyncIterator[list[OpenCommand]]:
        """See `GatewayBus.commands`."""
        event = self.broker.listen()
        after = 0
        while True:
            event.clear()
            found = sorted((c for c in self.broker.commands.values() if c.sequence > after), key=lambda c: c.sequence)
            if found:
                after = found[-1].sequence
                yield found
                continue
            await event.wait()

    async def settle(self, outcomes: Sequence[Outcome]) -> None:
        """See `GatewayBus.settle`."""
        for outcome in outcomes:
            self.broker.outcome_sequence += 1
            decoded = outcome_events.codec.decode(outcome_events.codec.encode(outcome))
            self.broker.outcomes.append(Settled(decoded, self.broker.outcome_sequence))
        self.broker.notify()

    async def close_commands(self, commands: Sequence[OpenCommand]) -> None:
        """See `GatewayBus.close_commands`."""
        for command in commands:
            held = self.broker.commands.get(command.subject)
            if held is not None and held.sequence == command.sequence:
                del self.broker.commands[command.subject]

    async def purge_settled(self, *, shard: str, epoch: int, decisions: int) -> None:
        """See `GatewayBus.purge_settled`."""
        log = self.broker.logs.get((shard, epoch), [])
        log[:] = [entry for entry in log if entry.position >= decisions]
        self.broker.outcomes[:] = [s for s in self.broker.outcomes if not _only_below(s.outcome, epoch, decisions)]

    async def emit(self, events: Sequence[tuple[str, bytes]]) -> None:
        """See `GatewayBus.emit`."""
        self.broker.events += events


def _stale(held: Object, new: Object) -> bool:
    if held.uid and new.uid and held.uid != new.uid:
        return False
    return new.version < held.version if isinstance(new, Tombstone) else new.version <= held.version


def _only_below(outcome: Outcome, epoch: int, decisions: int) -> bool:
    if not isinstance(outcome, DecisionOutcome):
        return False
    return (outcome.decision.epoch, outcome.decision.sequence) < (epoch, decisions)
