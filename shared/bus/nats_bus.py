"""The bus on NATS JetStream: `connect` gives a service its `NatsBus`, the gateway its `NatsGatewayBus`."""

from __future__ import annotations

import os
import socket
import ssl
from typing import TYPE_CHECKING, Literal, overload

from shared.bus.connection import Connection
from shared.bus.gateway_bus import NatsGatewayBus
from shared.bus.interface import Bus, GatewayBus
from shared.bus.service_bus import NatsBus
from shared.bus.streams import PURGE_GRACE_S

__all__ = ["NatsBus", "NatsGatewayBus", "connect"]


@overload
async def connect(
    service: str, url: str, user: str, password: str, *, gateway: Literal[True], shard: str = "0",
    tls: ssl.SSLContext | None = None, stream_replicas: int = 1, purge_grace_s: float = PURGE_GRACE_S,
) -> NatsGatewayBus: ...  # fmt: skip


@overload
async def connect(
    service: str, url: str, user: str, password: str, *, gateway: bool = False, shard: str = "0",
    tls: ssl.SSLContext | None = None, stream_replicas: int = 1, purge_grace_s: float = PURGE_GRACE_S,
) -> NatsBus: ...  # fmt: skip


async def connect(
    service: str,
    url: str,
    user: str,
    password: str,
    *,
    gateway: bool = False,
    shard: str = "0",
    tls: ssl.SSLContext | None = None,
    stream_replicas: int = 1,
    purge_grace_s: float = PURGE_GRACE_S,
) -> NatsBus:
    """Connect, waiting for the server as long as it takes. `url`: one or more `nats://host:port`, comma-separated; `user`: that of the service in the
    server's configuration, `<service>` itself. Up to REPLICAS instances of a service may read at once. Raises PermissionError for a wrong user or password."""
    if user != service:
        raise ValueError(f"user {user!r} is not that of service {service!r}: consumers and inboxes are named after it")
    connection = Connection(user)
    await connection.open(url, password, name=f"{service} on {socket.gethostname()}, pid {os.getpid()}", tls=tls)
    if gateway:
        return NatsGatewayBus(connection, shard=shard, stream_replicas=stream_replicas, purge_grace_s=purge_grace_s)
    return NatsBus(connection, shard=shard)


if TYPE_CHECKING:

    def _fit(service: NatsBus, gateway: NatsGatewayBus) -> tuple[Bus, GatewayBus]:
        """Both are what services are promised."""
        return service, gateway
