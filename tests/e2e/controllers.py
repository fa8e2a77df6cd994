"""Controllers of kinds of jobs as processes beside a running stack, with their own definitions and webhooks, read from their modules.

Their webhooks are called by URL, with a certificate that is made here: there is no network in which a Service would lead to them.
"""

from __future__ import annotations

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
from tests.eventually import eventually
from tests.integration.stack.manifests import as_list

Manifest = dict[str, Any]
STARTS_WITHIN_S = 60.0
MODULES = {module.name: module for module in JOB_CONTROLLERS}


class Controllers:
    """All of them."""

    def __init__(self, cluster: DevCluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.processes: dict[str, ManagedProcess] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Controllers]:
        """Installed, started and ready."""
        try:
            await self._jobset()
            yield self
        finally:
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

    async def _apply(self, *documents: Manifest) -> None:
        await self.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=as_list(*documents))
        if any(document["kind"] == "CustomResourceDefinition" for document in documents):
            await self.cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")

    async def _start(self, name: str, arguments: tuple[str, ...], health: int) -> None:
        module: GoModule = MODULES[name]
        user = self.cluster.user_kubeconfig(f"system:serviceaccount:e2e:{name}", "system:masters")
        inherited = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME")}
        command = Command(name, built_directory(module) / name, arguments, {**inherited, "KUBECONFIG": str(user)})
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
