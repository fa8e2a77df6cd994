"""The controllers of JobSet, of Kubeflow and of Ray as processes beside a running stack, with their own manifests, read from their modules.

What a cluster would do for them is done here: a Service leads to the port of a webhook (`tests.handback.egress`), a Secret is mounted.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from devcluster.build import JOB_CONTROLLERS, GoModule, built_directory, downloaded
from devcluster.certificates import CertificateAuthority
from devcluster.cluster import DevCluster
from devcluster.ports import free_ports
from devcluster.processes import Command, ManagedProcess
from shared.kube.client import KubeClient
from tests.eventually import eventually
from tests.handback import egress
from tests.integration.stack.manifests import as_list

Manifest = dict[str, Any]
STARTS_WITHIN_S = 60.0
MODULES = {module.name: module for module in JOB_CONTROLLERS}
CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")
"""Where the training operator has its Secret mounted; it takes no other place."""
KUBEFLOW, KUBEFLOW_SECRET = "kubeflow", "training-operator-webhook-cert"


class Controllers:
    """All of them. `webhook_port`: where whatever is asked for by a Service's address has to lead."""

    def __init__(self, cluster: DevCluster, client: KubeClient, folder: Path, webhook_port: int) -> None:
        self.cluster, self.client, self.folder = cluster, client, folder
        self.processes: dict[str, ManagedProcess] = {}
        self._webhook_port = webhook_port
        CERTIFICATES.mkdir(parents=True, exist_ok=True)
        for left in CERTIFICATES.glob("*"):
            # Of another run: they would be served until the new ones are there.
            left.unlink()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Controllers]:
        """Installed, started and ready."""
        mounting = asyncio.create_task(egress.mounted(self.client, KUBEFLOW, KUBEFLOW_SECRET, CERTIFICATES))
        try:
            for start in (self._jobset, self._training_operator, self._kuberay):
                await start()
            yield self
        finally:
            mounting.cancel()
            for process in self.processes.values():
                await process.stop()

    async def _jobset(self) -> None:
        components = downloaded(MODULES["jobset"], "sigs.k8s.io/jobset") / "config" / "components"
        port, health = free_ports(2)
        authority = CertificateAuthority(self.folder / "jobset")
        pair = authority.server("webhook")
        pair.certificate.rename(self.folder / "jobset" / "tls.crt")
        pair.key.rename(self.folder / "jobset" / "tls.key")
        configuration = self.folder / "jobset.yaml"
        configuration.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
                    "kind": "Configuration",
                    "internalCertManagement": {"enable": False},
                    "leaderElection": {"leaderElect": False},
                    "metrics": {"bindAddress": "0"},
                    "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
                    "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(self.folder / "jobset")},
                }
            )
        )
        await self._apply(*_documents(components / "crd" / "bases" / "jobset.x-k8s.io_jobsets.yaml"))
        await self._start("jobset", (f"--config={configuration}",), health)
        webhooks = _documents(components / "webhook" / "manifests.yaml")
        for document in webhooks:
            document["metadata"]["name"] = f"jobset-{document['metadata']['name']}"
            for webhook in document["webhooks"]:
                url = f"https://127.0.0.1:{port}{webhook['clientConfig']['service']['path']}"
                trusted = base64.b64encode(authority.certificate.read_bytes()).decode()
                webhook["clientConfig"] = {"url": url, "caBundle": trusted}
        await self._apply(*webhooks)

    async def _training_operator(self) -> None:
        module = downloaded(MODULES["training-operator"], "github.com/kubeflow/training-operator")
        rendered = await self.cluster.kubectl("kustomize", str(module / "manifests" / "overlays" / "standalone"))
        wanted = [o for o in yaml.load_all(rendered, yaml.CSafeLoader) if o and o["kind"] != "Deployment"]
        # The namespace before what is in it.
        await self._apply(*(o for o in wanted if o["kind"] == "Namespace"))
        await self._apply(*wanted)
        (health,) = free_ports(1)
        flags = (
            "--metrics-bind-address=0",
            f"--health-probe-bind-address=127.0.0.1:{health}",
            f"--webhook-server-port={self._webhook_port}",
            "--enable-scheme=pytorchjob",
            "--enable-scheme=tfjob",
        )
        await self._start("training-operator", flags, health, MY_POD_NAMESPACE=KUBEFLOW)

    async def _kuberay(self) -> None:
        module = downloaded(MODULES["kuberay"], "github.com/ray-project/kuberay/ray-operator")
        for definition in sorted((module / "config" / "crd" / "bases").glob("*.yaml")):
            await self._apply(*_documents(definition))
        (health,) = free_ports(1)
        flags = (
            "--metrics-addr=0",
            f"--health-probe-bind-address=127.0.0.1:{health}",
            "--enable-leader-election=false",
        )
        await self._start("kuberay", flags, health)

    async def _apply(self, *documents: Manifest) -> None:
        await self.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=as_list(*documents))
        if any(document["kind"] == "CustomResourceDefinition" for document in documents):
            await self.cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")

    async def _start(self, name: str, arguments: tuple[str, ...], health: int, **environment: str) -> None:
        module: GoModule = MODULES[name]
        user = self.cluster.user_kubeconfig(f"system:serviceaccount:e2e:{name}", "system:masters")
        inherited = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME")}
        command = Command(
            name, built_directory(module) / name, arguments, {**inherited, "KUBECONFIG": str(user), **environment}
        )
        process = self.processes[name] = ManagedProcess(command, self.folder / f"{name}.log")
        await process.start()

        async def ready() -> bool:
            process.check()
            try:
                async with (
                    aiohttp.ClientSession() as session,
                    session.get(f"http://127.0.0.1:{health}/readyz") as answer,
                ):
                    return answer.status == 200
            except aiohttp.ClientError:
                return False

        assert await eventually(ready, STARTS_WITHIN_S), process.last_lines()


def _documents(path: Path) -> list[Manifest]:
    return [document for document in yaml.load_all(path.read_text(), yaml.CSafeLoader) if document]
