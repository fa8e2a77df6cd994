"""Sluice started on a cluster as Kueue left it: what runs is not disturbed, what waits goes on from where it was.

Twice: as a recent Kueue leaves it (stored in v1beta2), and as an older one does (stored in v1beta1, so that even the gateway's first list needs
conversion). Statuses are applied as Kueue applies them, under its names of field managers.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import yaml

from devcluster.cluster import DevCluster
from devcluster.options import ClusterOptions, NodeGroup
from services.webhook.convert import converted
from shared.api import names
from shared.api.crd_kinds import KINDS
from shared.api.meta import format_time
from shared.jobs.naming import workload_name
from shared.kube.client import APPLY_PATCH, KubeClient, connect
from shared.kube.errors import NotFound
from shared.kube.resources import CLUSTER_QUEUES, CRDS, JOBS, LOCAL_QUEUES, WORKLOADS, Resource
from tests.eventually import eventually
from tests.integration.stack import manifests
from tests.integration.test_all_in_one import AllInOne

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[2]
Document = dict[str, Any]
FLAVOR, CHECK = "on-demand", "budget"
WAIT_S = 90.0
BACK_OFF = timedelta(seconds=20)
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
DEFINITIONS = {crd.kind: crd for crd in KINDS}


class Left:
    """A cluster in Kueue's hands, which stores `version`."""

    def __init__(self, cluster: DevCluster, client: KubeClient, version: str) -> None:
        self.cluster = cluster
        self.client = client
        self.version = version

    async def define(self) -> None:
        """The definitions as that Kueue installs them: in v1beta1 the only version, or both with its own Service."""
        for file in sorted((ROOT / "k8s" / "crds").glob("kueue*.yaml")):
            definition = yaml.safe_load(file.read_text())
            if self.version == names.V1BETA1:
                spec = definition["spec"]
                spec["versions"] = [{**v, "storage": True} for v in spec["versions"] if v["name"] == names.V1BETA1]
                spec["conversion"] = {"strategy": "None"}
            body = msgspec.json.encode(definition)
            await self.client.patch(
                CRDS, "", definition["metadata"]["name"], body, content_type=APPLY_PATCH, field_manager="helm"
            )
        await self.cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")

    async def put(self, document: Document, *, manager: str = "", status: Document | None = None) -> None:
        """Create an object given in v1beta2, then apply its status as `manager`."""
        metadata = document["metadata"]
        namespace = metadata.get("namespace", "")
        resource = self._resource(document["kind"])
        whole = self._as_stored({**document, "status": status or {}})
        applied = whole.pop("status", None)
        await self.client.create(resource, namespace, msgspec.json.encode(whole), field_manager="kueue")
        if status is not None:
            identity = {"name": metadata["name"], "namespace": namespace}
            body = {
                "apiVersion": resource.api_version,
                "kind": document["kind"],
                "metadata": identity,
                "status": applied,
            }
            await self.client.patch(
                resource, namespace, metadata["name"], msgspec.json.encode(body),
                subresource="status", content_type=APPLY_PATCH, field_manager=manager,
            )  # fmt: skip

    def _resource(self, kind: str) -> Resource:
        crd = DEFINITIONS[kind]
        return Resource(names.GROUP, self.version, crd.plural, kind, crd.namespaced)

    def _as_stored(self, document: Document) -> Document:
        document = copy.deepcopy(document)
        if self.version == names.V1BETA2:
            return document
        if DEFINITIONS[document["kind"]].converted:
            return converted(document, names.V1BETA1_GROUP_VERSION)
        return {**document, "apiVersion": names.V1BETA1_GROUP_VERSION}

    async def queues(self) -> None:
        """One queue without checks, one with, each in use."""
        used = {"metadata": {"finalizers": [names.RESOURCE_IN_USE]}}
        active = {"conditions": [condition("Active", True, "Ready")]}
        await self.put(merged(manifests.flavor(FLAVOR, **{"node-type": "on-demand"}), used))
        check = {
            "apiVersion": manifests.API,
            "kind": "AdmissionCheck",
            "metadata": {"name": CHECK},
            "spec": {"controllerName": "example.com/budget"},
        }
        await self.put(merged(check, used), manager="budget-controller", status=active)
        plain = manifests.cluster_queue("plain", "4", flavors=(FLAVOR,), cohortName="all")
        checks = {"admissionChecks": [{"name": CHECK}]}
        checked = manifests.cluster_queue(
            "checked", "4", flavors=(FLAVOR,), cohortName="all", admissionChecksStrategy=checks
        )
        for queue in (plain, checked):
            name = queue["metadata"]["name"]
            await self.put(merged(queue, used), manager="kueue", status={**active, "pendingWorkloads": 1})
            await self.put(manifests.local_queue(name), manager="kueue", status={**active, "pendingWorkloads": 1})

    async def job(self, name: str, queue: str, cpu: str, *, runs: bool, seconds: float) -> Document:
        """A Job as Kueue has it: suspended, or running with what its flavor injects."""
        job = manifests.job(name, queue, cpu, run_seconds=str(seconds))
        job["spec"]["suspend"] = not runs
        if runs:
            template = job["spec"]["template"]
            template["metadata"]["labels"] = {names.PODSET_LABEL: "main"}
            template["spec"]["nodeSelector"] = {"node-type": "on-demand"}
        made: Document = msgspec.json.decode(await self.client.create(JOBS, "default", msgspec.json.encode(job)))
        return made

    async def workload(self, job: Document, status: Document) -> None:
        """The Workload that Kueue made for the Job, with that status."""
        metadata, template = job["metadata"], copy.deepcopy(job["spec"]["template"])
        added = ("job-name", "controller-uid", "batch.kubernetes.io/controller-uid", names.PODSET_LABEL)
        labels = {k: v for k, v in template["metadata"].get("labels", {}).items() if k not in added}
        template["metadata"]["labels"] = labels
        template["metadata"].pop("creationTimestamp", None)
        template["spec"].pop("nodeSelector", None)
        owner = {
            "apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"], "uid": metadata["uid"],
            "controller": True, "blockOwnerDeletion": True,
        }  # fmt: skip
        document = {
            "apiVersion": manifests.API,
            "kind": "Workload",
            "metadata": {
                "name": name_of(job),
                "namespace": "default",
                "labels": {names.JOB_UID_LABEL: metadata["uid"]},
                "finalizers": [names.RESOURCE_IN_USE],
                "ownerReferences": [owner],
            },
            "spec": {
                "active": True,
                "priority": 0,
                "queueName": metadata["labels"][names.QUEUE_NAME_LABEL],
                "podSets": [{"name": "main", "count": 1, "template": template}],
            },
        }
        await self.put(document, manager=names.ADMISSION_MANAGER, status=status)

    async def get(self, resource: Resource, name: str) -> Document:
        namespace = "default" if resource.namespaced else ""
        found: Document = msgspec.json.decode(await self.client.get(resource, namespace, name))
        return found

    async def pods(self, job: str) -> set[str]:
        out = await self.cluster.kubectl(
            "get", "pods", "-l", f"job-name={job}", "-o", "jsonpath={.items[*].metadata.uid}"
        )
        return set(out.split())

    async def completes(self, job: str) -> bool:
        async def complete() -> bool:
            conditions = (await self.get(JOBS, job)).get("status", {}).get("conditions", ())
            return any(c["type"] == "Complete" and c["status"] == "True" for c in conditions)

        return await eventually(complete, WAIT_S)


def merged(document: Document, more: Document) -> Document:
    return {**document, "metadata": {**document["metadata"], **more["metadata"]}}


def name_of(job: Document) -> str:
    return workload_name(kind="Job", group="batch", name=job["metadata"]["name"], uid=job["metadata"]["uid"])


def condition(type_: str, status: bool, reason: str, at: datetime = LONG_AGO) -> Document:
    return {
        "type": type_, "status": str(status), "reason": reason, "message": "As Kueue left it",
        "lastTransitionTime": format_time(at), "observedGeneration": 1,
    }  # fmt: skip


def admission(queue: str, cpu: str) -> Document:
    assignment = {"name": "main", "flavors": {"cpu": FLAVOR}, "resourceUsage": {"cpu": cpu}, "count": 1}
    return {"clusterQueue": queue, "podSetAssignments": [assignment]}


def status_of(document: Document, type_: str) -> tuple[str, str, str]:
    found = [c for c in document["status"].get("conditions", ()) if c["type"] == type_]
    return (found[0]["status"], found[0]["reason"], found[0]["lastTransitionTime"]) if found else ("", "", "")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[names.V1BETA2, names.V1BETA1])
async def left(request: pytest.FixtureRequest) -> AsyncIterator[Left]:
    nodes = (NodeGroup(name="node", count=2, labels={"node-type": "on-demand"}),)
    options = ClusterOptions(nodes=nodes, default_pod_seconds=0.5)
    async with DevCluster(options) as cluster, await connect(str(cluster.kubeconfig), timeout_s=20.0) as client:
        it = Left(cluster, client, request.param)
        await it.define()
        await it.queues()
        yield it


async def test_takeover(left: Left, tmp_path: Path) -> None:
    running = await left.job("running", "plain", "1", runs=True, seconds=900)
    reserved, admitted = condition("QuotaReserved", True, "QuotaReserved"), condition("Admitted", True, "Admitted")
    await left.workload(running, {"conditions": [reserved, admitted], "admission": admission("plain", "1")})

    pending = await left.job("pending", "plain", "1", runs=False, seconds=0.3)
    waits = condition("QuotaReserved", False, "Pending")
    requests = [{"name": "main", "resources": {"cpu": "1"}}]
    await left.workload(pending, {"conditions": [waits], "resourceRequests": requests})
    blocked = await left.job("blocked", "plain", "8", runs=False, seconds=0.3)
    await left.workload(blocked, {"conditions": [waits]})

    half_way = await left.job("half-way", "checked", "1", runs=False, seconds=0.3)
    asked = {"name": CHECK, "state": "Pending", "message": "asked", "lastTransitionTime": format_time(LONG_AGO)}
    await left.workload(
        half_way,
        {"conditions": [reserved], "admission": admission("checked", "1"), "admissionChecks": [asked]},
    )

    evicted = await left.job("evicted", "plain", "1", runs=False, seconds=0.3)
    now = datetime.now(UTC)
    requeue_at = (now + BACK_OFF).replace(microsecond=0)
    gone = [
        condition("QuotaReserved", False, "Pending", now),
        condition("Admitted", False, "NoReservation", now),
        condition("Evicted", True, "PodsReadyTimeout", now),
        condition("Requeued", False, "PodsReadyTimeout", now),
    ]
    count = {"reason": "PodsReadyTimeout", "underlyingCause": "", "count": 2}
    await left.workload(
        evicted,
        {
            "conditions": gone,
            "requeueState": {"count": 2, "requeueAt": format_time(requeue_at)},
            "schedulingStats": {"evictions": [count]},
        },
    )

    async def started() -> set[str]:
        return await left.pods("running")

    pods = await eventually(started, WAIT_S)
    assert len(pods) == 1
    before = await left.get(JOBS, "running")

    one = AllInOne(left.cluster.kubeconfig, tmp_path, "--install", "all")
    await one.start()
    try:
        await one.until_ready()
        if left.version == names.V1BETA1:
            versions = (await left.get(CRDS, "workloads.kueue.x-k8s.io"))["status"]["storedVersions"]
            assert versions == [names.V1BETA1, names.V1BETA2]

        # What waits goes on.
        assert await left.completes("pending"), one.text
        assert await left.completes("evicted"), one.text
        requeued = await left.get(WORKLOADS, name_of(evicted))
        assert status_of(requeued, "Admitted")[2] >= format_time(requeue_at)
        assert requeued["status"]["schedulingStats"]["evictions"] == [count]

        # What has quota keeps it; a check that was asked is answered by whoever answers it.
        waiting = await left.get(WORKLOADS, name_of(half_way))
        assert status_of(waiting, "QuotaReserved") == ("True", "QuotaReserved", format_time(LONG_AGO))
        assert status_of(waiting, "Admitted")[0] != "True"
        assert waiting["status"]["admissionChecks"] == [asked]
        assert await left.pods("half-way") == set()
        answer = {"status": {"admissionChecks": [{**asked, "state": "Ready", "message": "granted"}]}}
        body = msgspec.json.encode(answer)
        await left.client.patch(WORKLOADS, "default", name_of(half_way), body, subresource="status")
        assert await left.completes("half-way"), one.text

        # What runs was not touched, and its quota counts.
        await undisturbed(left, before, pods)
        full = await left.get(WORKLOADS, name_of(blocked))
        assert status_of(full, "QuotaReserved")[:2] == ("False", "WaitingForQuota"), full["status"]
        usage = (await left.get(CLUSTER_QUEUES, "plain"))["status"]["flavorsUsage"]
        assert usage == [{"name": FLAVOR, "resources": [{"name": "cpu", "total": "1", "borrowed": "0"}]}]
        await left.client.delete(JOBS, "default", "running", propagation="Background")
        assert await left.completes("blocked"), one.text

        # Finalizers are ours now.
        for name in ("plain", "checked"):
            await left.client.delete(LOCAL_QUEUES, "default", name)
            await left.client.delete(CLUSTER_QUEUES, "", name)
            assert await eventually(partial(is_gone, left, CLUSTER_QUEUES, name), WAIT_S), name
    finally:
        await one.stop()


async def undisturbed(left: Left, before: Document, pods: set[str]) -> None:
    after = await left.get(JOBS, "running")
    assert await left.pods("running") == pods
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert after["status"]["startTime"] == before["status"]["startTime"]
    workload = await left.get(WORKLOADS, name_of(before))
    for type_ in ("QuotaReserved", "Admitted"):
        assert status_of(workload, type_) == ("True", type_, format_time(LONG_AGO))
    owned = {m["manager"] for m in workload["metadata"]["managedFields"] if m["operation"] == "Apply"}
    assert owned == {names.ADMISSION_MANAGER}


async def is_gone(left: Left, resource: Resource, name: str) -> bool:
    try:
        await left.get(resource, name)
    except NotFound:
        return True
    return False
