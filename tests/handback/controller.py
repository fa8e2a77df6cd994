"""Kueue's controller as a process beside a devcluster, with its own manifests, read from its module when the test runs."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from devcluster.build import KUEUE, built_directory, downloaded
from devcluster.cluster import DevCluster
from devcluster.processes import Command, ManagedProcess
from tests.integration.stack.manifests import as_list

NAMESPACE = "kueue-system"
SECRET = "kueue-webhook-server-cert"
MANAGER = "helm"
USER = f"system:serviceaccount:{NAMESPACE}:kueue-controller-manager"
NOT_HERE = ("Deployment", "APIService")
"""Its pods would only be played, and its visibility API is switched off."""
Manifest = dict[str, Any]


@cache
def module_folder() -> Path:
    """Where the module of Kueue is, downloaded for its build."""
    return downloaded(KUEUE, "sigs.k8s.io/kueue")


class Kueue:
    """One installation of it. Each `process` is one run of its controller."""

    def __init__(self, cluster: DevCluster, folder: Path, ports: tuple[int, int, int]) -> None:
        """`ports`: of the webhooks, of health and of metrics."""
        self.cluster, self.folder = cluster, folder
        self.port, self.health, self.metrics = ports
        self.certificates = folder / "certificates"
        self.certificates.mkdir()
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
            "internalCertManagement": {
                "enable": True,
                "webhookServiceName": "kueue-webhook-service",
                "webhookSecretName": SECRET,
            },
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
        """All of it but its pods, as helm applies it over whatever is there."""
        rendered = await self.cluster.kubectl("kustomize", str(module_folder() / "config" / "default"))
        wanted = [o for o in yaml.load_all(rendered, yaml.CSafeLoader) if o and o["kind"] not in NOT_HERE]
        # The namespace before what is in it.
        for documents in ([o for o in wanted if o["kind"] == "Namespace"], wanted):
            await self.cluster.kubectl(
                "apply", "--server-side", "--force-conflicts", f"--field-manager={MANAGER}", "-f", "-",
                stdin=as_list(*documents),
            )  # fmt: skip
        await self.cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")

    async def make_room(self) -> None:
        """What stands in the way of its manifests when Sluice ran beside the cluster: webhooks and conversion by URL instead of by Service."""
        for kind in ("mutating", "validating"):
            name = f"kueue-{kind}-webhook-configuration"
            await self.cluster.kubectl("delete", f"{kind}webhookconfiguration", name, "--ignore-not-found")
        crds = msgspec.json.decode(await self.cluster.kubectl("get", "crd", "-o", "json"))["items"]
        for crd in crds:
            config = crd["spec"].get("conversion", {}).get("webhook", {}).get("clientConfig", {})
            if "url" in config:
                change = '[{"op":"remove","path":"/spec/conversion/webhook/clientConfig/url"},'
                change += '{"op":"add","path":"/spec/conversion/webhook/clientConfig/service","value":'
                change += f'{{"name":"kueue-webhook-service","namespace":"{NAMESPACE}","path":"/convert"}}}}]'
                await self.cluster.kubectl("patch", "crd", crd["metadata"]["name"], "--type=json", "-p", change)
