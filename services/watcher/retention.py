"""What is kept for a time only, as the configuration says: finished workloads, and jobs whose workload was deactivated by us (core rules 2.5 and 9.10).

Level-triggered: whoever looks at a workload asks here, and looks again when the time has come. A restart loses nothing, as the times are those of conditions.
"""

from collections.abc import Callable

from services.watcher.job_control import Job, JobControl
from services.watcher.kubernetes_events import WORKLOAD_CONTROLLER, EventRecorder, about_workload
from services.watcher.managed_jobs import JobSettings
from services.watcher.store import Store, Stored
from services.watcher.workload_state import condition, workload_of
from shared.api import names
from shared.api.conditions import Condition
from shared.kube.client import KubeClient
from shared.kube.errors import Conflict, NotFound

DELETED = "Deleted"


class Retention:
    """Both methods return seconds after which to look again, None if that is not needed. Raise Unavailable when the API server gives no answer."""

    def __init__(
        self,
        store: Store,
        client: KubeClient,
        control: JobControl,
        recorder: EventRecorder,
        settings: JobSettings,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._client = client
        self._control = control
        self._recorder = recorder
        self._settings = settings
        self._now = now

    async def finished(self, stored: Stored) -> float | None:
        """A finished workload without our finalizer: deleted when its time is over."""
        workload = workload_of(stored)
        left = self._left(condition(workload, names.FINISHED), self._settings.keep_finished_s)
        if left is None or left > 0 or workload.metadata.deletion_timestamp is not None:
            return left
        if await self._delete(stored):
            note = "Deleted, as finished workloads are kept for a time only"
            about = about_workload(workload.metadata)
            self._recorder.emit(about, "Normal", DELETED, note, controller=WORKLOAD_CONTROLLER)
        return None

    async def given_up(self, job: Job, stored: Stored) -> float | None:
        """A job that is stopped and whose workload holds no quota: deleted when its workload was deactivated by us, and that is long enough ago."""
        workload = workload_of(stored)
        evicted = condition(workload, names.EVICTED)
        if workload.spec.active or evicted is None or not evicted.reason.startswith(names.REASON_DEACTIVATED_DUE_TO):
            return None
        left = self._left(evicted, self._settings.keep_deactivated_s)
        if left is None or left > 0:
            return left
        if await self._delete(job.stored):
            note = "Deleted, as jobs whose workload was deactivated are kept for a time only"
            self._control.emit(job, "Normal", DELETED, note)
        return None

    def _left(self, since: Condition | None, keep_s: float | None) -> float | None:
        if since is None or since.status != "True" or keep_s is None:
            return None
        return max(since.last_transition_time.timestamp() + keep_s - self._now(), 0.0)

    async def _delete(self, stored: Stored) -> bool:
        """Whether it was this call that deleted it; its dependents go in the background."""
        try:
            resource = self._store.watched[stored.kind].resource
            await self._client.delete(resource, stored.namespace, stored.name, uid=stored.uid, propagation="Background")
        except (NotFound, Conflict):
            return False
        return True
