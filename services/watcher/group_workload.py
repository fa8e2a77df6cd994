"""The one Workload of a group of pods: named like the group, owned by all its pods (job specification 14.6, 14.11).

It is taken only if it says that it is a group's. Which pods it stands for is computed anew at each look: those of its roles, up to their counts;
pods beyond that are deleted, failed ones that were replaced may go, and what is missing is told.
"""

from collections.abc import Iterable, Sequence

import msgspec

from services.watcher.build_workload import Priority, build_spec, max_execution_seconds, pod_sets_of_job
from services.watcher.job_control import Job, StopReason
from services.watcher.lane_keys import pod_lane
from services.watcher.lanes import TryAgain
from services.watcher.object_writer import Rejected
from services.watcher.one_workload import EndOfPass, OneWorkload
from services.watcher.patches import Refusal
from services.watcher.pod_control import GroupControl
from services.watcher.store import Stored
from services.watcher.workload_state import condition, is_evicted, is_finished, with_condition, workload_of
from shared.api import names
from shared.api.conditions import Condition, make
from shared.api.meta import ObjectMeta
from shared.api.raw_workload import RawWorkload
from shared.api.workload import Workload
from shared.api.workload_status import WorkloadStatus
from shared.jobs.manifest import JsonObject, texts
from shared.jobs.pod import members
from shared.jobs.pod_group import (
    Composition,
    IncompleteGroup,
    check_complete,
    compose,
    copied_labels,
    is_serving,
    roles,
    same_shape,
    surplus,
    youngest,
)
from shared.jobs.pod_view import Pod, is_active
from shared.jobs.podset_info import PermanentError

ARRIVING_S = 5.0
"""How long after its youngest pod a group may be incomplete without a Warning."""
OWNERS_ADDED = "OwnerReferencesAdded"
_PODS_FAILED = "PodsFailed"
_PODS_READY = "PodsReady"


class GroupWorkload(OneWorkload):
    """Raises as OneWorkload does, and EndOfPass for what only another change can mend."""

    _control: GroupControl

    async def ensure(self, job: Job, candidates: Sequence[Stored]) -> Stored | None:
        if self.is_prebuilt(job):
            return await self._prebuilt(job)
        lane = pod_lane(job.stored.object.metadata)
        stored = self._store.get("workload", lane.namespace, lane.name)
        if stored is None:
            return await self._none_matches(job, ())
        is_groups = stored.object.metadata.annotations.get(names.IS_GROUP_WORKLOAD) == "true"
        if self._settings.gates["PodIntegrationValidateGroupOwner"] and not is_groups:
            note = (
                f"Workload {stored.key} has the name of this group of pods and is not the group's; delete or rename it"
            )
            self._control.emit_on(job, job.stored, "Warning", "WorkloadNameConflict", note)
            await self._control.let_go(self._inactive(job))
            raise EndOfPass(note)
        workload = workload_of(stored)
        composition = self._composition(job, workload, stored)
        if not self._stands_for(job, workload, composition.kept, stored):
            return await self._none_matches(job, (stored,))
        await self._own(job, stored, composition.kept)
        await self._control.delete_excess(job, self._stored(job, composition.excess))
        await self._control.let_go(self._stored(job, composition.replaced))
        newest = self._store.get("workload", stored.namespace, stored.name)
        if newest is None or is_finished(workload_of(newest)):
            return newest
        return await self._follow(job, newest)

    async def _none_matches(self, job: Job, others: Sequence[Stored]) -> Stored | None:
        if not job.kind.suspended(job.manifest) and job.kind.finished(job.manifest) is None:
            note = "No matching Workload"
            await self._control.stop(job, (), StopReason.NO_MATCHING_WORKLOAD, note)
        for stored in others:
            await self._delete(job, stored)
        if others:
            raise TryAgain("no matching workloads")
        return None

    def seen(self, job: Job, stored: Stored) -> Job:
        if self.is_prebuilt(job):
            return job
        kept = self._composition(job, workload_of(stored), stored).kept
        return self._control.group_of(job.kind, self._stored(job, kept)) if kept else job

    async def conditions(self, job: Job, stored: Stored) -> bool:
        """WaitingForReplacementPods."""
        workload = workload_of(stored)
        if self.is_prebuilt(job) or is_finished(workload) or not stored.raw:
            return False
        absent = self._composition(job, workload, stored).absent
        if self._waiting(workload, absent) is None:
            return False

        def plan(current: Workload) -> WorkloadStatus:
            return with_condition(current.status, self._waiting(current, absent))

        result = await self._writer.workload_status(
            stored.namespace, stored.name, stored.uid, plan, field_manager=names.POD_CONTROLLER_MANAGER
        )
        return not isinstance(result, Rejected)

    async def create(self, job: Job) -> None:
        await self._control.let_go(self._inactive(job))
        pods = members(job.manifest)
        try:
            check_complete(pods)
            over = surplus(pods)
        except IncompleteGroup as error:
            # Its pods are made one after the other: that they are not all there yet is no fault.
            left = youngest(pods).timestamp() + ARRIVING_S - self._now()
            if left <= 0:
                self._complain(job, str(error))
            raise EndOfPass(str(error), left if left > 0 else None) from error
        except PermanentError as error:
            self._complain(job, str(error))
            raise EndOfPass(str(error)) from error
        if over:
            await self._control.delete_excess(job, self._stored(job, over))
            gone = {pod.metadata.uid for pod in over}
            others = [stored for stored in self._control.pods_of(job) if stored.uid not in gone]
            job = self._control.group_of(job.kind, others)
        await super().create(job)

    def _name(self, job: Job) -> str:
        return pod_lane(job.stored.object.metadata).name

    def _manifest(self, job: Job, priority: Priority) -> JsonObject:
        pods = members(job.manifest)
        try:
            labels = copied_labels(pods, self._settings.label_keys_to_copy)
            spec = build_spec(job.manifest, pod_sets_of_job(job.kind, job.manifest), priority)
        except PermanentError as error:
            self._complain(job, str(error))
            raise EndOfPass(str(error)) from error
        annotations = {
            key: value
            for key, value in texts(job.manifest, "metadata", "annotations").items()
            if key.startswith(names.PROVISIONING_ANNOTATION_PREFIX) or (key == names.ADMISSION_GATED_BY and value)
        }
        metadata: JsonObject = {
            "name": self._name(job),
            "namespace": job.stored.namespace,
            "annotations": {**annotations, names.IS_GROUP_WORKLOAD: "true"},
            "finalizers": [names.RESOURCE_IN_USE],
            "ownerReferences": [_owner(pod.metadata) for pod in pods],
        }
        if labels:
            metadata["labels"] = labels
        return {"apiVersion": names.GROUP_VERSION, "kind": names.WORKLOAD, "metadata": metadata, "spec": spec}

    async def follow_queue(self, job: Job, stored: Stored) -> None:
        if not is_serving(members(job.manifest)):
            await super().follow_queue(job, stored)

    async def _prebuilt_fits(self, job: Job, stored: Stored) -> bool:
        return self._has_room_for(members(job.manifest), stored)

    def _tell_prebuilt(self, job: Job, note: str) -> None:
        # Of a set the workload is ours to make: it comes back by itself.
        if names.POD_SUSPENDING_PARENT not in job.stored.object.metadata.annotations:
            super()._tell_prebuilt(job, note)

    async def _own_prebuilt(self, job: Job, stored: Stored) -> Stored | None:
        await self._own(job, stored, members(job.manifest))
        return self._store.get("workload", stored.namespace, stored.name)

    def _is_ours(self, job: Job, stored: Stored) -> bool:
        return stored.object.metadata.annotations.get(names.IS_GROUP_WORKLOAD) == "true"

    def _composition(self, job: Job, workload: Workload, stored: Stored) -> Composition:
        pods = members(job.manifest)
        if not stored.raw:
            # Of a finished one no pod sets are kept, and nothing of its pods changes any more.
            return Composition(pods)
        counts = {pod_set.name: pod_set.count for pod_set in workload.spec.pod_sets}
        return compose(pods, counts, self._moment())

    def _stands_for(self, job: Job, workload: Workload, kept: Sequence[Pod], stored: Stored) -> bool:
        if workload.spec.maximum_execution_time_seconds != max_execution_seconds(job.manifest) or not kept:
            return False
        return self._has_room_for(kept, stored)

    def _has_room_for(self, kept: Sequence[Pod], stored: Stored) -> bool:
        if not stored.raw:
            return True
        try:
            wanted = {name: count for name, (_, count) in roles(kept).items()}
        except IncompleteGroup:
            return True
        except PermanentError:
            return False
        present = [
            (pod_set.name, pod_set.count) for pod_set in msgspec.json.decode(stored.raw, type=RawWorkload).spec.pod_sets
        ]
        return same_shape(wanted, present, finished=is_finished(workload_of(stored)))

    def _stored(self, job: Job, pods: Iterable[Pod]) -> list[Stored]:
        uids = {pod.metadata.uid for pod in pods}
        return [stored for stored in self._control.pods_of(job) if stored.uid in uids]

    def _inactive(self, job: Job) -> list[Stored]:
        return self._stored(job, (pod for pod in members(job.manifest) if not is_active(pod)))

    async def _own(self, job: Job, stored: Stored, kept: Sequence[Pod]) -> None:
        """Every pod that the workload stands for is an owner: it goes with the last of them."""

        def missing(current: Stored) -> list[Pod]:
            known = {owner.uid for owner in current.object.metadata.owner_references}
            return [pod for pod in kept if pod.metadata.uid not in known]

        def plan(current: Stored) -> JsonObject | Refusal:
            added = [_owner(pod.metadata) for pod in missing(current)]
            present = [msgspec.to_builtins(owner) for owner in current.object.metadata.owner_references]
            return {"metadata": {"ownerReferences": [*present, *added]}} if added else {}

        if not missing(stored):
            return
        result = await self._writer.change("workload", stored.namespace, stored.name, stored.uid, plan)
        if isinstance(result, Rejected):
            raise TryAgain(f"workload {stored.key} cannot be owned: {result.why}")
        if result.changed:
            self._control.emit_on_workload(stored, OWNERS_ADDED, "Added owner references of the group's pods")

    def _waiting(self, workload: Workload, absent: int) -> Condition | None:
        old = condition(workload, names.WAITING_FOR_REPLACEMENT_PODS)
        evicted = condition(workload, names.EVICTED)
        status, reason, message = False, _PODS_READY, "All pods of the group are there"
        if absent:
            status, reason, message = True, _PODS_FAILED, f"{absent} pods of the group have failed and are not replaced"
            if is_evicted(workload) and evicted is not None:
                reason, message = evicted.reason, evicted.message
            elif old is not None and old.status == "True":
                return None
        elif old is None or old.status == "False":
            return None
        if old is not None and (old.status == "True", old.reason) == (status, reason):
            return None
        now, generation = self._moment(), workload.metadata.generation
        type_ = names.WAITING_FOR_REPLACEMENT_PODS
        return make(type_, status, reason, message, now=now, observed_generation=generation)


def _owner(pod: ObjectMeta) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
