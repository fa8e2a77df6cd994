"""From Kueue to Sluice and back, by Kueue's own leader election: a real client-go elector on the Lease that elects Kueue's leader.

The elector is a second kube-scheduler, told to use that Lease; what it would schedule does not matter here. And the webhook configurations as a Kueue
that was installed by Helm leaves them: another field manager, and webhooks of kinds that Sluice does not answer for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from devcluster.cluster import DevCluster
from devcluster.options import ClusterOptions, NodeGroup
from devcluster.ports import free_ports
from devcluster.processes import Command, ManagedProcess
from services.watcher.standing import HOLDER
from shared.kube.client import APPLY_PATCH, KubeClient, connect
from shared.kube.errors import NotFound
from shared.kube.resources import JOBS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from tests.eventually import eventually
from tests.integration.kueue_lease import LEASE, NAMESPACE, holder, until_held
from tests.integration.stack import manifests
from tests.integration.test_all_in_one import AllInOne

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

WAIT_S = 90.0


class Swap:
    """The cluster, and its Kueue."""

    def __init__(self, cluster: DevCluster, client: KubeClient, folder: Path) -> None:
        self.cluster, self.client, self.folder = cluster, client, folder

    def kueue(self, name: str) -> ManagedProcess:
        """A process that stands for the Lease as Kueue does, with Kueue's 15 s, 10 s and 2 s."""
        (port,) = free_ports(1)
        arguments = (
            f"--kubeconfig={self.cluster.kubeconfig}",
            f"--authentication-kubeconfig={self.cluster.kubeconfig}",
            f"--authorization-kubeconfig={self.cluster.kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={self.folder / name}",
            "--leader-elect=true",
            f"--leader-elect-resource-namespace={NAMESPACE}",
            f"--leader-elect-resource-name={LEASE}",
        )
        program = self.cluster.kubectl_program.parent / "kube-scheduler"
        return ManagedProcess(Command(name, program, arguments), self.folder / f"{name}.log")

    async def webhooks(self, resource: Any, name: str) -> set[str]:
        try:
            found = msgspec.json.decode(await self.client.get(resource, "", name))
        except NotFound:
            return set()
        return {w["name"] for w in found["webhooks"]}

    async def helm_left(self, resource: Any, name: str, *webhooks: str) -> None:
        """As Helm applied it, every webhook for a namespace that is not there."""
        service = {"name": "kueue-webhook-service", "namespace": NAMESPACE, "path": "/kueues"}
        body = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": resource.kind,
            "metadata": {"name": name},
            "webhooks": [
                {
                    "name": webhook,
                    "admissionReviewVersions": ["v1"],
                    "clientConfig": {"service": service},
                    "sideEffects": "None",
                    "failurePolicy": "Fail",
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
                    "rules": [
                        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                    ],
                }
                for webhook in webhooks
            ],
        }
        await self.client.patch(
            resource, "", name, msgspec.json.encode(body), content_type=APPLY_PATCH, field_manager="helm"
        )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def swap(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Swap]:
    options = ClusterOptions(nodes=(NodeGroup(name="node"),), default_pod_seconds=0.3)
    async with DevCluster(options) as cluster, await connect(str(cluster.kubeconfig), timeout_s=20.0) as client:
        await cluster.kubectl("create", "namespace", NAMESPACE)
        yield Swap(cluster, client, tmp_path_factory.mktemp("swap"))


async def test_there_and_back(swap: Swap, tmp_path: Path) -> None:
    mutating, validating = "kueue-mutating-webhook-configuration", "kueue-validating-webhook-configuration"
    kueue, sluice = swap.kueue("kueue"), AllInOne(swap.cluster.kubeconfig, tmp_path, "--install", "all")
    await kueue.start()
    try:
        await until_held(swap.client, WAIT_S, by_us=False)
        await swap.helm_left(MUTATING_WEBHOOKS, mutating, "mjob.kb.io", "mpod.kb.io")
        await swap.helm_left(VALIDATING_WEBHOOKS, validating, "vjob.kb.io", "vpod.kb.io")

        # Kueue is the leader: Sluice stands by.
        await sluice.start()

        async def waits() -> bool:
            return "standby of Kueue (" in (await sluice.get(sluice.health, "/readyz"))[1]

        assert await eventually(waits, WAIT_S), sluice.text
        assert await holder(swap.client) != HOLDER

        # Kueue is stopped: its time runs out, Sluice is active, and what it left in the way is gone.
        await kueue.stop()
        await until_held(swap.client, WAIT_S, by_us=True)
        await sluice.until_ready()

        async def ours_alone() -> bool:
            left = await swap.webhooks(MUTATING_WEBHOOKS, mutating) | await swap.webhooks(
                VALIDATING_WEBHOOKS, validating
            )
            return {"mjob.kb.io", "vjob.kb.io"} < left and not {"mpod.kb.io", "vpod.kb.io"} & left

        assert await eventually(ours_alone, WAIT_S), sluice.text
        await swap.cluster.kubectl("apply", "-f", "-", stdin=manifests.as_list(*manifests.queue("swap")))
        job = manifests.job("swap", "swap", run_seconds="0.3")
        await swap.client.create(JOBS, "default", msgspec.json.encode(job))

        async def complete() -> bool:
            found = msgspec.json.decode(await swap.client.get(JOBS, "default", "swap"))
            return any(c["type"] == "Complete" for c in found["status"].get("conditions") or ())

        assert await eventually(complete, WAIT_S), sluice.text

        # A Kueue that runs beside it stands by, and is the leader once Sluice has stopped.
        back = swap.kueue("back")
        await back.start()
        try:

            async def waiting() -> bool:
                return "attempting to acquire leader lease" in swap.folder.joinpath("back.log").read_text().lower()

            assert await eventually(waiting, WAIT_S)
            assert await holder(swap.client) == HOLDER
            await sluice.stop()
            await until_held(swap.client, WAIT_S, by_us=False)
        finally:
            await back.stop()
    finally:
        await kueue.stop()
        await sluice.stop()
