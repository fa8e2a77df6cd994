"""What only the gateway has of the bus: streams and epochs, OBJECTS, open commands, outcomes, public events.

Puts the parts of this folder together behind `interface.GatewayBus`; the semantics live in the parts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from shared.bus import commands as open_commands
from shared.bus import log as decision_log
from shared.bus.connection import Connection
from shared.bus.consumer import Received, Source
from shared.bus.interface import Logged, ObjectWrite, OpenCommand, StreamsLost
from shared.bus.jetstream import TROUBLE, JetStreamError
from shared.bus.objects_store import ObjectsStore, Stored, stored_of
from shared.bus.permissions import consumer_names
from shared.bus.publishing import BACKOFF_S, MESSAGE_ID, TRACEPARENT, Ack, Outgoing
from shared.bus.service_bus import NatsBus
from shared.bus.streams import PERMANENT, PURGE_GRACE_S, SettledFloor, Streams
from shared.events import commands, objects, outcomes, subjects
from shared.events.codec import MalformedMessage

log = logging.getLogger(__name__)

DELETES_IN_FLIGHT = 200


class NatsGatewayBus(NatsBus):
    """See `interface.GatewayBus`. Writes raise StreamsLost when their stream is gone: check, recover, and write again."""

    def __init__(
        self,
        connection: Connection,
        *,
        shard: str,
        stream_replicas: int = 1,
        purge_grace_s: float = PURGE_GRACE_S,
    ) -> None:
        super().__init__(connection, shard=shard)
        self._streams = Streams(connection, self._js, self._publisher, replicas=stream_replicas)
        self._store = ObjectsStore(
            connection, self._publisher, self._js, self.counters, self._on_missing_stream, self._streams.note_stored
        )
        self._floor = SettledFloor(connection, self._js, grace_s=purge_grace_s)

    @property
    def identities(self) -> dict[str, str]:
        """Stream -> creation time, as last made or accepted; to be kept with the Kubernetes Lease and given to `check_streams` after a start."""
        return dict(self._streams.identities)

    @property
    def reconnects(self) -> int:
        """How often the connection came back."""
        return self._connection.reconnects

    async def wait_reconnect(self, seen: int) -> int:
        """Wait until `reconnects` is more than `seen`; returns it: then the streams have to be checked."""
        return await self._connection.wait_reconnect(seen)

    async def check_streams(
        self, *, applied: int, epoch: int, known: Mapping[str, str] | None = None, objects_position: int = 0
    ) -> str:
        """See `GatewayBus.check_streams`. `known`: the identities to compare with, those of this process if None;
        `objects_position`: how far OBJECTS must reach."""
        return await self._streams.check(
            shard=self.shard, applied=applied, epoch=epoch, known=known, objects_position=objects_position
        )

    async def ensure_streams(self) -> None:
        await self._streams.ensure()

    async def epochs(self, shard: str) -> list[int]:
        """Epochs whose log exists, ascending."""
        return await self._streams.epochs(shard)

    async def drop_objects(self) -> None:
        """Empty OBJECTS by making it anew: when the API server's list is older than what OBJECTS holds (R1). Every reader starts over."""
        await self._streams.drop_objects()
        self._store.learn({})

    async def load_objects(self) -> dict[str, tuple[int, objects.Object]]:
        known: dict[str, Stored] = {}
        found: dict[str, tuple[int, objects.Object]] = {}
        for message in await self._read_all("OBJECTS", "sluice.objects.>"):
            try:
                object_ = objects.codec.decode(message.payload)
            except MalformedMessage as error:
                self.counters.malformed += 1
                known[message.subject] = stored_of(message.sequence, message.payload, None, self._connection.now())
                await self._move_aside("OBJECTS", message, str(error))
                continue
            known[message.subject] = stored_of(message.sequence, message.payload, object_, self._connection.now())
            found[message.subject] = (message.sequence, object_)
        self._store.learn(known)
        return found

    async def put_objects(self, writes: Sequence[ObjectWrite]) -> int:
        return await self._store.put(writes)

    async def open_epoch(self, *, shard: str, epoch: int, objects_position: int, why: str) -> None:
        """See `GatewayBus.open_epoch`. Raises StreamsLost if the epoch cannot be opened: choose a higher number than `epochs` and OBJECTS name."""
        await self._streams.open_epoch(
            self._store, shard=shard, epoch=epoch, objects_position=objects_position, why=why
        )

    def log(self, *, shard: str, epoch: int, after: int) -> AsyncIterator[list[Logged]]:
        return decision_log.follow(
            self._connection,
            consumers=self._consumers("decisions"),
            shard=shard,
            epoch=epoch,
            after=after,
            made=self._streams.identities.get(subjects.decisions_stream(shard, epoch), ""),
            run_of_server=lambda: self._streams.run_of_server,
            move_aside=self._move_aside,
        )

    def commands(self) -> AsyncIterator[list[OpenCommand]]:
        return open_commands.follow(
            self._connection,
            consumers=self._consumers("commands"),
            lifetime_of=self._streams.lifetime_of,
            reject=self._reject_malformed,
        )

    async def settle(self, outcomes_: Sequence[outcomes.Outcome]) -> None:
        results = await self._publisher.all_stored(
            [Outgoing(_outcome_subject(o), outcomes.codec.encode(o)) for o in outcomes_],
            on_missing_stream=self._on_missing_stream,
        )
        for outcome, result in zip(outcomes_, results, strict=True):
            if isinstance(result, Ack):
                self._streams.note_stored("OUTCOMES", result.seq)
                self._floor.published(result.seq, *_entry_of(outcome))

    async def close_commands(self, commands_: Sequence[OpenCommand]) -> None:
        """See `GatewayBus.close_commands`: by sequence, so that a newer command under the same subject stays; one of a stream that is gone went with it,
        and one that was read from another run of the server is read, and closed, again."""
        room = asyncio.Semaphore(DELETES_IN_FLIGHT)

        async def delete(command: OpenCommand) -> None:
            async with room:
                for wait_s in (*BACKOFF_S, None):
                    try:
                        await self._delete_command(command.sequence, command.stream)
                        return
                    except TROUBLE as error:
                        if wait_s is None:
                            # It is found open again after the next start; handling it twice does no harm.
                            log.error("a command could not be closed: %s", error, extra={"sequence": command.sequence})
                            return
                    await asyncio.sleep(wait_s)

        async with asyncio.TaskGroup() as group:
            for command in commands_:
                group.create_task(delete(command))

    async def _delete_command(self, sequence: int, lifetime: str) -> None:
        """Unless that sequence may be another command's by now. Nothing is awaited between the look and the request, and a request never reaches
        another run of the server than the one that it was meant for."""
        await self._connection.wait_connected()
        if self._streams.is_present("COMMANDS", lifetime):
            await self._js.delete_message("COMMANDS", sequence)

    async def move_aside(self, command: OpenCommand, *, attempts: int, error: str) -> None:
        """A command that no attempt could handle: dead letter, outcome, deletion."""
        payload = commands.codec.encode(command.command)
        await self.dead_letter(
            stream="COMMANDS",
            subject=command.subject,
            sequence=command.sequence,
            attempts=attempts,
            error=error,
            payload=payload,
        )
        poison = outcomes.CommandOutcome(
            command=command.command.id, subject=command.subject, status="rejected", why=f"poison: {error}"
        )
        await self.settle([poison])
        await self.close_commands([command])

    async def purge_settled(self, *, shard: str, epoch: int, decisions: int) -> None:
        if not self._floor.loaded:
            self._floor.prepend(await self._past_outcomes())
        await self._floor.purge(stream=subjects.decisions_stream(shard, epoch), epoch=epoch, floor=decisions)

    async def emit(self, events: Sequence[tuple[str, bytes]]) -> None:
        messages = []
        for subject, payload in events:
            envelope = _read_envelope(payload)
            headers = {MESSAGE_ID: envelope.id} if envelope.id else {}
            if envelope.traceparent:
                headers[TRACEPARENT] = envelope.traceparent
            messages.append(Outgoing(subject, payload, headers))
        await self._publisher.all_stored(messages, on_missing_stream=self._on_missing_stream)

    async def _reject_malformed(self, message: Received, lifetime: str, error: str) -> None:
        self.counters.malformed += 1
        await self._move_aside("COMMANDS", message, error)
        rejected = outcomes.CommandOutcome(
            command="", subject=message.subject, status="rejected", why=f"malformed: {error}"
        )
        await self.settle([rejected])
        await self._delete_command(message.sequence, lifetime)

    async def _past_outcomes(self) -> list[tuple[int, int, int]]:
        found = []
        for message in await self._read_all("OUTCOMES", "sluice.outcomes.>"):
            try:
                found.append((message.sequence, *_entry_of(outcomes.codec.decode(message.payload))))
            except MalformedMessage:
                # Nobody waits for what it says: it may go with its neighbours.
                found.append((message.sequence, 0, 0))
        return found

    async def _read_all(self, stream: str, filter_: str) -> list[Received]:
        """Everything that a stream holds now. Raises StreamsLost if it is missing."""
        activity = asyncio.Event()
        source = Source(
            self._connection,
            stream=stream,
            consumers=self._consumers("load"),
            filters=(filter_,),
            on_activity=activity.set,
        )
        while True:
            await self._connection.wait_connected()
            found: list[Received] = []
            try:
                await source.open()
                while not source.broken:
                    activity.clear()
                    found += await source.take()
                    if source.caught_up:
                        return found
                    async with asyncio.timeout(5):
                        await activity.wait()
            except TROUBLE as error:
                if isinstance(error, JetStreamError) and error.not_found:
                    raise StreamsLost(f"{stream}: {error}") from error
                log.info("reading %s again: %s", stream, error or type(error).__name__)
                await asyncio.sleep(0.2)
            finally:
                await source.close()

    def _consumers(self, purpose: str) -> tuple[str, ...]:
        return consumer_names(self.service, purpose)

    async def _on_missing_stream(self, subject: str) -> None:
        """Nobody but us can make it: ask the server whether one is gone, or it is only not ready."""
        for stream in PERMANENT:
            try:
                await self._js.stream_info(stream.name)
            except JetStreamError as error:
                if error.not_found:
                    raise StreamsLost(f"stream {stream.name} is missing, {subject} cannot be written") from error
            except TROUBLE:
                return


class _Envelope(msgspec.Struct, frozen=True):
    id: str = ""
    traceparent: str = ""


_envelope = msgspec.json.Decoder(_Envelope)


def _read_envelope(payload: bytes) -> _Envelope:
    try:
        return _envelope.decode(payload)
    except msgspec.DecodeError:
        return _Envelope()


def _outcome_subject(outcome: outcomes.Outcome) -> str:
    if isinstance(outcome, outcomes.DecisionOutcome):
        return subjects.OUTCOMES_OF_DECISIONS
    return subjects.OUTCOMES_OF_COMMANDS


def _entry_of(outcome: outcomes.Outcome) -> tuple[int, int]:
    """(epoch, entry) of the log that it speaks of; zeros for a command's."""
    if isinstance(outcome, outcomes.DecisionOutcome):
        return outcome.decision.epoch, outcome.decision.sequence
    return 0, 0
