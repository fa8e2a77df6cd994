"""Starts and stops jobs: the writes that `shared.jobs` asks for, in order, each bound to the state of the job that it was computed from."""

from enum import StrEnum

import msgspec
from opentelemetry.trace import Tracer

from services.watcher.job_runs import JobRuns
from services.watcher.kubernetes_events import JOB_CONTROLLER_SUFFIX, EventRecorder, EventType, Regarding
from services.watcher.lanes import LaneKey, TryAgain
from services.watcher.object_writer import ObjectWriter, Rejected
from services.watcher.patches import Refusal
from services.watcher.start_info import pod_set_infos
from services.watcher.store import Store, Stored
from shared.api import names
from shared.api.workload import Workload
from shared.jobs.manifest import JsonObject, text, texts
from shared.jobs.podset_info import MissingFlavor
from shared.jobs.protocol import JobKind, JobPodSet, StopStep
from shared.jobs.referred import also_referred
from shared.jobs.registry import owner_kind
from shared.telemetry.traces import context_of_job

_MOST_STEPS = 8


EVICTED_DUE_TO = "WorkloadEvictedDueTo"
"""The reason to stop a job whose workload was evicted begins with this and ends with that of the eviction."""


class StopReason(StrEnum):
    """Why else a job is stopped."""

    WORKLOAD_DELETED = "WorkloadDeleted"
    NO_MATCHING_WORKLOAD = "NoMatchingWorkload"
    NOT_ADMITTED = "NotAdmitted"


class Job(msgspec.Struct, frozen=True):
    """A job as the store has it: its kind, its entry, and its complete manifest (of a finished one: what is left)."""

    kind: JobKind
    stored: Stored
    manifest: JsonObject

    @property
    def uid(self) -> str:
        return self.stored.uid

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return self.stored.key


def job_of(kind: JobKind, stored: Stored) -> Job:
    """Decodes the entry of a job."""
    if stored.raw:
        return Job(kind, stored, msgspec.json.decode(stored.raw, type=dict[str, object]))
    return Job(kind, stored, msgspec.to_builtins(stored.object))


def renewed(job: Job, stored: Stored) -> Job:
    """A newer state of the job, with the objects that it refers to as they were read last."""
    newer = job_of(job.kind, stored)
    return Job(newer.kind, stored, also_referred(newer.manifest, job.manifest))


class JobControl:
    """Raises TryAgain when the job cannot be written now, Unavailable when the API server gives no answer."""

    def __init__(
        self, store: Store, writer: ObjectWriter, events: EventRecorder, runs: JobRuns, tracer: Tracer
    ) -> None:
        self._store = store
        self._writer = writer
        self._events = events
        self._runs = runs
        self._tracer = tracer

    def emit(self, job: Job, type_: EventType, reason: str, note: str, *, window_s: float | None = None) -> None:
        """An Event on the job."""
        metadata = job.stored.object.metadata
        api_version, kind = owner_kind(job.kind)
        about = Regarding(api_version, kind, metadata.namespace, metadata.name, metadata.uid)
        controller = job.kind.framework + JOB_CONTROLLER_SUFFIX
        if window_s is None:
            self._events.emit(about, type_, reason, note, controller=controller)
        else:
            self._events.emit(about, type_, reason, note, controller=controller, window_s=window_s)

    async def start(self, job: Job, workload: Workload) -> None:
        """Let an admitted workload's job run. Raises PermanentError if it never can."""
        try:
            infos = pod_set_infos(self._store, workload)
        except MissingFlavor as error:
            raise TryAgain(str(error)) from error
        with self._tracer.start_as_current_span("watcher.start_job", context_of_job(job.uid)) as span:
            span.set_attribute("job", job.key)

            def plan(stored: Stored) -> JsonObject | Refusal:
                current = renewed(job, stored)
                if not job.kind.suspended(current.manifest):
                    return {}
                return job.kind.start(current.manifest, infos)

            # Before the write: one that lands without an answer has started the job too.
            self._runs.started(job.uid)
            where = (job.stored.kind, job.stored.namespace, job.stored.name, job.uid)
            result = await self._writer.change(*where, plan)
            if not isinstance(result, Rejected) and result.changed and self._still_held(job):
                # Of some kinds the pods may not change in the write that lets them run.
                result = await self._writer.change(*where, plan)
        if isinstance(result, Rejected):
            raise TryAgain(f"job {job.key} cannot be started: {result.why}")
        if result.changed:
            admission = workload.status.admission
            cluster_queue = "" if admission is None else admission.cluster_queue
            self.emit(job, "Normal", "Started", f"Admitted by clusterQueue {cluster_queue}")

    def _still_held(self, job: Job) -> bool:
        newest = self.reload(job)
        return newest is not None and newest.uid == job.uid and job.kind.suspended(newest.manifest)

    def load(self, kind: JobKind, lane: LaneKey) -> Job | None:
        """The job of this lane; None if there is none (any more)."""
        stored = self._store.get(lane.kind, lane.namespace, lane.name)
        return None if stored is None else job_of(kind, stored)

    def reload(self, job: Job) -> Job | None:
        """Its newest view; None if it is gone."""
        stored = self._store.get(job.stored.kind, job.stored.namespace, job.stored.name)
        return None if stored is None else renewed(job, stored)

    def skips(self, job: Job) -> bool:
        """The configuration says to leave it alone."""
        return False

    def is_leaving(self, job: Job) -> bool:
        """Somebody has asked for its deletion."""
        return job.stored.object.metadata.deletion_timestamp is not None

    async def finalize(self, job: Job) -> None:
        """Nothing more is wanted of the job: it may go."""

    top_level = False
    """The kind has no ancestors that could stand for it."""
    requeues = True
    """What was evicted may be admitted again as it is."""

    async def stop(self, job: Job, restore: tuple[JobPodSet, ...], reason: str, note: str) -> Job | None:
        """Hold the job back and restore its templates. Returns its newest view; None if it is gone."""
        for _ in range(_MOST_STEPS):
            step = job.kind.stop(job.manifest, restore)
            if step is None:
                return job
            self._runs.stopped(job.uid)
            if not await self._write(job, restore, step, note):
                return None
            stored = self._store.get(job.stored.kind, job.stored.namespace, job.stored.name)
            if stored is None or stored.uid != job.uid:
                return None
            job = renewed(job, stored)
        raise TryAgain(f"job {job.key} does not stay stopped")

    async def suspend(self, job: Job, note: str) -> None:
        """Only hold the job back: its parent's workload is not admitted."""
        result = await self._writer.change(
            job.stored.kind,
            job.stored.namespace,
            job.stored.name,
            job.uid,
            lambda stored: job.kind.suspend(renewed(job, stored).manifest),
        )
        if not isinstance(result, Rejected) and result.changed:
            self._runs.stopped(job.uid)
            self.emit(job, "Normal", "Suspended", note)

    async def annotate(self, job: Job, wanted: dict[str, str]) -> None:
        """See to it that the job has these annotations; with a value that is empty too."""
        present = texts(job.manifest, "metadata", "annotations")
        if all(present.get(key) == value for key, value in wanted.items()):
            return
        patch: JsonObject = {"metadata": {"annotations": dict(wanted)}}
        where = (job.stored.kind, job.stored.namespace, job.stored.name, job.uid)
        result = await self._writer.change(*where, lambda _: patch)
        if isinstance(result, Rejected) and not result.gone:
            raise TryAgain(f"job {job.key} cannot be annotated: {result.why}")

    async def _write(self, job: Job, restore: tuple[JobPodSet, ...], step: StopStep, note: str) -> bool:
        def plan(stored: Stored) -> JsonObject | Refusal:
            current = job.kind.stop(renewed(job, stored).manifest, restore)
            # Another step than the one we came for: the loop of `stop` takes it.
            return current.patch if current is not None and current.status == step.status else {}

        result = await self._writer.change(
            job.stored.kind,
            job.stored.namespace,
            job.stored.name,
            job.uid,
            plan,
            subresource="status" if step.status else "",
        )
        if isinstance(result, Rejected):
            if result.gone:
                return False
            raise TryAgain(f"job {job.key} cannot be stopped: {result.why}")
        if step.stopped_now and result.changed:
            self.emit(job, "Normal", "Stopped", note)
        return True


def queue_of(job: Job) -> str:
    """The LocalQueue that the job names."""
    return text(job.manifest, "metadata", "labels", names.QUEUE_NAME_LABEL)
