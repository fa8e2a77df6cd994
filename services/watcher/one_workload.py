"""Sees to it that a job has exactly one Workload which asks for what the job asks for (job specification 8.2, 6.1, 10.8-10.10).

A difference is mended in place while that takes nothing from anybody (job suspended, no reservation), else by deleting the Workload and making a
new one when the job's pods are gone.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NoReturn

import msgspec
from opentelemetry.trace import Tracer

from services.watcher.build_workload import (
    Priority,
    build_spec,
    build_workload,
    max_execution_seconds,
    name_of_workload,
    owner_reference,
    pod_sets_of_job,
    pod_sets_of_workload,
)
from services.watcher.creation_latency import Created, not_measured
from services.watcher.elastic_slices import counts_of, elastic, resized, slice_annotations, slice_of
from services.watcher.job_control import Job, JobControl, StopReason, queue_of
from services.watcher.lanes import TryAgain
from services.watcher.managed_jobs import JobSettings
from services.watcher.object_writer import ObjectWriter, Plan, Rejected
from services.watcher.patches import Refusal
from services.watcher.priorities import MissingPriorityClass, resolve, workload_class
from services.watcher.start_info import pod_set_infos
from services.watcher.store import Store, Stored
from services.watcher.workload_state import is_admitted, is_finished, is_reserved, split_key, workload_of
from shared.api import names
from shared.api.validation import label_value_errors
from shared.api.workload import Workload
from shared.api.workload_status import WorkloadStatus
from shared.decide import transitions
from shared.jobs import merge_patch
from shared.jobs.equivalence import same_pod_sets, without_duplicate_env
from shared.jobs.manifest import JsonObject, section, text
from shared.jobs.podset_info import MissingFlavor, PermanentError, merged_template
from shared.jobs.prebuilt import prebuilt_name
from shared.jobs.protocol import JobPodSet
from shared.jobs.slices import Choice, choose
from shared.kube import resources
from shared.kube.client import KubeClient
from shared.kube.errors import AlreadyExists, Conflict, NotFound, Refused
from shared.telemetry.traces import context_of_job

_SELDOM_S = 3600.0
"""Window of Events about faults that stay until somebody mends them: one is enough."""


class EndOfPass(Exception):
    """Nothing can be done until something else changes; the text says what is wrong. `again_s`: seconds after which to look again all the same."""

    def __init__(self, why: str, again_s: float | None = None) -> None:
        super().__init__(why)
        self.again_s = again_s


class OneWorkload:
    """Raises TryAgain for what needs another pass, Unavailable when the API server gives no answer."""

    def __init__(
        self,
        store: Store,
        client: KubeClient,
        writer: ObjectWriter,
        control: JobControl,
        settings: JobSettings,
        tracer: Tracer,
        now: Callable[[], float],
        created: Created = not_measured,
    ) -> None:
        self._store = store
        self._client = client
        self._writer = writer
        self._control = control
        self._settings = settings
        self._tracer = tracer
        self._now = now
        self._created = created

    async def ensure(self, job: Job, candidates: Sequence[Stored]) -> Stored | None:
        """The workload that stands for the job, None if there is none (yet). `candidates`: those it owns, oldest first."""
        if self.is_prebuilt(job):
            return await self._prebuilt(job)
        finished = job.kind.finished(job.manifest) is not None
        if self.is_elastic(job):
            choice = await self._slices(job, candidates) if not finished else Choice(compatible=False)
            if choice.compatible:
                return self._by_key(choice.selected) if choice.selected else None
            if finished and candidates:
                # Nothing will be asked for any more, and which slice was the last does not matter.
                return candidates[-1]
        if not candidates:
            return None
        # The copy keeps no templates of finished jobs, and nothing will run any more: then owning is enough.
        wanted = () if finished else self._wanted(job)
        match = None
        others: list[Stored] = []
        for stored in candidates:
            if match is None and await self._equivalent(job, wanted, stored):
                match = stored
            else:
                others.append(stored)
        suspended = job.kind.suspended(job.manifest)
        update = None
        if match is None and suspended and not finished and others and self._may_update(job, others[0]):
            update = others.pop(0)
        if match is None and not suspended and not finished:
            restore = pod_sets_of_workload(others[0].raw) if len(others) == 1 else ()
            await self._control.stop(
                job,
                restore,
                StopReason.NO_MATCHING_WORKLOAD,
                "No matching Workload; restoring pod templates according to existing Workload",
            )
        if others:
            for stored in others:
                await self._delete(job, stored)
            raise TryAgain("no matching workloads" if match is None and update is None else "extra workloads")
        if update is not None:
            return await self._update(job, update, wanted)
        if match is not None and not finished and not is_finished(workload_of(match)):
            return await self._follow(job, match)
        return match

    def is_prebuilt(self, job: Job) -> bool:
        """Somebody else makes its workload."""
        return bool(self._prebuilt_name(job))

    def _prebuilt_name(self, job: Job) -> str:
        return prebuilt_name(job.manifest, annotation_first=self._settings.gates["WorkloadIdentifierAnnotations"])

    async def _prebuilt(self, job: Job) -> Stored | None:
        """The workload that the job names, if it may be the job's, and fits it."""
        key = f"{job.stored.namespace}/{self._prebuilt_name(job)}"
        stored = self._by_key(key)
        if stored is None:
            self._tell_prebuilt(job, f"Workload {key}, which is named here, does not exist")
            return None
        owner = stored.object.metadata.controller_owner()
        if owner is not None and owner.uid != job.uid:
            self._tell_prebuilt(job, f"Workload {key}, which is named here, belongs to {owner.kind} {owner.name}")
            return None
        owned = await self._own_prebuilt(job, stored)
        if owned is None or await self._prebuilt_fits(job, owned):
            return owned

        message = "The prebuilt workload is out of sync with its user job"
        self._tell_prebuilt(job, f"Workload {key}, which is named here, asks for something else: it is finished")
        await self._end(owned, names.REASON_OUT_OF_SYNC, message)
        return None

    def _tell_prebuilt(self, job: Job, note: str) -> None:
        self._complain(job, note)

    async def _prebuilt_fits(self, job: Job, stored: Stored) -> bool:
        if self.is_elastic(job) and names.WORKLOAD_SLICE_REPLACEMENT_FOR in stored.object.metadata.annotations:
            return True
        return await self._equivalent(job, () if job.kind.finished(job.manifest) else self._wanted(job), stored)

    async def _own_prebuilt(self, job: Job, stored: Stored) -> Stored | None:
        if stored.object.metadata.controller_owner() is not None:
            return stored

        def plan(current: Stored) -> JsonObject | Refusal:
            metadata = current.object.metadata
            if metadata.controller_owner() is not None:
                return {}
            others = [msgspec.to_builtins(o) for o in metadata.owner_references if o.uid != job.uid]
            references = [*others, owner_reference(job.kind, job.manifest)]
            labels = {} if label_value_errors(job.uid) else {names.JOB_UID_LABEL: job.uid}
            return {"metadata": {"ownerReferences": references, "labels": labels}}

        result = await self._writer.change("workload", stored.namespace, stored.name, stored.uid, plan)
        if isinstance(result, Rejected):
            raise TryAgain(f"workload {stored.key} cannot be owned: {result.why}")
        return self._store.get("workload", stored.namespace, stored.name)

    def _moment(self) -> datetime:
        return datetime.fromtimestamp(self._now(), UTC)

    def is_elastic(self, job: Job) -> bool:
        """The job may change its number of pods while it runs."""
        return elastic(job, self._settings.gates)

    def _by_key(self, key: str) -> Stored | None:
        return self._store.get("workload", *split_key(key))

    async def _slices(self, job: Job, candidates: Sequence[Stored]) -> Choice:
        """Choose the slice that stands for the job, and write what follows from that."""
        await self._control.annotate(job, job.kind.own_annotations(job.manifest))
        wanted = counts_of(self._wanted(job))
        unfinished = [stored for stored in candidates if not is_finished(workload_of(stored))]
        choice = choose([slice_of(stored) for stored in unfinished], wanted)
        for key, reason in choice.finish:
            over = self._by_key(key)
            if over is not None:
                await self._end(over, reason, "Another slice of the job stands for it")
        selected = self._by_key(choice.selected) if choice.selected else None
        if selected is not None and choice.resize:
            why = "the job changed its number of pods"
            selected = await self._change(job, selected, lambda current: resized(current, wanted), why)
        for stored in unfinished:
            if stored.key == choice.selected or is_reserved(workload_of(stored)):
                newest = self._by_key(stored.key)
                if newest is not None and not is_finished(workload_of(newest)):
                    await self._follow(job, newest)
        return choice

    async def _end(self, stored: Stored, reason: str, message: str) -> None:
        def plan(workload: Workload) -> WorkloadStatus | Refusal:
            generation = workload.metadata.generation
            return transitions.finish(workload.status, reason, message, self._moment(), generation)

        result = await self._writer.workload_status(stored.namespace, stored.name, stored.uid, plan)
        if isinstance(result, Rejected) and not result.gone:
            raise TryAgain(result.why)

    def seen(self, job: Job, stored: Stored) -> Job:
        """The job as far as it has to do with its workload."""
        return job

    async def conditions(self, job: Job, stored: Stored) -> bool:
        """Write what the kind itself has to say in the workload's status; True if there was something to write."""
        return False

    async def create(self, job: Job) -> None:
        """Make the workload of a job that has none. Raises TryAgain while that is not possible."""
        pod_sets = self._wanted(job)
        priority = self._priority(job, pod_sets)
        with self._tracer.start_as_current_span("watcher.create_workload", context_of_job(job.uid)) as span:
            span.set_attribute("job", job.key)
            manifest = self._manifest(job, priority)
            try:
                raw = await self._client.create(
                    resources.WORKLOADS, job.stored.namespace, msgspec.json.encode(manifest)
                )
            except AlreadyExists:
                await self._name_taken(job)
            except (Refused, NotFound) as error:
                self._complain(job, f"The Workload cannot be created: {error.message}")
                raise TryAgain(str(error)) from error
        self._created(job)
        self._store.upsert("workload", raw)
        key = f"{job.stored.namespace}/{self._name(job)}"
        self._control.emit(job, "Normal", "CreatedWorkload", f"Created Workload: {key}")

    def _name(self, job: Job) -> str:
        extra = job.kind.slice_part(job.manifest) if self.is_elastic(job) else ""
        return name_of_workload(job.kind, job.manifest, extra)

    def _manifest(self, job: Job, priority: Priority) -> JsonObject:
        annotations: dict[str, str] = {}
        if self.is_elastic(job):
            owned = [s for s in self._store.owned_by("workload", job.uid) if not is_finished(workload_of(s))]
            annotations = slice_annotations(self._name(job), owned)
        return build_workload(
            job.kind,
            job.manifest,
            priority,
            label_keys_to_copy=self._settings.label_keys_to_copy,
            name=self._name(job),
            more_annotations=annotations,
        )

    async def _name_taken(self, job: Job) -> NoReturn:
        """Ours from an attempt whose answer was lost, or somebody else's. Always raises TryAgain."""
        name = self._name(job)
        stored = await self._writer.read("workload", job.stored.namespace, name)
        if stored is not None:
            owner = stored.object.metadata.controller_owner()
            if not self._is_ours(job, stored):
                self._complain(
                    job,
                    f"Workload {stored.key} has the name that this job needs and belongs to "
                    f"{'nobody' if owner is None else f'{owner.kind} {owner.name} (UID: {owner.uid})'}; delete or rename it",
                )
        raise TryAgain(f"workload {name} exists already")

    def _is_ours(self, job: Job, stored: Stored) -> bool:
        owner = stored.object.metadata.controller_owner()
        return owner is not None and owner.uid == job.uid

    def _complain(self, job: Job, note: str) -> None:
        self._control.emit(job, "Warning", "ErrWorkloadCompose", note, window_s=_SELDOM_S)

    def _wanted(self, job: Job) -> tuple[JobPodSet, ...]:
        try:
            return pod_sets_of_job(job.kind, job.manifest)
        except (PermanentError, msgspec.ValidationError) as error:
            self._complain(job, str(error))
            raise TryAgain(str(error)) from error

    def _priority(self, job: Job, pod_sets: Sequence[JobPodSet]) -> Priority:
        try:
            return resolve(self._store, job.kind, job.manifest, pod_sets)
        except MissingPriorityClass as error:
            reason = (
                "WorkloadPriorityClassNotFound" if error.kind == names.WORKLOAD_PRIORITY_CLASS else "ErrWorkloadCompose"
            )
            self._control.emit(job, "Warning", reason, str(error), window_s=_SELDOM_S)
            raise TryAgain(str(error)) from error

    async def _equivalent(self, job: Job, wanted: Sequence[JobPodSet], stored: Stored) -> bool:
        workload = workload_of(stored)
        owner = workload.metadata.controller_owner()
        if owner is None or (owner.name, owner.uid) != (job.stored.name, job.uid):
            return False
        if job.kind.finished(job.manifest) is not None:
            return True
        raw = stored.raw
        if is_finished(workload):
            # Of finished workloads neither; here it matters whether the job has changed since.
            try:
                raw = await self._client.get(resources.WORKLOADS, stored.namespace, stored.name)
            except NotFound:
                return False
        if workload.spec.maximum_execution_time_seconds != max_execution_seconds(job.manifest):
            return False
        own = tuple(without_duplicate_env(pod_set) for pod_set in pod_sets_of_workload(raw))
        admitted = is_admitted(workload)
        if is_reserved(workload):
            running = self._running(workload, own)
            if running is not None:
                if same_pod_sets(wanted, running, ignore_tolerations=admitted):
                    return True
                if not job.kind.suspended(job.manifest):
                    return False
        return same_pod_sets(wanted, own, ignore_tolerations=admitted)

    def _running(self, workload: Workload, own: Sequence[JobPodSet]) -> tuple[JobPodSet, ...] | None:
        """The pod sets as they are while the job runs; None if that cannot be told."""
        try:
            infos = {info.name: info for info in pod_set_infos(self._store, workload)}
            return tuple(
                JobPodSet(
                    name=pod_set.name,
                    count=pod_set.count if pod_set.min_count is None else infos[pod_set.name].count,
                    min_count=pod_set.min_count,
                    template=merged_template(pod_set.template, infos[pod_set.name]),
                )
                for pod_set in own
            )
        except (MissingFlavor, PermanentError, ValueError, KeyError):
            return None

    def _may_update(self, job: Job, stored: Stored) -> bool:
        workload = workload_of(stored)
        owner = workload.metadata.controller_owner()
        return (
            owner is not None
            and owner.uid == job.uid
            and not is_reserved(workload)
            and not is_finished(workload)
            and workload.metadata.deletion_timestamp is None
        )

    async def _update(self, job: Job, stored: Stored, wanted: Sequence[JobPodSet]) -> Stored | None:
        spec = build_spec(job.manifest, wanted, self._priority(job, wanted))

        def plan(current: Stored) -> JsonObject | Refusal:
            if is_reserved(workload_of(current)) or not current.raw:
                return Refusal("it was given quota meanwhile")
            present = section(msgspec.json.decode(current.raw, type=dict[str, object]), "spec")
            # `active` is the one field of the spec that is not the job's.
            kept = {key: value for key, value in present.items() if key == "active"}
            difference = merge_patch.diff(present, {**spec, **kept})
            return {"spec": difference} if difference else {}

        return await self._change(job, stored, plan, "the pods or the priority of the job changed")

    async def _follow(self, job: Job, stored: Stored) -> Stored | None:
        """What a live workload takes over from its job: admission gates and the priority class."""
        workload = workload_of(stored)
        gates = text(job.manifest, "metadata", "annotations", names.ADMISSION_GATED_BY)
        if gates != workload.metadata.annotations.get(names.ADMISSION_GATED_BY, ""):
            patch: JsonObject = {"metadata": {"annotations": {names.ADMISSION_GATED_BY: gates or None}}}
            return await self._change(job, stored, lambda _: patch, "the admission gates of the job changed")
        label = text(job.manifest, "metadata", "labels", names.PRIORITY_CLASS_LABEL)
        reference = workload.spec.priority_class_ref
        if (
            not label
            or (reference is None and is_reserved(workload))
            or (reference is not None and reference.kind == names.PRIORITY_CLASS)
            or (reference is not None and reference.name == label)
        ):
            return stored
        try:
            priority = workload_class(self._store, label)
        except MissingPriorityClass as error:
            self._control.emit(job, "Warning", "WorkloadPriorityClassNotFound", str(error), window_s=_SELDOM_S)
            return stored
        wanted: JsonObject = {
            "priority": priority.value,
            "priorityClassRef": {"group": priority.group, "kind": priority.kind, "name": priority.name},
        }
        return await self._change(job, stored, lambda _: {"spec": wanted}, "the priority class of the job changed")

    async def follow_queue(self, job: Job, stored: Stored) -> None:
        """The queue that the job names, while that may still change."""
        queue = queue_of(job)
        if queue != workload_of(stored).spec.queue_name and not is_reserved(workload_of(stored)):
            patch: JsonObject = {"spec": {"queueName": queue or None}}
            await self._change(job, stored, lambda _: patch, "the queue of the job changed")

    async def _change(self, job: Job, stored: Stored, plan: Plan, why: str) -> Stored | None:
        result = await self._writer.change("workload", stored.namespace, stored.name, stored.uid, plan)
        if isinstance(result, Rejected):
            raise TryAgain(f"workload {stored.key} cannot be updated: {result.why}")
        if result.changed:
            self._control.emit(job, "Normal", "UpdatedWorkload", f"Updated Workload {stored.key}: {why}")
        return self._store.get("workload", stored.namespace, stored.name)

    async def _delete(self, job: Job, stored: Stored) -> None:
        await remove_finalizer(self._writer, stored)
        if stored.object.metadata.deletion_timestamp is not None:
            return
        try:
            await self._client.delete(resources.WORKLOADS, stored.namespace, stored.name, uid=stored.uid)
        except (NotFound, Conflict):
            return
        self._control.emit(job, "Normal", "DeletedWorkload", f"Deleted not matching Workload: {stored.key}")


async def remove_finalizer(writer: ObjectWriter, stored: Stored) -> None:
    """Let a workload go."""

    def plan(current: Stored) -> JsonObject | Refusal:
        present = current.object.metadata.finalizers
        if names.RESOURCE_IN_USE not in present:
            return {}
        return {"metadata": {"finalizers": [f for f in present if f != names.RESOURCE_IN_USE]}}

    await writer.change(stored.kind, stored.namespace, stored.name, stored.uid, plan)
