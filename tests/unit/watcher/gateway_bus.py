"""The gateway's bus over the simulated server, with a note of what it wrote, and ways to lose what the server holds."""

from __future__ import annotations

from collections.abc import Sequence

from shared.bus.interface import ObjectWrite
from shared.bus.nats_bus import NatsGatewayBus
from shared.events.objects import Object, Tombstone
from shared.testing.simulated_bus import DecodedBroker


class GatewayStreams(NatsGatewayBus):
    """One server with one gateway, which has made no stream yet."""

    def __init__(self) -> None:
        self.broker = DecodedBroker(streams_ready=False)
        super().__init__(self.broker.connection("watcher"), shard="0")
        self.puts: list[list[ObjectWrite]] = []
        self.fail_puts: list[Exception] = []

    def held(self) -> dict[str, Object]:
        """What OBJECTS holds by `kind/key`, tombstones included."""
        return {f"{name.kind}/{name.key}": change.object for name, change in self.broker.objects.items()}

    def living(self) -> dict[str, int]:
        """Versions of what OBJECTS holds and is no tombstone."""
        return {key: found.version for key, found in self.held().items() if not isinstance(found, Tombstone)}

    def drop_streams(self) -> None:
        """All are gone, and nobody was disconnected."""
        for name in list(self.broker.streams):
            self.broker.drop_stream(name)

    async def put_objects(self, writes: Sequence[ObjectWrite]) -> int:
        if self.fail_puts:
            raise self.fail_puts.pop(0)
        self.puts.append(list(writes))
        return await super().put_objects(writes)
