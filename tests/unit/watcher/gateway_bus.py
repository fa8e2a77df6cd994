"""The memory bus with what the gateway asks of real streams: identities, tails, reconnects, and losing all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from shared.bus.interface import ObjectWrite, StreamsLost
from shared.events import subjects
from shared.events.objects import Object, Tombstone
from shared.testing.memory_bus import MemoryBroker, MemoryGatewayBus

STREAMS = ("OBJECTS", "OUTCOMES", "COMMANDS")


class GatewayStreams(MemoryGatewayBus):
    """One NATS server with one gateway; `wipe` loses everything, `cut_log` the end of a log."""

    def __init__(self) -> None:
        super().__init__(MemoryBroker(), "watcher", "0")
        self.there: dict[str, str] = {}
        self._accepted: dict[str, str] = {}
        self._reconnects = 0
        self.puts: list[list[ObjectWrite]] = []
        self.fail_puts: list[Exception] = []
        self._made = 0
        self._back = asyncio.Condition()

    @property
    def identities(self) -> dict[str, str]:
        return dict(self._accepted)

    @property
    def reconnects(self) -> int:
        return self._reconnects

    async def wipe(self, *, reconnect: bool = True) -> None:
        """The server comes back with an empty disk."""
        self.broker.wipe()
        self.there.clear()
        if reconnect:
            await self.reconnect()

    async def reconnect(self) -> None:
        """The connection broke and came back."""
        async with self._back:
            self._reconnects += 1
            self._back.notify_all()

    def make_anew(self, stream: str) -> None:
        """Somebody deleted a stream and made it again."""
        self._made += 1
        self.there[stream] = f"made-{self._made}"

    def held(self) -> dict[str, Object]:
        """What OBJECTS holds by `kind/key`, tombstones included."""
        return {f"{name.kind}/{name.key}": change.object for name, change in self.broker.objects.items()}

    def living(self) -> dict[str, int]:
        """Versions of what OBJECTS holds and is no tombstone."""
        return {key: found.version for key, found in self.held().items() if not isinstance(found, Tombstone)}

    async def wait_reconnect(self, seen: int) -> int:
        async with self._back:
            await self._back.wait_for(lambda: self._reconnects > seen)
        return self._reconnects

    async def check_streams(
        self, *, applied: int, epoch: int, known: Mapping[str, str] | None = None, objects_position: int = 0
    ) -> str:
        for stream in STREAMS:
            if stream not in self.there:
                return f"stream {stream} is missing"
            expected = (self._accepted if known is None else known).get(stream)
            if expected and expected != self.there[stream]:
                return f"stream {stream} was made anew"
        if self.broker.sequence < objects_position:
            return "stream OBJECTS lost its tail"
        why = await super().check_streams(applied=applied, epoch=epoch)
        if not why:
            self._accepted = dict(self.there)
        return why

    async def ensure_streams(self) -> None:
        for stream in STREAMS:
            if stream not in self.there:
                self.make_anew(stream)
        self._accepted = dict(self.there)

    async def drop_objects(self) -> None:
        self.broker.objects.clear()
        self.make_anew("OBJECTS")

    async def load_objects(self) -> dict[str, tuple[int, Object]]:
        self._must_exist("OBJECTS")
        announced = {subjects.objects("epoch", "", shard): (0, epoch) for shard, epoch in self.broker.epochs.items()}
        return {**await super().load_objects(), **announced}

    async def put_objects(self, writes: Sequence[ObjectWrite]) -> int:
        self._must_exist("OBJECTS")
        if self.fail_puts:
            raise self.fail_puts.pop(0)
        self.puts.append(list(writes))
        return await super().put_objects(writes)

    async def open_epoch(self, *, shard: str, epoch: int, objects_position: int, why: str) -> None:
        self._must_exist("OBJECTS")
        await super().open_epoch(shard=shard, epoch=epoch, objects_position=objects_position, why=why)

    def _must_exist(self, stream: str) -> None:
        if stream not in self.there:
            raise StreamsLost(f"stream {stream} is missing")
