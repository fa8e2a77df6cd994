"""Follows queues, workloads and Jobs of a cluster through the Kubernetes API, as any client could; for the live table and the verifier."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from cli.verifier import JobState, Verifier
from shared.api.cluster_queue import ClusterQueue
from shared.api.decoding import decode
from shared.api.local_queue import LocalQueue
from shared.api.meta import ObjectMeta
from shared.api.names import QUEUE_NAME_LABEL
from shared.api.workload import Workload
from shared.kube.client import KubeClient, connect
from shared.kube.list_watch import Changed, Deleted, Listed, ListWatch, ObjectReference
from shared.kube.resources import CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, WORKLOADS, Resource

UNMANAGED = ("kube-system", "kueue-system")
"""Namespaces whose Jobs are nobody's to queue."""

T = TypeVar("T")
V = TypeVar("V")


class _JobSpec(msgspec.Struct, frozen=True):
    suspend: bool = False


class _JobCondition(msgspec.Struct, frozen=True):
    type: str
    status: str


class _JobStatus(msgspec.Struct, frozen=True):
    conditions: tuple[_JobCondition, ...] = ()


class _Job(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: _JobSpec
    status: _JobStatus = _JobStatus()


class Observer:
    """The newest queues, workloads and Jobs of queues, and a Verifier that saw every state of them."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self.verifier = Verifier()
        self.cluster_queues: dict[str, ClusterQueue] = {}
        self.local_queues: dict[str, LocalQueue] = {}
        self.workloads: dict[str, Workload] = {}
        self.jobs: dict[str, JobState] = {}
        self.changed = asyncio.Event()
        """Set at every change; whoever waits clears it."""
        self.malformed: list[str] = []

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(CLUSTER_QUEUES, ClusterQueue, self._on_cluster_queue, self.cluster_queues))
            group.create_task(self._follow(LOCAL_QUEUES, LocalQueue, self._on_local_queue, self.local_queues))
            group.create_task(self._follow(WORKLOADS, Workload, self._on_workload, self.workloads))
            group.create_task(self._follow(JOBS, _Job, self._on_job, self.jobs))

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait for the condition, looked at whenever something changed; whether it came true in time."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            return condition()
        return True

    async def _follow(self, resource: Resource, type_: type[T], put: Callable[[T], None], seen: dict[str, V]) -> None:
        watch = ListWatch(
            self._client,
            resource,
            lambda raw: decode(type_, raw),
            lambda item: int(item.metadata.resource_version),  # type: ignore[attr-defined]
            on_malformed=lambda reference, why: self.malformed.append(f"{resource.plural} {_key(reference)}: {why}"),
        )
        async for items in watch.run():
            for item in items:
                match item:
                    case Listed():
                        for listed in item.items:
                            put(listed)
                        kept = {o.metadata.key for o in item.items}  # type: ignore[attr-defined]
                        for key in [k for k in seen if k not in kept]:
                            self._gone(seen, key)
                    case Changed():
                        put(item.item)
                    case Deleted():
                        self._gone(seen, _key(item.reference))
            self.changed.set()

    def _gone(self, seen: dict[str, V], key: str) -> None:
        item = seen.pop(key, None)
        if isinstance(item, Workload):
            self.verifier.workload(item, deleted=True)

    def _on_cluster_queue(self, queue: ClusterQueue) -> None:
        self.cluster_queues[queue.metadata.key] = queue
        self.verifier.cluster_queue(queue)

    def _on_local_queue(self, queue: LocalQueue) -> None:
        self.local_queues[queue.metadata.key] = queue

    def _on_workload(self, workload: Workload) -> None:
        self.workloads[workload.metadata.key] = workload
        self.verifier.workload(workload)

    def _on_job(self, job: _Job) -> None:
        if QUEUE_NAME_LABEL not in job.metadata.labels or job.metadata.namespace in UNMANAGED:
            return
        true = {c.type for c in job.status.conditions if c.status == "True"}
        state = JobState(
            uid=job.metadata.uid,
            key=job.metadata.key,
            version=int(job.metadata.resource_version),
            suspended=job.spec.suspend,
            complete="Complete" in true,
            failed="Failed" in true,
        )
        self.jobs[state.key] = state
        self.verifier.job(state)


def _key(reference: ObjectReference) -> str:
    return f"{reference.namespace}/{reference.name}" if reference.namespace else reference.name


@contextlib.asynccontextmanager
async def observing(kubeconfig: Path) -> AsyncIterator[tuple[KubeClient, Observer]]:
    """A client of this cluster, and an Observer that follows it meanwhile."""
    async with await connect(str(kubeconfig), user_agent="sluice-cli", timeout_s=10.0) as client:
        observer = Observer(client)
        following = asyncio.create_task(observer.run())
        try:
            yield client, observer
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following
