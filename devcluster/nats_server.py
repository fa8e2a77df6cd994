"""Runs one local NATS server with the real accounts and permissions, on loopback. Knows nothing of what the streams hold.

async with NatsServer(data_dir) as nats:
    await connect("scheduler", nats.url, "scheduler", nats.password("scheduler"))
"""

import asyncio
import contextlib
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from devcluster.ports import free_ports
from devcluster.processes import Command, ManagedProcess
from shared.bus.server_binary import nats_binary
from shared.bus.server_config import Server, write_config

READY_WITHIN_S = 20.0
ATTEMPTS = 3


class NatsServer:
    """Its files are in `data_dir`: `credentials/`, `jetstream/`, `nats.log`; it can be entered again over the same directory. `port` 0: a free one.
    `launcher`: a command that runs the server by the program and arguments that follow, in its own place."""

    def __init__(
        self,
        data_dir: Path,
        port: int = 0,
        *,
        readers: Mapping[str, tuple[str, ...]] | None = None,
        launcher: tuple[str, ...] = (),
    ) -> None:
        self.data_dir = data_dir
        self._launcher = launcher
        self._port = port
        self._monitor_port = 0
        self._readers = readers
        self._process: ManagedProcess | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    @property
    def monitoring(self) -> str:
        """Base URL of the HTTP monitoring: `/varz`, `/jsz`, `/healthz`."""
        return f"http://127.0.0.1:{self._monitor_port}"

    @property
    def credentials(self) -> Path:
        """Directory of `<user>.env` and `<user>.password`."""
        return self.data_dir / "credentials"

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    def password(self, user: str) -> str:
        """Plain password of a service or reader."""
        return (self.credentials / f"{user}.password").read_text()

    async def __aenter__(self) -> Self:
        try:
            await self._first_start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start on the same port; returns when it is ready. Raises ProcessDiedError or TimeoutError."""
        process = self._running()
        await process.start()
        deadline = time.monotonic() + READY_WITHIN_S
        while not await self._answers():
            process.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"nats-server is not ready after {READY_WITHIN_S} s:\n{process.last_lines()}")
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """End it in an orderly way."""
        if self._process is not None:
            await self._process.stop()

    async def restart(self) -> None:
        """An orderly end and a new start."""
        await self.stop()
        await self.start()

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal and wait for its effect, if it ends or stops the server."""
        process = self._running()
        process.send(number)
        if number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
            await process.wait()
        elif number == signal.SIGSTOP:
            server = psutil.Process(process.pid)
            async with asyncio.timeout(READY_WITHIN_S):
                while server.status() != psutil.STATUS_STOPPED:  # noqa: ASYNC110 - of another process
                    await asyncio.sleep(0.005)

    async def wipe(self) -> None:
        """Stop, forget every stream, start again on the same port."""
        await self.stop()
        shutil.rmtree(self.data_dir / "jetstream", ignore_errors=True)
        await self.start()

    async def _first_start(self) -> None:
        wanted = self._port
        for attempt in range(ATTEMPTS):
            ports = free_ports(2)
            self._port, self._monitor_port = wanted or ports[0], ports[1]
            config = write_config(
                self.credentials,
                Server(
                    store_dir=str(self.data_dir / "jetstream"),
                    port=self._port,
                    monitor=f"127.0.0.1:{self._monitor_port}",
                ),
                self._readers,
            )
            line = [*self._launcher, str(nats_binary()), "--config", str(config)]
            command = Command("nats-server", Path(line[0]), tuple(line[1:]))
            self._process = ManagedProcess(command, self.data_dir / "nats.log")
            try:
                await self.start()
                return
            except RuntimeError:
                # Another process may have taken the port between choice and use.
                if wanted or attempt == ATTEMPTS - 1:
                    raise

    async def _answers(self) -> bool:
        """JetStream is up before the server listens for clients, so its greeting is enough."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            return False
        try:
            async with asyncio.timeout(2):
                return (await reader.readline()).startswith(b"INFO")
        except (TimeoutError, OSError):
            return False
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _running(self) -> ManagedProcess:
        if self._process is None:
            raise RuntimeError("the server was never started: enter it with `async with`")
        return self._process
