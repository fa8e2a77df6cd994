"""The merged view that a service reads: OBJECTS, the log of the open epoch, and OUTCOMES.

All work happens in the reader's own step (there is no task of the feed's): it opens consumers, decodes what came, and mends what broke. One step:

1. No epoch followed: find the one that is open (a small consumer on the epoch's subject). Without one, `Reset(0)` once, then wait.
2. Replay: `Reset(epoch)`, then consumers from the first message, the log before OBJECTS: an entry purged before the log's consumer
   was there has its effect in OBJECTS already, and one that is purged later is noticed as a jump.
3. Live: decode and hand out; `CaughtUp` once all sources have delivered what was there when they were opened.
4. A consumer that broke (gap, silence, reconnect) is made anew behind its position, if the stream is the one it was, still holds that
   position, and we were not away for over half of a tombstone's life; otherwise 2.
5. A newer epoch: 2.

A message of a version that another release wrote ends the reading of whoever decides by it, with UnknownVersion: the rest would not be the whole truth,
and an instance of that release is to take over. Who reads objects alone goes on with what it knows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from shared.bus.client import header
from shared.bus.connection import Connection
from shared.bus.consumer import AWAY_LIMIT_S, HEARTBEAT_S, Received, Source
from shared.bus.counters import Counters
from shared.bus.epochs import EpochReader
from shared.bus.interface import CaughtUp, FeedItem, Logged, ObjectChanged, Reset, Settled, Skipped
from shared.bus.jetstream import TROUBLE, JetStream, JetStreamError, StreamInfo
from shared.bus.permissions import consumer_names
from shared.bus.publishing import BACKOFF_S, TRACEPARENT
from shared.events import decisions, objects, outcomes, subjects
from shared.events.codec import MalformedMessage, UnknownVersion
from shared.events.decisions import Positions

log = logging.getLogger(__name__)

PATIENCE = 10
"""Tries with each pause, and for each line of the log. Streams that are missing are being made, most of the time: all services wait for them at a start."""
TRACE_HEADER = TRACEPARENT.encode()

MoveAside = Callable[[str, Received, str], Awaitable[None]]
"""(stream, message, error): what to do with a message that cannot be decoded; it does not raise for a bus that is away."""


class NatsFeed:
    """See the module. `positions` are those after the last list handed out; OBJECTS' is at least the end of the replay once caught up."""

    def __init__(
        self,
        connection: Connection,
        *,
        service: str,
        shard: str,
        kinds: Sequence[str],
        decisions: bool,
        outcomes: bool,
        counters: Counters,
        move_aside: MoveAside,
        away_limit_s: float = AWAY_LIMIT_S,
    ) -> None:
        unknown = [k for k in kinds if k not in objects.KINDS]
        if unknown or not kinds:
            raise ValueError(f"kinds to read: {unknown or 'none'} of {', '.join(objects.KINDS)}")
        self._connection = connection
        self._js = JetStream(connection)
        self._service = service
        self._shard = shard
        self._counters = counters
        self._move_aside = move_aside
        self._away_limit_s = away_limit_s
        self._activity = asyncio.Event()
        self._epoch = 0
        self._announced: int | None = None
        self._start_over = "start"
        self._behind = True
        self._trouble = 0
        self._reconnects = connection.reconnects
        self._objects_created = ""
        self._objects_end = 0
        self._looked = 0.0
        """When consumers were last looked after."""
        self._positions = Positions()
        self._epochs = EpochReader(
            self._source("OBJECTS", "epoch", (subjects.objects("epoch", "", shard),), last_per_subject=True),
            self._activity,
            self._malformed,
        )
        self._objects = self._source("OBJECTS", "objects", tuple(subjects.objects_of_kind(k) for k in kinds))
        self._log = self._source("", "decisions", (), contiguous=True) if decisions else None
        self._outcomes = (
            self._source("OUTCOMES", "outcomes", ("sluice.outcomes.>",), contiguous=True) if outcomes else None
        )
        self._data = [s for s in (self._log, self._outcomes, self._objects) if s is not None]
        self._followed = [self._epochs.source, *self._data]

    @property
    def positions(self) -> Positions:
        return self._positions

    @property
    def listens_to(self) -> str:
        """See `Source.listens_to`: by the consumer that every feed has."""
        return self._epochs.source.listens_to

    async def __aiter__(self) -> AsyncIterator[list[FeedItem]]:
        self._pulse = asyncio.get_running_loop().call_later(HEARTBEAT_S, self._beat)
        try:
            while True:
                self._activity.clear()
                items = await self._step()
                if items:
                    self._positions = self._now()
                    yield items
                # Whoever brings something to do says so, and the pulse sees to the rest.
                await self._activity.wait()
        finally:
            self._pulse.cancel()
            for source in self._followed:
                await source.close()

    def _beat(self) -> None:
        """Look after silent consumers and lost connections, even if nothing comes. One timer for that costs less than a time-out per wait."""
        self._pulse = asyncio.get_running_loop().call_later(HEARTBEAT_S, self._beat)
        self._activity.set()

    async def _step(self) -> list[FeedItem]:
        await self._connection.wait_connected()
        items: list[FeedItem] = []
        try:
            await self._mend(items)
            self._trouble = 0
        except TROUBLE as error:
            # The gateway is still making streams, or the server is just coming back.
            if self._trouble % PATIENCE == 0:
                log.info("the bus is not ready: %s", error or type(error).__name__)
            if self._announced is None:
                items.append(self._reset(0, "no stream is ready"))
            if not items:
                await asyncio.sleep(BACKOFF_S[min(self._trouble // PATIENCE, len(BACKOFF_S) - 1)])
            self._trouble += 1
            self._activity.set()
            return items
        if not self._start_over:
            await self._collect(items)
        return items

    # Opening and mending.

    async def _mend(self, items: list[FeedItem]) -> None:
        now = self._connection.now()
        came_back = self._connection.reconnects != self._reconnects
        recent = now - self._looked < HEARTBEAT_S / 2
        if recent and not came_back and not self._start_over and all(s.is_open for s in self._followed):
            return
        self._looked = now
        self._reconnects = self._connection.reconnects
        for source in self._followed:
            if came_back:
                source.break_off("the connection was lost")
            source.check_alive(now)
        if self._start_over or not self._epochs.source.is_open:
            await self._follow_epoch(items)
        if self._epoch == 0 or self._start_over:
            return
        for source in self._data:
            if source.missed:
                self._start_over = f"{source.stream}: {source.broken}"
            elif not source.is_open:
                await self._resume(source, now)
            if self._start_over:
                await self._follow_epoch(items)
                return

    async def _follow_epoch(self, items: list[FeedItem]) -> None:
        """Learn which epoch is open; replay if that is another one, or if we have to start over."""
        try:
            info = await self._js.stream_info("OBJECTS")
        except JetStreamError as error:
            if error.not_found:
                self._epoch, self._start_over = 0, "OBJECTS was missing"
                if self._announced != 0:
                    items.append(self._reset(0, "OBJECTS is missing"))
            raise
        if self._objects_created and info.created != self._objects_created:
            self._start_over = self._start_over or "OBJECTS was made anew"
        epoch = await self._epochs.read()
        if epoch != self._epoch and not self._start_over:
            self._start_over = f"epoch {epoch} was opened"
        if not self._start_over:
            return
        if epoch == 0:
            self._epoch = 0
            self._start_over = ""
            if self._announced != 0:
                items.append(self._reset(0, "no epoch is open"))
            return
        await self._replay(epoch, info, items)

    async def _replay(self, epoch: int, info: StreamInfo, items: list[FeedItem]) -> None:
        why = self._start_over
        self._behind = True
        for source in self._data:
            source.break_off("starting over")
        # Outcomes are purged after the entries they speak of, hence looked at before the log is.
        outcomes_first = None
        if self._outcomes is not None:
            outcomes_first = (await self._js.stream_info("OUTCOMES")).state.first_seq or None
        if self._log is not None:
            self._log.stream = subjects.decisions_stream(self._shard, epoch)
            self._log.filters = (subjects.decisions(self._shard, epoch),)
            await self._log.open()
        if self._outcomes is not None:
            await self._outcomes.open(expect_first=outcomes_first)
        end = await self._js.stream_info("OBJECTS")
        if end.created != info.created:
            raise TimeoutError("OBJECTS changed while a replay began")
        await self._objects.open()
        self._objects_created, self._objects_end = end.created, end.state.last_seq
        self._epoch = epoch
        self._start_over = ""
        items.append(self._reset(epoch, why))

    async def _resume(self, source: Source, now: float) -> None:
        away = now - source.heard
        if away > self._away_limit_s:
            self._start_over = f"away from {source.stream} for {away:.0f} s"
            return
        if source is self._objects:
            info = await self._js.stream_info(source.stream)
            if info.created != self._objects_created:
                self._start_over = "OBJECTS was made anew"
                return
            if info.state.last_seq < max(source.position, self._positions.objects):
                self._start_over = f"OBJECTS ends at {info.state.last_seq}, {source.position} was read"
                return
        log.info("reading again", extra={"stream": source.stream, "behind": source.position, "why": source.broken})
        try:
            # Nothing was taken yet: from the start, a first message that is missing shows as a jump all the same.
            await source.resume()
        except JetStreamError as error:
            if not error.not_found:
                raise
            self._start_over = f"{source.stream} is gone"
            return
        self._counters.resumes += 1

    def _reset(self, epoch: int, why: str) -> Reset:
        self._counters.resets += 1
        self._announced = epoch
        self._positions = Positions()
        log.info("reset", extra={"epoch": epoch, "why": why})
        return Reset(epoch, why)

    # Decoding.

    async def _collect(self, items: list[FeedItem]) -> None:
        newest = await self._epochs.newest() if self._epochs.source.has_some else 0
        if newest > self._epoch:
            self._start_over = f"epoch {newest} was opened"
            self._activity.set()
            return
        if self._epoch == 0:
            return
        for message in await self._objects.take() if self._objects.has_some else ():
            try:
                name = subjects.parse_objects(message.subject)
                found = objects.codec.decode(message.payload)
            except ValueError as error:
                await self._malformed("OBJECTS", message, error)
                items.append(Skipped("OBJECTS", message.sequence))
                continue
            trace = header(message.headers, TRACE_HEADER)
            items.append(ObjectChanged(name, found, message.sequence, trace))
        if self._log is not None and self._log.has_some:
            for message in await self._log.take():
                try:
                    items.append(Logged(decisions.codec.decode(message.payload), message.sequence))
                except MalformedMessage as error:
                    await self._malformed(self._log.stream, message, error)
                    items.append(Skipped("DECISIONS", message.sequence))
        if self._outcomes is not None and self._outcomes.has_some:
            for message in await self._outcomes.take():
                try:
                    items.append(Settled(outcomes.codec.decode(message.payload), message.sequence))
                except MalformedMessage as error:
                    await self._malformed("OUTCOMES", message, error)
                    items.append(Skipped("OUTCOMES", message.sequence))
        self._counters.decoded += len(items)
        if self._behind and all(s.is_open and s.caught_up for s in self._data):
            self._behind = False
            items.append(CaughtUp(self._now()))

    async def _malformed(self, stream: str, message: Received, error: ValueError) -> None:
        if isinstance(error, UnknownVersion) and (self._log is not None or self._outcomes is not None):
            raise error
        self._counters.malformed += 1
        await self._move_aside(stream, message, str(error))

    def _now(self) -> Positions:
        end = 0 if self._behind else self._objects_end
        return Positions(
            epoch=self._epoch,
            objects=max(self._objects.position, end),
            decisions=self._log.position if self._log else 0,
            outcomes=self._outcomes.position if self._outcomes else 0,
        )

    def _source(
        self,
        stream: str,
        purpose: str,
        filters: tuple[str, ...],
        *,
        contiguous: bool = False,
        last_per_subject: bool = False,
    ) -> Source:
        return Source(
            self._connection,
            stream=stream,
            consumers=consumer_names(self._service, purpose),
            filters=filters,
            contiguous=contiguous,
            last_per_subject=last_per_subject,
            away_limit_s=self._away_limit_s,
            on_activity=self._activity.set,
        )
