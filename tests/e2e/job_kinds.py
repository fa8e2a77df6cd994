"""Jobs of several kinds live under Sluice with their own, real controllers.

    make e2e        builds the controllers, then runs this

Each is queued, held back, let go when there is quota, run by its controller's pods on fake nodes, evicted, let go again and ended. A RayJob asks Ray
itself how it stands, which is not here: it goes as far as its submitter, and fails with that.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from devcluster.options import ClusterOptions, NodeGroup
from devcluster.ports import free_ports
from shared.kube.resources import PODS, WORKLOADS, Resource
from tests.e2e.controllers import Controllers
from tests.eventually import eventually
from tests.handback import egress
from tests.integration.stack.kind_cluster import Cluster, condition, stack_of_kinds
from tests.integration.stack.manifests import Manifest

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

FRAMEWORKS = (
    "batch/job",
    "jobset.x-k8s.io/jobset",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/tfjob",
    "ray.io/raycluster",
    "ray.io/rayjob",
)
WAIT_S = 90.0


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A job. `pods`: how many it has; `end`: the reason of its Workload's end, empty for one that only ends by being deleted; `fails`: names of the pods
    whose failure ends it begin so, after the name of the job."""

    resource: Resource
    spec: Manifest
    suspended: tuple[str, ...] = ("spec", "suspend")
    pods: int
    end: str = "Succeeded"
    fails: str | None = None

    def __str__(self) -> str:
        return self.resource.kind


def _template(container: str, restart: str = "Never") -> Manifest:
    running = {"name": container, "image": "example.com/job:1", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {"annotations": {"sluice.dev/run-seconds": "forever"}},
        "spec": {"restartPolicy": restart, "containers": [running]},
    }


def _replicated(name: str, pods: int) -> Manifest:
    job = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": _template("c")}
    return {"name": name, "replicas": 1, "template": {"spec": job}}


def _replicas(container: str, **count: int) -> Manifest:
    return {
        type_: {"replicas": n, "restartPolicy": "Never", "template": _template(container)} for type_, n in count.items()
    }


RAY_CLUSTER: Manifest = {
    "rayVersion": "2.9.0",
    "headGroupSpec": {"rayStartParams": {}, "template": _template("ray-head", "Always")},
    "workerGroupSpecs": [
        {
            "groupName": "small",
            "replicas": 1,
            "minReplicas": 1,
            "maxReplicas": 1,
            "rayStartParams": {},
            "template": _template("ray-worker", "Always"),
        }
    ],
}
CASES = (
    Case(
        resource=Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet"),
        spec={"replicatedJobs": [_replicated("driver", 1), _replicated("workers", 2)]},
        pods=3,
    ),
    Case(
        resource=Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"),
        spec={"pytorchReplicaSpecs": _replicas("pytorch", Master=1, Worker=2)},
        suspended=("spec", "runPolicy", "suspend"),
        pods=3,
    ),
    Case(
        resource=Resource("kubeflow.org", "v1", "tfjobs", "TFJob"),
        spec={"tfReplicaSpecs": _replicas("tensorflow", Chief=1, Worker=2)},
        suspended=("spec", "runPolicy", "suspend"),
        pods=3,
    ),
    Case(
        resource=Resource("ray.io", "v1", "rayclusters", "RayCluster"),
        spec=RAY_CLUSTER,
        pods=2,
        end="",
    ),
    Case(
        resource=Resource("ray.io", "v1", "rayjobs", "RayJob"),
        spec={
            "entrypoint": "true",
            "shutdownAfterJobFinishes": True,
            "submitterConfig": {"backoffLimit": 0},
            "submitterPodTemplate": _template("ray-job-submitter"),
            "rayClusterSpec": RAY_CLUSTER,
        },
        pods=3,
        end="Failed",
        fails="ray-job-submitter",
    ),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp("e2e")
    socket, file = folder / "egress", folder / "egress.yaml"
    file.write_text(egress.configuration(socket))
    (port,) = free_ports(1)
    options = ClusterOptions(
        nodes=(NodeGroup(name="node", count=2, labels={"node-type": "plain"}),),
        audit=True,
        apiserver_flags=(f"--egress-selector-config-file={file}",),
    )
    async with (
        egress.proxy(socket, port),
        stack_of_kinds(folder, FRAMEWORKS, options) as (stack, client),
        Controllers(stack.cluster, client, folder, port).running(),
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
        """Its pods end, or what is left of it when it is deleted."""
        if not self.case.end:
            await self.cluster.client.delete(self.case.resource, "default", self.name, propagation="Background")
            return
        for pod in await self.pods():
            annotations = {"sluice.dev/run-seconds": "0"}
            if self.case.fails is not None:
                if not any(c["name"] == self.case.fails for c in pod["spec"]["containers"]):
                    continue
                annotations["sluice.dev/fail"] = "true"
            await self.cluster.patch(PODS, pod["metadata"]["name"], {"metadata": {"annotations": annotations}})

        async def finished() -> bool:
            return condition(await self.workload(), "Finished") == ("True", self.case.end)

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
