"""The two servers that one body of tests runs over: NATS itself, and the simulated one that has to behave as it does."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from random import Random
from typing import Protocol

from devcluster.nats_server import NatsServer
from shared.bus.connection import Connection
from shared.bus.nats_bus import NatsBus, NatsGatewayBus, connect
from shared.bus.streams import PURGE_GRACE_S
from shared.testing.link import Link
from shared.testing.simulated_bus import SimulatedBroker


class Server(Protocol):
    """A server, and connections of the users of its table."""

    async def bus(self, service: str) -> NatsBus: ...

    async def gateway(self, *, purge_grace_s: float = PURGE_GRACE_S) -> NatsGatewayBus: ...

    async def connection(self, user: str) -> Connection:
        """Without a bus above it."""
        ...

    async def stop(self) -> None:
        """At once, without a word."""
        ...

    async def start(self) -> None: ...

    async def restart(self) -> None: ...

    async def wipe(self) -> None:
        """It comes back with an empty disk."""
        ...

    async def stall(self) -> None:
        """It does nothing, and connections stay."""
        ...

    async def resume(self) -> None: ...

    async def remember(self) -> None:
        """What is stored now survives `go_back`. Restarts it."""
        ...

    async def go_back(self) -> None:
        """The host lost what was stored since `remember`."""
        ...


class RealServer:
    """A process of its own, with its files in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.nats = NatsServer(directory, readers={"events_reader": (), "team_a_reader": ("team-a",)})

    async def bus(self, service: str) -> NatsBus:
        return await connect(service, self.nats.url, service, self.nats.password(service))

    async def gateway(self, *, purge_grace_s: float = PURGE_GRACE_S) -> NatsGatewayBus:
        password = self.nats.password("watcher")
        return await connect("watcher", self.nats.url, "watcher", password, gateway=True, purge_grace_s=purge_grace_s)

    async def connection(self, user: str) -> Connection:
        connection = Connection(user)
        await connection.open(self.nats.url, self.nats.password(user), name=user)
        return connection

    async def stop(self) -> None:
        await self.nats.kill(signal.SIGKILL)

    async def start(self) -> None:
        await self.nats.start()

    async def restart(self) -> None:
        await self.nats.restart()

    async def wipe(self) -> None:
        await self.nats.wipe()

    async def stall(self) -> None:
        await self.nats.kill(signal.SIGSTOP)

    async def resume(self) -> None:
        await self.nats.kill(signal.SIGCONT)

    async def remember(self) -> None:
        await self.nats.stop()
        shutil.copytree(self.nats.data_dir / "jetstream", self.nats.data_dir / "remembered")
        await self.nats.start()

    async def go_back(self) -> None:
        await self.nats.kill(signal.SIGKILL)
        shutil.rmtree(self.nats.data_dir / "jetstream")
        (self.nats.data_dir / "remembered").rename(self.nats.data_dir / "jetstream")
        await self.nats.start()


class SimulatedServer:
    """Each connection over a link of its own, with the delays of a network."""

    def __init__(self, seed: int = 0) -> None:
        self._random = Random(seed)
        self.broker = SimulatedBroker(random=self._random)
        self._ends: dict[str, int] = {}

    async def bus(self, service: str) -> NatsBus:
        return self.broker.bus(service, Link(self._random))

    async def gateway(self, *, purge_grace_s: float = PURGE_GRACE_S) -> NatsGatewayBus:
        return self.broker.gateway(Link(self._random), purge_grace_s=purge_grace_s)

    async def connection(self, user: str) -> Connection:
        return self.broker.connection(user, Link(self._random))

    async def stop(self) -> None:
        self.broker.stop()

    async def start(self) -> None:
        self.broker.start()

    async def restart(self) -> None:
        self.broker.restart()

    async def wipe(self) -> None:
        self.broker.wipe()

    async def stall(self) -> None:
        self.broker.stall()

    async def resume(self) -> None:
        self.broker.resume()

    async def remember(self) -> None:
        self._ends = {name: stream.last for name, stream in self.broker.streams.items()}
        self.broker.restart()

    async def go_back(self) -> None:
        for name, stream in self.broker.streams.items():
            self.broker.lose_tail(stream.last - self._ends[name], name)
