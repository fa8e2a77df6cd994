"""Kueue manages Jobs, Sluice takes over, Kueue takes over again: with Kueue's own controller.

    make handback        builds Kueue, then runs this

No running Job notices either change, what waits goes on, and each sets and clears what the other wrote.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from cli.hand_back import HandBackError, hand_back
from devcluster.cluster import DevCluster
from devcluster.kubectl import KubectlError
from devcluster.options import ClusterOptions, NodeGroup
from devcluster.ports import free_ports
from services.watcher.standing import HOLDER
from shared.kube.client import KubeClient, connect
from shared.kube.errors import ServerTimeout
from shared.kube.resources import CLUSTER_QUEUES, JOBS, PODS, WORKLOADS
from tests.eventually import eventually
from tests.handback import egress
from tests.handback.controller import NAMESPACE, SECRET, Kueue
from tests.integration.kueue_lease import holder, until_held
from tests.integration.stack import manifests
from tests.integration.test_all_in_one import AllInOne

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

QUEUE = "swap"
WAIT_S = 60.0
Document = dict[str, Any]


class World:
    """The cluster as a person sees it, whoever manages it."""

    def __init__(self, cluster: DevCluster, client: KubeClient, kueue: Kueue) -> None:
        self.cluster, self.client, self.kueue = cluster, client, kueue

    async def job(self, name: str) -> Document:
        found: Document = msgspec.json.decode(await self.client.get(JOBS, "default", name))
        return found

    async def create(self, name: str) -> None:
        """A Job that runs until it is deleted and takes half of the queue. Tried again while its webhook is refused for a certificate of before."""
        body = msgspec.json.encode(manifests.job(name, QUEUE, run_seconds="forever"))

        async def created() -> bool:
            try:
                await self.client.create(JOBS, "default", body)
            except ServerTimeout as error:
                if "failed calling webhook" not in error.message:
                    raise
                return False
            return True

        assert await eventually(created, WAIT_S)

    async def delete(self, name: str) -> None:
        await self.cluster.kubectl("delete", "job", name, "-n", "default", "--wait=false")

    async def workload(self, name: str) -> Document:
        uid = (await self.job(name))["metadata"]["uid"]
        there = msgspec.json.decode(await self.client.list_page(WORKLOADS, "default"))["items"]
        owned = [w for w in there if any(o["uid"] == uid for o in w["metadata"].get("ownerReferences") or ())]
        return owned[0] if len(owned) == 1 else {}

    async def pods(self, name: str) -> dict[str, str]:
        """UID -> phase of those that have not ended."""
        query = {"labelSelector": f"batch.kubernetes.io/job-name={name}"}
        there = msgspec.json.decode(await self.client.list_page(PODS, "default", query=query))["items"]
        return {p["metadata"]["uid"]: p["status"]["phase"] for p in there if "deletionTimestamp" not in p["metadata"]}

    async def until_running(self, name: str) -> set[str]:
        """UIDs of its pods."""

        async def running() -> bool:
            return list((await self.pods(name)).values()) == ["Running"] and admitted(await self.workload(name))

        assert await eventually(running, WAIT_S), (name, await self.workload(name))
        return set(await self.pods(name))

    async def until_waiting(self, name: str) -> None:
        """Suspended, and its Workload says that it has no quota."""

        async def waiting() -> bool:
            workload = await self.workload(name)
            return (
                (await self.job(name))["spec"]["suspend"] is True
                and workload.get("status", {}).get("admission") is None
                and condition(workload, "QuotaReserved").get("status") == "False"
            )

        assert await eventually(waiting, WAIT_S), (name, await self.workload(name))

    async def stop_policy(self, policy: str) -> None:
        body = msgspec.json.encode({"spec": {"stopPolicy": policy}})
        await self.client.patch(CLUSTER_QUEUES, "", QUEUE, body)


def condition(workload: Document, type_: str) -> Document:
    found: list[Document] = workload.get("status", {}).get("conditions") or []
    return next((c for c in found if c["type"] == type_), {})


def admitted(workload: Document) -> bool:
    return condition(workload, "Admitted").get("status") == "True" and "admission" in workload["status"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder = tmp_path_factory.mktemp("kueue")
    socket, egress_file = folder / "egress", folder / "egress.yaml"
    egress_file.write_text(egress.configuration(socket))
    ports = free_ports(3)
    options = ClusterOptions(
        nodes=(NodeGroup(name="node"),),
        default_pod_seconds=0.3,
        apiserver_flags=(f"--egress-selector-config-file={egress_file}",),
    )
    async with (
        egress.proxy(socket, ports[0]),
        DevCluster(options) as cluster,
        await connect(str(cluster.kubeconfig), timeout_s=20.0) as client,
    ):
        kueue = Kueue(cluster, folder, (ports[0], ports[1], ports[2]))
        kubelet = asyncio.create_task(egress.mounted(client, NAMESPACE, SECRET, kueue.certificates))
        try:
            yield World(cluster, client, kueue)
        finally:
            kubelet.cancel()


async def _handed_back(world: World) -> bool:
    """Once the Lease has run out."""
    try:
        return (await hand_back(str(world.cluster.kubeconfig), NAMESPACE)).changed > 0
    except HandBackError:
        return False


async def test_there_and_back_with_kueue_itself(world: World, tmp_path: Path) -> None:
    kueue, sluice = world.kueue, AllInOne(world.cluster.kubeconfig, tmp_path, "--install", "all")
    before, after = kueue.process("before"), kueue.process("after")
    await kueue.install()
    await before.start()
    try:
        # Kueue manages.
        await until_held(world.client, WAIT_S, by_us=False)
        queue = manifests.as_list(*manifests.queue(QUEUE, "2"))

        async def accepted() -> str:
            try:
                return await world.cluster.kubectl("apply", "-f", "-", stdin=queue)
            except KubectlError:
                # Its webhooks do not answer yet.
                return ""

        assert await eventually(accepted, WAIT_S), before.last_lines()
        for name in ("runs", "ends"):
            await world.create(name)
        pods = {name: await world.until_running(name) for name in ("runs", "ends")}
        await world.create("waits")
        await world.until_waiting("waits")
        as_kueue_left = await world.workload("runs")
        await before.stop()

        # Sluice takes over, and nobody notices.
        await sluice.start()
        await sluice.until_ready()
        await until_held(world.client, WAIT_S, by_us=True)
        assert {name: await world.until_running(name) for name in pods} == pods
        await world.delete("ends")
        pods["waits"] = await world.until_running("waits")
        await world.create("later")
        await world.until_waiting("later")
        conditions = (await world.workload("runs"))["status"]["conditions"]
        # That its pods are ready, Kueue told only if it was configured to, at this version.
        assert [c for c in conditions if c["type"] != "PodsReady"] == as_kueue_left["status"]["conditions"]

        # A Kueue beside it stands by.
        await after.start()

        async def standing_by() -> bool:
            return "attempting to acquire leader lease" in after.log.read_text().lower()

        assert await eventually(standing_by, WAIT_S), after.last_lines()
        assert await holder(world.client) == HOLDER

        # An active Sluice would write on.
        with pytest.raises(HandBackError, match="stop it first"):
            await hand_back(str(world.cluster.kubeconfig), NAMESPACE)
        await sluice.stop()
        await kueue.make_room()
        assert await eventually(partial(_handed_back, world), WAIT_S)
        await kueue.install()

        # Kueue takes over again, and nobody notices.
        await until_held(world.client, WAIT_S, by_us=False)
        assert {name: await world.until_running(name) for name in ("runs", "waits")} == {
            name: pods[name] for name in ("runs", "waits")
        }
        await world.delete("runs")
        await world.until_running("later")

        # It clears what Sluice set (waits), and what it set over Sluice's (later), and sets it again.
        await world.stop_policy("HoldAndDrain")
        for name in ("waits", "later"):
            await world.until_waiting(name)
        await world.stop_policy("None")
        for name in ("waits", "later"):
            await world.until_running(name)
    finally:
        if sluice.process is not None:
            await sluice.stop()
        for process in (before, after):
            await process.stop()
