"""A team that speaks v1beta1 only: its queues work, its Jobs run, and it sees in its own version what became of them."""

from __future__ import annotations

import json

import pytest

from cli.observe import Observer
from devcluster.stack import Stack
from shared.kube.client import KubeClient
from tests.eventually import eventually
from tests.integration.stack.manifests import as_list, cluster_queue, create_job, flavor, job, local_queue

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

V1 = "kueue.x-k8s.io/v1beta1"
WAIT_S = 30.0
CHECK = {
    "apiVersion": V1,
    "kind": "AdmissionCheck",
    "metadata": {"name": "older-check"},
    "spec": {"controllerName": "example.com/older", "retryDelayMinutes": 3},
}


async def test_a_team_that_speaks_v1beta1(stack: Stack, watched: tuple[KubeClient, Observer]) -> None:
    client, seen = watched
    kubectl = stack.cluster.kubectl

    async def get(plural: str, name: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(
            await kubectl("get", f"{plural}.v1beta1.kueue.x-k8s.io", name, "-o", "json")
        )
        return found

    queue = cluster_queue("older", "4", cohort="older", admissionChecks=["older-check"])
    manifests = [{**m, "apiVersion": V1} for m in (flavor("older"), queue, local_queue("older"))]
    await kubectl("apply", "-f", "-", stdin=as_list(CHECK, *manifests))
    active = {
        "type": "Active",
        "status": "True",
        "reason": "R",
        "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    patch = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": {"conditions": [active]}}))
    await kubectl("patch", "admissionchecks.v1beta1.kueue.x-k8s.io", "older-check", *patch)
    uid = await create_job(client, job("older", "older", run_seconds="60"))

    async def workloads() -> list[dict[str, object]]:
        selector = ("-n", "default", "-l", f"kueue.x-k8s.io/job-uid={uid}", "-o", "json")
        items = json.loads(await kubectl("get", "workloads.v1beta1.kueue.x-k8s.io", *selector))["items"]
        return [w for w in items if w.get("status", {}).get("admissionChecks")]

    (workload,) = await eventually(workloads, WAIT_S)
    assert workload["apiVersion"] == V1
    # Its own controller of checks writes v1beta1 too.
    metadata, status = workload["metadata"], workload["status"]
    assert isinstance(metadata, dict)
    assert isinstance(status, dict)
    ready = [{**state, "state": "Ready", "message": "granted"} for state in status["admissionChecks"]]
    patch = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": {"admissionChecks": ready}}))
    await kubectl("patch", "workloads.v1beta1.kueue.x-k8s.io", str(metadata["name"]), "-n", "default", *patch)
    assert await seen.until(lambda: "default/older" in seen.jobs and not seen.jobs["default/older"].suspended, WAIT_S)

    async def used() -> object:
        status = (await get("localqueues", "older")).get("status")
        usage = status.get("flavorUsage") if isinstance(status, dict) else None
        return usage == [{"name": "older", "resources": [{"name": "cpu", "total": "1"}]}]

    assert await eventually(used, WAIT_S), await get("localqueues", "older")
    shown = (await get("clusterqueues", "older"))["spec"]
    assert isinstance(shown, dict)
    assert (shown["cohort"], shown["admissionChecks"]) == ("older", ["older-check"])
    assert "unchanged" in await kubectl("apply", "-f", "-", stdin=as_list(CHECK, *manifests))
    await kubectl("delete", "job", "older")
