"""Which epoch is open, as OBJECTS says: read when a feed begins or has to look again, then followed live."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from shared.bus.consumer import HEARTBEAT_S, Received, Source
from shared.events import objects
from shared.events.codec import MalformedMessage


class EpochReader:
    """Reads the one subject of a shard's epoch through `source`, a consumer of its newest message."""

    def __init__(
        self,
        source: Source,
        activity: asyncio.Event,
        malformed: Callable[[str, Received, ValueError], Awaitable[None]],
    ) -> None:
        self.source = source
        self._activity = activity
        self._malformed = malformed

    async def read(self) -> int:
        """The epoch that is open now; 0 if none is. Raises as JetStream does, and TimeoutError."""
        await self.source.open()
        epoch = 0
        async with asyncio.timeout(HEARTBEAT_S * 2):
            while not self.source.caught_up:
                self._activity.clear()
                epoch = max(epoch, await self.newest())
                if self.source.broken:
                    raise TimeoutError(self.source.broken)
                if not self.source.caught_up:
                    await self._activity.wait()
        return max(epoch, await self.newest())

    async def newest(self) -> int:
        """The highest epoch among what has come since the last call; 0 if nothing has."""
        newest = 0
        for message in await self.source.take():
            try:
                found = objects.codec.decode(message.payload)
            except MalformedMessage as error:
                await self._malformed("OBJECTS", message, error)
                continue
            if isinstance(found, objects.Epoch):
                newest = max(newest, found.version)
        return newest
