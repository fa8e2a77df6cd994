"""The gateway's care for the streams: make them, check that they are the ones it knows, open epochs, and purge what is settled.

Settings come from the table in `shared.events.streams`. Only the gateway's user has the permissions for this.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping

from shared.bus.connection import Connection
from shared.bus.interface import ObjectWrite, StreamsLost
from shared.bus.jetstream import STREAM_NAME_IN_USE, JetStream, JetStreamError, StreamConfig, StreamInfo, stream_config
from shared.bus.lease import bucket_config
from shared.bus.objects_store import ObjectsStore
from shared.bus.publishing import EXPECTED_LAST, EXPECTED_STREAM, Ack, Outgoing, Publisher
from shared.events import decisions, objects, streams, subjects
from shared.events.decisions import Positions

log = logging.getLogger(__name__)

PERMANENT = tuple(s for s in streams.STREAMS if not s.per_epoch)
SERVER = "server"
"""Among the identities: the run of the server that the streams are on."""
PURGE_GRACE_S = 60.0
"""Settled entries stay for a while, so that readers who are a little behind need not start over."""


class Streams:
    """Every method raises JetStreamError and what `Connection.request` raises; the caller tries again."""

    def __init__(self, connection: Connection, jetstream: JetStream, publisher: Publisher, *, replicas: int) -> None:
        self._connection = connection
        self._js = jetstream
        self._publisher = publisher
        self._replicas = replicas
        self.identities: dict[str, str] = {}
        """Stream -> its creation time, as last made or accepted, the log of the open epoch included; under SERVER the run of the server."""
        self._stored: dict[str, int] = {}

    @property
    def run_of_server(self) -> str:
        """The run of the server that alone holds the streams; empty where others hold them too and keep what one of them loses."""
        return self._connection.server if self._replicas == 1 else ""

    def lifetime_of(self, created: str) -> str:
        """What tells sequences of a stream apart from equal ones: when it was made, and the run of the server that alone holds it, since another
        run may have lost the stream's tail and given its sequences again."""
        return f"{created} {self.run_of_server}".rstrip()

    def is_present(self, stream: str, lifetime: str) -> bool:
        """Do sequences that were read in that lifetime still mean the same messages? Also if nobody has said which stream this is."""
        created = self.identities.get(stream)
        return created is None or self.lifetime_of(created) == lifetime

    def note_stored(self, stream: str, sequence: int) -> None:
        """An acknowledgement: the stream must reach at least so far from now on."""
        if sequence > self._stored.get(stream, 0):
            self._stored[stream] = sequence

    async def ensure(self) -> None:
        """Create what is missing and bring settings up to date; accept what is there as the streams we know."""
        server = self.run_of_server
        for stream in PERMANENT:
            info = await self._ensure(stream_config(stream, self._replicas))
            if self.identities.get(stream.name) != info.created:
                self._stored.pop(stream.name, None)
            self.identities[stream.name] = info.created
        await self._ensure(bucket_config(self._replicas))
        self.identities[SERVER] = server

    async def _ensure(self, config: StreamConfig) -> StreamInfo:
        try:
            return await self._js.create_stream(config)
        except JetStreamError as error:
            if error.error.err_code != STREAM_NAME_IN_USE:
                raise
        return await self._js.update_stream(config)

    async def check(
        self, *, shard: str, applied: int, epoch: int, known: Mapping[str, str] | None, objects_position: int
    ) -> str:
        """See `GatewayBus.check_streams`."""
        kept = known is not None
        known = self.identities if known is None else known
        found: dict[str, str] = {}
        for stream in PERMANENT:
            info = await self._info(stream.name)
            if info is None:
                return f"stream {stream.name} is missing"
            if stream.name in known and known[stream.name] != info.created:
                return f"stream {stream.name} was made anew"
            reach = max(self._stored.get(stream.name, 0), objects_position if stream.name == "OBJECTS" else 0)
            if info.state.last_seq < reach:
                return f"stream {stream.name} lost its tail: it ends at {info.state.last_seq}, not {reach}"
            found[stream.name] = info.created
        name = subjects.decisions_stream(shard, epoch)
        info = await self._info(name)
        if info is None:
            return f"stream {name} is missing"
        if kept and name not in known:
            # Whoever made it died before it could say which one it is.
            return f"which stream {name} was is not known"
        if known.get(name, info.created) != info.created:
            return f"stream {name} was made anew"
        found[name] = info.created
        if info.state.last_seq < max(applied, self._stored.get(name, 0)):
            return f"stream {name} lost its tail: it ends at {info.state.last_seq}, {applied} were applied"
        # Asked last: until it has answered, we only know to which one we were connected.
        if known.get(SERVER, self.run_of_server) != self.run_of_server:
            # What it had acknowledged last may not have been on its disk, and may have been written over since.
            return "the server was started again"
        self.identities.update(found)
        return ""

    async def _info(self, name: str) -> StreamInfo | None:
        try:
            return await self._js.stream_info(name)
        except JetStreamError as error:
            if error.not_found:
                return None
            raise

    async def epochs(self, shard: str) -> list[int]:
        """Epochs whose log exists, ascending."""
        prefix = _logs_of(shard)
        names = (n.removeprefix(prefix) for n in await self._js.stream_names() if n.startswith(prefix))
        return sorted(int(n) for n in names if n.isdigit())

    def _forget_logs(self, shard: str) -> None:
        for name in [n for n in self.identities if n.startswith(_logs_of(shard))]:
            del self.identities[name]
            self._stored.pop(name, None)

    async def drop_objects(self) -> None:
        """Delete OBJECTS and make it anew, empty: for a list that is older than what it holds."""
        await self._js.delete_stream("OBJECTS")
        await self.ensure()

    async def open_epoch(self, store: ObjectsStore, *, shard: str, epoch: int, objects_position: int, why: str) -> None:
        """See `GatewayBus.open_epoch`. Raises StreamsLost if a log of that epoch has entries already, or OBJECTS names a later epoch."""
        stream = streams.decisions_of(shard, epoch)
        made = await self._js.create_stream(stream_config(stream, self._replicas))
        outcomes = (await self._js.stream_info("OUTCOMES")).state.last_seq
        opened = decisions.EpochOpened(
            epoch=epoch,
            shard=shard,
            positions=Positions(epoch=epoch, objects=objects_position, outcomes=outcomes),
            opened_ns=self._connection.now_ns(),
            why=why,
        )
        message = Outgoing(
            stream.subjects[0],
            decisions.codec.encode(opened),
            {EXPECTED_STREAM: stream.name, EXPECTED_LAST: "0"},
        )
        result = await self._publisher.try_one(message)
        if not isinstance(result, Ack):
            raise StreamsLost(f"epoch {epoch} cannot be opened: {result.why}")
        self._forget_logs(shard)
        self.identities[stream.name] = made.created
        self.note_stored(stream.name, result.seq)
        # Before it is announced: whoever still follows an older log must not be able to append there.
        for old in await self.epochs(shard):
            if old < epoch:
                await self._js.delete_stream(subjects.decisions_stream(shard, old))
        announced = objects.Epoch(
            name=shard, version=epoch, opened_ns=opened.opened_ns, objects_position=objects_position
        )
        position = await store.put([ObjectWrite(subjects.ObjectName("epoch", "", shard), announced)])
        if store.version_of(subjects.objects("epoch", "", shard)) != epoch:
            raise StreamsLost(f"OBJECTS at {position} names a later epoch than {epoch}")
        log.info("epoch opened", extra={"shard": shard, "epoch": epoch, "why": why})


def _logs_of(shard: str) -> str:
    """What the names of a shard's logs begin with."""
    return subjects.decisions_stream(shard, 0)[:-1]


class SettledFloor:
    """Which outcomes may go with the entries that they speak of: remembers the order in which outcomes were published."""

    def __init__(self, connection: Connection, jetstream: JetStream, *, grace_s: float) -> None:
        self._connection = connection
        self._js = jetstream
        self._grace_s = grace_s
        self._outcomes: deque[tuple[int, int, int]] = deque()
        self._floors: deque[tuple[float, int, int]] = deque()
        self.loaded = False
        """Outcomes from before this process were added."""

    def published(self, sequence: int, epoch: int, entry: int) -> None:
        """The outcome at `sequence` speaks of an entry of the log; 0 and 0 for that of a command."""
        self._outcomes.append((sequence, epoch, entry))

    def prepend(self, found: list[tuple[int, int, int]]) -> None:
        """Outcomes that were there before, in the order of the stream."""
        first = self._outcomes[0][0] if self._outcomes else None
        self._outcomes.extendleft(reversed([f for f in found if first is None or f[0] < first]))
        self.loaded = True

    async def purge(self, *, stream: str, epoch: int, floor: int) -> None:
        """Entries below `floor` are settled since now; drop what has been so for longer than the grace."""
        now = self._connection.now()
        if not self._floors or self._floors[-1][1:] != (epoch, floor):
            self._floors.append((now, epoch, floor))
        ripe: tuple[int, int] | None = None
        while self._floors and now - self._floors[0][0] >= self._grace_s:
            _, of_epoch, below = self._floors.popleft()
            ripe = (of_epoch, below)
        if ripe is None or ripe[0] != epoch:
            return
        # The log first: a reader that still finds an entry must find its outcome too.
        await self._js.purge_below(stream, ripe[1])
        keep_from = 0
        while self._outcomes and (self._outcomes[0][1], self._outcomes[0][2]) < (epoch, ripe[1]):
            keep_from = self._outcomes.popleft()[0] + 1
        if keep_from:
            await self._js.purge_below("OUTCOMES", keep_from)
