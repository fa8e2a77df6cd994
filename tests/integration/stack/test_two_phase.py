"""Two-phase admission on the whole stack: a ProvisioningRequest is made, a played autoscaler answers, the Job runs with what the check added."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from cli.observe import Observer
from devcluster.stack import ROOT, Stack
from shared.api.conditions import is_true
from shared.api.workload import Workload
from shared.kube.client import KubeClient
from tests.eventually import eventually
from tests.integration.stack.manifests import (
    API,
    Manifest,
    as_list,
    cluster_queue,
    create_job,
    flavor,
    job,
    local_queue,
)

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

PUBLISHED = ROOT.parent / "shared/crds/autoscaling.x-k8s.io_provisioningrequests.yaml"
OWN = ROOT / "tests/integration/crds/provisioningrequests.yaml"
Watched = tuple[KubeClient, Observer]


def check(name: str, **config: Any) -> list[Manifest]:
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": name}
    return [
        {
            "apiVersion": API,
            "kind": "ProvisioningRequestConfig",
            "metadata": {"name": name},
            "spec": {"provisioningClassName": "check-capacity.autoscaling.x-k8s.io", **config},
        },
        {
            "apiVersion": API,
            "kind": "AdmissionCheck",
            "metadata": {"name": name},
            "spec": {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters},
        },
    ]


def checked_queue(name: str, **config: Any) -> list[Manifest]:
    strategy = {"admissionChecks": [{"name": name}]}
    queue = cluster_queue(name, admissionChecksStrategy=strategy)
    return [flavor(name), *check(name, **config), queue, local_queue(name)]


async def answer(stack: Stack, name: str, **true: str) -> None:
    """Play the autoscaler: these conditions of the ProvisioningRequest are True, with that message."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [
        {"type": type_, "status": "True", "reason": type_, "message": message, "lastTransitionTime": now}
        for type_, message in true.items()
    ]
    status = {"status": {"conditions": conditions, "provisioningClassDetails": {"pool": "pool-7"}}}
    await stack.cluster.kubectl(
        "patch", "provisioningrequest", name, "--subresource=status", "--type=merge", "-p", json.dumps(status)
    )


def workload_of(seen: Observer, uid: str) -> Workload | None:
    return next((w for w in seen.workloads.values() if w.metadata.labels.get("kueue.x-k8s.io/job-uid") == uid), None)


async def requests_of(stack: Stack, workload: str) -> list[str]:
    listed = json.loads(await stack.cluster.kubectl("get", "provisioningrequests", "-o", "json"))
    return sorted(i["metadata"]["name"] for i in listed["items"] if i["metadata"]["name"].startswith(workload))


async def active_of(stack: Stack, name: str) -> dict[str, Any]:
    """The Active condition of an AdmissionCheck; empty while there is none."""
    found = json.loads(await stack.cluster.kubectl("get", "admissioncheck", name, "-o", "json"))
    conditions = found.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == "Active"), {})


async def test_without_the_api_the_check_says_so_and_works_once_it_is_there(stack: Stack) -> None:
    """First of this file: the definition of ProvisioningRequests stays once it is there."""
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*check("no-api")))

    async def says(status: str) -> bool:
        return (await active_of(stack, "no-api")).get("status") == status

    assert await eventually(lambda: says("False"), 20)
    active = await active_of(stack, "no-api")
    assert active["reason"] == "ProvisioningRequestNotServed"
    assert "does not serve ProvisioningRequests" in active["message"]
    await serve(stack)
    assert await eventually(lambda: says("True"), 40)


async def serve(stack: Stack) -> None:
    """Let the cluster have ProvisioningRequests."""
    await stack.cluster.kubectl("apply", "--server-side", "-f", str(PUBLISHED if PUBLISHED.exists() else OWN))
    await stack.cluster.kubectl("wait", "--for=condition=Established", "crd/provisioningrequests.autoscaling.x-k8s.io")


@pytest.fixture
async def served(stack: Stack) -> None:
    await serve(stack)


async def reserved(seen: Observer, uid: str) -> Workload:
    """The workload of a Job, once it holds quota and waits for its check."""

    def holds() -> bool:
        workload = workload_of(seen, uid)
        return workload is not None and is_true(workload.status.conditions, "QuotaReserved")

    assert await seen.until(holds, 20)
    workload = workload_of(seen, uid)
    assert workload is not None
    return workload


@pytest.mark.usefixtures("served")
async def test_provisioned_admits_with_the_updates_of_the_check(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    updates = {"nodeSelector": [{"key": "pool", "valueFromProvisioningClassDetail": "pool"}]}
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*checked_queue("provisioned", podSetUpdates=updates)))
    uid = await create_job(client, job("provisioned-job", "provisioned", pods=2))
    workload = await reserved(seen, uid)
    name = f"{workload.metadata.name}-provisioned-1"
    assert await eventually(lambda: requests_of(stack, workload.metadata.name), 20) == [name]
    request = json.loads(await stack.cluster.kubectl("get", "provisioningrequest", name, "-o", "json"))
    (pod_set,) = request["spec"]["podSets"]
    assert pod_set["count"] == 2
    template = json.loads(
        await stack.cluster.kubectl("get", "podtemplate", pod_set["podTemplateRef"]["name"], "-o", "json")
    )
    assert template["template"]["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1"}
    assert template["metadata"]["ownerReferences"][0]["kind"] == "ProvisioningRequest"
    assert seen.jobs["default/provisioned-job"].suspended, "the check has not answered yet"

    await answer(stack, name, Accepted="ok", Provisioned="capacity is there")

    def admitted() -> bool:
        current = workload_of(seen, uid)
        return current is not None and is_true(current.status.conditions, "Admitted")

    assert await seen.until(admitted, 20)
    assert await seen.until(lambda: not seen.jobs["default/provisioned-job"].suspended, 20)
    started = json.loads(await stack.cluster.kubectl("get", "job", "provisioned-job", "-o", "json"))
    pods = started["spec"]["template"]
    assert pods["spec"]["nodeSelector"] == {"pool": "pool-7"}
    assert pods["metadata"]["annotations"]["autoscaling.x-k8s.io/consume-provisioning-request"] == name
    await stack.cluster.kubectl("delete", "job", "provisioned-job")


@pytest.mark.usefixtures("served")
async def test_a_failed_request_is_tried_again_and_then_rejected(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    retry = {"backoffLimitCount": 1, "backoffBaseSeconds": 1, "backoffMaxSeconds": 1}
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*checked_queue("failing", retryStrategy=retry)))
    uid = await create_job(client, job("failing-job", "failing"))
    workload = await reserved(seen, uid)
    first, second = (f"{workload.metadata.name}-failing-{n}" for n in (1, 2))
    assert first in await eventually(lambda: requests_of(stack, workload.metadata.name), 20)
    await answer(stack, first, Failed="no capacity")
    assert second in await eventually(
        lambda: requests_of(stack, workload.metadata.name), 40, lambda names: second in names
    )
    await answer(stack, second, Failed="still none")

    def deactivated() -> bool:
        current = workload_of(seen, uid)
        return current is not None and not current.spec.active

    assert await seen.until(deactivated, 20)

    def evicted() -> str:
        current = workload_of(seen, uid)
        conditions = current.status.conditions if current else ()
        return next((c.reason for c in conditions if c.type == "Evicted"), "")

    assert await seen.until(lambda: evicted() == "DeactivatedDueToAdmissionCheck", 20), evicted()
    assert seen.jobs["default/failing-job"].suspended
