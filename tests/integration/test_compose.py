"""The control plane of compose.yaml, as a process here: reachable at one port under another name, with kubeconfigs that grant what they should.

Where SLUICE_COMPOSE names a program for compose files (`docker compose`, `podman-compose`), the last test runs the whole of compose.yaml with it; the images
are built if they are not there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import psutil
import pytest

from devcluster.ports import free_ports
from shared.events.streams import SERVICES
from shared.kube.client import connect
from shared.kube.errors import Forbidden, Unreachable
from shared.kube.resources import NAMESPACES, SECRETS, WORKLOADS
from tests.eventually import eventually

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

ROOT = Path(__file__).resolve().parents[2]
READY_S = 60.0
COMPOSE = tuple(os.environ.get("SLUICE_COMPOSE", "").split())
BUILT_S = 3600.0
CONTAINERS_S = 300.0


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


async def compose(*arguments: str) -> tuple[int, str]:
    """Exit code and standard output."""
    process = await asyncio.create_subprocess_exec(*COMPOSE, *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    out, _ = await asyncio.wait_for(process.communicate(), BUILT_S)
    assert process.returncode is not None
    return process.returncode, out.decode()


async def not_ready() -> set[str]:
    """Services that say they are not, or say nothing, to one who asks from within their container."""
    ask = "import urllib.request as u; u.urlopen('http://127.0.0.1:8081/readyz', timeout=3)"
    asked = {name: await compose("exec", "-T", name, "python", "-c", ask) for name in SERVICES}
    return {name for name, (code, _) in asked.items() if code != 0}


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str


class _Conditions(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...] = ()


class _Meta(msgspec.Struct, frozen=True):
    uid: str


class _Job(msgspec.Struct, frozen=True):
    metadata: _Meta
    status: _Conditions = _Conditions()


class _Jobs(msgspec.Struct, frozen=True):
    items: tuple[_Job, ...]


async def jobs() -> dict[str, bool]:
    """uid -> whether it is complete, as the administrator sees it from within the control plane's container."""
    code, out = await compose("exec", "-T", "control-plane", "kubectl", "get", "jobs", "-A", "-o", "json")
    if code != 0:
        return {}
    found = msgspec.json.decode(out, type=_Jobs).items
    return {j.metadata.uid: _Condition("Complete", "True") in j.status.conditions for j in found}


@pytest.mark.skipif(not COMPOSE, reason="SLUICE_COMPOSE names no program that runs compose.yaml")
@pytest.mark.timeout(0)
async def test_the_whole_stack_in_containers() -> None:
    assert (await compose("up", "-d"))[0] == 0
    try:
        assert await eventually(not_ready, CONTAINERS_S, lambda names: not names) == set()
        done = await eventually(jobs, CONTAINERS_S, lambda seen: any(seen.values()))
        assert any(done.values())
        # A gateway that ends is started again by the engine, and Jobs that it never saw go through.
        await compose("exec", "-T", "watcher", "python", "-c", "import os, signal; os.kill(1, signal.SIGTERM)")
        before = set(await jobs())
        later = await eventually(jobs, CONTAINERS_S, lambda seen: any(seen[uid] for uid in seen.keys() - before))
        assert any(later[uid] for uid in later.keys() - before)
        assert await eventually(not_ready, CONTAINERS_S, lambda names: not names) == set()
    finally:
        assert (await compose("down", "--volumes"))[0] == 0
