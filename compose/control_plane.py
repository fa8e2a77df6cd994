"""The control plane of compose.yaml: a devcluster that other containers and the host can reach. Runs no service of Sluice.

1. Start etcd, kube-apiserver, kube-controller-manager, kube-scheduler and KWOK; they listen on this container's loopback.
2. Install CRDs, RBAC and the webhook configurations.
3. Write kubeconfigs: the watcher's and the webhook's (a token each, with what k8s/rbac grants), and the administrator's.
4. Pass connections to the port that others know on to the API server. The healthcheck finds that port open only now.
5. Renew the tokens long before they end; end when a part dies, so that the engine starts this container again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
from pathlib import Path

import msgspec

from devcluster.cluster import DevCluster
from devcluster.kubeconfig import Kubeconfig, NamedCluster, write_kubeconfig
from devcluster.options import ClusterOptions

ROOT = Path(__file__).resolve().parent.parent
NAMESPACE = "kueue-system"
ACCOUNTS = ("watcher", "webhook")
SERVER_NAME = "kubernetes"
"""A name that is in the API server's certificate, under whatever address it is reached."""
TOKEN_SECONDS = 24 * 3600
CHUNK = 1 << 16


def readdressed(kubeconfig: Path, server: str) -> Kubeconfig:
    """The same credentials, for the server at another address."""
    content = msgspec.json.decode(kubeconfig.read_bytes(), type=Kubeconfig)
    entry = msgspec.structs.replace(content.clusters[0].cluster, server=server, tls_server_name=SERVER_NAME)
    return msgspec.structs.replace(content, clusters=(NamedCluster(content.clusters[0].name, entry),))


def replace_kubeconfig(path: Path, content: Kubeconfig) -> None:
    """No reader finds half a file."""
    write_kubeconfig(path.with_suffix(".new"), content).replace(path)


async def install(cluster: DevCluster) -> None:
    """What `kubectl apply -k k8s/local` installs, established."""
    await cluster.kubectl("apply", "--server-side", "-k", str(ROOT / "k8s" / "local"))
    await cluster.kubectl("wait", "--for=condition=Established", "crd", "-l", "app.kubernetes.io/part-of=sluice")


async def write_tokens(cluster: DevCluster, folder: Path, server: str) -> None:
    """`<folder>/<service>.kubeconfig` with a fresh token."""
    for service in ACCOUNTS:
        path = await cluster.service_account_kubeconfig(NAMESPACE, f"sluice-{service}", TOKEN_SECONDS)
        replace_kubeconfig(folder / f"{service}.kubeconfig", readdressed(path, server))


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Bytes one way, until either side ends."""
    with contextlib.suppress(ConnectionError, TimeoutError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()


async def forward(host: str, port: int, target: int) -> asyncio.Server:
    """Listen on `host:port` and pass every connection on to loopback's `target`."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            to_server, from_client = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            writer.close()
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(pass_on(reader, from_client))
            group.create_task(pass_on(to_server, writer))

    return await asyncio.start_server(connected, host, port)


async def run(given: argparse.Namespace) -> int:
    """0 after a signal, 1 when a part of the control plane died."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with DevCluster(ClusterOptions(default_pod_seconds=given.pod_seconds)) as cluster:
        await install(cluster)
        server = f"https://{given.name}:{given.port}"
        await write_tokens(cluster, given.kubeconfigs, server)
        replace_kubeconfig(given.admin / "kubeconfig", readdressed(cluster.kubeconfig, server))
        at_host = readdressed(cluster.kubeconfig, f"https://127.0.0.1:{given.port}")
        replace_kubeconfig(given.admin / "host.kubeconfig", at_host)
        listening = await forward(given.listen, given.port, cluster.ports.apiserver)
        print(f"ready on port {given.port}", flush=True)
        died = asyncio.create_task(cluster.first_exit())
        stopped = asyncio.create_task(stop.wait())
        try:
            while not (died.done() or stopped.done()):
                await asyncio.wait({died, stopped}, timeout=TOKEN_SECONDS / 2, return_when=asyncio.FIRST_COMPLETED)
                if not (died.done() or stopped.done()):
                    await write_tokens(cluster, given.kubeconfigs, server)
            if died.done() and not stopped.done():
                print(f"{died.result()} ended:\n{cluster.last_lines(died.result())}", flush=True)
                return 1
            return 0
        finally:
            died.cancel()
            stopped.cancel()
            listening.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--listen", default="0.0.0.0", help="address to listen on")
    parser.add_argument("--port", type=int, default=6443)
    parser.add_argument("--name", default="control-plane", help="name of this container in the network")
    parser.add_argument("--kubeconfigs", type=Path, default=Path("/kubeconfigs"), help="for the services")
    parser.add_argument("--admin", type=Path, default=Path("/admin"), help="for the administrator")
    parser.add_argument("--pod-seconds", type=float, default=float(os.environ.get("POD_SECONDS", "3")))
    raise SystemExit(asyncio.run(run(parser.parse_args())))


if __name__ == "__main__":
    main()
