"""The control plane of compose.yaml, as a process here: reachable at one port under another name, with kubeconfigs that grant what they should."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from devcluster.ports import free_ports
from shared.kube.client import connect
from shared.kube.errors import Forbidden, Unreachable
from shared.kube.resources import NAMESPACES, SECRETS, WORKLOADS

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

ROOT = Path(__file__).resolve().parents[2]
READY_S = 60.0


class ControlPlane:
    """The running script and what it wrote."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, folder: Path) -> None:
        self.process = process
        self.port = port
        self.services = folder / "services"
        self.admin = folder / "admin"

    def part(self, name: str) -> psutil.Process:
        """A part of the control plane, which is a child of the script."""
        return next(child for child in psutil.Process(self.process.pid).children() if name in child.name())


@asynccontextmanager
async def control_plane(folder: Path) -> AsyncIterator[ControlPlane]:
    for name in ("services", "admin"):
        (folder / name).mkdir()
    port = free_ports(1)[0]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "compose" / "control_plane.py"),
        *("--listen", "127.0.0.1", "--port", str(port), "--name", "localhost"),
        *("--kubeconfigs", str(folder / "services"), "--admin", str(folder / "admin")),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        said = await asyncio.wait_for(process.stdout.readline(), READY_S)
        assert said.decode() == f"ready on port {port}\n"
        yield ControlPlane(process, port, folder)
    finally:
        if process.returncode is None:
            process.terminate()
            await asyncio.wait_for(process.wait(), READY_S)


async def test_kubeconfigs_for_services_and_people(tmp_path: Path) -> None:
    async with control_plane(tmp_path) as it:
        files = {f.name for f in it.services.iterdir()}, {f.name for f in it.admin.iterdir()}
        assert files == ({"watcher.kubeconfig", "webhook.kubeconfig"}, {"kubeconfig", "host.kubeconfig"})
        for file in (*it.services.iterdir(), *it.admin.iterdir()):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert f"https://localhost:{it.port}" in (it.services / "watcher.kubeconfig").read_text()
        assert f"https://127.0.0.1:{it.port}" in (it.admin / "host.kubeconfig").read_text()
        async with await connect(str(it.services / "watcher.kubeconfig"), timeout_s=10.0) as watcher:
            assert b"kueue-system" in await watcher.list_page(NAMESPACES)
            await watcher.list_page(WORKLOADS)
            with pytest.raises(Forbidden):
                await watcher.list_page(SECRETS)
        for name in ("kubeconfig", "host.kubeconfig"):
            async with await connect(str(it.admin / name), timeout_s=10.0) as admin:
                await admin.list_page(SECRETS)
        parts = [child.pid for child in psutil.Process(it.process.pid).children()]
        it.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(it.process.wait(), READY_S) == 0
        assert not [pid for pid in parts if psutil.pid_exists(pid)]


async def test_it_ends_when_a_part_dies(tmp_path: Path) -> None:
    async with control_plane(tmp_path) as it:
        async with await connect(str(it.admin / "kubeconfig"), timeout_s=10.0) as admin:
            await admin.list_page(NAMESPACES)
            it.part("etcd").kill()
            assert await asyncio.wait_for(it.process.wait(), READY_S) == 1
            with pytest.raises(Unreachable):
                await admin.list_page(NAMESPACES)
        assert it.process.stdout is not None
        assert b"etcd ended" in await it.process.stdout.read()
