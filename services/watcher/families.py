"""Carries out what `decide/variant_family` says (gate ConcurrentAdmission): makes, deletes, stops and releases the variants of a workload, and tells it.

Level-triggered: every change of a parent, of a variant or of the flavors of a ClusterQueue brings another look at the family, in a lane of its own. All
writes carry the version of what was looked at, so that the lane of the job, which writes the parent too, is never overwritten.
"""

import logging
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import msgspec

from services.watcher.admission_events import AdmissionEvents
from services.watcher.family_view import (
    GATE,
    build_variant,
    family_of,
    flavors_of,
    followed,
    is_parent,
    is_variant,
    with_open_gate,
    with_progress,
)
from services.watcher.kubernetes_events import CONCURRENT_ADMISSION_CONTROLLER, EventRecorder, about_workload
from services.watcher.lane_keys import owner_lane
from services.watcher.lanes import LaneKey, TryAgain
from services.watcher.object_writer import ObjectWriter, Rejected
from services.watcher.store import Change, Store, Stored
from services.watcher.workload_state import (
    condition,
    get_workload,
    is_admitted,
    is_evicted,
    is_finished,
    is_reserved,
    workload_of,
)
from shared.api import names
from shared.api.cluster_queue import ClusterQueue
from shared.api.local_queue import LocalQueue
from shared.api.meta import OwnerReference
from shared.api.workload import Workload
from shared.api.workload_status import PreemptionGateState, WorkloadStatus
from shared.decide import transitions
from shared.decide import variant_family as decide
from shared.jobs.manifest import JsonObject
from shared.kube import resources
from shared.kube.client import KubeClient
from shared.kube.errors import AlreadyExists, Conflict, NotFound, Refused

logger = logging.getLogger(__name__)

_SELDOM_S = 3600.0
FAMILY = owner_lane(OwnerReference(api_version=names.GROUP_VERSION, kind=names.WORKLOAD, name=""), "").kind
"""Kind of the lanes of families; variants are in them too, as their owner says."""


def family_lane(parent: Workload) -> LaneKey:
    return LaneKey(FAMILY, parent.metadata.namespace, parent.metadata.name)


class Families:
    """`concerned` tells which families a change is about; `reconcile` is one look at one of them."""

    def __init__(
        self,
        store: Store,
        client: KubeClient,
        writer: ObjectWriter,
        recorder: EventRecorder,
        events: AdmissionEvents,
        now: Callable[[], float],
        *,
        enabled: bool,
    ) -> None:
        self._store = store
        self._client = client
        self._writer = writer
        self._recorder = recorder
        self._events = events
        self._now = now
        self._enabled = enabled

    def concerned(self, change: Change) -> Iterable[LaneKey]:
        """Lanes of the families to look at again."""
        if not self._enabled:
            return ()
        match change.kind:
            case "workload":
                return self._of_workload(workload_of(change.subject))
            case "localqueue" | "clusterqueue" if _is_news(change):
                return self._of_queue(change.subject)
            case _:
                return ()

    def _of_workload(self, workload: Workload) -> Iterable[LaneKey]:
        owner = workload.metadata.controller_owner()
        if owner is not None and is_variant(workload):
            return (owner_lane(owner, workload.metadata.namespace),)
        if is_parent(workload) or self.wants_variants(workload):
            return (family_lane(workload),)
        return ()

    def _of_queue(self, queue: Stored) -> Iterable[LaneKey]:
        local = queue.object
        stored = (
            self._store.in_namespace("workload", queue.namespace)
            if isinstance(local, LocalQueue)
            else self._store.of_kind("workload")
        )
        for one in stored:
            workload = workload_of(one)
            if is_parent(workload) or self.wants_variants(workload):
                yield family_lane(workload)

    def wants_variants(self, workload: Workload) -> bool:
        """Its queue tries several flavors at once, and nobody has told it yet."""
        if not self._enabled or is_parent(workload) or is_variant(workload) or is_finished(workload):
            return False
        queue = self._queue_of(workload)
        return queue is not None and queue.spec.concurrent_admission_policy is not None

    def must_not_hold_quota(self, workload: Workload) -> bool:
        """Its variants do that in its place."""
        return is_parent(workload) or self.wants_variants(workload)

    def _queue_of(self, workload: Workload) -> ClusterQueue | None:
        local = self._store.get("localqueue", workload.metadata.namespace, workload.spec.queue_name)
        if local is None or not isinstance(local.object, LocalQueue):
            return None
        found = self._store.get("clusterqueue", "", local.object.spec.cluster_queue)
        return found.object if found is not None and isinstance(found.object, ClusterQueue) else None

    async def reconcile(self, lane: LaneKey) -> float | None:
        """One look. Returns seconds after which to look again though nothing changes. Raises TryAgain, Unavailable."""
        stored = self._store.get("workload", lane.namespace, lane.name)
        if stored is None:
            return None
        parent = workload_of(stored)
        if self.wants_variants(parent):
            await self._label(stored, "true")
            return None
        if not is_parent(parent):
            return None
        variants = [workload_of(s) for s in self._store.owned_by("workload", stored.uid) if is_variant(workload_of(s))]
        verdict = decide.next_steps(family_of(parent, self._queue_of(parent), variants), self._now())
        refused = ""
        for step in verdict.steps:
            try:
                await self._carry_out(step, stored)
            except TryAgain as error:
                # What stops one step, such as a quota of objects that is used up, must not keep a job from being stopped.
                refused = str(error)
        if refused:
            raise TryAgain(refused)
        return None if verdict.again_at is None else max(verdict.again_at - self._now(), 0.0)

    async def _carry_out(self, step: decide.Step, parent: Stored) -> None:
        match step:
            case decide.CreateVariant(flavor):
                await self._create(parent, flavor)
            case decide.DeleteVariant(name):
                await self._delete(parent, name)
            case decide.FollowParent(name):
                await self._follow(parent, name)
            case decide.SetVariantActive(name, active):
                await self._set_active(parent, name, active)
            case decide.Disband():
                await self._label(parent, None)
            case decide.EvictParent(reason, message):
                await self._evict_parent(parent, reason, message)
            case decide.AdmitParent(name):
                await self._admit_parent(parent, name)
            case decide.OpenGate(name):
                await self._open_gate(parent, name)
            case decide.ReleaseVariant() | decide.RequeueVariant() | decide.FinishVariant() | decide.CopyProgress():
                variant = self._variant(parent, step.name)
                if variant is not None:
                    await self._status(variant, lambda current: self._planned(step, workload_of(parent), current))

    async def _label(self, stored: Stored, value: str | None) -> None:
        patch: JsonObject = {"metadata": {"labels": {names.CONCURRENT_ADMISSION_PARENT_LABEL: value}}}
        await self._change(stored, lambda _: patch)

    async def _change(self, stored: Stored, plan: Callable[[Stored], JsonObject]) -> bool:
        result = await self._writer.change("workload", stored.namespace, stored.name, stored.uid, plan)
        if isinstance(result, Rejected):
            if result.gone:
                return False
            raise TryAgain(f"workload {stored.key} cannot be changed: {result.why}")
        return result.changed

    async def _status(self, stored: Stored, plan: Callable[[Workload], WorkloadStatus]) -> Workload | None:
        """The workload after a write that changed it; None if there was nothing to write."""
        result = await self._writer.workload_status(stored.namespace, stored.name, stored.uid, plan)
        if isinstance(result, Rejected):
            if result.gone:
                return None
            raise TryAgain(f"workload {stored.key} cannot be changed: {result.why}")
        return get_workload(self._store, stored.namespace, stored.name) if result.changed else None

    def _variant(self, parent: Stored, name: str) -> Stored | None:
        return self._store.get("workload", parent.namespace, name)

    def _emit(self, about: Stored, reason: str, note: str) -> None:
        self._recorder.emit(
            about_workload(about.object.metadata), "Normal", reason, note, controller=CONCURRENT_ADMISSION_CONTROLLER
        )

    async def _create(self, parent: Stored, flavor: str) -> None:
        manifest = build_variant(msgspec.json.decode(parent.raw, type=dict[str, object]), flavor)
        try:
            raw = await self._client.create(resources.WORKLOADS, parent.namespace, msgspec.json.encode(manifest))
        except AlreadyExists as error:
            name = msgspec.convert(manifest["metadata"], dict[str, object])["name"]
            await self._writer.read("workload", parent.namespace, str(name))
            raise TryAgain(str(error)) from error
        except (Refused, NotFound) as error:
            self._recorder.emit(
                about_workload(parent.object.metadata),
                "Warning",
                "FailedCreate",
                f"The variant on flavor {flavor} cannot be created: {error.message}",
                controller=CONCURRENT_ADMISSION_CONTROLLER,
                window_s=_SELDOM_S,
            )
            raise TryAgain(str(error)) from error
        self._store.upsert("workload", raw)
        self._emit(parent, "CreatedVariant", f"Created the variant on flavor {flavor}")

    async def _delete(self, parent: Stored, name: str) -> None:
        stored = self._variant(parent, name)
        if stored is None:
            return
        try:
            await self._client.delete(
                resources.WORKLOADS, stored.namespace, name, uid=stored.uid, propagation="Background"
            )
        except (NotFound, Conflict):
            return
        except Refused as error:
            raise TryAgain(f"workload {stored.key} cannot be deleted: {error.message}") from error
        flavor = stored.object.metadata.annotations.get(names.ALLOWED_FLAVORS, "")
        self._emit(parent, "DeletedVariant", f"Deleted the variant on flavor {flavor}")

    async def _follow(self, parent: Stored, name: str) -> None:
        stored = self._variant(parent, name)
        if stored is not None:
            await self._change(stored, lambda current: followed(workload_of(parent), workload_of(current)))

    async def _set_active(self, parent: Stored, name: str, active: bool) -> None:
        stored = self._variant(parent, name)
        if stored is None:
            return

        def plan(current: Stored) -> JsonObject:
            return {"spec": {"active": active}} if workload_of(current).spec.active != active else {}

        if await self._change(stored, plan):
            reason = "ActivatedVariant" if active else "DeactivatedVariant"
            note = "It can be tried" if active else "There is nothing to be won by it any more"
            self._emit(stored, reason, note)

    async def _evict_parent(self, parent: Stored, reason: str, message: str) -> None:
        def plan(current: Workload) -> WorkloadStatus:
            if is_evicted(current) or not is_reserved(current) or is_finished(current):
                return current.status
            return transitions.evict(current.status, reason, message, self._moment(), current.metadata.generation)

        after = await self._status(parent, plan)
        if after is not None:
            self._events.evicted(after)

    async def _admit_parent(self, parent: Stored, name: str) -> None:
        stored = self._variant(parent, name)
        variant = workload_of(stored) if stored is not None else None
        admission = variant.status.admission if variant is not None else None
        if variant is None or admission is None or not is_admitted(variant) or is_evicted(variant):
            return

        def plan(current: Workload) -> WorkloadStatus:
            going = current.metadata.deletion_timestamp is not None or is_finished(current)
            if going or is_reserved(current) or not current.spec.active:
                return current.status
            moment, generation = self._moment(), current.metadata.generation
            # Checks are the variant's; a list that was made for the parent before it was one says nothing.
            bare = transitions.sync_checks(current.status, (), moment)
            return transitions.reserve(bare, admission=admission, required_checks=(), now=moment, generation=generation)

        after = await self._status(parent, plan)
        if after is not None:
            self._events.checks_passed(after)

    async def _open_gate(self, parent: Stored, name: str) -> None:
        stored = self._variant(parent, name)
        if stored is None:
            return
        gate = PreemptionGateState(name=GATE, position="Open", last_transition_time=self._moment())
        if await self._status(stored, lambda current: with_open_gate(current.status, gate)) is not None:
            self._emit(stored, "PreemptionUngatedVariant", "It may preempt")

    def _planned(self, step: decide.Step, parent: Workload, variant: Workload) -> WorkloadStatus:
        """Steps that are one write to the status of a variant, of which nobody is told."""
        status, generation = variant.status, variant.metadata.generation
        match step:
            case decide.ReleaseVariant():
                return transitions.release(status, self._moment(), generation) if is_reserved(variant) else status
            case decide.RequeueVariant():
                message = "No other variant is admitted"
                return transitions.mark_requeued(status, names.REASON_REACTIVATED, message, self._moment(), generation)
            case decide.CopyProgress():
                return with_progress(status, parent.status)
            case _:
                finished = condition(parent, names.FINISHED)
                reason, message = (finished.reason, finished.message) if finished is not None else ("", "")
                return transitions.finish(status, reason, message, self._moment(), generation)

    def _moment(self) -> datetime:
        return datetime.fromtimestamp(self._now(), UTC).replace(microsecond=0)


def _is_news(change: Change) -> bool:
    """Do flavors, policy or the way to them differ? The status of queues changes all the time."""
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    if isinstance(old.object, ClusterQueue) and isinstance(new.object, ClusterQueue):
        return (flavors_of(old.object), old.object.spec.concurrent_admission_policy) != (
            flavors_of(new.object),
            new.object.spec.concurrent_admission_policy,
        )
    if isinstance(old.object, LocalQueue) and isinstance(new.object, LocalQueue):
        return old.object.spec.cluster_queue != new.object.spec.cluster_queue
    return True
