"""The generic reconciler: brings a job and its Workload together, whatever the kind of job (job specification 6).

One pass looks at the newest copies and ends at the first step that applies; its own writes, and everybody else's, bring the next pass.

 1. Load: a job that is gone, or going, is only finalized.
 2. Skip what the kind says to leave alone.
 3. Finalize: its workloads are Finished (OwnerNotFound), and may go.
 4. Namespace, queue name and ancestors say whether the job is ours.
 5. Is it a child of a managed job, or does it stand for itself?
 6. A child is held back while its ancestor's workload is not admitted; nothing else.
 7. Exactly one workload asks for what the job asks for (`one_workload`).
 8. Conditions that the kind defines itself (only groups of pods do).
 9. Activation that the kind defines itself (no kind here does).
10. The workload has finished: say so, let it go, and delete it when that is configured.
11. The workload is being deleted: stop the job, let it go.
12. On hold: the job wants no quota for now, so what it has is given back.
13. The job has finished: so has its workload.
14. No workload: wait until the job's pods are gone, then make one.
15. Pods that are done for good give their quota back.
16. PodsReady, if waiting for it is configured.
17. Evicted: stop the job; when it has stopped, release the quota. Given up for good: delete the job when that is configured.
18. The job is held back: start it if the workload is admitted, else tell what it waits for and follow its queue.
19. The job runs without admission: stop it.
20. It runs and may: nothing.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec
from opentelemetry.trace import Tracer

from services.watcher.build_workload import pod_sets_of_workload
from services.watcher.elastic_slices import ElasticPods, elastic
from services.watcher.job_control import EVICTED_DUE_TO, Job, JobControl, StopReason, job_of
from services.watcher.job_runs import JobRuns
from services.watcher.lane_keys import owner_lane
from services.watcher.lanes import LaneKey, TryAgain
from services.watcher.managed_jobs import JobSettings, ManagedJobs
from services.watcher.object_writer import ObjectWriter, Rejected, Result
from services.watcher.one_workload import EndOfPass, OneWorkload, remove_finalizer
from services.watcher.owned_workloads import OwnedWorkloads
from services.watcher.patches import Refusal
from services.watcher.pods_ready import pods_ready_condition
from services.watcher.retention import Retention
from services.watcher.store import Store, Stored
from services.watcher.workload_state import (
    condition,
    is_admitted,
    is_evicted,
    is_finished,
    is_reserved,
    with_condition,
    workload_of,
)
from shared.api import names
from shared.api.workload import Workload
from shared.api.workload_status import ReclaimablePod, WorkloadStatus
from shared.decide import transitions
from shared.decide.reclaim import capped
from shared.jobs.manifest import JsonObject
from shared.jobs.podset_info import PermanentError
from shared.jobs.protocol import JobKind, Reference
from shared.jobs.queue_membership import NestingTooDeep, OwnershipError, Standing
from shared.jobs.referred import with_referred
from shared.kube.client import KubeClient
from shared.kube.errors import NotFound, Refused
from shared.kube.resources import Resource
from shared.telemetry.traces import context_of_job

logger = logging.getLogger(__name__)


def lane_of(job: Job) -> LaneKey:
    """Of a job that is one object."""
    return LaneKey(job.stored.kind, job.stored.namespace, job.stored.name)


class JobReconciler:
    """`reconcile` returns seconds after which to look again even if nothing changes, or None. It raises TryAgain for what needs another pass soon."""

    def __init__(
        self,
        *,
        store: Store,
        writer: ObjectWriter,
        control: JobControl,
        one: OneWorkload,
        owned: OwnedWorkloads,
        managed: ManagedJobs,
        runs: JobRuns,
        retention: Retention,
        pods: ElasticPods,
        client: KubeClient,
        settings: JobSettings,
        tracer: Tracer,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._writer = writer
        self._control = control
        self._one = one
        self._owned = owned
        self._managed = managed
        self._runs = runs
        self._retention = retention
        self._elastic = pods
        self._client = client
        self._settings = settings
        self._tracer = tracer
        self._now = now

    async def reconcile(self, kind: JobKind, lane: LaneKey) -> float | None:
        """One pass over the job of a lane; the steps are those of the module."""
        job = self._control.load(kind, lane)
        if job is not None and (references := kind.refers_to(job.manifest)):
            job = await self._with_referred(job, references)
        if job is not None and (self._control.skips(job) or kind.skip(job.manifest, self._settings.gates)):
            return None
        if job is None or self._control.is_leaving(job):
            await self._finalize(lane)
            if job is not None:
                await self._control.finalize(job)
                self._runs.forget(job.uid)
            return None
        try:
            return await self._pass(kind, lane, job)
        except EndOfPass as why:
            logger.debug("a job waits for a change", extra={"job": job.key, "why": str(why)})
            return why.again_s

    async def _pass(self, kind: JobKind, lane: LaneKey, job: Job) -> float | None:
        standing = await self._standing(job)
        if not standing.managed:
            return None
        if not standing.top_level:
            await self._child(job, standing)
            return None
        matched = await self._one.ensure(job, self._owned.of(lane))
        if matched is None:
            await self._without_workload(job)
            return None
        # A stop on the way may have brought a newer view.
        newest = self._control.reload(job)
        return None if newest is None else await self._with_workload(self._one.seen(newest, matched), matched)

    def saw(self, kind: JobKind, stored: Stored) -> None:
        """A new view of a job, whether or not a pass will come to see it."""
        if self._runs.follows(stored.uid):
            self._runs.observe(kind, stored.uid, job_of(kind, stored).manifest)

    def gone(self, stored: Stored) -> None:
        """A job was deleted: a pass finds nothing any more by which to forget it."""
        self._runs.forget(stored.uid)

    async def adopt_orphan(self, namespace: str, name: str) -> float | None:
        """A workload that no job owns, or none any more: the latter is over, and may go. Returns as `reconcile` does."""
        stored = self._store.get("workload", namespace, name)
        if stored is None or stored.object.metadata.owner_references:
            return None
        metadata = stored.object.metadata
        deleting, finished = metadata.deletion_timestamp is not None, is_finished(workload_of(stored))
        is_orphan = bool(metadata.labels.get(names.JOB_UID_LABEL))
        if deleting or (is_orphan and (finished or self._settings.gates["FinishOrphanedWorkloads"])):
            if not deleting and not finished:
                await self._finish(stored, names.REASON_OWNER_NOT_FOUND, "The job of the workload is gone")
            if names.RESOURCE_IN_USE in metadata.finalizers:
                await remove_finalizer(self._writer, stored)
                return None
        if deleting or not finished:
            return None
        return await self._retention.finished(stored)

    async def _finalize(self, lane: LaneKey) -> None:
        for stored in self._owned.of(lane):
            workload = workload_of(stored)
            if (
                workload.metadata.deletion_timestamp is None
                and workload.metadata.controller_owner() is not None
                and not is_finished(workload)
            ):
                await self._finish(stored, names.REASON_OWNER_NOT_FOUND, "The job of the workload is gone")
            await remove_finalizer(self._writer, stored)

    async def _with_referred(self, job: Job, references: Sequence[Reference]) -> Job:
        """Objects without which its pods cannot be told, read anew: few jobs have any."""
        found: dict[Reference, JsonObject | None] = {}
        for reference in references:
            resource = Resource(
                reference.group, reference.version, reference.plural, reference.kind, reference.namespaced
            )
            namespace = job.stored.namespace if reference.namespaced else ""
            try:
                raw = await self._client.get(resource, namespace, reference.name)
            except NotFound:
                found[reference] = None
            except Refused as error:
                raise TryAgain(f"{reference.kind} {reference.name} cannot be read: {error}") from error
            else:
                found[reference] = msgspec.json.decode(raw, type=dict[str, object])
        return Job(job.kind, job.stored, with_referred(job.manifest, found))

    async def _standing(self, job: Job) -> Standing:
        try:
            return await self._managed.standing(job.stored.object.metadata, top_level=self._control.top_level)
        except NestingTooDeep as error:
            self._control.emit(job, "Warning", "JobNestingTooDeep", str(error))
            raise TryAgain(str(error)) from error
        except OwnershipError as error:
            raise TryAgain(str(error)) from error

    async def _child(self, job: Job, standing: Standing) -> None:
        ancestor = standing.ancestor
        if ancestor is None or job.kind.finished(job.manifest) or job.kind.suspended(job.manifest):
            return
        workloads = [
            workload
            for stored in self._owned.of(owner_lane(ancestor, job.stored.namespace))
            if not is_finished(workload := workload_of(stored))
        ]
        # Pods of elastic jobs are held back one by one; only an eviction holds back the whole child.
        flexible = elastic(job, self._settings.gates) or any(
            workload.metadata.annotations.get(names.ELASTIC_JOB) == "true" for workload in workloads[-1:]
        )
        if not workloads or (is_evicted(workloads[-1]) if flexible else not is_admitted(workloads[-1])):
            await self._control.suspend(
                job, f"Kueue managed child job suspended: {ancestor.kind} {ancestor.name} is not admitted"
            )

    async def _without_workload(self, job: Job) -> None:
        if job.kind.on_hold(job.manifest):
            return
        if job.kind.finished(job.manifest) is not None:
            await self._control.finalize(job)
            return
        if job.kind.active(job.manifest) and not self._one.is_elastic(job):
            # Its pods have to go before anything is counted for it; their end brings the next pass.
            if not job.kind.suspended(job.manifest):
                await self._control.stop(job, (), StopReason.NO_MATCHING_WORKLOAD, "The job has no Workload")
            return
        if not job.kind.suspended(job.manifest) and not self._one.is_elastic(job):
            await self._control.stop(job, (), StopReason.NO_MATCHING_WORKLOAD, "The job has no Workload")
        if self._one.is_prebuilt(job):
            raise TryAgain(f"the workload that job {job.key} names is not there, or not for it")
        with self._tracer.start_as_current_span("watcher.job_seen", context_of_job(job.uid)) as span:
            span.set_attribute("job", job.key)
        await self._one.create(job)

    async def _with_workload(self, job: Job, stored: Stored) -> float | None:
        workload = workload_of(stored)
        if await self._one.conditions(job, stored):
            return None
        if is_finished(workload):
            await self._control.finalize(job)
            if names.RESOURCE_IN_USE in workload.metadata.finalizers:
                note = f"Workload '{stored.key}' is declared finished"
                self._control.emit(job, "Normal", "FinishedWorkload", note)
                await remove_finalizer(self._writer, stored)
                return None
            self._runs.forget(job.uid)
            return await self._retention.finished(stored)
        if workload.metadata.deletion_timestamp is not None:
            restore = pod_sets_of_workload(stored.raw)
            if await self._control.stop(job, restore, StopReason.WORKLOAD_DELETED, "Workload is deleted") is not None:
                await remove_finalizer(self._writer, stored)
            return None
        if job.kind.on_hold(job.manifest):
            await self._hold(stored)
            return None
        finished = job.kind.finished(job.manifest)
        if finished is not None:
            reason = names.REASON_SUCCEEDED if finished.success else names.REASON_FAILED
            message = finished.message or ("Job finished successfully" if finished.success else "Job failed")
            await self._finish(stored, reason, message)
            for slice_ in self._owned.of(lane_of(job)) if self._one.is_elastic(job) else ():
                await self._finish(slice_, reason, message)
            await self._control.finalize(job)
            return None
        if await self._reclaim(job, stored) or await self._pods_ready(job, stored):
            return None
        if is_evicted(workload):
            return await self._evicted(job, stored)
        if job.kind.suspended(job.manifest):
            await self._suspended(job, stored)
            return None
        if self._one.is_elastic(job):
            # Gates of its pods hold back what was not granted.
            await self._elastic.ungate(job.stored.namespace, self._owned.of(lane_of(job)))
            return None
        if not is_admitted(workload):
            restore = pod_sets_of_workload(stored.raw)
            await self._control.stop(job, restore, StopReason.NOT_ADMITTED, "Not admitted by cluster queue")
        return None

    async def _evicted(self, job: Job, stored: Stored) -> float | None:
        workload = workload_of(stored)
        evicted = condition(workload, names.EVICTED)
        if evicted is None:
            return None
        reason = f"{EVICTED_DUE_TO}{evicted.reason}"
        stopped = await self._control.stop(job, pod_sets_of_workload(stored.raw), reason, evicted.message)
        if stopped is None:
            return None
        if not is_reserved(workload):
            return await self._retention.given_up(stopped, stored)
        wait = self._runs.wait_before_release(job.kind, job.uid, stopped.manifest)
        if wait is not None:
            return wait

        def plan(current: Workload) -> WorkloadStatus | Refusal:
            if not is_evicted(current) or not is_reserved(current) or is_finished(current):
                return current.status
            again = None if self._control.requeues else False
            return transitions.release(current.status, self._moment(), current.metadata.generation, again=again)

        self._raise_if_rejected(await self._writer.workload_status(stored.namespace, stored.name, stored.uid, plan))
        self._runs.forget(job.uid)
        return None

    async def _suspended(self, job: Job, stored: Stored) -> None:
        workload = workload_of(stored)
        if is_admitted(workload):
            try:
                await self._control.start(job, workload)
            except PermanentError as error:
                await self._finish(stored, names.REASON_FAILED_TO_START, str(error))
            return
        if is_reserved(workload):
            pending = [
                f"{check.name}: {check.message}"
                for check in workload.status.admission_checks
                if check.state == names.CHECK_PENDING and check.message
            ]
            if pending:
                self._control.emit(job, "Normal", "UpdatedAdmissionCheck", "; ".join(pending))
        await self._one.follow_queue(job, stored)

    async def _hold(self, stored: Stored) -> None:
        def plan(workload: Workload) -> WorkloadStatus | Refusal:
            if not is_reserved(workload) or is_finished(workload):
                return workload.status
            message, generation = "The job is on hold", workload.metadata.generation
            return transitions.unreserve(workload.status, names.REASON_ON_HOLD, message, self._moment(), generation)

        if is_reserved(workload_of(stored)):
            self._raise_if_rejected(await self._writer.workload_status(stored.namespace, stored.name, stored.uid, plan))

    async def _finish(self, stored: Stored, reason: str, message: str) -> None:
        def plan(workload: Workload) -> WorkloadStatus | Refusal:
            return transitions.finish(workload.status, reason, message, self._moment(), workload.metadata.generation)

        result = await self._writer.workload_status(stored.namespace, stored.name, stored.uid, plan)
        self._raise_if_rejected(result)

    async def _reclaim(self, job: Job, stored: Stored) -> bool:
        """Write how many pods of each set are done for good; True if there was something to write."""
        wanted = self._reclaimed(job, stored)
        if wanted is None:
            return False

        def plan(current: Workload) -> WorkloadStatus:
            pods = tuple(ReclaimablePod(name=name, count=count) for name, count in wanted.items())
            return msgspec.structs.replace(current.status, reclaimable_pods=pods)

        result = await self._writer.workload_status(
            stored.namespace, stored.name, stored.uid, plan, field_manager=names.RECLAIMABLE_PODS_MANAGER
        )
        # Fewer than before is refused while quota is held; the job goes on all the same.
        return not isinstance(result, Rejected)

    def _reclaimed(self, job: Job, stored: Stored) -> dict[str, int] | None:
        """Pods by pod set that are done for good; None if the workload knows it."""
        workload = workload_of(stored)
        counts = {pod_set.name: pod_set.count for pod_set in workload.spec.pod_sets}
        found = job.kind.reclaimable(job.manifest)
        wanted = {name: count for name, count in capped(found, counts).items() if name in counts}
        present = {pods.name: pods.count for pods in workload.status.reclaimable_pods}
        return None if wanted == present else wanted

    async def _pods_ready(self, job: Job, stored: Stored) -> bool:
        """Write PodsReady if its status or reason changes; True if there was something to write."""
        if not self._settings.wait_for_pods_ready:
            return False
        workload = workload_of(stored)
        if condition(workload, names.PODS_READY) is None and (
            not is_admitted(workload) or job.kind.suspended(job.manifest)
        ):
            # No condition means the same as waiting for the start; a write for it would only delay the start (R8).
            return False
        ready = job.kind.pods_ready(job.manifest)
        if pods_ready_condition(workload, ready, self._moment()) is None:
            return False

        def plan(current: Workload) -> WorkloadStatus:
            return with_condition(current.status, pods_ready_condition(current, ready, self._moment()))

        result = await self._writer.workload_status(
            stored.namespace, stored.name, stored.uid, plan, field_manager=names.PODS_READY_MANAGER
        )
        self._raise_if_rejected(result)
        return True

    def _raise_if_rejected(self, result: Result) -> None:
        if isinstance(result, Rejected) and not result.gone:
            raise TryAgain(result.why)

    def _moment(self) -> datetime:
        return datetime.fromtimestamp(self._now(), UTC)
