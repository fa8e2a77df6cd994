"""`sluice all-in-one` as anyone would run it: against a control plane that was started separately, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import psutil
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from cli.installation import GATEWAY
from devcluster.cluster import DevCluster
from devcluster.kubectl import KubectlError
from devcluster.options import ClusterOptions
from devcluster.ports import free_ports
from services.watcher.certificates import make_pair
from shared.events.streams import SERVICES
from tests.eventually import eventually
from tests.integration.small_disk import small_disk
from tests.integration.stack import manifests

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

ROOT = Path(__file__).resolve().parents[2]
READY_S = 40.0
"""Generous: the machine may be busy. What it really takes is printed."""
STOP_S = 5.0
STARTS = 10


class AllInOne:
    """One run. `folder` is its temporary directory, so that what it leaves can be seen."""

    def __init__(self, kubeconfig: Path, folder: Path, *flags: str, **environment: str) -> None:
        self.folder = folder
        self.health, self.metrics, self.webhook = free_ports(3)
        self._flags = flags
        self.environment = {
            **{k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG")},
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(folder),
            "KUBECONFIG": str(kubeconfig),
            "HEALTH_PORT": str(self.health),
            "METRICS_PORT": str(self.metrics),
            "WEBHOOK_PORT": str(self.webhook),
            **environment,
        }
        self.output = folder / "output"
        self.process: asyncio.subprocess.Process | None = None
        self.launcher: tuple[str, ...] = ()
        """Runs the program that follows, in a place of its own."""

    async def start(self) -> None:
        with self.output.open("ab") as output:
            self.process = await asyncio.create_subprocess_exec(
                *self.launcher, sys.executable, "-m", "cli.main", "all-in-one", *self._flags,
                stdout=output, stderr=output, env=self.environment, cwd=self.folder,
            )  # fmt: skip

    async def until_ready(self) -> float:
        """Seconds that it says it took."""
        await eventually(self.is_ready, READY_S)
        found = await eventually(self._told, 2.0)
        assert found, self.text
        return float(found[-1])

    async def _told(self) -> list[str]:
        return re.findall(r"^ready in ([0-9.]+) s", self.text, re.MULTILINE)

    async def is_ready(self) -> bool:
        return (await self.get(self.health, "/readyz"))[0] == 200

    async def get(self, port: int, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            try:
                async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                    return response.status, await response.text()
            except aiohttp.ClientError:
                return 0, ""

    @property
    def text(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def children(self) -> dict[str, psutil.Process]:
        """By name; the kernel keeps 15 bytes of it."""
        found = {}
        for child in psutil.Process(self.pid).children():
            with suppress(psutil.NoSuchProcess):
                found[child.name()] = child
        return found

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> float:
        """Seconds it took."""
        assert self.process is not None
        started = time.monotonic()
        if self.process.returncode is None:
            self.process.send_signal(number)
        await asyncio.wait_for(self.process.wait(), 20.0)
        return time.monotonic() - started

    def left(self) -> list[str]:
        """Folders of it that are still there."""
        return [p.name for p in self.folder.iterdir() if p.is_dir()]


Start = Callable[..., AllInOne]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[DevCluster]:
    async with DevCluster(ClusterOptions(default_pod_seconds=0.3)) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installed(cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> DevCluster:
    """The same cluster with CRDs, roles and webhook configurations."""
    one = AllInOne(cluster.kubeconfig, tmp_path_factory.mktemp("install"), "--install", "all")
    await one.start()
    await one.until_ready()
    await one.stop()
    return cluster


@pytest.fixture
def start(cluster: DevCluster, tmp_path: Path) -> Iterator[Start]:
    """Makes runs; those that still live at the end are killed."""
    made: list[AllInOne] = []

    def make(*flags: str, **environment: str) -> AllInOne:
        made.append(AllInOne(cluster.kubeconfig, tmp_path, *flags, **environment))
        return made[-1]

    yield make
    for one in made:
        if one.process is not None and one.process.returncode is None:
            os.kill(one.process.pid, signal.SIGKILL)


@asynccontextmanager
async def running(one: AllInOne) -> AsyncIterator[AllInOne]:
    await one.start()
    await one.until_ready()
    try:
        yield one
    finally:
        await one.stop()


async def put(cluster: DevCluster, *objects: dict[str, Any]) -> None:
    folder = cluster.kubeconfig.parent
    file = folder / f"{objects[0]['metadata']['name']}.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    await cluster.kubectl("apply", "--server-side", "-f", str(file))


async def is_complete(cluster: DevCluster, job: str) -> bool:
    path = "jsonpath={.status.conditions[?(@.type=='Complete')].status}"
    return (await cluster.kubectl("get", "job", job, "-o", path)).strip() == "True"


async def runs_a_job(cluster: DevCluster, name: str, queue: str) -> None:
    await put(cluster, manifests.job(name, queue))

    async def done() -> bool:
        return await is_complete(cluster, name)

    assert await eventually(done, 30), await cluster.kubectl("get", "job,workload", "-o", "yaml")


def nobody_listens(*ports: int) -> bool:
    for port in ports:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return False
    return True


async def test_a_bare_cluster_gets_all_it_needs(cluster: DevCluster, start: Start) -> None:
    one = start("--install", "all")
    await one.start()
    await one.until_ready()
    await put(cluster, *manifests.queue("first"))
    # Admission is served: what is wrong is refused, what has a queue is created suspended, for the very user whose credentials it runs with.
    wrong = manifests.cluster_queue("wrong", "-1")
    with pytest.raises(KubectlError, match=r"denied the request.*nominalQuota"):
        await put(cluster, wrong)
    await runs_a_job(cluster, "first", "first")
    # All series on one page.
    status, page = await one.get(one.metrics, "/metrics")
    families = {f.name: f for f in text_string_to_metric_families(page)}
    assert status == 200
    assert {s.labels["service"] for s in families["process_start_time_seconds"].samples} == set(SERVICES)
    assert sum(s.value for s in families["kueue_admitted_workloads"].samples if s.name.endswith("_total")) == 1

    children = one.children()
    assert set(children) == {*(s[:15] for s in SERVICES), "nats-server", "front"}
    seconds = await one.stop()
    assert seconds < STOP_S
    assert one.process is not None
    assert one.process.returncode == 0
    assert not any(p.is_running() for p in children.values())
    assert nobody_listens(one.health, one.metrics, one.webhook)
    assert one.left() == []


async def test_ten_starts_in_a_row(installed: DevCluster, start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    ready, stopped = [], []
    for number in range(STARTS):
        one = start()
        one.output = one.folder / f"output-{number}"
        await one.start()
        ready.append(await one.until_ready())
        if number == 0:
            # The later starts find objects.
            await put(installed, *manifests.queue("again"))
        if number in (0, STARTS - 1):
            await runs_a_job(installed, f"again-{number}", "again")
        stopped.append(await one.stop())
        assert one.left() == []
    with capsys.disabled():
        print(
            f"\nall in one: ready in {min(ready):.2f} to {max(ready):.2f} s (median {median(ready):.2f}), "
            f"stopped in {min(stopped):.2f} to {max(stopped):.2f} s (median {median(stopped):.2f})"
        )
    assert max(stopped) < STOP_S


async def test_each_child_may_be_killed(installed: DevCluster, start: Start) -> None:
    async with running(start()) as one:
        await put(installed, *manifests.queue("killed"))
        before = one.children()
        assert len(before) == len(SERVICES) + 2
        for child in before.values():
            child.kill()

        async def replaced() -> bool:
            now = one.children()
            return set(now) == set(before) and all(now[n].pid != before[n].pid for n in before) and await one.is_ready()

        assert await eventually(replaced, READY_S), one.text
        await runs_a_job(installed, "killed", "killed")


async def test_nothing_outlives_a_killed_parent(installed: DevCluster, start: Start) -> None:
    one = start()
    await one.start()
    await one.until_ready()
    await put(installed, *manifests.queue("orphans"))
    children = one.children()
    await one.stop(signal.SIGKILL)

    async def gone() -> bool:
        return not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in children.values())

    assert await eventually(gone, 5.0)
    assert nobody_listens(one.health, one.metrics, one.webhook)
    assert len(one.left()) == 1
    # The next one sweeps, and need not wait for the Lease of the dead one.
    async with running(start()) as other:
        assert len(other.left()) == 1
        await runs_a_job(installed, "orphans", "orphans")
    assert other.left() == []


@pytest.mark.parametrize("so_far", [0, 1, 3, 6])
async def test_told_to_end_while_it_starts(installed: DevCluster, start: Start, so_far: int) -> None:
    one = start()
    await one.start()

    async def children_there() -> bool:
        return len(one.children()) >= so_far

    assert await eventually(children_there, READY_S)
    children = psutil.Process(one.pid).children()
    assert await one.stop() < STOP_S
    assert not any(p.is_running() for p in children)
    assert one.left() == []
    assert "Traceback" not in one.text


async def test_given_certificates_and_a_configuration_file(installed: DevCluster, start: Start, tmp_path: Path) -> None:
    pair = make_pair(("127.0.0.1",), datetime.now(UTC))
    certificates = tmp_path.parent / f"{tmp_path.name}-certificates"
    certificates.mkdir()
    for name, content in (("ca.crt", pair.ca), ("tls.crt", pair.certificate), ("tls.key", pair.key)):
        (certificates / name).write_bytes(content)
    config = certificates / "config.yaml"
    config.write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmanageJobsWithoutQueueName: true\n"
        "multiKueue: {origin: here}\n"
    )
    one = start(
        "--install", "webhooks", WEBHOOK_CERT_DIR=str(certificates), KUEUE_CONFIG=str(config),
        FEATURE_GATES="PartialAdmission=false",
    )  # fmt: skip
    async with running(one):
        assert "accepted, not used yet: multiKueue" in one.text
        unnamed = manifests.job("unnamed", "x")
        del unnamed["metadata"]["labels"]
        await put(installed, unnamed)
        suspended = await installed.kubectl("get", "job", "unnamed", "-o", "jsonpath={.spec.suspend}")
        assert suspended == "true"
        path = "jsonpath={.items[*].webhooks[*].matchConditions[*].expression}"
        condition = await installed.kubectl("get", "validatingwebhookconfiguration", "-o", path)
        assert GATEWAY in condition
    await installed.kubectl("delete", "job", "unnamed")


async def test_a_service_runs_elsewhere(installed: DevCluster, start: Start) -> None:
    # Back to its own certificates: those of the test before are gone with it.
    one = start("--print-env", "metrics", "--install", "webhooks", SCHEDULER="false")
    async with running(one):
        assert not {"scheduler", "metrics"} & set(one.children())
        await put(installed, *manifests.queue("elsewhere"))
        printed = dict(re.findall(r"^export (SLUICE_\w+)=(.*)$", one.text, re.MULTILINE))
        assert printed["SLUICE_NATS_USER"] == "metrics"
        asked = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "cli.main", "scheduler", "--print-env",
            stdout=asyncio.subprocess.PIPE, env={"PYTHONPATH": str(ROOT), "TMPDIR": str(one.folder)}, cwd=one.folder,
        )  # fmt: skip
        lines, _ = await asked.communicate()
        script = f"{lines.decode()}\nexec {sys.executable} -m cli.main scheduler"
        await put(installed, manifests.job("elsewhere", "elsewhere"))
        scheduler = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", script, env={"PYTHONPATH": str(ROOT)}, cwd=one.folder
        )
        try:

            async def done() -> bool:
                return await is_complete(installed, "elsewhere")

            assert await eventually(done, 30)
        finally:
            scheduler.terminate()
            await scheduler.wait()


@pytest.mark.parametrize(
    ("flags", "environment", "error"),
    [
        ((), {"FEATURE_GATES": "NoSuchGate=true"}, "feature gates: NoSuchGate: no such feature gate"),
        (("--without", "nobody"), {}, "'nobody' is no service"),
        ((), {"KUEUE_CONFIG": "/absent.yaml"}, "/absent.yaml: No such file or directory"),
        ((), {"KUBECONFIG": "/absent"}, "kubeconfig /absent: no such file"),
        (("--webhook-cert-dir", "/absent"), {}, "/absent/tls.crt: no such file"),
    ],
)
async def test_what_is_wrong_is_one_line(
    start: Start, flags: tuple[str, ...], environment: dict[str, str], error: str
) -> None:
    one = start(*flags, **environment)
    await one.start()
    assert one.process is not None
    assert await asyncio.wait_for(one.process.wait(), 20.0) == 1
    assert one.text.count("\n") == 1
    assert one.text.startswith("sluice all-in-one: ")
    assert error in one.text
    assert one.left() == []


async def test_a_port_that_is_taken(start: Start) -> None:
    one = start()
    with socket.create_server(("127.0.0.1", one.health)):
        await one.start()
        assert one.process is not None
        assert await asyncio.wait_for(one.process.wait(), 20.0) == 1
    assert f"health-port: 127.0.0.1:{one.health}: Address already in use" in one.text


async def test_nats_is_started_again_after_a_full_disk_once_there_is_room(
    installed: DevCluster, start: Start, tmp_path: Path
) -> None:
    async with small_disk(tmp_path / "disk", 96) as disk:
        one = start(TMPDIR=str(tmp_path / "disk"))
        one.launcher = disk.launcher
        async with running(one):
            (config,) = disk.inside.glob("sluice-all-in-one-*/credentials/nats-server.conf")
            monitor = re.search(r'http: "127.0.0.1:(\d+)"', config.read_text())
            assert monitor is not None
            before = one.children()["nats-server"].pid

            async def ails() -> bool:
                return "write error" in (await one.get(int(monitor[1]), "/healthz"))[1]

            async def is_another() -> bool:
                found = one.children().get("nats-server")
                return found is not None and found.pid != before

            disk.fill()
            # Leases are renewed each second: something is written at once.
            assert await eventually(ails, READY_S)
            assert not await is_another(), "with no room a new start would not help"
            disk.clear()
            assert await eventually(is_another, READY_S)
            assert await eventually(one.is_ready, READY_S)
            assert not await ails()
