"""What services may ask of the bus. `NatsBus` is the real one; a simulated one keeps the same semantics for tests.

A service reads through a `Feed`: one merged, ordered-per-stream view of OBJECTS, DECISIONS and OUTCOMES which hides reconnects, epochs and wiped
streams behind a single `Reset`. It never sees a stream name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from shared.events.commands import Command
from shared.events.decisions import Batch, Entry, Positions
from shared.events.objects import Object
from shared.events.outcomes import Outcome
from shared.events.subjects import ObjectName


class StreamsLost(RuntimeError):
    """A stream is gone or not the one it was: the gateway has to check and, where needed, open a new epoch (R1)."""


class Reset(msgspec.Struct, frozen=True):
    """Forget everything folded so far; what follows is a replay. The first item of every feed, and again when an epoch opens, when a stream was
    wiped or lost its tail, or when the reader was away for too long (R1, R5). `epoch` 0: no epoch is open yet."""

    epoch: int
    why: str


class ObjectChanged(msgspec.Struct, frozen=True):
    """The newest state of one object (or its Tombstone) at OBJECTS position `position`."""

    name: ObjectName
    object: Object
    position: int
    trace: str = ""


class Logged(msgspec.Struct, frozen=True):
    """An entry of the decision log at `position`."""

    entry: Entry
    position: int


class Settled(msgspec.Struct, frozen=True):
    """An outcome at OUTCOMES position `position`. It may come before its decision or before the object it speaks of."""

    outcome: Outcome
    position: int


class CaughtUp(msgspec.Struct, frozen=True):
    """All that was there when the replay began has been delivered, and OBJECTS has been read at least up to where the epoch was opened:
    decisions are allowed from here on. Sent once per Reset, if an epoch is open."""

    positions: Positions


class Skipped(msgspec.Struct, frozen=True):
    """A message that nobody can read was moved aside; all that is left of it is its position, behind which the fence stands."""

    stream: Literal["OBJECTS", "DECISIONS", "OUTCOMES"]
    position: int


FeedItem = Reset | ObjectChanged | Logged | Settled | Skipped | CaughtUp


class Feed(Protocol):
    """Iterate over lists of items: all that has arrived since the last step, at least one."""

    @property
    def positions(self) -> Positions:
        """Where the reader stands after the last list it was given."""
        ...

    def __aiter__(self) -> AsyncIterator[list[FeedItem]]: ...


class AppendResult(msgspec.Struct, frozen=True):
    """What became of an append to the decision log: one of Appended, LostRace, Refused, Unknown."""


class Appended(AppendResult, frozen=True):
    """The batch is entry `position`."""

    position: int


class LostRace(AppendResult, frozen=True):
    """Somebody appended before us, or the epoch is over: fold, then decide again. Nothing was written."""

    why: str


class Refused(AppendResult, frozen=True):
    """The log takes nothing: it is full, or the server has no room. Nothing was written, and deciding again does not help until there is some."""

    why: str


class Unknown(AppendResult, frozen=True):
    """No answer in time: the batch may be in the log or not. Fold and look."""

    why: str


class Lease(Protocol):
    """Who is active in a role; for liveness only, the fence makes a second one harmless (R4)."""

    @property
    def held(self) -> bool: ...

    async def wait_until_held(self) -> None: ...

    async def release(self) -> None: ...


Handler = Callable[[bytes], Awaitable[bytes]]


class Bus(Protocol):
    """One service's connection. Every awaited publish returns after the stream's acknowledgement; all reconnect by themselves and raise only
    when the bus is closed or a permission is missing."""

    service: str

    def feed(self, *, kinds: Sequence[str], decisions: bool = False, outcomes: bool = False) -> Feed:
        """A merged view of the given kinds of OBJECTS and, if wanted, of the log and the outcomes of the open epoch."""
        ...

    async def append(self, batch: Batch) -> AppendResult:
        """Append behind `batch.positions.decisions`, in the epoch of `batch.positions` (scheduler only)."""
        ...

    async def command(self, commands: Sequence[Command]) -> None:
        """Publish commands, pipelined."""
        ...

    async def dead_letter(
        self, *, stream: str, subject: str, sequence: int, attempts: int, error: str, payload: bytes
    ) -> None:
        """Move a message aside that cannot be handled."""
        ...

    def lease(self, role: str) -> Lease:
        """The lease of a role; its renewal runs until the bus is closed."""
        ...

    async def request(self, service: str, method: str, payload: bytes, timeout_s: float) -> bytes:
        """Core NATS request to `sluice.rpc.<service>.<method>`. Raises TimeoutError."""
        ...

    async def serve(self, method: str, handler: Handler) -> None:
        """Answer `sluice.rpc.<this service>.<method>`, in a queue group."""
        ...

    async def close(self) -> None:
        """Flush, then close."""
        ...


class OpenCommand(msgspec.Struct, frozen=True):
    """A command as found on the stream; `attempts` counts deliveries to this process. `stream`: in which lifetime of the stream, since after a wipe, or
    after the server lost the stream's tail, another command has this one's sequence."""

    command: Command
    writer: str
    subject: str
    sequence: int
    attempts: int = 1
    stream: str = ""


class ObjectWrite(msgspec.Struct, frozen=True):
    """A projection or Tombstone to put under `name`."""

    name: ObjectName
    object: Object
    trace: str = ""


class GatewayBus(Bus, Protocol):
    """What only the gateway may do: make streams, fill OBJECTS, open epochs, take commands, publish outcomes and public events.
    Writes (and the log) raise StreamsLost when their stream is gone; the gateway recovers, then writes what is still true."""

    @property
    def identities(self) -> dict[str, str]:
        """Stream -> creation time, as last made or accepted, that of the open epoch's log included: to be kept with the gateway's Lease, for
        `check_streams` after a start."""
        ...

    @property
    def reconnects(self) -> int:
        """How often the connection came back."""
        ...

    async def wait_reconnect(self, seen: int) -> int:
        """Wait until `reconnects` is more than `seen`; returns it: then the streams have to be checked."""
        ...

    async def check_streams(
        self, *, applied: int, epoch: int, known: Mapping[str, str] | None = None, objects_position: int = 0
    ) -> str:
        """Empty if every stream is there, is the one this gateway knows (`known`; None: those of this process), and reaches as far as it did (the log
        of `epoch` to `applied`, OBJECTS to `objects_position`, each to what was acknowledged to this process); else the reason why not."""
        ...

    async def epochs(self, shard: str) -> list[int]:
        """Epochs whose log exists, ascending."""
        ...

    async def drop_objects(self) -> None:
        """Empty OBJECTS by making it anew: when the API server's list is older than what OBJECTS holds. Every reader starts over."""
        ...

    async def ensure_streams(self) -> None:
        """Create every stream that is missing (not the log of an epoch)."""
        ...

    async def load_objects(self) -> dict[str, tuple[int, Object]]:
        """Everything that OBJECTS holds: subject -> (stream sequence, object); needed for compare-and-set after a start."""
        ...

    async def put_objects(self, writes: Sequence[ObjectWrite]) -> int:
        """Write projections by compare-and-set per subject, pipelined; an older state of the same uid never replaces a newer one, a Tombstone gets a TTL.
        Returns the highest stream sequence that holds one of them (R5)."""
        ...

    async def open_epoch(self, *, shard: str, epoch: int, objects_position: int, why: str) -> None:
        """Create the log of the epoch, append EpochOpened, and announce the epoch in OBJECTS."""
        ...

    def log(self, *, shard: str, epoch: int, after: int) -> AsyncIterator[list[Logged]]:
        """Entries of the log behind `after`, live. Raises StreamsLost as `check_streams` would say why, or when entries went unread."""
        ...

    def commands(self) -> AsyncIterator[list[OpenCommand]]:
        """Open commands, live; malformed ones are moved aside by the bus after an outcome was published."""
        ...

    async def settle(self, outcomes: Sequence[Outcome]) -> None:
        """Publish outcomes, pipelined."""
        ...

    async def move_aside(self, command: OpenCommand, *, attempts: int, error: str) -> None:
        """A command that no attempt could handle (R9): dead letter, outcome `rejected`, deletion."""
        ...

    async def close_commands(self, commands: Sequence[OpenCommand]) -> None:
        """Delete commands whose outcomes are published; one that was replaced meanwhile stays, and so does another one that has got its sequence."""
        ...

    async def purge_settled(self, *, shard: str, epoch: int, decisions: int) -> None:
        """Drop entries of the log below `decisions`, and outcomes that only speak of those."""
        ...

    async def emit(self, events: Sequence[tuple[str, bytes]]) -> None:
        """Publish public events: (subject, JSON)."""
        ...
