"""Queues that stop, workloads that are deactivated: Jobs stop, are restored, and come back."""

from __future__ import annotations

import json

import pytest

from cli.observe import Observer
from devcluster.stack import Stack
from shared.api.conditions import find, is_true
from shared.kube.client import KubeClient
from tests.integration.stack.manifests import as_list, cluster_queue, create_job, flavor, job, local_queue, queue

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

Watched = tuple[KubeClient, Observer]


def reason(seen: Observer, uid: str, type_: str) -> str:
    """`status reason` of a condition of the workload of a Job."""
    for workload in seen.workloads.values():
        if workload.metadata.labels.get("kueue.x-k8s.io/job-uid") == uid:
            condition = find(workload.status.conditions, type_)
            return f"{condition.status} {condition.reason}" if condition else ""
    return ""


async def template_of(stack: Stack, name: str) -> dict[str, object]:
    template: dict[str, object] = json.loads(await stack.cluster.kubectl("get", "job", name, "-o", "json"))["spec"][
        "template"
    ]
    return template


async def test_hold_and_drain_stops_restores_and_starts_again(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    on_spot = flavor("drained", **{"node-type": "spot"})
    await stack.cluster.kubectl(
        "apply", "-f", "-", stdin=as_list(on_spot, cluster_queue("drained"), local_queue("drained"))
    )
    await stack.cluster.kubectl("patch", "cq", "drained", "--type=merge", "-p", '{"spec":{"stopPolicy":"Hold"}}')
    uid = await create_job(client, job("drained-job", "drained", run_seconds="forever"))
    before = await template_of(stack, "drained-job")
    assert await seen.until(lambda: reason(seen, uid, "QuotaReserved") == "False Suspended", 15)
    await stack.cluster.kubectl("patch", "cq", "drained", "--type=merge", "-p", '{"spec":{"stopPolicy":"None"}}')
    assert await seen.until(lambda: not seen.jobs["default/drained-job"].suspended, 15)
    running = await template_of(stack, "drained-job")
    assert running["spec"]["nodeSelector"] == {"node-type": "spot"}  # type: ignore[index]

    await stack.cluster.kubectl(
        "patch", "cq", "drained", "--type=merge", "-p", '{"spec":{"stopPolicy":"HoldAndDrain"}}'
    )
    assert await seen.until(lambda: seen.jobs["default/drained-job"].suspended, 15)
    assert await seen.until(lambda: reason(seen, uid, "Requeued") == "False ClusterQueueStopped", 20)
    assert await seen.until(lambda: seen.cluster_queues["drained"].status.reserving_workloads == 0, 15)
    assert await template_of(stack, "drained-job") == before, "restored exactly"

    await stack.cluster.kubectl("patch", "cq", "drained", "--type=merge", "-p", '{"spec":{"stopPolicy":"None"}}')
    assert await seen.until(lambda: not seen.jobs["default/drained-job"].suspended, 20)
    assert reason(seen, uid, "Requeued") == "True ClusterQueueRestarted"
    assert seen.verifier.starts[uid] == 2
    assert seen.verifier.admissions[uid] == 2
    await stack.cluster.kubectl("delete", "job", "drained-job")


async def test_deactivated_and_activated_again(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*queue("switched")))
    uid = await create_job(client, job("switched-job", "switched", run_seconds="forever"))
    assert await seen.until(
        lambda: "default/switched-job" in seen.jobs and not seen.jobs["default/switched-job"].suspended, 15
    )
    name = next(
        w.metadata.name for w in seen.workloads.values() if w.metadata.labels.get("kueue.x-k8s.io/job-uid") == uid
    )
    await stack.cluster.kubectl("patch", "workload", name, "--type=merge", "-p", '{"spec":{"active":false}}')
    assert await seen.until(lambda: seen.jobs["default/switched-job"].suspended, 15)
    assert await seen.until(lambda: reason(seen, uid, "Requeued") == "False Deactivated", 20)
    assert not is_true(seen.workloads[f"default/{name}"].status.conditions, "QuotaReserved")
    await stack.cluster.kubectl("patch", "workload", name, "--type=merge", "-p", '{"spec":{"active":true}}')
    assert await seen.until(lambda: not seen.jobs["default/switched-job"].suspended, 20)
    await stack.cluster.kubectl("delete", "job", "switched-job")


async def test_deleting_a_queue_in_use_waits_for_its_workloads(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*queue("in-use")))
    await create_job(client, job("in-use-job", "in-use", run_seconds="forever"))
    assert await seen.until(
        lambda: "default/in-use-job" in seen.jobs and not seen.jobs["default/in-use-job"].suspended, 15
    )
    await stack.cluster.kubectl("delete", "cq", "in-use", "--wait=false")
    await stack.cluster.kubectl("delete", "resourceflavor", "in-use", "--wait=false")

    def terminating() -> bool:
        found = seen.cluster_queues.get("in-use")
        active = find(found.status.conditions, "Active") if found else None
        return active is not None and active.reason == "Terminating"

    assert await seen.until(terminating, 15)
    assert not seen.jobs["default/in-use-job"].suspended
    await stack.cluster.kubectl("delete", "job", "in-use-job")
    assert await seen.until(lambda: "in-use" not in seen.cluster_queues, 20)
    await stack.cluster.kubectl("wait", "--for=delete", "resourceflavor/in-use", "--timeout=20s")


async def test_quota_raised_and_priority_first(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    urgent = {
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": "raised-first"}, "value": 100,
    }  # fmt: skip
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(urgent, *queue("raised", "1")))
    await create_job(client, job("raised-0", "raised", run_seconds="forever"))
    assert await seen.until(lambda: "default/raised-0" in seen.jobs and not seen.jobs["default/raised-0"].suspended, 15)
    await create_job(client, job("raised-low", "raised", run_seconds="forever"))
    await create_job(
        client,
        job("raised-high", "raised", run_seconds="forever", labels={"kueue.x-k8s.io/priority-class": "raised-first"}),
    )
    assert await seen.until(lambda: seen.cluster_queues["raised"].status.pending_workloads == 2, 15)
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(cluster_queue("raised", "2")))
    assert await seen.until(lambda: not seen.jobs["default/raised-high"].suspended, 15)
    assert seen.jobs["default/raised-low"].suspended
    await stack.cluster.kubectl("delete", "job", "-l", "kueue.x-k8s.io/queue-name=raised", "--wait=false")
