"""Jobs live under Sluice with their own, real controllers.

    make e2e        builds the controllers, then runs this

Each is queued, held back, let go when there is quota, run by its controller's pods on fake nodes, evicted, let go again and ended.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from devcluster.options import ClusterOptions, NodeGroup
from shared.kube.resources import PODS, WORKLOADS, Resource
from tests.e2e.controllers import Controllers
from tests.eventually import eventually
from tests.integration.stack.kind_cluster import Cluster, condition, stack_of_kinds
from tests.integration.stack.manifests import Manifest

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

FRAMEWORKS = ("batch/job", "jobset.x-k8s.io/jobset")
WAIT_S = 90.0


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A job. `pods`: how many it has; `fails`: they fail in the end."""

    resource: Resource
    spec: Manifest
    suspended: tuple[str, ...] = ("spec", "suspend")
    pods: int
    fails: bool = False

    def __str__(self) -> str:
        return f"{self.resource.kind}-{'fails' if self.fails else 'succeeds'}"


def _template() -> Manifest:
    running = {"name": "c", "image": "example.com/job:1", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {"annotations": {"sluice.dev/run-seconds": "forever"}},
        "spec": {"restartPolicy": "Never", "containers": [running]},
    }


def _replicated(name: str, pods: int) -> Manifest:
    job = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": _template()}
    return {"name": name, "replicas": 1, "template": {"spec": job}}


CASES = tuple(
    Case(
        resource=Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet"),
        spec={"replicatedJobs": [_replicated("driver", 1), _replicated("workers", 2)]},
        pods=3,
        fails=fails,
    )
    for fails in (False, True)
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp("e2e")
    options = ClusterOptions(nodes=(NodeGroup(name="node", count=2, labels={"node-type": "plain"}),), audit=True)
    async with (
        stack_of_kinds(folder, FRAMEWORKS, options) as (stack, client),
        Controllers(stack.cluster, folder).running(),
    ):
        yield Cluster(stack, client)


class Running:
    """One job in a queue of its own."""

    def __init__(self, cluster: Cluster, case: Case) -> None:
        self.cluster, self.case = cluster, case
        self.name = f"e2e-{case}".lower()
        self.uid = ""

    async def create(self) -> None:
        kind = self.case.resource
        metadata = {"name": self.name, "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": self.name}}
        job = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        made = await self.cluster.create(kind, {**job, "spec": copy.deepcopy(self.case.spec)})
        self.uid = made["metadata"]["uid"]

    async def held(self) -> bool:
        at: Any = await self.cluster.get(self.case.resource, self.name)
        for key in self.case.suspended:
            at = at.get(key, {})
        return at is True

    async def workload(self) -> Manifest:
        return await self.cluster.workload_of(self.uid)

    async def set_active(self, active: bool) -> None:
        name = (await self.workload())["metadata"]["name"]
        await self.cluster.patch(WORKLOADS, name, {"spec": {"active": active}})

    async def pods(self) -> list[Manifest]:
        """Those that a controller made of the templates that Sluice let go."""
        name = (await self.workload())["metadata"]["name"]
        page = msgspec.json.decode(await self.cluster.client.list_page(PODS, "default"))
        return [
            pod
            for pod in page["items"]
            if pod["metadata"].get("annotations", {}).get("kueue.x-k8s.io/workload") == name
        ]

    async def phases(self) -> list[str]:
        return [pod["status"]["phase"] for pod in await self.pods()]

    async def until_running(self) -> None:
        wanted = ["Running"] * self.case.pods
        assert await eventually(self.phases, WAIT_S, lambda found: found == wanted) == wanted
        assert not await self.held()
        assert all(pod["spec"]["nodeSelector"]["node-type"] == "plain" for pod in await self.pods())
        assert condition(await self.workload(), "Admitted") == ("True", "Admitted")

    async def until_out(self) -> None:
        async def out() -> bool:
            reserved = condition(await self.workload(), "QuotaReserved") or ("", "")
            return await self.held() and not await self.pods() and reserved[0] == "False"

        assert await eventually(out, WAIT_S), await self.workload()

    async def end(self) -> None:
        """Its pods end, and so does it."""
        annotations = {"sluice.dev/run-seconds": "0", **({"sluice.dev/fail": "true"} if self.case.fails else {})}
        for pod in await self.pods():
            await self.cluster.patch(PODS, pod["metadata"]["name"], {"metadata": {"annotations": annotations}})
        expected = ("True", "Failed" if self.case.fails else "Succeeded")

        async def finished() -> bool:
            return condition(await self.workload(), "Finished") == expected

        assert await eventually(finished, WAIT_S), await self.cluster.get(self.case.resource, self.name)


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_life_with_its_own_controller(cluster: Cluster, case: Case) -> None:
    running = Running(cluster, case)
    await cluster.queue(running.name, cpu="0")
    await running.create()
    assert await running.held(), "held back at its creation"

    async def waiting() -> bool:
        return condition(await running.workload(), "QuotaReserved") is not None

    assert await eventually(waiting, WAIT_S)
    assert not await running.pods()
    await cluster.queue(running.name)
    await running.until_running()
    await running.set_active(False)
    await running.until_out()
    await running.set_active(True)
    await running.until_running()
    await running.end()
    left = await eventually(lambda: cluster.reserving(running.name), WAIT_S, lambda n: n == 0)
    assert left == 0
