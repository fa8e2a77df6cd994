"""What differs for a group of pods in the passes of the generic reconciler.

1. In a namespace that is being deleted its pods may go at once: Kubernetes deletes pods before Workloads there, so nothing may wait for the Workload.
2. Pods that have succeeded are told to the Workload a few at a time, not one by one: they end by the dozen (R8).
"""

from services.watcher.core_kinds import Namespace
from services.watcher.job_control import Job
from services.watcher.lanes import LaneKey
from services.watcher.pod_control import PodControl
from services.watcher.reconcile_job import JobReconciler
from services.watcher.store import Stored
from services.watcher.workload_state import is_finished, workload_of
from shared.jobs.pod import members
from shared.jobs.pod_view import is_deleting
from shared.jobs.protocol import JobKind

GATHER_S = 2.0
"""How long to wait for more pods to succeed before it is told."""


class GroupReconciler(JobReconciler):
    """See JobReconciler. `_control` is a GroupControl."""

    _control: PodControl

    def __init__(self, **parts: object) -> None:
        super().__init__(**parts)  # type: ignore[arg-type]
        self._untold: dict[str, float] = {}
        """When it was noticed that a workload does not know of all pods that have succeeded, by its uid."""

    async def reconcile(self, kind: JobKind, lane: LaneKey) -> float | None:
        if self._is_ending(lane.namespace) and (job := self._control.load(kind, lane)) is not None:
            going = {pod.metadata.uid for pod in members(job.manifest) if is_deleting(pod)}
            await self._control.let_go(one for one in self._control.pods_of(job) if one.uid in going)
        return await super().reconcile(kind, lane)

    async def _with_workload(self, job: Job, stored: Stored) -> float | None:
        again = await super()._with_workload(job, stored)
        newest = self._store.get("workload", stored.namespace, stored.name)
        if newest is None or is_finished(workload_of(newest)):
            self._untold.pop(stored.uid, None)
        noticed = self._untold.get(stored.uid)
        if noticed is None:
            return again
        left = max(noticed + GATHER_S - self._now(), 0.0)
        return left if again is None else min(again, left)

    async def _reclaim(self, job: Job, stored: Stored) -> bool:
        if self._reclaimed(job, stored) is None:
            self._untold.pop(stored.uid, None)
            return False
        noticed = self._untold.setdefault(stored.uid, self._now())
        if self._now() < noticed + GATHER_S:
            return False
        del self._untold[stored.uid]
        return await super()._reclaim(job, stored)

    def _is_ending(self, namespace: str) -> bool:
        stored = self._store.get("namespace", "", namespace)
        # One that is not known yet may well stay: it cannot be gone before what is in it.
        return (
            stored is not None
            and isinstance(stored.object, Namespace)
            and stored.object.metadata.deletion_timestamp is not None
        )
