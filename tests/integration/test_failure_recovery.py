"""Ending a pod of a lost node by force on a real API server, with the rights that k8s/components/failure-recovery grants."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from devcluster.cluster import DevCluster
from devcluster.options import ClusterOptions
from services.watcher.failure_recovery import CONDITION, UNREACHABLE, FailureRecovery
from services.watcher.kubernetes_events import EventRecorder
from shared.api import names
from shared.kube.client import connect
from shared.kube.write_budget import WriteBudget
from tests.eventually import eventually
from tests.integration.admission_server import NAMESPACE, ROOT

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

TAINT = {"key": UNREACHABLE, "effect": "NoExecute"}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "lost"}, "spec": {"taints": [TAINT]}}


def pod(name: str, *, safe: bool) -> dict[str, object]:
    annotations = {names.SAFE_TO_FORCEFULLY_DELETE: "true"} if safe else {}
    spec = {
        "nodeName": "lost",
        "terminationGracePeriodSeconds": 1,
        # So that its last state can still be looked at.
        "containers": [{"name": "c", "image": "registry.k8s.io/pause:3.10"}],
    }
    metadata = {"name": name, "annotations": annotations, "finalizers": ["example.com/look"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def test_a_pod_of_a_lost_node_is_ended_and_one_that_is_not_safe_is_not() -> None:
    options = ClusterOptions(with_controllers=False, with_scheduler=False, with_kwok=False)
    async with DevCluster(options) as cluster:
        await cluster.kubectl("apply", "--server-side", "-k", str(ROOT / "k8s" / "local"))
        await cluster.kubectl("apply", "-f", str(ROOT / "k8s" / "components" / "failure-recovery" / "role.yaml"))
        objects = {
            "apiVersion": "v1",
            "kind": "List",
            "items": [NODE, pod("safe", safe=True), pod("unsafe", safe=False)],
        }
        await cluster.kubectl("apply", "-f", "-", stdin=json.dumps(objects))
        await cluster.kubectl("delete", "pod", "safe", "unsafe", "--wait=false")

        async def shown(name: str) -> dict[str, dict[str, object]]:
            found: dict[str, dict[str, object]] = json.loads(await cluster.kubectl("get", "pod", name, "-o", "json"))
            return found

        account = await cluster.service_account_kubeconfig(NAMESPACE, "sluice-watcher")
        async with await connect(str(account), timeout_s=10.0) as client:
            recorder = EventRecorder(client, WriteBudget(rate_per_s=100, burst=100), instance="test", now=time.time)
            recovery = FailureRecovery(client, recorder, time.time, grace_s=1.0, look_s=0.2)
            tasks = [asyncio.create_task(recovery.run()), asyncio.create_task(recorder.run())]

            async def is_failed() -> bool:
                return (await shown("safe"))["status"]["phase"] == "Failed"

            async def has_no_grace() -> bool:
                return (await shown("safe"))["metadata"]["deletionGracePeriodSeconds"] == 0

            async def told() -> set[tuple[str, str]]:
                listed = json.loads(await cluster.kubectl("get", "events.events.k8s.io", "-o", "json"))
                return {(e["regarding"]["name"], e["type"]) for e in listed["items"]}

            try:
                assert await eventually(is_failed, 20)
                assert await eventually(has_no_grace, 20)
                assert await eventually(told, 20) == {("safe", "Warning")}
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        conditions = (await shown("safe"))["status"]["conditions"]
        assert isinstance(conditions, list)
        assert [c["reason"] for c in conditions if c["type"] == CONDITION] == ["KueueForcefullyDeleted"]
        assert (await shown("unsafe"))["status"]["phase"] == "Pending"
        release = '{"metadata":{"finalizers":null}}'
        await cluster.kubectl("patch", "pod", "safe", "--type=merge", "-p", release)

        async def is_gone() -> bool:
            return not await cluster.kubectl("get", "pod", "safe", "--ignore-not-found", "-o", "name")

        assert await eventually(is_gone, 10)
