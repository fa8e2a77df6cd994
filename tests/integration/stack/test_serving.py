"""Kinds whose pods queue go through a life on a real control plane: gated, admitted, started, evicted, gated again, readmitted, scaled to zero; and are deleted
in each of these states, one by one or with their namespace. And pods of groups that somebody deletes by force.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import pytest_asyncio
import yaml

from cli.integrations import component
from devcluster.audit import read_events
from devcluster.options import ClusterOptions, NodeGroup
from devcluster.stack import Stack
from shared.jobs.protocol import JobKind
from shared.kube.client import KubeClient, connect
from shared.kube.errors import Forbidden, NotFound
from shared.kube.resources import PODS, STATEFUL_SETS, WORKLOADS, Resource
from tests.eventually import eventually
from tests.integration.stack.configured import configured_stack
from tests.integration.stack.kind_cluster import SECONDS, TAINT, Cluster, condition, holds
from tests.integration.stack.kind_rows import definition
from tests.integration.stack.manifests import Manifest, cluster_queue, flavor, local_queue
from tests.integration.stack.serving_rows import ROWS, Row
from tests.integration.stack.test_kinds import in_phase, pod

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

FRAMEWORKS = ("batch/job", "pod", *(row.kind.framework for row in ROWS))
NODES = (NodeGroup(name="node", count=2, labels={"node-type": "plain"}),)
SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "samples" / "serving-workloads"
STATEFUL = next(row for row in ROWS if str(row) == "StatefulSet")
GROUPS = next(row for row in ROWS if str(row) == "LeaderWorkerSet")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    document = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "integrations": {"frameworks": list(FRAMEWORKS)},
    }
    options = ClusterOptions(nodes=NODES, default_pod_seconds=0.5, audit=True)
    components = tuple(component(framework) for framework in FRAMEWORKS if framework != "batch/job")
    folder: Path = tmp_path_factory.mktemp("configuration")
    async with configured_stack(folder, json.dumps(document), options, components) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(stack: Stack) -> AsyncIterator[KubeClient]:
    async with await connect(str(stack.cluster.kubeconfig), user_agent="test", timeout_s=10.0) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(stack: Stack, client: KubeClient) -> Cluster:
    made = Cluster(stack, client)
    await made.apply(definition(cast(JobKind, GROUPS.kind)))

    async def served() -> bool:
        try:
            await client.list_page(resource_of(GROUPS))
        except NotFound:
            return False
        return True

    assert await eventually(served, SECONDS)
    return made


def resource_of(row: Row) -> Resource:
    return Resource(row.kind.group, row.kind.version, row.kind.plural, row.kind.kind)


class Life:
    """One object of a kind, with the controller that it would have."""

    def __init__(self, cluster: Cluster, row: Row, name: str, queue: str = "", namespace: str = "default") -> None:
        self.cluster, self.row, self.name, self.queue = cluster, row, name, queue or name
        self.namespace = namespace
        self.resource = resource_of(row)

    async def create(self, cpu: str = "8") -> None:
        await self.cluster.queue(self.queue, cpu)
        await self.cluster.create(self.resource, self.row.made(self.name, self.queue))

    async def change(self, change: Manifest) -> None:
        await self.cluster.client.patch(self.resource, self.namespace, self.name, msgspec.json.encode(change))

    async def controlled(self) -> None:
        """Its controller has seen what there is."""
        if found := await self.cluster.get(self.resource, self.name, self.namespace):
            await self.row.controller(self.cluster, found)

    async def pods(self) -> list[Manifest]:
        await self.controlled()
        query = {"labelSelector": f"app={self.name}"}
        page = await self.cluster.client.list_page(PODS, self.namespace, query=query)
        return list(msgspec.json.decode(page)["items"])

    async def workloads(self) -> list[Manifest]:
        """Those that it owns, or its pods do."""
        return [
            found
            for found in await self.cluster.workloads(self.namespace)
            if any(o["name"].startswith(self.name) for o in found["metadata"].get("ownerReferences", ()))
        ]

    async def gated(self) -> None:
        """Its pods wait, with nothing that an admission gave them."""

        async def all_are() -> bool:
            found = await self.pods()
            return len(found) == self.row.first and all(_is_gated(p) and "nodeSelector" not in p["spec"] for p in found)

        await holds(all_are, "all gated")

    async def runs(self, pods: int = 0) -> None:
        async def all_do() -> bool:
            return phases(await self.pods()) == ["Running"] * (pods or self.row.pods)

        await holds(all_do, "all running")
        for found in await self.pods():
            assert found["spec"]["nodeSelector"] == {"node-type": "plain"}
            assert any(t.get("key") == TAINT["key"] for t in found["spec"]["tolerations"])
            assert not _is_gated(found)

    async def activate(self, active: bool) -> None:
        for found in await self.workloads():
            change = msgspec.json.encode({"spec": {"active": active}})
            await self.cluster.client.patch(WORKLOADS, self.namespace, found["metadata"]["name"], change)

    async def evicted(self) -> None:
        before = {p["metadata"]["uid"] for p in await self.pods()}
        await self.activate(False)

        async def others() -> bool:
            await self.controlled()
            return not before & {p["metadata"]["uid"] for p in await self.pods()}

        await holds(others, "its pods are deleted, and made anew")
        if not self.row.own:
            await self.gated()
            await self.free()

    async def free(self) -> None:
        async def nothing() -> bool:
            await self.controlled()
            return await self.cluster.reserving(self.queue) == 0

        await holds(nothing, "its quota is free")

    async def gone(self) -> None:
        async def nothing() -> bool:
            return not await self.pods() and not await self.workloads()

        await holds(nothing, "nothing is left")
        await self.free()


def _is_gated(found: Manifest) -> bool:
    return {"name": "kueue.x-k8s.io/admission"} in found["spec"].get("schedulingGates", ())


def phases(pods: list[Manifest]) -> list[str]:
    return sorted(found["status"]["phase"] for found in pods if not found["metadata"].get("deletionTimestamp"))


def pod_sets(workloads: list[Manifest]) -> list[dict[str, int]]:
    return [{p["name"]: p["count"] for p in found["spec"]["podSets"]} for found in workloads]


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_a_life(cluster: Cluster, row: Row) -> None:
    life = Life(cluster, row, f"life-{row}".lower())
    await life.create(cpu="0")
    await life.gated()

    async def asked() -> bool:
        return pod_sets(await life.workloads()) == row.pod_sets

    await holds(asked, "its workloads")
    await cluster.queue(life.queue, "8")
    await life.runs()
    await life.evicted()
    await life.activate(True)
    await life.runs()
    names = {found["metadata"]["name"] for found in await life.workloads()}
    await life.change({"spec": {"replicas": 0}})

    async def none() -> bool:
        return not await life.pods()

    await holds(none, "no pods")
    await life.free()
    left = await life.workloads()
    if row is STATEFUL:
        assert {found["metadata"]["name"] for found in left} == names
        assert condition(left[0], "QuotaReserved") == ("False", "OnHold")
        await life.change({"spec": {"replicas": 2}})
        await life.runs()
    else:
        assert await eventually(life.workloads, SECONDS, lambda found: found == []) == []


@pytest.mark.parametrize("state", ["pending", "running", "evicted", "at-zero"])
@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_deleted(cluster: Cluster, row: Row, state: str) -> None:
    life = Life(cluster, row, f"deleted-{state}-{row}".lower())
    await life.create(cpu="0" if state == "pending" else "8")
    if state == "pending":
        await life.gated()
    else:
        await life.runs()
    if state == "evicted":
        await life.evicted()
    if state == "at-zero":
        await life.change({"spec": {"replicas": 0}})
        await life.free()
    await cluster.client.delete(life.resource, "default", life.name, propagation="Background")
    await life.gone()


async def test_groups_come_and_go_one_by_one(cluster: Cluster) -> None:
    life = Life(cluster, GROUPS, "comes")
    await life.create(cpu="4")
    await life.runs()
    await life.change({"spec": {"replicas": 3}})

    async def waits() -> bool:
        return phases(await life.pods()) == ["Pending"] * 2 + ["Running"] * 4

    await holds(waits, "the third group waits")
    assert len(await life.workloads()) == 3
    await life.change({"spec": {"replicas": 1}})
    await life.runs(pods=2)
    assert await eventually(lambda: cluster.reserving("comes"), SECONDS, lambda n: n == 1) == 1
    assert [
        w["metadata"]["annotations"]["kueue.x-k8s.io/component-workload-index"] for w in await life.workloads()
    ] == ["0"]


async def test_a_rollout_keeps_the_workload(cluster: Cluster) -> None:
    life = Life(cluster, STATEFUL, "rolls")
    await life.create()
    await life.runs()
    (before,) = await life.workloads()
    image = [{"name": "c", "image": "registry.k8s.io/pause:3.9"}]
    body = msgspec.json.encode({"spec": {"template": {"spec": {"containers": image}}}})
    await cluster.stack.cluster.kubectl("patch", "statefulset", "rolls", "--type=strategic", "-p", body.decode())

    async def rolled() -> bool:
        found = await life.pods()
        return phases(found) == ["Running"] * 2 and all(
            p["spec"]["containers"][0]["image"].endswith("3.9") for p in found
        )

    await holds(rolled, "all pods are new")
    (after,) = await life.workloads()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert condition(after, "Admitted") == ("True", "Admitted")


async def test_a_set_that_waits_moves_to_another_queue(cluster: Cluster) -> None:
    life = Life(cluster, STATEFUL, "moves")
    await life.create(cpu="0")
    await life.gated()
    await cluster.queue("moved")
    await life.change({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "moved"}}})
    await life.runs()
    (found,) = await life.workloads()
    assert found["spec"]["queueName"] == "moved"
    assert {p["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] for p in await life.pods()} == {"moved"}


async def test_what_may_not_change(cluster: Cluster) -> None:
    """Acceptance scenario A28."""
    life = Life(cluster, STATEFUL, "rigid")
    await life.create()
    await life.runs()
    for spec in ({"replicas": 1}, {"template": {"spec": {"nodeSelector": {"a": "b"}}}}):
        with pytest.raises(Forbidden):
            await life.change({"spec": spec})
    with pytest.raises(Forbidden):
        await life.change({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}})


async def test_a_workload_that_somebody_deletes_comes_back(cluster: Cluster) -> None:
    life = Life(cluster, STATEFUL, "again")
    await life.create()
    await life.runs()
    (before,) = await life.workloads()
    await cluster.client.delete(WORKLOADS, "default", before["metadata"]["name"])

    async def another() -> bool:
        found = await life.workloads()
        return [w["metadata"]["uid"] for w in found] not in ([], [before["metadata"]["uid"]])

    await holds(another, "another workload")
    await life.runs()


async def test_the_samples_run_unmodified(cluster: Cluster, stack: Stack) -> None:
    """Of a lone clone there are none."""
    name = "user-queue"
    await cluster.apply(flavor(name), cluster_queue(name, "8"), local_queue(name))
    for file in sorted(SAMPLES.glob("*.yaml")):
        await stack.cluster.kubectl("apply", "-f", str(file))
    manifests = [yaml.safe_load(file.read_text()) for file in sorted(SAMPLES.glob("*.yaml"))]
    rows = {str(row): row for row in ROWS}

    async def running() -> int:
        for manifest in manifests:
            row, called = rows[manifest["kind"]], manifest["metadata"]["name"]
            await row.controller(cluster, await cluster.get(resource_of(row), called))
        page = msgspec.json.decode(await cluster.client.list_page(PODS, "default"))
        found = [p for p in page["items"] if p["metadata"]["name"].startswith("nginx-")]
        return phases(found).count("Running")

    wanted = sum({"LeaderWorkerSet": 6}.get(manifest["kind"], 3) for manifest in manifests)
    assert await eventually(running, SECONDS, lambda n: n == wanted) == wanted
    for file in sorted(SAMPLES.glob("*.yaml")):
        await stack.cluster.kubectl("delete", "-f", str(file), "--wait=false")
    assert await eventually(lambda: cluster.reserving(name), SECONDS, lambda n: n == 0) == 0


async def test_a_namespace_with_sets_in_every_state_ends(cluster: Cluster, stack: Stack) -> None:
    space = "with-sets"
    await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
    await cluster.queue("ends", "0")
    await cluster.queue("runs", "20")
    await cluster.apply(local_queue("ends", space), local_queue("runs", space))
    lives = []
    for row in ROWS:
        for state, queue in (("waits", "ends"), ("works", "runs"), ("leaves", "runs")):
            life = Life(cluster, row, f"{state}-{row}".lower(), queue, space)
            await cluster.create(life.resource, row.made(life.name, queue, space))
            await (life.gated() if state == "waits" else life.runs())
            lives.append(life)
    for life in lives[2::3]:
        if not life.row.own:
            await life.activate(False)
            await life.gated()
    async with asyncio.timeout(60):
        await stack.cluster.kubectl("delete", "namespace", space, "--timeout=60s")
    assert await eventually(lambda: cluster.reserving("runs"), SECONDS, lambda n: n == 0) == 0


async def test_pods_of_a_group_that_are_deleted_by_force_go(cluster: Cluster, stack: Stack) -> None:
    await cluster.queue("force", "2")
    for n in range(2):
        await cluster.create(PODS, pod(f"forced-{n}", "force", group="forced", total=2, seconds="forever"))
    await in_phase(cluster, "Running", "forced-0", "forced-1")
    await stack.cluster.kubectl("delete", "pod", "forced-0", "--force", "--timeout=20s")
    await cluster.create(PODS, pod("forced-2", "force", group="forced", total=2, seconds="forever"))
    await in_phase(cluster, "Running", "forced-1", "forced-2")
    await stack.cluster.kubectl("delete", "pod", "forced-1", "forced-2", "--force", "--timeout=20s")

    async def free() -> bool:
        return await cluster.reserving("force") == 0 and not await cluster.get(WORKLOADS, "forced")

    await holds(free, "the last one takes the workload along")


async def test_a_healthy_group_is_not_warned_of_and_one_that_stays_incomplete_is(
    cluster: Cluster, stack: Stack
) -> None:
    await cluster.queue("arrives", "2")
    await cluster.create(PODS, pod("late-0", "arrives", group="late", total=2))
    for n in range(2):
        await cluster.create(PODS, pod(f"prompt-{n}", "arrives", group="prompt", total=2))

    async def warned() -> list[str]:
        raw = await stack.cluster.kubectl("get", "events", "-o", "json", "--field-selector=reason=ErrWorkloadCompose")
        return sorted({e["involvedObject"]["name"] for e in json.loads(raw)["items"]})

    async def told() -> bool:
        return "late-0" in await warned()

    await holds(told, "warned of")
    assert not any(name.startswith("prompt") for name in await warned())


async def test_nothing_was_refused(stack: Stack) -> None:
    log = stack.cluster.audit_log
    assert log is not None
    ours: list[Any] = [event for event in read_events(log) if ":kueue-system:sluice-" in event.user.username]
    assert ours
    refused = [event for event in ours if event.response_status.code == 403]
    assert [event for event in refused if "is being terminated" not in event.response_status.message] == []


async def test_each_pod_of_a_set_costs_two_writes(cluster: Cluster) -> None:
    life = Life(cluster, STATEFUL, "cheap")
    await life.create()
    await life.runs()
    assert [cluster.written("pods", f"cheap-{n}") for n in range(2)] == [2, 2], "the mark, and the gate"
    assert (await cluster.get(STATEFUL_SETS, "cheap"))["metadata"]["generation"] == 1
