"""What differs for a group of pods in the passes of the generic reconciler.

1. In a namespace that is being deleted its pods may go at once: Kubernetes deletes pods before Workloads there, so nothing may wait for the Workload.
2. A pod that somebody deletes by force goes at once, too: nobody will tell of its end, and its place is free for another one.
3. Pods end by the dozen, and each that has ended is not ready any more. So what is told of them (how many have succeeded, that not all are ready) is told
   once for many, when no other has ended for a little while, and not at all if the group is over by then (R8).
4. That pods are not ready yet is not written: no condition says the same.
"""

from typing import NamedTuple

from services.watcher.core_kinds import Namespace
from services.watcher.job_control import Job
from services.watcher.lanes import LaneKey
from services.watcher.pod_control import GroupControl
from services.watcher.reconcile_job import JobReconciler
from services.watcher.store import Stored
from services.watcher.workload_state import condition, is_finished, workload_of
from shared.api import names
from shared.jobs.pod import members
from shared.jobs.pod_view import is_forced, is_ready
from shared.jobs.protocol import JobKind

GATHER_S = 3.0
"""How long to wait for another pod to end before it is told."""
LATEST_S = 30.0
"""It is told after that, whether more of them end or not."""
FORGOTTEN_S = 60.0
"""What was not told by then is about a group that is gone, or noticed anew."""


class _News(NamedTuple):
    """`pods`: how many it is about; `first`, `last`: when there was any, and when their number changed."""

    pods: int
    first: float
    last: float

    @property
    def due(self) -> float:
        """When it is to be told."""
        return min(self.last + GATHER_S, self.first + LATEST_S)


class GroupReconciler(JobReconciler):
    """See JobReconciler. `_control` is a GroupControl."""

    _control: GroupControl

    def __init__(self, **parts: object) -> None:
        super().__init__(**parts)  # type: ignore[arg-type]
        self._untold: dict[str, dict[str, _News]] = {}
        """What a workload has not been told yet, by its uid."""

    async def reconcile(self, kind: JobKind, lane: LaneKey) -> float | None:
        deleting = self._control.deleting(lane)
        ends = bool(deleting) and self._is_ending(lane.namespace)
        await self._control.let_go(stored for stored, pod in deleting if ends or is_forced(pod))
        return await super().reconcile(kind, lane)

    async def _with_workload(self, job: Job, stored: Stored) -> float | None:
        again = await super()._with_workload(job, stored)
        newest = self._store.get("workload", stored.namespace, stored.name)
        if newest is None or is_finished(workload_of(newest)):
            self._untold.pop(stored.uid, None)
        left = [max(news.due - self._now(), 0.0) for news in self._untold.get(stored.uid, {}).values()]
        return min([*left, *(() if again is None else (again,))], default=None)

    async def _reclaim(self, job: Job, stored: Stored) -> bool:
        wanted = self._reclaimed(job, stored)
        news = None if wanted is None else sum(wanted.values())
        return self._is_due(stored, "succeeded", news) and await super()._reclaim(job, stored)

    async def _pods_ready(self, job: Job, stored: Stored) -> bool:
        told = condition(workload_of(stored), names.PODS_READY)
        ready = job.kind.pods_ready(job.manifest)
        if told is None and not ready:
            return False
        lost = told is not None and told.status == "True" and not ready
        news = sum(map(is_ready, members(job.manifest))) if lost else None
        if not self._is_due(stored, "not ready", news) and lost:
            return False
        return await super()._pods_ready(job, stored)

    def _is_due(self, stored: Stored, what: str, news: int | None) -> bool:
        """Whether it is time to tell. `news`: how many pods it is about now; None: there is nothing to tell."""
        if stored.uid not in self._untold:
            self._forget_old()
        noticed = self._untold.setdefault(stored.uid, {})
        now = self._now()
        if news is not None:
            known = noticed.setdefault(what, _News(news, now, now))
            if known.pods != news:
                known = noticed[what] = _News(news, known.first, now)
            if now < known.due:
                return False
        noticed.pop(what, None)
        if not noticed:
            del self._untold[stored.uid]
        return news is not None

    def _forget_old(self) -> None:
        """A group that goes before it is told of is looked at no more: nothing else takes its entry away."""
        before = self._now() - FORGOTTEN_S
        while self._untold:
            eldest, noticed = next(iter(self._untold.items()))
            if max(news.last for news in noticed.values()) > before:
                return
            del self._untold[eldest]

    def _is_ending(self, namespace: str) -> bool:
        stored = self._store.get("namespace", "", namespace)
        # One that is not known yet may well stay: it cannot be gone before what is in it.
        return (
            stored is not None
            and isinstance(stored.object, Namespace)
            and stored.object.metadata.deletion_timestamp is not None
        )
