"""Which epoch is open, and when a new one has to be (R1).

 1. Start: ask the bus whether all streams are there and whether the log of the epoch in our record holds what was applied. If so, refill
    OBJECTS and, if that epoch was announced there, go on with it; else from 3.
 2. While an epoch is open its log is followed. Every `check_s`, and whenever somebody says `trouble`, the bus is asked again; what is wrong
    leads to 3.
 3. Close the gate: no decision and no command is taken any more, and calls in flight end.
 4. List everything again, make the missing streams, refill OBJECTS.
 5. The new epoch is one above every epoch ever heard of. It goes into the record first, so that a crash cannot use a number twice; then its
    log is made, it is announced, which log it is goes into the record too, and the gate opens.

The record is annotations of the gateway's Lease: nothing on the bus, so a wipe cannot take it along, and only who holds the Lease writes it.
It also names the streams, the log included, by their creation times, and how far OBJECTS reached, so that a stream made anew or cut short is noticed
after a restart, however much it holds by then. A log that the record does not name was made by a gateway that died over it: its epoch does not go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

import msgspec

from services.watcher.intake import Intake
from services.watcher.publisher import Publisher
from shared.bus.commands import TROUBLE
from shared.bus.interface import GatewayBus, StreamsLost
from shared.kube.errors import ApiError
from shared.kube.lease import LeaderLease

log = logging.getLogger("sluice.watcher.epochs")

_RETRY_S = 0.5
_CHECK_TIMEOUT_S = 10.0


class Applier(Protocol):
    """What writes to Kubernetes: the gate, and the log it follows."""

    @property
    def applied(self) -> int:
        """Highest sequence of the open epoch's log that was read."""
        ...

    async def follow(self, *, shard: str, epoch: int) -> None:
        """Apply the log of one epoch until cancelled. Raises StreamsLost."""
        ...

    async def pause(self) -> None:
        """Take nothing more; returns when no call is in flight."""
        ...

    def resume(self) -> None:
        """Take decisions and commands again."""
        ...


class EpochRecord(msgspec.Struct, frozen=True):
    """The last epoch opened, how much of its log was applied, and the streams it lives on; all empty in a new cluster."""

    epoch: int = 0
    applied: int = 0
    objects_position: int = 0
    streams: dict[str, str] = {}


_record_decoder = msgspec.json.Decoder(EpochRecord)


def _key(shard: str) -> str:
    return f"sluice.dev/epoch-{shard}"


def record_of(annotations: Mapping[str, str], shard: str) -> EpochRecord:
    """The record in a Lease; what somebody spoilt by hand reads as none, which leads to a new epoch."""
    text = annotations.get(_key(shard), "")
    try:
        return _record_decoder.decode(text) if text else EpochRecord()
    except msgspec.DecodeError as error:
        log.error("the epoch record in the Lease cannot be read: %s", error)
        return EpochRecord()


def annotations_of(record: EpochRecord, shard: str) -> dict[str, str]:
    """Inverse of `record_of`."""
    return {_key(shard): msgspec.json.encode(record).decode()}


class EpochKeeper:
    """Keeps one shard's epoch; made when the Lease is held, `run` until it is lost."""

    def __init__(
        self,
        *,
        shard: str,
        bus: GatewayBus,
        lease: LeaderLease,
        intake: Intake,
        publisher: Publisher,
        applier: Applier,
        check_s: float = 2.0,
    ) -> None:
        self._shard = shard
        self._bus = bus
        self._lease = lease
        self._intake = intake
        self._publisher = publisher
        self._applier = applier
        self._check_s = check_s
        self.epoch = 0
        """The epoch that is open, or was last."""
        self.opened = asyncio.Event()
        """Set while the gate is open."""
        self.why_closed = "starting"
        self._trouble: str = ""
        self._woken = asyncio.Event()

    def trouble(self, why: str) -> None:
        """Something is wrong with the streams or with what they are filled from: a new epoch is needed."""
        self._trouble = self._trouble or why
        self._woken.set()

    async def run(self) -> None:
        """Open an epoch, or go on with the last one, and keep it right until cancelled. Raises LeaseLost."""
        # The caller made sure of lists that began under the Lease; they serve for whatever the start leads to.
        why, listed = await self._go_on(), True
        while True:
            if why:
                await self._open_new(why, listed=listed)
            why, listed = await self._follow(), False
            await self._close(why)

    async def _go_on(self) -> str:
        """Continue the epoch of the record; else why that cannot be."""
        record = record_of(self._lease.annotations, self._shard)
        self.epoch = record.epoch
        if not record.epoch:
            return "no epoch was opened before"
        while True:
            try:
                why = await self._bus.check_streams(
                    applied=record.applied,
                    epoch=record.epoch,
                    known=record.streams,
                    objects_position=record.objects_position,
                )
                if why:
                    return why
                await self._bus.ensure_streams()
                refilled = await self._publisher.refill()
                if refilled.ahead:
                    return refilled.ahead
                if refilled.epoch != record.epoch:
                    # Whoever made its log died before anybody was told.
                    return f"epoch {record.epoch} was not announced"
            except StreamsLost as error:
                return str(error)
            except TROUBLE as error:
                log.warning("streams not checked, trying again: %s", error or type(error).__name__)
                await asyncio.sleep(_RETRY_S)
            else:
                log.info("epoch goes on", extra={"epoch": self.epoch, "applied": record.applied})
                self._open()
                return ""

    async def _open_new(self, why: str, *, listed: bool) -> None:
        log.warning("opening a new epoch: %s", why, extra={"last_epoch": self.epoch})
        while True:
            try:
                # What was said until here is answered by the lists that begin now.
                self._trouble = ""
                self._woken.clear()
                if not listed:
                    await self._intake.relist()
                listed = False
                await self._bus.ensure_streams()
                refilled = await self._publisher.refill()
                if refilled.ahead:
                    log.error("emptying OBJECTS: %s", refilled.ahead)
                    await self._bus.drop_objects()
                    refilled = await self._publisher.refill()
                recorded = record_of(self._lease.annotations, self._shard).epoch
                logs = await self._bus.epochs(self._shard)
                self.epoch = max(self.epoch, refilled.epoch, recorded, *logs) + 1
                await self._lease.save(self._record(applied=0))
                await self._bus.open_epoch(
                    shard=self._shard, epoch=self.epoch, objects_position=refilled.position, why=why
                )
            except (StreamsLost, ApiError, *TROUBLE) as error:
                log.warning("epoch not opened, trying again: %s", error or type(error).__name__)
                await self._publisher.pause()
                await asyncio.sleep(_RETRY_S)
            else:
                await self._name_log()
                self._open()
                return

    async def _name_log(self) -> None:
        """Before anything of it is applied: only the log that the record names is gone on with. Raises LeaseLost."""
        while True:
            try:
                await self._lease.save(self._record(applied=0))
            except ApiError as error:
                log.warning("which log was made is not saved, trying again: %s", error)
                await asyncio.sleep(_RETRY_S)
            else:
                return

    def _record(self, applied: int) -> dict[str, str]:
        record = EpochRecord(self.epoch, applied, self._publisher.position, self._bus.identities)
        return annotations_of(record, self._shard)

    def _open(self) -> None:
        self.opened.set()
        self.why_closed = ""
        self._applier.resume()

    async def _close(self, why: str) -> None:
        self.opened.clear()
        self.why_closed = why
        await self._applier.pause()
        await self._publisher.pause()

    async def _follow(self) -> str:
        """Follow the log until something is wrong; what."""
        following = asyncio.create_task(self._applier.follow(shard=self._shard, epoch=self.epoch))
        reconnects = self._bus.reconnects
        try:
            while True:
                woken = asyncio.create_task(self._woken.wait())
                back = asyncio.create_task(self._bus.wait_reconnect(reconnects))
                try:
                    tasks = {following, woken, back}
                    await asyncio.wait(tasks, timeout=self._check_s, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    # Also when we are cancelled: the bus is closed next, and nobody would hear what became of them.
                    for task in (woken, back):
                        task.cancel()
                reconnects = self._bus.reconnects
                if following.done():
                    try:
                        following.result()
                    except StreamsLost as error:
                        return str(error)
                    raise RuntimeError("the log ended by itself")
                if self._trouble:
                    return self._trouble
                applied = self._applier.applied
                self._lease.annotations.update(self._record(applied))
                if why := await self._check(applied):
                    return why
        finally:
            following.cancel()
            await asyncio.wait({following})

    async def _check(self, applied: int) -> str:
        try:
            async with asyncio.timeout(_CHECK_TIMEOUT_S):
                return await self._bus.check_streams(applied=applied, epoch=self.epoch)
        except TROUBLE as error:
            # The bus is away; whether it comes back whole is for the next check.
            log.info("streams not checked: %s", error or type(error).__name__)
            return ""
