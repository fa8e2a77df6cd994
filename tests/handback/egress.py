"""What a cluster's network and kubelet do for Kueue, which runs beside the cluster here: a Service leads to its port, and its Secret is mounted.

The API server sends what it asks webhooks through an HTTP CONNECT proxy (its EgressSelectorConfiguration), which is this. So Kueue's manifests are
applied as they are, with Services and certificates of its own making.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import yaml

from shared.kube.client import KubeClient
from shared.kube.errors import NotFound
from shared.kube.resources import SECRETS

LOOPBACK = "127.0.0.1"
REFRESH_S = 0.2


def configuration(socket: Path) -> str:
    """Of the API server, by `--egress-selector-config-file`."""
    transport = {"uds": {"udsName": str(socket)}}
    selection = {"name": "cluster", "connection": {"proxyProtocol": "HTTPConnect", "transport": transport}}
    return yaml.safe_dump(
        {
            "apiVersion": "apiserver.k8s.io/v1beta1",
            "kind": "EgressSelectorConfiguration",
            "egressSelections": [selection],
        }
    )


@asynccontextmanager
async def proxy(socket: Path, port: int) -> AsyncIterator[None]:
    """Whatever is asked for by a Service's address is at `port` here; loopback addresses are themselves."""

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            host, _, wanted = head.split(" ")[1].rpartition(":")
            try:
                there = await asyncio.open_connection(LOOPBACK, int(wanted) if host == LOOPBACK else port)
            except OSError:
                writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await asyncio.gather(_copied(reader, there[1]), _copied(there[0], writer))
        writer.close()

    server = await asyncio.start_unix_server(served, socket)
    async with server:
        yield


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def mounted(client: KubeClient, namespace: str, name: str, folder: Path) -> None:
    """The Secret's files in `folder`, until cancelled."""
    while True:
        with suppress(NotFound):
            secret = msgspec.json.decode(await client.get(SECRETS, namespace, name))
            for file, content in (secret.get("data") or {}).items():
                wanted = base64.b64decode(content)
                path = folder / file
                if not path.exists() or path.read_bytes() != wanted:
                    path.write_bytes(wanted)
        await asyncio.sleep(REFRESH_S)
