"""A TCP proxy on loopback that can be told to misbehave: reset every connection, let only so many bytes a second through, or nothing at all."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Sequence

CHUNK = 64 * 1024
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
LOOPBACK = "127.0.0.1"


class Proxy:
    """Listens on `port` once started. `targets`: ports to connect to, asked for each connection; the first that answers gets it."""

    def __init__(self, targets: Callable[[], Sequence[int]]) -> None:
        self._targets = targets
        self._server: asyncio.Server | None = None
        self._open: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()
        self.port = 0
        self.bytes_per_s: float | None = None
        """Of all connections and directions together; None: as fast as it goes."""

    async def start(self, port: int) -> None:
        """Raises OSError if the port is taken; 0 takes a free one."""
        self._server = await asyncio.start_server(self._serve, LOOPBACK, port, limit=CHUNK)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """End every connection."""
        if self._server is not None:
            self._server.close()
        self.reset()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)

    def reset(self) -> int:
        """End every connection as a crashed host does: both sides get a reset, what was on the way is lost. Returns how many."""
        count = len(self._open)
        for pair in list(self._open):
            for writer in pair:
                end: socket.socket | None = writer.get_extra_info("socket")
                if end is not None:
                    # One that is just closing has no descriptor any more.
                    with contextlib.suppress(OSError, ValueError):
                        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
                writer.transport.abort()
        return count

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await self._forward(reader, writer)
        except asyncio.CancelledError:
            # The loop ends and takes this along. Nobody awaits the handler of a connection, and asyncio prints one that ends cancelled.
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await self._connect()
        if there is None:
            writer.transport.abort()
            return
        pair = (writer, there[1])
        self._open.add(pair)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, there[1]))
                group.create_task(self._pump(there[0], writer))
        except* OSError:
            pass
        finally:
            self._open.discard(pair)
            for one in pair:
                one.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for port in self._targets():
            try:
                return await asyncio.open_connection(LOOPBACK, port, limit=CHUNK)
            except OSError:
                continue
        return None

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until one side ends; then both do."""
        while data := await reader.read(CHUNK):
            if self.bytes_per_s is not None:
                # One at a time, so that the limit is that of the line and not of each connection; whoever gets its turn after the limit was lifted passes.
                async with self._turn:
                    if rate := self.bytes_per_s:
                        await asyncio.sleep(len(data) / rate)
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError
