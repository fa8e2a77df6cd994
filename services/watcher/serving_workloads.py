"""The workloads of a StatefulSet or LeaderWorkerSet: made before their pods, and kept in step with what the set says (job specification 15.2, 15.3).

What a set asks for is `shared.jobs`' to say; its pod sets are told once, at creation. Each workload is a group's, for the rules of pod groups: they start its
pods, and stop them. No workload has a controller: the set and the pods own it together, and it goes with the last of them.
"""

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import msgspec

from services.watcher.build_workload import Priority, build_spec
from services.watcher.kubernetes_events import JOB_CONTROLLER_SUFFIX, EventRecorder, EventType, Regarding
from services.watcher.lane_keys import POD_GROUP
from services.watcher.lanes import LaneKey, TryAgain
from services.watcher.managed_jobs import JobSettings
from services.watcher.object_writer import ObjectWriter, Rejected
from services.watcher.patches import Refusal
from services.watcher.pod_members import PodMembers
from services.watcher.priorities import MissingPriorityClass, resolve, workload_class
from services.watcher.store import Store, Stored
from services.watcher.workload_state import condition, is_evicted, is_finished, is_reserved, workload_of
from shared.api import names
from shared.api.validation import label_value_errors
from shared.api.workload import Workload
from shared.api.workload_status import WorkloadStatus
from shared.decide import transitions
from shared.jobs.equivalence import without_duplicate_env
from shared.jobs.manifest import JsonObject, text, texts
from shared.jobs.pod_view import Pod, is_terminated
from shared.jobs.protocol import KindDefaults
from shared.jobs.queueing_parent import GroupedParent, GroupWorkload, mirrored, owner_annotations
from shared.jobs.registry import owner_kind
from shared.kube import resources
from shared.kube.client import KubeClient
from shared.kube.errors import AlreadyExists, Conflict, NotFound, Refused

_SELDOM_S = 3600.0
_NO_OWN_CLASS = KindDefaults()


class ServingWorkloads:
    """Raises TryAgain for what needs another pass, Unavailable when the API server gives no answer."""

    def __init__(
        self,
        store: Store,
        client: KubeClient,
        writer: ObjectWriter,
        events: EventRecorder,
        groups: PodMembers,
        settings: JobSettings,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._client = client
        self._writer = writer
        self._events = events
        self._groups = groups
        self._settings = settings
        self._now = now

    async def sync(self, kind: GroupedParent, stored: Stored, parent: JsonObject) -> dict[str, str]:
        """Make, change, put on hold and delete what there is to. Returns the names that the workloads have, by those that they should have. One that fails
        does not hold up the others; the first error is raised then."""
        actual: dict[str, str] = {}
        errors: list[TryAgain] = []
        for wanted in kind.workloads(parent):
            found = self._find(stored.namespace, wanted.name, *wanted.other_names)
            actual[wanted.name] = found.name if found is not None else wanted.name
            with _collected(errors):
                if found is not None:
                    await self._follow(kind, stored, parent, wanted, found)
                elif not mirrored(parent):
                    await self._create(kind, stored, parent, wanted)
        kept = self._find(stored.namespace, *kind.kept(parent))
        if kept is not None:
            with _collected(errors):
                await self._park(kept)
        for owned in self._store.owned_by("workload", stored.uid) if kind.sheds else ():
            if owned.name not in actual:
                with _collected(errors):
                    await self._delete(kind, stored, owned)
        if errors:
            raise errors[0]
        return actual

    def _find(self, namespace: str, *wanted: str) -> Stored | None:
        found = (self._store.get("workload", namespace, name) for name in wanted)
        return next((stored for stored in found if stored is not None), None)

    async def _create(self, kind: GroupedParent, stored: Stored, parent: JsonObject, wanted: GroupWorkload) -> None:
        pod_sets = tuple(without_duplicate_env(pod_set) for pod_set in wanted.pod_sets)
        try:
            priority = resolve(self._store, _NO_OWN_CLASS, parent, pod_sets)
        except MissingPriorityClass as error:
            is_ours = error.kind == names.WORKLOAD_PRIORITY_CLASS
            reason = "WorkloadPriorityClassNotFound" if is_ours else "ErrWorkloadCompose"
            self._emit(kind, stored, "Warning", reason, str(error), window_s=_SELDOM_S)
            raise TryAgain(str(error)) from error
        keys = self._settings.label_keys_to_copy if kind.copies_labels else ()
        labels = {key: value for key in keys if (value := text(parent, "metadata", "labels", key))}
        manifest = manifest_of(kind, parent, msgspec.structs.replace(wanted, pod_sets=pod_sets), priority, labels)
        try:
            raw = await self._client.create(resources.WORKLOADS, stored.namespace, msgspec.json.encode(manifest))
        except AlreadyExists as error:
            # Ours from an attempt whose answer was lost: the watch brings it.
            raise TryAgain(f"workload {wanted.name} exists already") from error
        except (Refused, NotFound) as error:
            note = f"The Workload cannot be created: {error.message}"
            self._emit(kind, stored, "Warning", "ErrWorkloadCompose", note, window_s=_SELDOM_S)
            raise TryAgain(str(error)) from error
        self._store.upsert("workload", raw)
        note = f"Created Workload: {stored.namespace}/{wanted.name}"
        self._emit(kind, stored, "Normal", "CreatedWorkload", note)

    async def _follow(
        self, kind: GroupedParent, stored: Stored, parent: JsonObject, wanted: GroupWorkload, found: Stored
    ) -> None:
        if found.object.metadata.deletion_timestamp is not None:
            return

        def plan(current: Stored) -> JsonObject | Refusal:
            return self._difference(kind, parent, wanted, current)

        result = await self._writer.change("workload", found.namespace, found.name, found.uid, plan)
        if isinstance(result, Rejected):
            raise TryAgain(f"workload {found.key} cannot be updated: {result.why}")
        if result.changed:
            self._emit(kind, stored, "Normal", "UpdatedWorkload", f"Updated Workload {found.key}")
        workload = workload_of(found)
        reserved = condition(workload, names.QUOTA_RESERVED)
        if reserved is not None and (reserved.status, reserved.reason) == ("False", names.REASON_ON_HOLD):
            await self._status(found, _resumed)
        elif self._is_abandoned(found):
            await self._status(found, _released)

    def _difference(
        self, kind: GroupedParent, parent: JsonObject, wanted: GroupWorkload, current: Stored
    ) -> JsonObject:
        """Its owner, queue, admission gates and priority class, as far as they may change now."""
        workload = workload_of(current)
        if is_finished(workload):
            return {}
        metadata = self._metadata(kind, parent, wanted, workload)
        spec: JsonObject = {}
        queue = text(parent, "metadata", "labels", names.QUEUE_NAME_LABEL)
        reserved, reference = is_reserved(workload), workload.spec.priority_class_ref
        if queue != workload.spec.queue_name and not reserved:
            spec["queueName"] = queue or None
        label = text(parent, "metadata", "labels", names.PRIORITY_CLASS_LABEL)
        named = reference is not None and reference.kind != names.PRIORITY_CLASS
        if label and (named or (reference is None and not reserved)) and (reference is None or reference.name != label):
            spec |= self._priority_of(label)
        return {key: value for key, value in (("metadata", metadata), ("spec", spec)) if value}

    def _metadata(
        self, kind: GroupedParent, parent: JsonObject, wanted: GroupWorkload, workload: Workload
    ) -> JsonObject:
        present = workload.metadata
        changed: JsonObject = {}
        annotations: dict[str, str | None] = {
            key: value
            for key, value in owner_annotations(kind, parent, wanted).items()
            if present.annotations.get(key) != value
        }
        gates = text(parent, "metadata", "annotations", names.ADMISSION_GATED_BY)
        if gates != present.annotations.get(names.ADMISSION_GATED_BY, ""):
            annotations[names.ADMISSION_GATED_BY] = gates or None
        if annotations:
            changed["annotations"] = annotations
        if text(parent, "metadata", "uid") not in {owner.uid for owner in present.owner_references}:
            owners = [msgspec.to_builtins(owner) for owner in present.owner_references]
            changed["ownerReferences"] = [*owners, _owner(kind, parent)]
        return changed

    def _priority_of(self, label: str) -> JsonObject:
        try:
            priority = workload_class(self._store, label)
        except MissingPriorityClass as error:
            raise TryAgain(str(error)) from error
        return {"priority": priority.value, "priorityClassRef": _reference(priority)}

    async def _park(self, stored: Stored) -> None:
        """The set wants no quota: what its workload has is given back once its pods have ended."""
        workload = workload_of(stored)
        if is_finished(workload) or not is_reserved(workload) or self._runs(stored):
            return
        await self._status(stored, _released if self._is_abandoned(stored) else _held)

    def _is_abandoned(self, stored: Stored) -> bool:
        """Evicted, and all pods have gone before anybody saw them stop: no pass over them will give the quota back."""
        workload = workload_of(stored)
        return is_evicted(workload) and is_reserved(workload) and not self._groups.of(_group(stored))

    def _runs(self, stored: Stored) -> bool:
        pods = (pod.object for pod in self._groups.of(_group(stored)))
        return any(isinstance(pod, Pod) and not is_terminated(pod) for pod in pods)

    async def _status(
        self,
        stored: Stored,
        change: Callable[[WorkloadStatus, datetime, int], WorkloadStatus],
    ) -> None:
        def plan(workload: Workload) -> WorkloadStatus | Refusal:
            return (
                workload.status
                if is_finished(workload)
                else change(workload.status, self._moment(), workload.metadata.generation)
            )

        result = await self._writer.workload_status(stored.namespace, stored.name, stored.uid, plan)
        if isinstance(result, Rejected) and not result.gone:
            raise TryAgain(result.why)

    async def _delete(self, kind: GroupedParent, stored: Stored, workload: Stored) -> None:
        """Its finalizer stays until its pods were stopped, which is for the rules of groups."""
        if workload.object.metadata.deletion_timestamp is not None:
            return
        try:
            await self._client.delete(resources.WORKLOADS, workload.namespace, workload.name, uid=workload.uid)
        except (NotFound, Conflict):
            return
        except Refused as error:
            raise TryAgain(f"workload {workload.key} cannot be deleted: {error.message}") from error
        self._emit(
            kind, stored, "Normal", "DeletedWorkload", f"Deleted Workload {workload.key}: its group is not wanted"
        )

    def _emit(
        self, kind: GroupedParent, stored: Stored, type_: EventType, reason: str, note: str, window_s: float = 1.0
    ) -> None:
        api_version, name = owner_kind(kind)
        about = Regarding(api_version, name, stored.namespace, stored.name, stored.uid)
        controller = kind.framework + JOB_CONTROLLER_SUFFIX
        self._events.emit(about, type_, reason, note, controller=controller, window_s=window_s)

    def _moment(self) -> datetime:
        return datetime.fromtimestamp(self._now(), UTC)


@contextlib.contextmanager
def _collected(errors: list[TryAgain]) -> Iterator[None]:
    """What fails does not hold up what comes after it."""
    try:
        yield
    except TryAgain as error:
        errors.append(error)


def manifest_of(
    kind: GroupedParent, parent: JsonObject, wanted: GroupWorkload, priority: Priority, labels: dict[str, str]
) -> JsonObject:
    """The workload to create; `labels`: copied ones."""
    uid = text(parent, "metadata", "uid")
    own = {} if label_value_errors(uid) else {names.JOB_UID_LABEL: uid}
    annotations = {
        key: value
        for key, value in texts(parent, "metadata", "annotations").items()
        if key.startswith(names.PROVISIONING_ANNOTATION_PREFIX) or (key == names.ADMISSION_GATED_BY and value)
    }
    metadata: JsonObject = {
        "name": wanted.name,
        "namespace": text(parent, "metadata", "namespace"),
        "labels": {**labels, **own},
        "annotations": {**annotations, **owner_annotations(kind, parent, wanted)},
        "finalizers": [names.RESOURCE_IN_USE],
        "ownerReferences": [_owner(kind, parent)],
    }
    spec = build_spec(parent, wanted.pod_sets, priority)
    return {"apiVersion": names.GROUP_VERSION, "kind": names.WORKLOAD, "metadata": metadata, "spec": spec}


def _owner(kind: GroupedParent, parent: JsonObject) -> JsonObject:
    api_version, name = owner_kind(kind)
    metadata = {key: text(parent, "metadata", key) for key in ("name", "uid")}
    return {"apiVersion": api_version, "kind": name, **metadata}


def _reference(priority: Priority) -> JsonObject:
    return {"group": priority.group, "kind": priority.kind, "name": priority.name}


def _group(workload: Stored) -> LaneKey:
    return LaneKey(POD_GROUP, workload.namespace, workload.name)


def _held(status: WorkloadStatus, now: datetime, generation: int) -> WorkloadStatus:
    if not transitions.is_reserved(status):
        return status
    return transitions.unreserve(status, names.REASON_ON_HOLD, "The set has no replicas", now, generation)


def _resumed(status: WorkloadStatus, now: datetime, generation: int) -> WorkloadStatus:
    if transitions.is_reserved(status):
        return status
    message = "The set has replicas again"
    return transitions.unreserve(status, names.REASON_PENDING_EVALUATION, message, now, generation)


def _released(status: WorkloadStatus, now: datetime, generation: int) -> WorkloadStatus:
    return transitions.release(status, now, generation) if transitions.is_reserved(status) else status
