"""The life of real Jobs through the watcher alone: a real API server with real controllers, a real NATS, and the test as scheduler and preemptor."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import msgspec
import pytest
import pytest_asyncio
from opentelemetry.trace import NoOpTracer
from prometheus_client import CollectorRegistry

from devcluster.cluster import DevCluster
from devcluster.kubectl import KubectlError
from devcluster.nats_server import NatsServer
from services.watcher.service import serve
from services.watcher.settings import WatcherSettings
from shared.bus.interface import Appended, CaughtUp, ObjectChanged, Reset, Settled
from shared.bus.nats_bus import NatsBus, connect
from shared.events import commands
from shared.events.decisions import Admit, Batch, Decision, Preempt
from shared.events.objects import PodSetAssignment, Workload
from shared.events.outcomes import CommandOutcome, DecisionOutcome
from shared.jobs.naming import workload_name
from shared.runtime.health import Health
from shared.runtime.service import Context

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

T = TypeVar("T")
WITHIN_S = 40.0
CRDS = Path(__file__).parents[2] / "k8s" / "crds"

QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: life}
spec:
  nodeLabels: {kubernetes.io/os: linux}
  tolerations: [{key: life, operator: Exists}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: life}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: life, resources: [{name: cpu, nominalQuota: 8}]}]
"""


def job_manifest(namespace: str, name: str, seconds: str = "0.5", **labels: str) -> str:
    return json.dumps(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {"kueue.x-k8s.io/queue-name": "main", **labels},
            },
            "spec": {
                "suspend": True,
                "parallelism": 2,
                "completions": 2,
                "template": {
                    "metadata": {"annotations": {"sluice.dev/run-seconds": seconds}, "labels": {"mine": "yes"}},
                    "spec": {
                        "restartPolicy": "Never",
                        "nodeSelector": {"kubernetes.io/arch": "amd64"},
                        "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}],
                    },
                },
            },
        }
    )


class World:
    """The running watcher, and what the other services would see and say."""

    def __init__(self, cluster: DevCluster, nats: NatsServer, scheduler: NatsBus, preemptor: NatsBus) -> None:
        self.cluster = cluster
        self.nats = nats
        self.scheduler = scheduler
        self.preemptor = preemptor
        self.workloads: dict[str, Workload] = {}
        self.decided: list[DecisionOutcome] = []
        self.commanded: list[CommandOutcome] = []
        self.epoch = 0
        self._caught_up = False
        self._news = asyncio.Event()
        self._feed = scheduler.feed(kinds=("workload",), decisions=True, outcomes=True)

    async def read(self) -> None:
        async for items in self._feed:
            for item in items:
                match item:
                    case ObjectChanged(object=Workload() as workload):
                        self.workloads[workload.key] = workload
                    case ObjectChanged(name=name):
                        self.workloads.pop(name.key, None)
                    case Settled(outcome=DecisionOutcome() as outcome):
                        self.decided.append(outcome)
                    case Settled(outcome=CommandOutcome() as outcome):
                        self.commanded.append(outcome)
                    case Reset(epoch=epoch):
                        self.epoch, self._caught_up = epoch, False
                        self.workloads.clear()
                    case CaughtUp():
                        self._caught_up = True
            self._news.set()

    async def until(self, look: Callable[[], T | None], what: str) -> T:
        """The first result of `look` that is true, looking at every news. Fails after a bounded time."""
        try:
            async with asyncio.timeout(WITHIN_S):
                while True:
                    self._news.clear()
                    found = look()
                    if found:
                        return found
                    await self._news.wait()
        except TimeoutError:
            seen = {key: [(c.type, c.status, c.reason) for c in w.conditions] for key, w in self.workloads.items()}
            pytest.fail(f"no {what} within {WITHIN_S} s; outcomes: {self.decided} {self.commanded}; workloads: {seen}")

    async def workload_of(
        self, namespace: str, job: str, look: Callable[[Workload], bool] = lambda _: True
    ) -> Workload:
        """The workload of a job, once it is as wanted."""

        def found() -> Workload | None:
            return next(
                (w for w in self.workloads.values() if w.namespace == namespace and f"-{job}-" in w.name and look(w)),
                None,
            )

        return await self.until(found, f"workload of {job}")

    async def decide(self, *decisions: Decision) -> None:
        """Append a batch where the log stands."""
        await self.until(lambda: self._caught_up or None, "end of the replay")
        async with asyncio.timeout(WITHIN_S):
            while True:
                batch = Batch(author="test", positions=self._feed.positions, decided_ns=1, decisions=decisions)
                result = await self.scheduler.append(batch)
                if isinstance(result, Appended):
                    return
                self._news.clear()
                await self._news.wait()

    async def kubectl_until(self, look: Callable[[str], bool], *arguments: str) -> str:
        """What kubectl says, once it is as wanted."""
        out = ""
        try:
            async with asyncio.timeout(WITHIN_S):
                while True:
                    with suppress(KubectlError):
                        out = await self.cluster.kubectl(*arguments)
                        if look(out):
                            return out
        except TimeoutError:
            pytest.fail(f"kubectl {' '.join(arguments)} still says: {out}")

    async def job(self, namespace: str, name: str, look: Callable[[Any], bool]) -> Any:
        """The Job, once it is as wanted."""
        out = await self.kubectl_until(
            lambda text: look(json.loads(text)), "get", "job", name, f"--namespace={namespace}", "--output=json"
        )
        return json.loads(out)


@asynccontextmanager
async def running(work: Awaitable[None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        if task.done():
            task.result()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def world(control_plane: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    await control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(CRDS))
    for crd in ("workloads", "clusterqueues", "resourceflavors"):
        await control_plane.kubectl("wait", "--for=condition=Established", f"crd/{crd}.kueue.x-k8s.io", "--timeout=30s")
    await control_plane.kubectl("apply", "-f", "-", stdin=QUEUES)
    with suppress(KubectlError):
        await control_plane.kubectl("create", "namespace", "life-system")
    async with NatsServer(tmp_path_factory.mktemp("nats")) as nats:

        async def bus(service: str, **options: Any) -> NatsBus:
            connected: NatsBus = await connect(service, nats.url, service, nats.password(service), **options)
            return connected

        gateway = await bus("watcher", gateway=True)
        scheduler, preemptor = await bus("scheduler"), await bus("preemptor")
        settings = WatcherSettings(kubeconfig=str(control_plane.kubeconfig), instance="life", namespace="life-system")
        context = Context("watcher", settings, gateway, Health(), CollectorRegistry(), NoOpTracer())
        try:
            async with running(serve(context)):
                found = World(control_plane, nats, scheduler, preemptor)
                async with running(found.read()):
                    yield found
        finally:
            for connection in (gateway, scheduler, preemptor):
                await connection.close()


@pytest_asyncio.fixture(loop_scope="session")
async def namespace(world: World) -> AsyncIterator[str]:
    name = f"life-{uuid4().hex[:6]}"
    await world.cluster.kubectl("create", "namespace", name)
    yield name
    await world.cluster.kubectl("delete", "namespace", name, "--wait=false")


def admit(workload: Workload) -> Admit:
    return Admit(
        key=workload.key,
        uid=workload.uid,
        incarnation=workload.incarnation,
        domain="life",
        cluster_queue="life",
        pod_sets=(PodSetAssignment(name="main", count=2, flavors={"cpu": "life"}, usage={"cpu": 2000}),),
        queued_since=workload.created,
    )


def has(workload: Workload, type_: str, status: bool = True) -> bool:
    return any(c.type == type_ and c.status == status for c in workload.conditions)


async def test_a_job_is_admitted_runs_and_finishes(world: World, namespace: str) -> None:
    await world.cluster.kubectl("create", "-f", "-", stdin=job_manifest(namespace, "run"))
    workload = await world.workload_of(namespace, "run")
    assert workload.queue_name == "main"
    assert [(p.name, p.count) for p in workload.pod_sets] == [("main", 2)]

    await world.decide(admit(workload))
    outcome = await world.until(
        lambda: next((o for o in world.decided if o.key == workload.key), None), "outcome of the decision"
    )
    assert outcome.status == "applied"

    started = await world.job(namespace, "run", lambda job: not job["spec"]["suspend"])
    template = started["spec"]["template"]
    assert template["spec"]["nodeSelector"] == {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
    assert template["metadata"]["labels"]["kueue.x-k8s.io/cluster-queue-name"] == "life"
    await world.job(
        namespace, "run", lambda job: any(c["type"] == "Complete" for c in job["status"].get("conditions", ()))
    )
    finished = await world.workload_of(namespace, "run", lambda w: w.finished)
    assert finished.key == workload.key

    described = await world.kubectl_until(
        lambda text: "FinishedWorkload" in text, "describe", "job", "run", f"--namespace={namespace}"
    )
    assert "Started" in described
    assert "CreatedWorkload" in described
    shown = await world.kubectl_until(
        lambda text: "QuotaReserved" in text and "Admitted by ClusterQueue life" in text,
        "describe",
        "workload",
        workload.name,
        f"--namespace={namespace}",
    )
    assert "Succeeded" in shown


async def test_an_evicted_job_is_stopped_restored_and_releases_its_quota(world: World, namespace: str) -> None:
    await world.cluster.kubectl("create", "-f", "-", stdin=job_manifest(namespace, "evict", seconds="forever"))
    workload = await world.workload_of(namespace, "evict")
    await world.decide(admit(workload))
    await world.job(namespace, "evict", lambda job: job["status"].get("active") == 2)
    held = await world.workload_of(namespace, "evict", lambda w: has(w, "Admitted"))

    command = commands.Evict(
        id=uuid4().hex,
        kind="workload",
        namespace=namespace,
        name=held.name,
        uid=held.uid,
        incarnation=held.incarnation,
        reason="ClusterQueueStopped",
        message="The ClusterQueue is stopped",
    )
    await world.preemptor.command([command])

    released = await world.workload_of(namespace, "evict", lambda w: has(w, "QuotaReserved", False))
    assert released.admission is None
    assert has(released, "Evicted")
    assert has(released, "Requeued", False)
    job = await world.job(namespace, "evict", lambda job: job["spec"]["suspend"] and not job["status"].get("active"))
    template = job["spec"]["template"]
    assert template["spec"]["nodeSelector"] == {"kubernetes.io/arch": "amd64"}
    assert "tolerations" not in template["spec"]
    assert template["metadata"]["annotations"] == {"sluice.dev/run-seconds": "forever"}
    assert template["metadata"]["labels"]["mine"] == "yes"
    assert not any(key.startswith("kueue.x-k8s.io/") for key in template["metadata"]["labels"])
    assert "kueue.x-k8s.io/stopping" not in job["metadata"].get("annotations", {})
    answer = await world.until(
        lambda: next((o for o in world.commanded if o.command == command.id), None), "outcome of the command"
    )
    assert answer.status == "applied"


async def test_a_preempted_job_can_be_admitted_again(world: World, namespace: str) -> None:
    await world.cluster.kubectl("create", "-f", "-", stdin=job_manifest(namespace, "again", seconds="forever"))
    await world.cluster.kubectl("create", "-f", "-", stdin=job_manifest(namespace, "urgent"))
    urgent = await world.workload_of(namespace, "urgent")
    first = await world.workload_of(namespace, "again")
    await world.decide(admit(first))
    held = await world.workload_of(namespace, "again", lambda w: has(w, "Admitted"))
    victim = Preempt(
        key=held.key,
        uid=held.uid,
        incarnation=held.incarnation,
        reason="InClusterQueue",
        message="Preempted to accommodate a workload (UID: x, JobUID: y) due to prioritization in the ClusterQueue",
        preemptor=urgent.key,
        preemptor_uid=urgent.uid,
        cluster_queue="life",
    )
    await world.decide(victim)
    released = await world.workload_of(namespace, "again", lambda w: w.admission is None and has(w, "Requeued"))
    assert has(released, "Preempted")

    await world.decide(admit(released))
    again = await world.workload_of(namespace, "again", lambda w: has(w, "Admitted") and not has(w, "Evicted"))
    assert has(again, "Evicted", False)
    await world.job(namespace, "again", lambda job: not job["spec"]["suspend"] and job["status"].get("active") == 2)


async def test_a_decision_about_a_passed_state_is_rejected(world: World, namespace: str) -> None:
    await world.cluster.kubectl("create", "-f", "-", stdin=job_manifest(namespace, "stale"))
    workload = await world.workload_of(namespace, "stale")
    stale = msgspec.structs.replace(admit(workload), incarnation="0" * 12)
    await world.decide(stale)
    outcome = await world.until(
        lambda: next((o for o in world.decided if o.key == workload.key), None), "outcome of the decision"
    )
    assert outcome.status == "rejected"
    assert "changed" in outcome.why
    job = await world.job(namespace, "stale", lambda job: True)
    assert job["spec"]["suspend"] is True


async def test_a_workload_that_is_deleted_is_made_anew_and_the_job_stopped(world: World, namespace: str) -> None:
    await world.cluster.kubectl("create", "-f", "-", stdin=job_manifest(namespace, "del", seconds="forever"))
    workload = await world.workload_of(namespace, "del")
    await world.decide(admit(workload))
    await world.job(namespace, "del", lambda job: not job["spec"]["suspend"])
    await world.cluster.kubectl("delete", "workload", workload.name, f"--namespace={namespace}", "--wait=false")
    anew = await world.workload_of(namespace, "del", lambda w: w.uid != workload.uid)
    assert anew.name == workload.name
    assert anew.admission is None
    job = await world.job(namespace, "del", lambda job: job["spec"]["suspend"])
    assert job["spec"]["template"]["spec"]["nodeSelector"] == {"kubernetes.io/arch": "amd64"}


async def test_a_missing_class_and_a_foreign_workload_are_told_once(world: World, namespace: str) -> None:
    priority = f"class-{uuid4().hex[:6]}"
    await world.cluster.kubectl(
        "create", "-f", "-", stdin=job_manifest(namespace, "gone", **{"kueue.x-k8s.io/priority-class": priority})
    )
    described = await world.kubectl_until(
        lambda text: "WorkloadPriorityClassNotFound" in text, "describe", "job", "gone", f"--namespace={namespace}"
    )
    assert described.count("WorkloadPriorityClassNotFound") == 1
    assert not [w for w in world.workloads.values() if w.namespace == namespace]

    job = await world.job(namespace, "gone", lambda _: True)
    name = workload_name(kind="Job", group="batch", name="gone", uid=job["metadata"]["uid"])
    foreign = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]},
    }
    await world.cluster.kubectl("create", "-f", "-", stdin=json.dumps(foreign))
    class_ = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": priority},
        "value": 3,
    }
    await world.cluster.kubectl("create", "-f", "-", stdin=json.dumps(class_))
    described = await world.kubectl_until(
        lambda text: "ErrWorkloadCompose" in text, "describe", "job", "gone", f"--namespace={namespace}"
    )
    assert "belongs to nobody" in described
    await world.cluster.kubectl("delete", "workload", name, f"--namespace={namespace}")
    workload = await world.workload_of(namespace, "gone", lambda w: w.priority == 3)
    assert workload.name == name
    assert workload.priority_class == priority


async def test_wiped_streams_lose_nothing_and_admit_nothing_twice(world: World, namespace: str) -> None:
    await world.cluster.kubectl("create", "-f", "-", stdin=job_manifest(namespace, "before", seconds="forever"))
    await world.cluster.kubectl("create", "-f", "-", stdin=job_manifest(namespace, "after"))
    running_one = await world.workload_of(namespace, "before")
    await world.decide(admit(running_one))
    await world.job(namespace, "before", lambda job: not job["spec"]["suspend"])
    # The last thing that is written about it.
    held = await world.workload_of(namespace, "before", lambda w: has(w, "Admitted") and has(w, "PodsReady"))
    epoch = world.epoch

    await world.nats.wipe()
    await world.until(lambda: world.epoch > epoch, "a new epoch")
    again = await world.workload_of(namespace, "before", lambda w: has(w, "Admitted"))
    assert (again.uid, again.version) == (held.uid, held.version)
    waiting = await world.workload_of(namespace, "after")
    await world.decide(admit(waiting))
    await world.workload_of(namespace, "after", lambda w: w.finished)
    job = await world.job(namespace, "before", lambda job: True)
    assert job["spec"]["suspend"] is False
