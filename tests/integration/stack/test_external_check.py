"""An admission check whose controller is somebody else's: written against the API alone, as any client could be. It answers Ready, Retry and Rejected, and
what it adds to pods is merged with what flavors add; a check on one flavor concerns only workloads that were given that flavor."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from cli.observe import Observer
from devcluster.stack import Stack
from shared.kube.client import KubeClient
from shared.kube.errors import ApiError, Conflict
from shared.kube.resources import ADMISSION_CHECKS, WORKLOADS
from tests.integration.stack.histories import Histories
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

CONTROLLER = "example.com/budget"
Watched = tuple[KubeClient, Observer]
Answer = Callable[[Manifest], dict[str, Any] | None]
"""What to say of a workload that waits for the check: fields of its state; None: nothing yet."""


class Budget:
    """The other controller. It polls and patches JSON, and knows no code of ours but the HTTP client."""

    def __init__(self, client: KubeClient, check: str, answer: Answer) -> None:
        self._client = client
        self._check = check
        self._answer = answer
        self.asked: list[str] = []
        """Workloads that waited for an answer, each time they did."""

    async def run(self) -> None:
        active = {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": _now()}
        await self._patch(ADMISSION_CHECKS, "", self._check, {"status": {"conditions": [active]}})
        while True:
            listed = json.loads(await self._client.list_page(WORKLOADS, "default"))
            for workload in listed["items"]:
                with contextlib.suppress(Conflict):
                    await self._look_at(workload)
            await asyncio.sleep(0.1)

    async def _look_at(self, workload: Manifest) -> None:
        status = workload.get("status", {})
        true = {c["type"] for c in status.get("conditions", []) if c["status"] == "True"}
        states = status.get("admissionChecks", [])
        mine = [s for s in states if s["name"] == self._check and s["state"] == "Pending"]
        if not mine or "QuotaReserved" not in true or "Evicted" in true:
            return
        said = self._answer(workload)
        if said is None:
            return
        self.asked.append(workload["metadata"]["name"])
        new = {**mine[0], "message": "", "lastTransitionTime": _now(), **said}
        checks = [new if s is mine[0] else s for s in states]
        version = workload["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "status": {"admissionChecks": checks}}
        await self._patch(WORKLOADS, "default", workload["metadata"]["name"], body)

    async def _patch(self, resource: Any, namespace: str, name: str, body: dict[str, Any]) -> None:
        try:
            await self._client.patch(resource, namespace, name, json.dumps(body).encode(), subresource="status")
        except Conflict:
            raise
        except ApiError as error:
            raise AssertionError(f"{name}: {error}") from error


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextlib.asynccontextmanager
async def budget(client: KubeClient, check: str, answer: Answer) -> AsyncIterator[Budget]:
    controller = Budget(client, check, answer)
    running = asyncio.create_task(controller.run())
    try:
        yield controller
        assert not running.done(), running.exception()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def check_of(name: str) -> Manifest:
    return {
        "apiVersion": API,
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": {"controllerName": CONTROLLER},
    }


async def queued(stack: Stack, name: str, **spec: Any) -> None:
    strategy = {"admissionChecks": [{"name": name}]}
    queue = cluster_queue(name, **{"admissionChecksStrategy": strategy, **spec})
    pool = flavor(name, **{"node-type": "on-demand"})
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(check_of(name), pool, queue, local_queue(name)))


async def test_ready_with_updates_that_are_merged(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    await queued(stack, "budgeted")
    update = {
        "name": "main",
        "labels": {"cost-center": "42"},
        "annotations": {"example.com/bill": "b-1"},
        "nodeSelector": {"tier": "paid"},
        "tolerations": [{"key": "paid", "operator": "Exists"}],
    }
    async with budget(client, "budgeted", lambda _: {"state": "Ready", "message": "paid", "podSetUpdates": [update]}):
        # No node is of that tier: the pods wait, and can be looked at.
        await create_job(client, job("budgeted-job", "budgeted"))
        key = "default/budgeted-job"
        assert await seen.until(lambda: key in seen.jobs and not seen.jobs[key].suspended, 30)
    template = json.loads(await stack.cluster.kubectl("get", "job", "budgeted-job", "-o", "json"))["spec"]["template"]
    assert template["metadata"]["labels"]["cost-center"] == "42"
    assert template["metadata"]["annotations"]["example.com/bill"] == "b-1"
    assert template["spec"]["nodeSelector"] == {"node-type": "on-demand", "tier": "paid"}
    assert {"key": "paid", "operator": "Exists"} in template["spec"]["tolerations"]
    await stack.cluster.kubectl("delete", "job", "budgeted-job")


async def test_retry_then_ready(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    histories = Histories.of(seen)
    await queued(stack, "hesitant")
    answers: list[dict[str, Any]] = [
        {"state": "Retry", "message": "come back", "requeueAfterSeconds": 1},
        {"state": "Ready"},
    ]
    async with budget(client, "hesitant", lambda _: answers.pop(0) if answers else None) as controller:
        uid = await create_job(client, job("hesitant-job", "hesitant"))
        assert await seen.until(
            lambda: "default/hesitant-job" in seen.jobs and seen.jobs["default/hesitant-job"].complete, 40
        )
        assert len(controller.asked) == 2
    told = [state.get("Evicted", "") for state in histories.seen[uid]]
    assert "True AdmissionCheck" in told
    assert [s for s in histories.seen[uid] if s.get("Requeued") == "False AdmissionCheck"]
    (workload,) = [w for w in seen.workloads.values() if w.spec.queue_name == "hesitant"]
    (state,) = workload.status.admission_checks
    assert (state.state, state.retry_count) == ("Ready", 1)
    assert seen.verifier.starts[uid] == 1, "it never ran before the check was ready"


async def test_rejected_until_a_user_asks_again(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    histories = Histories.of(seen)
    await queued(stack, "broke")
    answers: list[dict[str, Any]] = [{"state": "Rejected", "message": "no money"}]
    async with budget(client, "broke", lambda _: answers.pop(0) if answers else None):
        uid = await create_job(client, job("broke-job", "broke"))
        over = "True DeactivatedDueToAdmissionCheck"
        assert await seen.until(lambda: histories.now(uid, "Evicted") == over, 30), histories.seen[uid]
        (workload,) = [w for w in seen.workloads.values() if w.spec.queue_name == "broke"]
        assert not workload.spec.active
        assert await seen.until(lambda: histories.now(uid, "QuotaReserved").startswith("False"), 30)
        answers.append({"state": "Ready"})
        name = workload.metadata.name
        await stack.cluster.kubectl("patch", "workload", name, "--type=merge", "-p", '{"spec":{"active":true}}')
        assert await seen.until(lambda: seen.jobs["default/broke-job"].complete, 40)


async def test_a_check_on_one_flavor_concerns_those_on_it(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    strategy = {"admissionChecks": [{"name": "by-flavor", "onFlavors": ["by-flavor-second"]}]}
    queue = cluster_queue("by-flavor", "1", flavors=("by-flavor", "by-flavor-second"), admissionChecksStrategy=strategy)
    flavors = [flavor("by-flavor"), flavor("by-flavor-second")]
    await stack.cluster.kubectl(
        "apply", "-f", "-", stdin=as_list(check_of("by-flavor"), *flavors, queue, local_queue("by-flavor"))
    )
    async with budget(client, "by-flavor", lambda _: None):
        await create_job(client, job("by-flavor-1", "by-flavor", run_seconds="forever"))
        assert await seen.until(
            lambda: "default/by-flavor-1" in seen.jobs and not seen.jobs["default/by-flavor-1"].suspended, 30
        )
        uid = await create_job(client, job("by-flavor-2", "by-flavor", run_seconds="forever"))

        def second() -> list[str]:
            found = [w for w in seen.workloads.values() if w.metadata.labels.get("kueue.x-k8s.io/job-uid") == uid]
            return [c.name for w in found for c in w.status.admission_checks if w.status.admission is not None]

        assert await seen.until(lambda: second() == ["by-flavor"], 30)
        first = next(w for w in seen.workloads.values() if w.metadata.name.startswith("job-by-flavor-1"))
        assert first.status.admission_checks == ()
        assert seen.jobs["default/by-flavor-2"].suspended
    await stack.cluster.kubectl("delete", "job", "by-flavor-1", "by-flavor-2")
