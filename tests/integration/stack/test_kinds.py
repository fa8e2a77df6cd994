"""Every kind of job goes through the same life on a real control plane: held back, admitted, started, evicted, restored, started again, finished; and is
deleted in each of these states. A driver plays the kind's controller, in status only. Plain pods have theirs from the fake kubelets.

The definitions of the kinds come after Sluice has started, and one goes and comes back: nothing needs a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from devcluster.audit import read_events
from devcluster.stack import Stack
from shared.kube.resources import DEPLOYMENTS, JOBS, PODS, WORKLOADS
from tests.eventually import eventually
from tests.integration.stack.kind_cluster import (
    CRON_JOBS,
    SECONDS,
    TAINT,
    Cluster,
    cluster_of_all_kinds,
    condition,
    holds,
    resource_of,
    served,
)
from tests.integration.stack.kind_rows import ROWS, Row, definition, pod_spec
from tests.integration.stack.manifests import Manifest, local_queue

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with cluster_of_all_kinds(tmp_path_factory.mktemp("configuration")) as made:
        yield made


@pytest.fixture(scope="module")
def stack(cluster: Cluster) -> Stack:
    return cluster.stack


class Life:
    """One object of a kind, and the controller that it would have."""

    def __init__(self, cluster: Cluster, row: Row, name: str) -> None:
        self.cluster, self.row, self.name = cluster, row, name
        self.resource = resource_of(row)
        self.uid = ""
        self.before: Manifest = {}

    async def create(self) -> None:
        await self.cluster.queue(self.name)
        made = await self.cluster.create(self.resource, self.row.made(self.name, self.name))
        self.uid, self.before = made["metadata"]["uid"], made
        assert self.held(made), "held back at its creation"

    async def now(self) -> Manifest:
        return await self.cluster.get(self.resource, self.name)

    def held(self, job: Manifest) -> bool:
        at: Any = job
        for key in self.row.suspended:
            at = at.get(key, {})
        return at is True

    async def workload(self) -> Manifest:
        return await self.cluster.workload_of(self.uid)

    async def tell(self, status: Manifest) -> None:
        await self.cluster.patch(self.resource, self.name, {"status": status}, "status")

    async def admitted(self) -> None:
        async def started() -> bool:
            job = await self.now()
            return bool(job) and not self.held(job)

        await holds(started, "started")
        templates = self.row.templates(await self.now())
        assert len(templates) == len(self.row.pod_sets)
        for template in templates:
            assert template["spec"]["nodeSelector"] == {"node-type": "plain"}
            assert {"key": TAINT["key"], "operator": "Exists"} in template["spec"]["tolerations"]
        await self.tell(self.row.running)

    async def evicted(self) -> None:
        name = (await self.workload())["metadata"]["name"]
        await self.cluster.patch(WORKLOADS, name, {"spec": {"active": False}})

        async def stopped() -> bool:
            return self.held(await self.now())

        await holds(stopped, "stopped")
        if self.row.restored_at_once:
            assert (await self.now())["spec"] == self.before["spec"], "restored byte for byte"
        assert condition(await self.workload(), "QuotaReserved") == ("True", "QuotaReserved"), "while its pods run"
        await self.tell(self.row.stopped)

        async def released() -> bool:
            return (condition(await self.workload(), "QuotaReserved") or ("", ""))[0] == "False"

        await holds(released, "released once its pods are gone")

        async def restored() -> bool:
            return bool((await self.now())["spec"] == self.before["spec"])

        await holds(restored, "restored byte for byte")


STATES = ("pending", "running", "evicted", "finished")


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_a_life(cluster: Cluster, row: Row) -> None:
    life = Life(cluster, row, f"life-{row}".lower())
    await life.create()
    await holds(life.workload, "a workload")
    pod_sets = (await life.workload())["spec"]["podSets"]
    assert {p["name"]: p["count"] for p in pod_sets} == {
        name.format(name=life.name): count for name, count in row.pod_sets.items()
    }
    await life.admitted()
    await life.evicted()
    name = (await life.workload())["metadata"]["name"]
    await cluster.patch(WORKLOADS, name, {"spec": {"active": True}})
    await life.admitted()
    if row.succeeded is not None:
        await life.tell(row.succeeded)

        async def finished() -> bool:
            return condition(await life.workload(), "Finished") == ("True", "Succeeded")

        await holds(finished, "finished")
    else:
        await cluster.client.delete(life.resource, "default", life.name, propagation="Background")

    async def free() -> bool:
        return await cluster.reserving(life.name) == 0

    await holds(free, "its quota is free")


@pytest.mark.parametrize("row", [row for row in ROWS if row.failed is not None], ids=str)
async def test_a_failure(cluster: Cluster, row: Row) -> None:
    assert row.failed is not None
    life = Life(cluster, row, f"fails-{row}".lower())
    await life.create()
    await life.admitted()
    await life.tell(row.failed)

    async def failed() -> bool:
        return condition(await life.workload(), "Finished") == ("True", "Failed")

    await holds(failed, "failed")

    async def free() -> bool:
        return await cluster.reserving(life.name) == 0

    await holds(free, "its quota is free")


@pytest.mark.parametrize(
    ("row", "state"),
    [(row, state) for row in ROWS for state in STATES if state != "finished" or row.succeeded is not None],
    ids=str,
)
async def test_deleted(cluster: Cluster, row: Row, state: str) -> None:
    life = Life(cluster, row, f"deleted-{state}-{row}".lower())
    if state == "pending":
        await cluster.queue(life.name, cpu="0")
        made = await cluster.create(life.resource, row.made(life.name, life.name))
        life.uid = made["metadata"]["uid"]
        await holds(life.workload, "a workload")
    else:
        await life.create()
        await life.admitted()
        if state == "evicted":
            await life.evicted()
        elif state == "finished" and row.succeeded is not None:
            await life.tell(row.succeeded)
    await cluster.client.delete(life.resource, "default", life.name, propagation="Background")

    async def gone() -> bool:
        return not await life.now() and not await life.workload()

    await holds(gone, "nothing is left")
    assert (
        await cluster.reserving(life.name) == 0
        or await eventually(lambda: cluster.reserving(life.name), SECONDS, lambda n: n == 0) == 0
    )


async def test_the_runs_of_a_cron_job(cluster: Cluster, stack: Stack) -> None:
    """Each is a Job of its own, with the labels that the CronJob gives it, and is run by Kubernetes' own controllers."""
    await cluster.queue("cron", cpu="0")
    pods = {"metadata": {"annotations": {"sluice.dev/run-seconds": "forever"}}, "spec": pod_spec()}
    run = {
        "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "cron"}},
        "spec": {"backoffLimit": 0, "parallelism": 2, "completions": 2, "template": pods},
    }
    await cluster.create(
        CRON_JOBS,
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"name": "cron", "namespace": "default"},
            "spec": {"schedule": "0 0 1 1 *", "jobTemplate": run},
        },
    )

    async def made(name: str) -> Manifest:
        await stack.cluster.kubectl("create", "job", name, "--from=cronjob/cron", "-n", "default")
        job = await cluster.get(JOBS, name)
        assert job["spec"]["suspend"] is True, "held back at its creation"
        assert job["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
        return job

    async def running(name: str) -> None:
        async def phases() -> list[str]:
            return [found["status"]["phase"] for found in await pods_of(name)]

        assert await eventually(phases, SECONDS, lambda found: found == ["Running"] * 2) == ["Running"] * 2
        template = (await cluster.get(JOBS, name))["spec"]["template"]["spec"]
        assert template["nodeSelector"] == {"node-type": "plain"}
        assert template["tolerations"] == [{"key": TAINT["key"], "operator": "Exists"}]

    async def pods_of(name: str) -> list[Manifest]:
        query = {"labelSelector": f"batch.kubernetes.io/job-name={name}"}
        return list(msgspec.json.decode(await cluster.client.list_page(PODS, "default", query=query))["items"])

    async def ends(job: Manifest, reason: str, **told: str) -> None:
        annotations = {"sluice.dev/run-seconds": "0", **{f"sluice.dev/{key}": value for key, value in told.items()}}
        for found in await pods_of(job["metadata"]["name"]):
            await cluster.patch(PODS, found["metadata"]["name"], {"metadata": {"annotations": annotations}})

        async def finished() -> bool:
            return condition(await cluster.workload_of(job["metadata"]["uid"]), "Finished") == ("True", reason)

        await holds(finished, "finished")

        async def free() -> bool:
            return await cluster.reserving("cron") == 0

        await holds(free, "its quota is free")

    job = await made("cron-1")
    uid = job["metadata"]["uid"]
    workload = await holds(lambda: cluster.workload_of(uid), "a workload")
    assert [(p["name"], p["count"]) for p in workload["spec"]["podSets"]] == [("main", 2)]
    await cluster.queue("cron")
    await running("cron-1")
    await cluster.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": False}})

    async def released() -> bool:
        workload = await cluster.workload_of(uid)
        return (condition(workload, "QuotaReserved") or ("", ""))[0] == "False" and not await pods_of("cron-1")

    await holds(released, "released, its pods are gone")
    assert (await cluster.get(JOBS, "cron-1"))["spec"] == job["spec"], "restored byte for byte"
    await cluster.patch(WORKLOADS, workload["metadata"]["name"], {"spec": {"active": True}})
    await running("cron-1")
    await ends(job, "Succeeded")
    failing = await made("cron-2")
    await running("cron-2")
    await ends(failing, "Failed", fail="true")
    last = await made("cron-3")
    await running("cron-3")
    await cluster.client.delete(CRON_JOBS, "default", "cron", propagation="Background")

    async def gone() -> bool:
        there = [await cluster.workload_of(one["metadata"]["uid"]) for one in (job, failing, last)]
        return not any(there) and await cluster.reserving("cron") == 0

    await holds(gone, "nothing is left")


async def test_a_job_of_a_namespace_with_a_default_queue(cluster: Cluster) -> None:
    """It names none, and queues there."""
    space = "with-default"
    await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
    await cluster.queue("by-default")
    await cluster.apply(local_queue("default", space, "by-default"))
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "nameless", "namespace": space},
        "spec": {"template": {"spec": pod_spec()}},
    }
    made = await cluster.create(JOBS, job)
    assert made["spec"]["suspend"] is True
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "default"

    async def finished() -> bool:
        workloads = await cluster.workloads(space)
        return [condition(workload, "Finished") for workload in workloads] == [("True", "Succeeded")]

    await holds(finished, "admitted, and run")


async def test_a_definition_that_goes_and_comes_back(cluster: Cluster, stack: Stack) -> None:
    row = ROWS[0]
    crd = definition(row.kind)
    await stack.cluster.kubectl("delete", "crd", crd["metadata"]["name"], "--timeout=60s")
    await stack.wait_ready()
    await cluster.apply(crd)
    await served(cluster, resource_of(row))
    life = Life(cluster, row, "comes-back")
    await life.create()
    await life.admitted()
    log = (stack.folder / "logs" / "watcher.log").read_text()
    assert "Traceback" not in log
    assert stack.services["watcher"].starts == 1


def pod(
    name: str, queue: str, *, group: str = "", total: int = 0, seconds: str = "", namespace: str = "default"
) -> Manifest:
    annotations = {"sluice.dev/run-seconds": seconds} if seconds else {}
    if group:
        annotations |= {"kueue.x-k8s.io/pod-group-name": group, "kueue.x-k8s.io/pod-group-total-count": str(total)}
    labels = {"kueue.x-k8s.io/queue-name": queue}
    metadata = {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec()}


async def phase(cluster: Cluster, name: str, namespace: str = "default") -> str:
    found = await cluster.get(PODS, name, namespace)
    return str(found.get("status", {}).get("phase", "gone"))


async def in_phase(cluster: Cluster, wanted: str, *pods: str, namespace: str = "default") -> None:
    async def all_are() -> bool:
        return {await phase(cluster, name, namespace) for name in pods} == {wanted}

    await holds(all_are, f"{pods} are {wanted}")


async def test_a_plain_pod(cluster: Cluster) -> None:
    await cluster.queue("plain", cpu="0")
    made = await cluster.create(PODS, pod("plain", "plain"))
    assert made["metadata"]["finalizers"] == ["kueue.x-k8s.io/managed"]
    assert made["metadata"]["labels"]["kueue.x-k8s.io/managed"] == "true"
    assert [g["name"] for g in made["spec"]["schedulingGates"]] == [
        "kueue.x-k8s.io/admission",
        "kueue.x-k8s.io/topology",
    ]
    workload = await holds(lambda: cluster.workload_of(made["metadata"]["uid"]), "a workload")
    assert [p["name"] for p in workload["spec"]["podSets"]] == ["main"]
    await cluster.queue("plain", cpu="1")
    await in_phase(cluster, "Succeeded", "plain")

    async def over() -> bool:
        workload = await cluster.workload_of(made["metadata"]["uid"])
        found = await cluster.get(PODS, "plain")
        return condition(workload, "Finished") == ("True", "Succeeded") and not found["metadata"].get("finalizers")

    await holds(over, "finished, and free to go")
    found = await cluster.get(PODS, "plain")
    assert found["spec"]["nodeSelector"] == {"node-type": "plain"}


async def test_a_plain_pod_that_is_evicted(cluster: Cluster) -> None:
    await cluster.queue("evicts")
    made = await cluster.create(PODS, pod("evicted", "evicts", seconds="forever"))
    await in_phase(cluster, "Running", "evicted")
    name = (await cluster.workload_of(made["metadata"]["uid"]))["metadata"]["name"]
    await cluster.patch(WORKLOADS, name, {"spec": {"active": False}})
    await in_phase(cluster, "gone", "evicted")

    async def free() -> bool:
        return await cluster.reserving("evicts") == 0 and not await cluster.workload_of(made["metadata"]["uid"])

    await holds(free, "nothing is left")


async def test_a_group_of_pods(cluster: Cluster) -> None:
    await cluster.queue("groups")
    await cluster.create(PODS, pod("g-0", "groups", group="g", total=2))
    await cluster.create(PODS, pod("g-1", "groups", group="g", total=2))
    await in_phase(cluster, "Succeeded", "g-0", "g-1")

    async def over() -> bool:
        workload = await cluster.get(WORKLOADS, "g")
        pods = [await cluster.get(PODS, name) for name in ("g-0", "g-1")]
        return condition(workload, "Finished") == ("True", "Succeeded") and not any(
            found["metadata"].get("finalizers") for found in pods
        )

    await holds(over, "finished, and free to go")
    owners = (await cluster.get(WORKLOADS, "g"))["metadata"]["ownerReferences"]
    assert {o["name"] for o in owners} == {"g-0", "g-1"}
    assert [cluster.written("pods", name) for name in ("g-0", "g-1")] == [2, 2], "the gate, and the finalizer"
    assert cluster.written("workloads", "g") <= 6
    for name in ("g-0", "g-1"):
        await cluster.client.delete(PODS, "default", name)

    async def collected() -> bool:
        return not await cluster.get(WORKLOADS, "g")

    await holds(collected, "its workload goes with its pods")


async def test_a_namespace_with_groups_in_every_state_ends(cluster: Cluster, stack: Stack) -> None:
    space = "with-groups"
    await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
    await cluster.queue("ends", cpu="4")
    await cluster.apply(local_queue("ends", space))
    for group in ("runs", "is-evicted"):
        for n in range(2):
            await cluster.create(
                PODS, pod(f"{group}-{n}", "ends", group=group, total=2, seconds="forever", namespace=space)
            )
        await in_phase(cluster, "Running", f"{group}-0", f"{group}-1", namespace=space)
    for n in range(2):
        await cluster.create(PODS, pod(f"waits-{n}", "ends", group="waits", total=2, namespace=space))

    async def three() -> bool:
        return len(await cluster.workloads(space)) == 3

    await holds(three, "three workloads")
    change = msgspec.json.encode({"spec": {"active": False}})
    await cluster.client.patch(WORKLOADS, space, "is-evicted", change)

    async def evicted() -> bool:
        return condition(await cluster.get(WORKLOADS, "is-evicted", space), "Evicted") is not None

    await holds(evicted, "evicted")
    async with asyncio.timeout(60):
        await stack.cluster.kubectl("delete", "namespace", space, "--timeout=60s")

    async def free() -> bool:
        return await cluster.reserving("ends") == 0

    await holds(free, "its quota is free")


async def test_a_deployment_queues_by_its_pods(cluster: Cluster) -> None:
    await cluster.queue("serves", cpu="1")
    template = {"metadata": {"labels": {"app": "serves"}}, "spec": {**pod_spec(), "restartPolicy": "Always"}}
    made = await cluster.create(
        DEPLOYMENTS,
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "serves", "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "serves"}},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "serves"}}, "template": template},
        },
    )
    assert made["spec"]["template"]["metadata"]["labels"]["kueue.x-k8s.io/managed"] == "true"

    async def phases() -> list[str]:
        page = msgspec.json.decode(
            await cluster.client.list_page(PODS, "default", query={"labelSelector": "app=serves"})
        )
        return sorted(found["status"]["phase"] for found in page["items"])

    assert await eventually(phases, SECONDS, lambda found: found == ["Pending", "Running"]) == ["Pending", "Running"]
    await cluster.queue("serves", cpu="2")
    assert await eventually(phases, SECONDS, lambda found: found == ["Running"] * 2) == ["Running"] * 2
    await cluster.patch(DEPLOYMENTS, "serves", {"spec": {"replicas": 0}})

    async def free() -> bool:
        return await cluster.reserving("serves") == 0 and not await phases()

    await holds(free, "scaled to zero, its quota is free")


async def test_nothing_was_refused(stack: Stack) -> None:
    log = stack.cluster.audit_log
    assert log is not None
    ours = [event for event in read_events(log) if ":kueue-system:sluice-" in event.user.username]
    assert ours
    refused = [event for event in ours if event.response_status.code == 403]
    # In a namespace that ends nothing can be made, whoever asks.
    assert [event for event in refused if "is being terminated" not in event.response_status.message] == []
