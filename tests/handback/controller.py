"""Kueue's controller as a process beside a devcluster: its own manifests, with webhooks and conversion at this machine's port instead of a Service.

Everything of Kueue is read from its module when the test runs; nothing of it is in this repository.
"""

from __future__ import annotations

import base64
import os
import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from devcluster.build import GO_DIRECTORY, KUEUE, built_directory
from devcluster.cluster import DevCluster
from devcluster.ports import free_ports
from devcluster.processes import Command, ManagedProcess
from devcluster.toolchain import find_go, required_version
from services.watcher.certificates import make_pair
from tests.integration.stack.manifests import as_list

NAMESPACE = "kueue-system"
MANAGER = "helm"
USER = f"system:serviceaccount:{NAMESPACE}:kueue-controller-manager"
KINDS = ("CustomResourceDefinition", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
Manifest = dict[str, Any]


@cache
def module_folder() -> Path:
    """Where the module of Kueue is, downloaded for its build."""
    source = GO_DIRECTORY / KUEUE.name
    go = find_go(required_version((source / "go.mod").read_text()))
    command = [str(go), "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue"]
    environment = {**os.environ, "GOWORK": "off"}
    listed = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=True)
    return Path(listed.stdout.strip())


class Kueue:
    """One installation of it. Each `process` is one run of its controller."""

    def __init__(self, cluster: DevCluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.port, self.health, self.metrics = free_ports(3)
        self.certificates = folder / "certificates"
        self.certificates.mkdir()
        pair = make_pair(("127.0.0.1",), datetime.now(UTC))
        self._ca = base64.b64encode(pair.ca).decode()
        (self.certificates / "tls.crt").write_bytes(pair.certificate)
        (self.certificates / "tls.key").write_bytes(pair.key)
        self.configuration = folder / "controller_manager_config.yaml"
        self.configuration.write_text(yaml.safe_dump(self._configuration()))

    def _configuration(self) -> Manifest:
        return {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": NAMESPACE,
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self.health}"},
            "metrics": {"bindAddress": f"127.0.0.1:{self.metrics}"},
            "webhook": {"host": "127.0.0.1", "port": self.port, "certDir": str(self.certificates)},
            "internalCertManagement": {"enable": False},
            "leaderElection": {
                "leaderElect": True,
                "resourceName": "c1f6bfd2.kueue.x-k8s.io",
                "resourceNamespace": NAMESPACE,
            },
            "integrations": {"frameworks": ["batch/job"]},
        }

    def process(self, name: str) -> ManagedProcess:
        """Not started yet; its log is `<name>.log`."""
        environment = {
            **{k: v for k, v in os.environ.items() if k in ("PATH", "HOME")},
            "KUBECONFIG": str(self.cluster.user_kubeconfig(USER, "system:masters")),
            "POD_NAMESPACE": NAMESPACE,
        }
        arguments = (f"--config={self.configuration}", "--feature-gates=VisibilityOnDemand=false", "--zap-log-level=2")
        command = Command(name, built_directory(KUEUE) / "kueue", arguments, environment)
        return ManagedProcess(command, self.folder / f"{name}.log")

    async def install(self) -> None:
        """Its definitions and webhook configurations, as helm applies them over whatever is there."""
        rendered = await self.cluster.kubectl("kustomize", str(module_folder() / "config" / "default"))
        wanted = [self._pointed(o) for o in yaml.load_all(rendered, yaml.CSafeLoader) if o and o["kind"] in KINDS]
        await self.cluster.kubectl(
            "apply", "--server-side", "--force-conflicts", f"--field-manager={MANAGER}", "-f", "-",
            stdin=as_list(*wanted),
        )  # fmt: skip
        await self.cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")

    async def remove_webhooks(self) -> None:
        """As the page on migration says, where Kueue's manifests do not know what Sluice's webhooks have."""
        for kind in ("mutating", "validating"):
            name = f"kueue-{kind}-webhook-configuration"
            await self.cluster.kubectl("delete", f"{kind}webhookconfiguration", name, "--ignore-not-found")

    def _pointed(self, document: Manifest) -> Manifest:
        if document["kind"] == "CustomResourceDefinition":
            conversion = document["spec"].get("conversion") or {}
            if "webhook" in conversion:
                conversion["webhook"]["clientConfig"] = self._client(conversion["webhook"]["clientConfig"])
            return document
        for webhook in document["webhooks"]:
            webhook["clientConfig"] = self._client(webhook["clientConfig"])
        return document

    def _client(self, config: Manifest) -> Manifest:
        return {"url": f"https://127.0.0.1:{self.port}{config['service']['path']}", "caBundle": self._ca}
