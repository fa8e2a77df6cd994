"""A control plane and `sluice all-in-one` beside each other: what `sluice up` and `sluice demo` run.

Everything they write is in one folder that is removed at the end. All-in-one is a process of its own and gets the administrator's kubeconfig, as a person
would give it to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
import msgspec
from rich.console import Console

from cli import local_events
from cli.all_in_one import FOLDER_PREFIX
from devcluster.cluster import DevCluster
from devcluster.options import ClusterOptions
from devcluster.ports import free_ports
from devcluster.processes import Command, ManagedProcess

ROOT = Path(__file__).resolve().parents[1]
READY_S = 60.0
LOOK_S = 0.05
CONFIGURATIONS = (
    "mutatingwebhookconfiguration/kueue-mutating-webhook-configuration",
    "validatingwebhookconfiguration/kueue-validating-webhook-configuration",
)


class LocalRun:
    """States: made, started (`async with`), stopped. `folder` holds data, credentials and logs."""

    def __init__(self, options: ClusterOptions, console: Console) -> None:
        self._console = console
        self._temporary = tempfile.TemporaryDirectory(prefix="sluice-", ignore_cleanup_errors=True)
        self.folder = Path(self._temporary.name)
        self.cluster = DevCluster(msgspec.structs.replace(options, data_dir=self.folder / "cluster"), console)
        self._process: ManagedProcess | None = None

    async def __aenter__(self) -> Self:
        try:
            with self._step("control plane", usual=4):
                await self.cluster.start()
            with self._step("Sluice, all in one", usual=4):
                await self._start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def logs(self) -> Path:
        """One JSON log for each service."""
        return self.folder / "logs"

    @property
    def reader_url(self) -> str:
        """NATS address of the read-only user of public events, password included."""
        (private,) = (self.folder / local_events.TEMPORARY).glob(f"{FOLDER_PREFIX}*")
        events = local_events.read(private)
        assert events is not None, "written before it is ready"
        return events.url

    async def stop(self) -> None:
        """End everything, and remove the folder."""
        if self._process is not None:
            await self._process.stop(grace_seconds=6.0)
            if self.cluster.options.existing:
                # Left behind, they would refuse every Job of that cluster. Without a cluster there is nothing to refuse.
                await self.cluster.kubectl("delete", "--ignore-not-found", *CONFIGURATIONS)
        await self.cluster.stop()
        self._temporary.cleanup()

    async def _start(self) -> None:
        health, metrics, webhook = free_ports(3)
        private = self.folder / local_events.TEMPORARY
        private.mkdir()
        arguments = ("-m", "cli.main", "all-in-one", "--kubeconfig", str(self.cluster.kubeconfig), "--install", "all")
        ports = ("--health-port", str(health), "--metrics-port", str(metrics), "--webhook-port", str(webhook))
        # Its private folder is to be inside ours.
        environment = {**os.environ, "TMPDIR": str(private), "PYTHONPATH": str(ROOT)}
        command = Command(
            "all-in-one",
            Path(sys.executable),
            (*arguments, *ports, "--log-dir", str(self.logs)),
            environment,
        )
        self._process = ManagedProcess(command, self.folder / "all-in-one.log")
        await self._process.start()
        await self._wait_ready(self._process, health)

    async def _wait_ready(self, process: ManagedProcess, port: int) -> None:
        deadline = time.monotonic() + READY_S
        why = ""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            while time.monotonic() < deadline:
                process.check()
                try:
                    async with session.get(f"http://127.0.0.1:{port}/readyz") as response:
                        if response.status == 200:
                            return
                        why = (await response.text()).strip()
                except (aiohttp.ClientError, TimeoutError) as error:
                    why = str(error)
                await asyncio.sleep(LOOK_S)
        raise TimeoutError(f"Sluice is not ready after {READY_S:.0f} s: {why}\n{process.last_lines()}")

    @contextlib.contextmanager
    def _step(self, what: str, usual: int) -> Iterator[None]:
        started = time.monotonic()
        with self._console.status(f"{what} (usually {usual} s)"):
            yield
        self._console.print(f"[green]✓[/] {what} ({time.monotonic() - started:.1f} s)")
