"""Starts, stops and lets go of plain pods: alone, or as the group that they form (job specification 14.7, 14.8).

A pod is started by taking its gate away, once; it is stopped by deleting it, with a condition that says why. Its finalizer keeps it until we have seen
its end. Each pod costs two writes in its life: the gate, and the finalizer.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime

import msgspec
from opentelemetry.trace import Tracer

from services.watcher.gate_removal import GateRemoved, not_measured
from services.watcher.job_control import Job, JobControl, StopReason, job_of
from services.watcher.job_runs import JobRuns
from services.watcher.kubernetes_events import JOB_CONTROLLER_SUFFIX, EventRecorder, EventType, about_workload
from services.watcher.lanes import LaneKey, TryAgain
from services.watcher.managed_jobs import JobSettings
from services.watcher.object_writer import ObjectWriter, Rejected
from services.watcher.patches import Refusal
from services.watcher.pod_members import PodMembers
from services.watcher.start_info import pod_set_infos
from services.watcher.store import MalformedObject, Store, Stored
from shared.api import names
from shared.api.admission_check import AdmissionCheck
from shared.api.meta import format_time
from shared.api.workload import Workload
from shared.jobs.manifest import JsonObject
from shared.jobs.pod import group_manifest, members, pod_of, ungated
from shared.jobs.pod_group import sorted_pods
from shared.jobs.pod_view import TERMINATION_TARGET, Pod, has_finalizer, is_deleting, is_gated, is_terminated, role
from shared.jobs.podset_info import MissingFlavor, PermanentError, PodSetInfo
from shared.jobs.protocol import JobKind, JobPodSet
from shared.kube.client import STRATEGIC_MERGE_PATCH, KubeClient
from shared.kube.errors import Conflict, NotFound
from shared.kube.resources import PODS

_AT_ONCE = 10
"""Pods of one group that are written side by side."""
_FIELD_MANAGER = "kueue"


class PodControl(JobControl):
    """Of pods that stand alone. Raises as JobControl does."""

    top_level = True
    of_group = False

    def __init__(
        self,
        store: Store,
        client: KubeClient,
        writer: ObjectWriter,
        events: EventRecorder,
        runs: JobRuns,
        tracer: Tracer,
        now: Callable[[], float],
        settings: JobSettings,
        gate_removed: GateRemoved = not_measured,
    ) -> None:
        super().__init__(store, writer, events, runs, tracer)
        self._settings = settings
        self._gate_removed = gate_removed
        self._client = client
        self._now = now
        # A pod that stands alone never comes back under its name.
        self.requeues = not settings.gates["SkipReassignmentForPodOwnedWorkloads"]

    def skips(self, job: Job) -> bool:
        annotations = job.stored.object.metadata.annotations
        return self._settings.only_pods_of_parents and not annotations.get(names.POD_SUSPENDING_PARENT)

    def pods_of(self, job: Job) -> Iterator[Stored]:
        """The objects that the job is made of."""
        yield job.stored

    async def start(self, job: Job, workload: Workload) -> None:
        """Take the gates away. Raises PermanentError if a pod can never run as admitted."""
        if self._runs_elsewhere(workload):
            return
        try:
            infos = pod_set_infos(self._store, workload)
        except MissingFlavor as error:
            raise TryAgain(str(error)) from error
        by_name = {info.name: info for info in infos}
        gated = [stored for stored in self.pods_of(job) if is_gated(_pod(stored))]
        wanted = self._granted(job, [(stored, self._info(stored, by_name)) for stored in gated])
        admission = workload.status.admission
        note = f"Admitted by clusterQueue {'' if admission is None else admission.cluster_queue}"
        await side_by_side(self._ungate(job, workload, stored, info, note) for stored, info in wanted)

    async def stop(self, job: Job, restore: tuple[JobPodSet, ...], reason: str, note: str) -> Job | None:
        """Delete what runs (or everything, when the Workload itself is to go)."""
        everything = reason == StopReason.WORKLOAD_DELETED
        going = [
            stored
            for stored in self.pods_of(job)
            if not is_deleting(pod := _pod(stored)) and (everything or not (is_gated(pod) or is_terminated(pod)))
        ]
        await side_by_side(self._end(job, stored, reason, note) for stored in going)
        return self.reload(job)

    def reload(self, job: Job) -> Job | None:
        """Its newest view."""
        stored = self._store.get("pod", job.stored.namespace, job.stored.name)
        return job_of(job.kind, stored) if stored is not None and stored.uid == job.uid else None

    async def finalize(self, job: Job) -> None:
        await self.let_go(self.pods_of(job))

    async def let_go(self, pods: Iterable[Stored]) -> None:
        """Take our finalizer away."""
        await side_by_side(self._without_finalizer(s) for s in pods if has_finalizer(_pod(s)))

    async def delete_excess(self, job: Job, pods: Iterable[Stored]) -> None:
        """Members that there are too many of."""

        async def one(stored: Stored) -> None:
            await self._delete(stored)
            await self._without_finalizer(stored)
            self.emit_on(job, stored, "Normal", "ExcessPodDeleted", "Deleted, as its group has enough pods")

        await side_by_side(one(stored) for stored in pods if not is_deleting(_pod(stored)))

    def emit_on(self, job: Job, stored: Stored, type_: EventType, reason: str, note: str) -> None:
        """An Event on one of the pods."""
        self.emit(Job(job.kind, stored, job.manifest), type_, reason, note)

    def emit_on_workload(self, stored: Stored, reason: str, note: str) -> None:
        """An Event on the workload."""
        about = about_workload(stored.object.metadata)
        self._events.emit(about, "Normal", reason, note, controller=f"pod{JOB_CONTROLLER_SUFFIX}")

    def _runs_elsewhere(self, workload: Workload) -> bool:
        """It was sent to another cluster: here its pods stay as they are."""
        for check in workload.status.admission_checks:
            stored = self._store.get("admissioncheck", "", check.name)
            check_object = None if stored is None else stored.object
            if (
                isinstance(check_object, AdmissionCheck)
                and check_object.spec.controller_name == names.MULTIKUEUE_CONTROLLER
            ):
                return True
        return False

    def _info(self, stored: Stored, infos: Mapping[str, PodSetInfo]) -> PodSetInfo:
        if len(infos) != 1:
            raise PermanentError(f"invalid pod set infos: a Pod has 1 pod set, the workload {len(infos)}")
        return next(iter(infos.values()))

    def _granted(self, job: Job, wanted: list[tuple[Stored, PodSetInfo]]) -> list[tuple[Stored, PodSetInfo]]:
        """Those that there is quota for."""
        return wanted

    async def _ungate(self, job: Job, workload: Workload, stored: Stored, info: PodSetInfo, note: str) -> None:
        def plan(current: Stored) -> JsonObject | Refusal:
            return ungated(pod_of(current.raw), info) if current.raw else {}

        result = await self._writer.change("pod", stored.namespace, stored.name, stored.uid, plan)
        if isinstance(result, Rejected):
            if result.gone:
                return
            raise TryAgain(f"pod {stored.key} cannot be started: {result.why}")
        if result.changed:
            self.emit_on(job, stored, "Normal", "Started", note)
            self._gate_removed(workload, self.of_group)

    async def _end(self, job: Job, stored: Stored, reason: str, note: str) -> None:
        at = format_time(datetime.fromtimestamp(self._now(), UTC))
        condition = {
            "type": TERMINATION_TARGET,
            "status": "True",
            "reason": reason,
            "message": note,
            "lastTransitionTime": at,
        }
        body = msgspec.json.encode({"metadata": {"uid": stored.uid}, "status": {"conditions": [condition]}})
        try:
            # Merged by the type of the condition: no version is needed, which the kubelet changes all the time.
            await self._client.patch(
                PODS,
                stored.namespace,
                stored.name,
                body,
                subresource="status",
                field_manager=_FIELD_MANAGER,
                content_type=STRATEGIC_MERGE_PATCH,
            )
        except (NotFound, Conflict):
            return
        if await self._delete(stored):
            self.emit_on(job, stored, "Normal", "Stopped", note)

    async def _delete(self, stored: Stored) -> bool:
        try:
            raw = await self._client.delete(PODS, stored.namespace, stored.name, uid=stored.uid)
        except (NotFound, Conflict):
            return False
        try:
            self._store.upsert("pod", raw)
        except MalformedObject:
            # It is gone at once: the answer is no Pod, and the watch tells.
            return True
        return True

    async def _without_finalizer(self, stored: Stored) -> None:
        def plan(current: Stored) -> JsonObject | Refusal:
            present = current.object.metadata.finalizers
            kept = [finalizer for finalizer in present if finalizer != names.POD_FINALIZER]
            return {"metadata": {"finalizers": kept}} if len(kept) < len(present) else {}

        result = await self._writer.change("pod", stored.namespace, stored.name, stored.uid, plan)
        if isinstance(result, Rejected) and not result.gone:
            raise TryAgain(f"pod {stored.key} cannot be let go: {result.why}")


class GroupControl(PodControl):
    """Of groups. A group is there as long as one of its pods is."""

    of_group = True

    def __init__(self, groups: PodMembers, store: Store, *rest: object, **more: object) -> None:
        super().__init__(store, *rest, **more)  # type: ignore[arg-type]
        self._groups = groups
        self.requeues = True

    def load(self, kind: JobKind, lane: LaneKey) -> Job | None:
        found = self._groups.of(lane)
        return self.group_of(kind, found) if found else None

    def is_leaving(self, job: Job) -> bool:
        return False

    def deleting(self, lane: LaneKey) -> list[tuple[Stored, Pod]]:
        """Pods of the group of a lane that somebody deletes."""
        return [(stored, pod) for stored in self._groups.of(lane) if is_deleting(pod := _pod(stored))]

    def pods_of(self, job: Job) -> Iterator[Stored]:
        for pod in members(job.manifest):
            stored = self._store.get("pod", pod.metadata.namespace, pod.metadata.name)
            if stored is not None and stored.uid == pod.metadata.uid:
                yield stored

    async def stop(self, job: Job, restore: tuple[JobPodSet, ...], reason: str, note: str) -> Job | None:
        stopped = await super().stop(job, restore, reason, note)
        if reason == StopReason.WORKLOAD_DELETED:
            await self.let_go(self.pods_of(job))
        return stopped

    def reload(self, job: Job) -> Job | None:
        return self.load(job.kind, self._groups.lane_of(job.stored))

    def group_of(self, kind: JobKind, stored: Iterable[Stored]) -> Job:
        """The group that these pods (at least one) form; the eldest speaks for it."""
        by_name = {one.name: one for one in stored}
        pods = sorted_pods(_pod(one) for one in by_name.values())
        now = datetime.fromtimestamp(self._now(), UTC)
        fast = self._settings.gates["FastQuotaReleaseInPodIntegration"]
        manifest = group_manifest(pods, now, _Manifests(by_name), fast_release=fast)
        return Job(kind, by_name[pods[0].metadata.name], manifest)

    def _info(self, stored: Stored, infos: Mapping[str, PodSetInfo]) -> PodSetInfo:
        found = infos.get(role(_pod(stored)))
        if found is None:
            raise PermanentError(f"the workload has no pod set for the role of pod {stored.name}")
        return found

    def _granted(self, job: Job, wanted: list[tuple[Stored, PodSetInfo]]) -> list[tuple[Stored, PodSetInfo]]:
        # A set that was scaled past its workload has more pods of a role than that. Of other groups such pods are deleted.
        running = Counter(role(pod) for pod in members(job.manifest) if not is_gated(pod) and not is_terminated(pod))
        granted = []
        for stored, info in wanted:
            if running[info.name] < info.count:
                running[info.name] += 1
                granted.append((stored, info))
        return granted


class _Manifests(Mapping[str, JsonObject]):
    """Complete manifests by name, read when they are asked for: most passes need none."""

    def __init__(self, stored: Mapping[str, Stored]) -> None:
        self._stored = stored

    def __getitem__(self, name: str) -> JsonObject:
        stored = self._stored[name]
        return pod_of(stored.raw) if stored.raw else msgspec.to_builtins(stored.object)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)


async def side_by_side(work: Iterable[Awaitable[None]]) -> None:
    """A few at a time. All are tried; the first error is raised. What was not begun when this is cancelled is not made either."""
    errors: list[BaseException] = []
    waiting = iter(work)
    while some := list(itertools.islice(waiting, _AT_ONCE)):
        results = await asyncio.gather(*some, return_exceptions=True)
        errors += [result for result in results if isinstance(result, BaseException)]
    if errors:
        raise errors[0]


def _pod(stored: Stored) -> Pod:
    if not isinstance(stored.object, Pod):
        raise TypeError(f"{stored.kind} {stored.key} is no pod")
    return stored.object
