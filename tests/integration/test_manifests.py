"""`kubectl apply --server-side -k k8s/base` on a real API server: accepted without a warning, twice, and its pods are admitted as `restricted`.

The nodes are fake, so no container runs; the one program that the manifests run themselves, the credentials Job's, is run here instead with the
ServiceAccount of the Job, and a real NATS server starts with what it made.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import ssl
import sys
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import nats
import nats.errors
import pytest
import pytest_asyncio
from nats.aio.client import Client
from rich.console import Console

from cli.nats_credentials import CONFIG_KEY, CONFIG_SECRET, MADE_OF, USERS, Credentials, main, secret_name
from devcluster.binaries import resolve_binaries
from devcluster.cluster import DevCluster
from devcluster.options import ClusterOptions, NodeGroup
from devcluster.ports import free_ports
from devcluster.processes import Command, ManagedProcess
from services.watcher.certificates import make_pair
from shared.bus.nats_bus import connect as connect_bus
from shared.bus.server_binary import nats_binary
from shared.bus.server_config import Server, write_config
from shared.events.streams import SERVICES
from shared.kube.client import connect
from tests.eventually import eventually
from tests.integration.stack.grants import POLICY, calls, granted, unused
from tests.unit.k8s.rendered import key, of_kind, render
from tests.unit.k8s.test_manifests import environment, service_workload
from tests.unit.k8s.test_overlays import OVERLAYS

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "kueue-system"
WITHIN_S = 60.0
FOLDERS = sorted(
    folder
    for file in (ROOT / "k8s").rglob("kustomization.yaml")
    if not (folder := str(file.parent.relative_to(ROOT / "k8s"))).startswith("components/") and folder not in OVERLAYS
)
"""All that can be applied by itself; the overlays that want kinds of others, or other servers: test_overlays."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster() -> AsyncIterator[DevCluster]:
    """A cluster of its own: the shared one has other tests' things in kueue-system."""
    options = ClusterOptions(nodes=(NodeGroup(name="node", count=2),), default_pod_seconds=1.0, audit_policy=POLICY)
    async with DevCluster(options) as started:
        # Warnings too, for whatever the namespace does not enforce.
        await started.kubectl("create", "namespace", NAMESPACE)
        await started.kubectl(
            "label",
            "namespace",
            NAMESPACE,
            "pod-security.kubernetes.io/warn=restricted",
            "pod-security.kubernetes.io/warn-version=latest",
        )
        yield started


class Applied(msgspec.Struct, frozen=True):
    """What kubectl said when base was applied for the first time."""

    out: str
    warnings: str


@pytest_asyncio.fixture(scope="module", loop_scope="session", autouse=True)
async def applied(cluster: DevCluster) -> Applied:
    """Every test here begins after `kubectl apply` of base."""
    return Applied(*await apply(cluster, "base"))


async def kubectl(cluster: DevCluster, *arguments: str, kubeconfig: Path | None = None) -> tuple[int, str, str]:
    """Exit code, standard output, and standard error, where the API server's warnings are."""
    program = (await asyncio.to_thread(resolve_binaries, ("kubectl",), Console(stderr=True)))["kubectl"]
    process = await asyncio.create_subprocess_exec(
        str(program),
        *arguments,
        env={**os.environ, "KUBECONFIG": str(kubeconfig or cluster.kubeconfig)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), WITHIN_S)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def apply(cluster: DevCluster, folder: str, *more: str) -> tuple[str, str]:
    """Output and warnings of `kubectl apply --server-side -k`."""
    code, out, err = await kubectl(cluster, "apply", "--server-side", "-k", str(ROOT / "k8s" / folder), *more)
    assert code == 0, err
    return out, err


async def get(cluster: DevCluster, *what: str) -> Any:
    """Objects as JSON."""
    return msgspec.json.decode(await cluster.kubectl("get", *what, "-o", "json", "-n", NAMESPACE))


async def test_base_is_accepted_without_warnings_twice(cluster: DevCluster, applied: Applied) -> None:
    assert applied.warnings == ""
    assert len(applied.out.splitlines()) == len(render("base"))
    before = {key(o): o["metadata"]["generation"] for o in (await get(cluster, "deploy,sts,job"))["items"]}
    again, warnings = await apply(cluster, "base")
    assert warnings == ""
    assert len(again.splitlines()) == len(applied.out.splitlines())
    after = {key(o): o["metadata"]["generation"] for o in (await get(cluster, "deploy,sts,job"))["items"]}
    assert after == before


@pytest.mark.parametrize("folder", FOLDERS)
async def test_every_folder_is_accepted_without_warnings(cluster: DevCluster, folder: str) -> None:
    # Only tried: other tests look at what base made. --force-conflicts is not needed, it is the same manager.
    out, warnings = await apply(cluster, folder, "--dry-run=server")
    assert warnings == ""
    assert len(out.splitlines()) == len(render(folder))


async def test_pods_of_every_workload_are_admitted_and_become_ready(cluster: DevCluster) -> None:
    names = [f"{o['kind']}/{o['metadata']['name']}" for o in of_kind(render("base"), "Deployment")]
    assert len(names) == len(SERVICES)
    for name in names:
        await cluster.kubectl("rollout", "status", name, "-n", NAMESPACE, f"--timeout={WITHIN_S:.0f}s")
    # Its volume is never bound here, and so its pod waits; that it exists is what Pod Security has to say about it.
    await cluster.kubectl("wait", "--for=create", "pod/sluice-nats-0", "-n", NAMESPACE, "--timeout=30s")
    pods = (await get(cluster, "pods"))["items"]
    priorities = {p["metadata"]["name"]: p["spec"]["priority"] for p in pods}
    assert set(priorities.values()) == {1_000_000_000}


async def test_a_drain_takes_one_webhook_at_a_time(cluster: DevCluster, tmp_path: Path) -> None:
    budget = ("pdb/sluice-webhook", "-n", NAMESPACE, f"--timeout={WITHIN_S:.0f}s")
    await cluster.kubectl("wait", "--for=jsonpath={.status.disruptionsAllowed}=1", *budget)

    async def evict(pod: str) -> tuple[int, str, str]:
        """As `kubectl drain` does it."""
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}}
        file = tmp_path / f"{pod}.json"
        file.write_bytes(msgspec.json.encode(eviction))
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction"
        return await kubectl(cluster, "create", "--raw", path, "-f", str(file))

    # As a drain begins: what is taken away has no place to come back to yet, however fast it would.
    nodes = (await cluster.kubectl("get", "nodes", "-o", "name")).split()
    running = await get(cluster, "pods", "-l", "app.kubernetes.io/name=sluice-webhook")
    first, second = [pod["metadata"]["name"] for pod in running["items"]]
    await cluster.kubectl("cordon", *nodes)
    try:
        both = await asyncio.gather(evict(first), evict(second))
    finally:
        await cluster.kubectl("uncordon", *nodes)
    assert sorted(code for code, _, _ in both) == [0, 1]
    assert "disruption budget" in "".join(err for _, _, err in both)
    # What was taken away comes back, and then the next may go.
    await cluster.kubectl("wait", "--for=jsonpath={.status.disruptionsAllowed}=1", *budget)


async def test_the_gateway_has_its_own_place_in_the_api_servers_queues(cluster: DevCluster) -> None:
    path = await cluster.service_account_kubeconfig(NAMESPACE, "sluice-watcher")
    before = await _dispatched(cluster)
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/sluice-watcher-0"
    for what in ("/apis/batch/v1/jobs", lease):
        # There is no such Lease; that it was looked for is enough.
        await kubectl(cluster, "get", "--raw", what, kubeconfig=path)
    after = await _dispatched(cluster)
    assert after["sluice"] == before["sluice"] + 1
    assert after["sluice-lease"] == before["sluice-lease"] + 1


async def _dispatched(cluster: DevCluster) -> Counter[str]:
    """FlowSchema -> requests of it that were served."""
    _, text, _ = await kubectl(cluster, "get", "--raw", "/metrics")
    counts: Counter[str] = Counter()
    for line in text.splitlines():
        if found := re.match(r'apiserver_flowcontrol_dispatched_requests_total\{flow_schema="([^"]+)".* (\d+)$', line):
            counts[found[1]] += int(found[2])
    return counts


async def test_credentials_are_made_once_and_work_with_a_real_server(
    cluster: DevCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = await cluster.service_account_kubeconfig(NAMESPACE, "sluice-nats-credentials")
    arguments = [f"--kubeconfig={path}", f"--namespace={NAMESPACE}"]
    assert await asyncio.to_thread(main, arguments) == 0
    printed = capsys.readouterr().out
    wanted = {CONFIG_SECRET, *(secret_name(user) for user in USERS)}
    assert set(printed.split()) - {"created"} == {f"secret/{name}" for name in wanted}
    made = await _secrets(cluster, wanted)
    passwords = {user: made[secret_name(user)]["password"] for user in USERS}
    assert len(set(passwords.values())) == len(USERS)
    assert not any(password in printed for password in passwords.values())
    assert made[secret_name("scheduler")]["user"] == "scheduler"
    assert made[secret_name("scheduler")]["url"] == "nats://sluice-nats.kueue-system.svc:4222"
    assert await asyncio.to_thread(main, arguments) == 0
    assert capsys.readouterr().out == "nothing to do\n"
    assert await _secrets(cluster, wanted) == made
    await _serves(made[CONFIG_SECRET][CONFIG_KEY], passwords, tmp_path)


async def test_a_configuration_of_another_table_is_replaced_and_the_server_restarted(cluster: DevCluster) -> None:
    path = await cluster.service_account_kubeconfig(NAMESPACE, "sluice-nats-credentials")
    url, names = "nats://x:1", {CONFIG_SECRET, secret_name("scheduler")}
    async with await connect(str(path), timeout_s=10.0) as client:
        first = Credentials(client, namespace=NAMESPACE, url=url, server=Server(store_dir="/data", host="0.0.0.0"))
        await first.ensure()
        before = await _secrets(cluster, names)
        other = Server(store_dir="/data", host="0.0.0.0", name="other")
        done = await Credentials(client, namespace=NAMESPACE, url=url, server=other).ensure()
    assert done == [f"secret/{CONFIG_SECRET} replaced", "statefulset/sluice-nats restarted"]
    after = await _secrets(cluster, names)
    assert after[secret_name("scheduler")] == before[secret_name("scheduler")]
    assert 'server_name: "other"' in after[CONFIG_SECRET][CONFIG_KEY]
    template = (await get(cluster, "statefulset/sluice-nats"))["spec"]["template"]["metadata"]["annotations"]
    assert template[MADE_OF] == (await get(cluster, f"secret/{CONFIG_SECRET}"))["metadata"]["annotations"][MADE_OF]
    # Applying the manifests again leaves that alone.
    _, warnings = await apply(cluster, "base")
    assert warnings == ""
    kept = (await get(cluster, "statefulset/sluice-nats"))["spec"]["template"]["metadata"]["annotations"]
    assert kept == template
    # Everything that it may do was needed.
    assert cluster.audit_log is not None
    grants = {g for g in await granted(cluster) if g.account == "sluice-nats-credentials"}
    assert sorted(map(str, unused(grants, calls(cluster.audit_log)))) == []


async def test_the_job_may_do_nothing_else(cluster: DevCluster) -> None:
    path = await cluster.service_account_kubeconfig(NAMESPACE, "sluice-nats-credentials")
    for verb, what in (
        ("get", "secret/kueue-webhook-server-cert"),
        ("list", "secrets"),
        ("delete", f"secret/{CONFIG_SECRET}"),
        ("patch", "deployment/sluice-webhook"),
        ("get", "workloads"),
    ):
        _, answer, _ = await kubectl(cluster, "auth", "can-i", verb, what, "-n", NAMESPACE, kubeconfig=path)
        assert answer.strip() == "no", (verb, what)


async def _secrets(cluster: DevCluster, names: set[str]) -> dict[str, dict[str, str]]:
    """Secret -> its values in plain text."""
    found = (await get(cluster, "secrets"))["items"]
    data = {o["metadata"]["name"]: o["data"] for o in found}
    assert names <= set(data)
    return {name: {k: base64.b64decode(v).decode() for k, v in data[name].items()} for name in names}


async def _serves(config: str, passwords: dict[str, str], folder: Path) -> None:
    """A real server starts with this configuration, lets the users in, and only with their passwords."""
    port, monitor = free_ports(2)
    moved = config.replace("0.0.0.0:4222", f"127.0.0.1:{port}").replace("0.0.0.0:8222", f"127.0.0.1:{monitor}")
    file = folder / CONFIG_KEY
    file.write_text(moved.replace('"/data"', msgspec.json.encode(str(folder / "data")).decode()))
    server = ManagedProcess(Command("nats-server", nats_binary(), ("--config", str(file))), folder / "nats.log")
    await server.start()
    try:
        url = f"nats://127.0.0.1:{port}"
        async with asyncio.timeout(WITHIN_S):
            while True:
                server.check()
                try:
                    first = await _connected(url, "watcher", passwords["watcher"])
                    break
                except (OSError, nats.errors.Error):
                    await asyncio.sleep(0.05)
        await first.close()
        for user in USERS:
            connection = await _connected(url, user, passwords[user])
            assert connection.is_connected
            await connection.close()
        with pytest.raises(nats.errors.Error, match="Authorization"):
            await _connected(url, "watcher", passwords["scheduler"])
    finally:
        await server.stop()


async def _connected(url: str, user: str, password: str) -> Client:
    async def quiet(_: Exception) -> None:
        return None

    return await nats.connect(
        url, user=user, password=password, allow_reconnect=False, error_cb=quiet, inbox_prefix=f"_INBOX_{user}"
    )


async def test_a_nats_of_your_own_with_tls_is_reached_as_the_overlay_says(tmp_path: Path) -> None:
    """A real service, with the overlay's settings: only addresses and the paths of mounted files are this machine's."""
    pair = make_pair(("127.0.0.1",), datetime.now(UTC))
    files = {"ca.crt": pair.ca, "tls.crt": pair.certificate, "tls.key": pair.key}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    dead, port, monitor, health = free_ports(4)
    config = write_config(
        tmp_path / "credentials",
        Server(
            store_dir=str(tmp_path / "data"),
            port=port,
            monitor=f"127.0.0.1:{monitor}",
            cert_file=str(tmp_path / "tls.crt"),
            key_file=str(tmp_path / "tls.key"),
        ),
    )
    overlay = environment("overlays/external-nats", service_workload("overlays/external-nats", "metrics"))
    assert overlay["SLUICE_NATS_URL"].startswith("tls://")
    settings = overlay | {
        # Several servers of one cluster, the first of them away.
        "SLUICE_NATS_URL": f"tls://127.0.0.1:{dead},tls://127.0.0.1:{port}",
        "SLUICE_NATS_CA_FILE": str(tmp_path / Path(overlay["SLUICE_NATS_CA_FILE"]).name),
        "SLUICE_NATS_PASSWORD_FILE": str(tmp_path / "credentials" / "metrics.password"),
        "SLUICE_HEALTH_HOST": "127.0.0.1",
        "SLUICE_HEALTH_PORT": str(health),
    }
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")} | {"PYTHONPATH": str(ROOT)}
    program = ("metrics", Path(sys.executable), ("-m", "services.metrics"), inherited | settings)
    server = ManagedProcess(Command("nats-server", nats_binary(), ("--config", str(config))), tmp_path / "nats.log")
    service = ManagedProcess(Command(*program), tmp_path / "metrics.log")
    await server.start()
    try:
        await service.start()
        connected = await eventually(lambda: _users(f"http://127.0.0.1:{monitor}/connz?auth=true"), WITHIN_S)
        assert connected == {"metrics"}, service.last_lines()
        password = (tmp_path / "credentials" / "metrics.password").read_text()
        # Who trusts other authorities does not talk to it.
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(
                connect_bus(
                    "metrics", settings["SLUICE_NATS_URL"], "metrics", password, tls=ssl.create_default_context()
                ),
                1,
            )
    finally:
        await service.stop()
        await server.stop()


async def _users(connections: str) -> set[str]:
    """Who is connected over TLS, as the server's monitoring says; nobody while it does not answer."""

    def read() -> Any:
        with urllib.request.urlopen(connections, timeout=5) as answer:
            return msgspec.json.decode(answer.read())

    try:
        listed = (await asyncio.to_thread(read))["connections"]
    except OSError:
        return set()
    return {one["authorized_user"] for one in listed if one.get("tls_version") and one.get("authorized_user")}
