"""The writing half of the gateway in one piece: what the service starts, stops, and tells of changes.

It wires lanes, the decision log, commands, the job reconciler and the two kinds of events, and decides which change of the store concerns which lane.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from opentelemetry.trace import Tracer
from prometheus_client import CollectorRegistry, Gauge

from services.watcher import gate_removal
from services.watcher.admission_events import AdmissionEvents
from services.watcher.commands import CommandRunner
from services.watcher.core_kinds import Job as CoreJob
from services.watcher.creation_latency import Created, not_measured
from services.watcher.decisions import DecisionLog
from services.watcher.elastic_slices import ElasticPods
from services.watcher.families import FAMILY, Families
from services.watcher.gate_removal import GateRemoved
from services.watcher.group_workload import GroupWorkload
from services.watcher.informing import Informing, Purpose
from services.watcher.job_control import JobControl
from services.watcher.job_runs import JobRuns
from services.watcher.kinds import STATEFUL_SET, UNMARKED_POD
from services.watcher.kubernetes_events import WORKLOAD_CONTROLLER, EventRecorder, Regarding
from services.watcher.lane_keys import POD_GROUP, owner_lane, pod_lane, workload_lane
from services.watcher.lanes import LaneKey, Lanes, Urgency
from services.watcher.managed_jobs import JobSettings, ManagedJobs, job_settings
from services.watcher.object_writer import ObjectWriter
from services.watcher.one_workload import OneWorkload
from services.watcher.outcomes import OutcomePublisher
from services.watcher.owned_workloads import OwnedWorkloads
from services.watcher.pod_control import GroupControl, PodControl
from services.watcher.pod_members import PodMembers
from services.watcher.provisioning_objects import ProvisioningObjects
from services.watcher.public_events import PublicEvents
from services.watcher.reconcile_group import GroupReconciler
from services.watcher.reconcile_job import JobReconciler
from services.watcher.reconcile_serving import ServingReconciler
from services.watcher.retention import Retention
from services.watcher.serving_pods import PodMarker, ServingPods
from services.watcher.serving_workloads import ServingWorkloads
from services.watcher.settings import WatcherSettings
from services.watcher.store import Change, Store, Stored
from services.watcher.workload_state import is_admitted, is_evicted, is_finished, workload_of
from shared.api import names
from shared.api.workload import Workload
from shared.bus.interface import GatewayBus
from shared.config.configuration import Configured
from shared.jobs.pod import PodGroup
from shared.jobs.protocol import JobKind
from shared.jobs.registry import grouped, integrated, token_of
from shared.kube.client import KubeClient
from shared.kube.resources import Resource

_JOB = token_of("batch", "Job")
_RECONCILE = "reconcile"
_ORPHAN = "orphan"
_TIME_KEPT = "time-kept"
_SELDOM_S = 3600.0


class Gateway:
    """`run` once; `follow` each epoch; the gate is closed until `resume`. `now` gives seconds since the epoch of the clock."""

    def __init__(
        self,
        *,
        store: Store,
        client: KubeClient,
        bus: GatewayBus,
        settings: WatcherSettings,
        tracer: Tracer,
        metrics: CollectorRegistry,
        now: Callable[[], float],
        jobs: JobSettings | None = None,
        created: Created = not_measured,
        gate_removed: GateRemoved = gate_removal.not_measured,
    ) -> None:
        if jobs is None:
            jobs = job_settings(Configured(), settings.namespace)
        enabled = integrated(jobs.frameworks)
        self._store = store
        self._begun = False
        self._kinds: dict[str, JobKind] = {token_of(kind.group, kind.kind): kind for kind in enabled.values()}
        """By their token in the store; a group of pods, which is no object, has one all the same."""
        self._tokens = tuple(self._kinds)
        self._lanes = Lanes(settings.lane_workers)
        legacy = not jobs.gates["UnadmittedWorkloadsObservability"]
        self._writer = ObjectWriter(store, client, legacy_reasons=legacy)
        self._outcomes = OutcomePublisher(bus, may_speak=lambda: client.may_write(), gather_s=settings.gather_s)
        self._informing = Informing(
            status_per_s=settings.status_per_s,
            events_per_s=settings.events_per_s,
            burst=settings.status_burst + settings.events_burst,
            is_busy=lambda: self._lanes.waiting > 2 * settings.lane_workers,
        )
        self.recorder = EventRecorder(
            client,
            self._informing.of(Purpose.EVENTS),
            instance=settings.instance,
            now=now,
        )
        self._public = PublicEvents(bus, store, shard=settings.shard, now=now, gather_s=settings.gather_s)
        self._owned = OwnedWorkloads(store)
        self._managed = ManagedJobs(store, client, jobs, enabled)
        self._groups = PodMembers(store)
        self._parents = {token_of(kind.group, kind.kind): kind for kind in grouped(jobs.serving)}
        self._serving_pods = ServingPods(store, self._parents)
        self._serving = ServingReconciler(
            self._parents,
            store,
            self._managed,
            ServingWorkloads(store, client, self._writer, self.recorder, self._groups, jobs, now),
            self._serving_pods,
            PodMarker(store, self._writer, jobs.gates),
        )
        runs = JobRuns(now)
        events = AdmissionEvents(self.recorder, self._public, store)
        self._families = Families(
            store, client, self._writer, self.recorder, events, now, enabled=jobs.gates["ConcurrentAdmission"]
        )
        control = JobControl(store, self._writer, self.recorder, runs, tracer)
        of_pods = (client, self._writer, self.recorder, runs, tracer, now, jobs, gate_removed)
        pods = PodControl(store, *of_pods)
        groups = GroupControl(self._groups, store, *of_pods)

        def parts(control: JobControl, one: type[OneWorkload]) -> dict[str, Any]:
            return {
                "store": store,
                "writer": self._writer,
                "control": control,
                "one": one(store, client, self._writer, control, jobs, tracer, now, created),
                "owned": self._owned,
                "managed": self._managed,
                "runs": runs,
                "retention": Retention(store, client, control, self.recorder, jobs, now),
                "pods": ElasticPods(client),
                "client": client,
                "settings": jobs,
                "tracer": tracer,
                "now": now,
            }

        self._keeps_all = jobs.keep_finished_s is None
        self._retention = Retention(store, client, control, self.recorder, jobs, now)
        self._reconciler = JobReconciler(**parts(control, OneWorkload))
        self._controls: dict[str, JobControl] = {"pod": pods, POD_GROUP: groups}
        self._reconcilers = {
            "pod": JobReconciler(**parts(pods, OneWorkload)),
            POD_GROUP: GroupReconciler(**parts(groups, GroupWorkload)),
        }
        """Of jobs that are no objects with a template; all others have the same one."""
        self._control = control
        if "pod" in self._kinds:
            self._kinds[POD_GROUP] = PodGroup()
        self._log = DecisionLog(
            bus=bus,
            store=store,
            writer=self._writer,
            lanes=self._lanes,
            outcomes=self._outcomes,
            events=events,
            tracer=tracer,
            now=now,
            look_again=self._look_at_job_of,
            must_not_hold_quota=self._families.must_not_hold_quota,
        )
        self._commands = CommandRunner(
            bus=bus,
            store=store,
            writer=self._writer,
            lanes=self._lanes,
            outcomes=self._outcomes,
            events=events,
            provisioning=ProvisioningObjects(store, client, self._writer, self.recorder),
            queues=self._informing.of(Purpose.QUEUES),
            pending=self._informing.of(Purpose.PENDING),
            tracer=tracer,
            now=now,
            look_again=self._look_at_job_of,
            pods_are_ready=self._pods_are_ready,
            is_answered=self._log.is_answered,
        )
        waiting = Gauge("sluice_watcher_lane_items", "Writes queued in lanes.", registry=metrics)
        waiting.set_function(lambda: self._lanes.waiting)
        dropped = Gauge("sluice_watcher_events_dropped", "Events that were too many to write.", registry=metrics)
        dropped.set_function(lambda: self.recorder.dropped + self._public.dropped)

    async def run(self) -> None:
        """Lanes, commands and events, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lanes.run())
            group.create_task(self._outcomes.run())
            group.create_task(self._informing.run())
            group.create_task(self.recorder.run())
            group.create_task(self._public.run())
            group.create_task(self._commands.run())

    async def follow(self, *, shard: str, epoch: int) -> None:
        """Apply the log of one epoch, until cancelled."""
        await self._log.follow(shard=shard, epoch=epoch)

    async def pause(self) -> None:
        """Start nothing new; returns when all calls in flight have ended."""
        await self._lanes.pause()

    def resume(self) -> None:
        """The store is complete and an epoch is open: go on."""
        self._public.begin()
        self._begun = True
        self._lanes.resume()

    async def idle(self) -> None:
        """Returns when no lane has anything left to do."""
        await self._lanes.idle()

    @property
    def applied(self) -> int:
        """Highest sequence of the open epoch's log that was read."""
        return self._log.applied

    def published(self, kind: str, namespace: str, name: str, version: int) -> None:
        """OBJECTS holds the object at `version`, or its tombstone."""
        if kind == "workload":
            self._log.published(f"{namespace}/{name}", version)

    def malformed(self, kind: str, resource: Resource, namespace: str, name: str, uid: str, message: str) -> None:
        """An object that nobody can use: one clear Event on it."""
        about = Regarding(resource.api_version, resource.kind, namespace, name, uid)
        self.recorder.emit(
            about,
            "Warning",
            "Malformed",
            f"This {kind} cannot be used: {message}",
            controller=WORKLOAD_CONTROLLER,
            window_s=_SELDOM_S,
        )

    def changed(self, change: Change) -> None:
        """A change of the store, own writes included: queues what has to be looked at again."""
        self._public.changed(change)
        if self._begun or change.kind == "workload":
            # Before, every workload is still to be looked at anyway.
            for family in self._families.concerned(change):
                self._look_at_family(family)
        match change.kind:
            case "workload":
                self._workload_changed(change)
            case "namespace" if self._begun:
                for token in (*self._tokens, *self._parents):
                    for stored in self._store.in_namespace(token, change.subject.name):
                        self._job_changed(stored)
            case "workloadpriorityclass" | "priorityclass" | "resourceflavor" if change.old is None and self._begun:
                # Before, every job is still to be looked at anyway.
                self._retry_waiting()
            case "pod" if "pod" in self._kinds:
                for lane in (*self._groups.changed(change), *self._serving_pods.changed(change)):
                    self._look_at(lane)
            case token if token == UNMARKED_POD:
                for lane in self._serving_pods.changed(change):
                    self._look_at(lane)
            case token if token in self._parents or token == STATEFUL_SET:
                for lane in self._serving_lanes(change.subject):
                    self._look_at(lane)
            case token if (kind := self._kinds.get(token)) is not None:
                if change.new is not None:
                    self._reconciler.saw(kind, change.new)
                else:
                    self._reconciler.gone(change.subject)
                self._job_changed(change.subject)

    @staticmethod
    def _lane(stored: Stored) -> LaneKey:
        if stored.kind == "pod":
            return pod_lane(stored.object.metadata)
        return LaneKey(stored.kind, stored.namespace, stored.name)

    def _job_changed(self, stored: Stored) -> None:
        lane = self._lane(stored)
        if self._managed.may_be_managed(stored.object.metadata) or self._owned.has(lane):
            self._look_at(lane)

    def _serving_lanes(self, stored: Stored) -> list[LaneKey]:
        """Those of the sets that the object is, or is a part of."""
        found = [self._lane(stored)] if stored.kind in self._parents else []
        for token, kind in self._parents.items():
            name = kind.set_of(stored.object.metadata)
            if stored.kind == STATEFUL_SET and name:
                found.append(LaneKey(token, stored.namespace, name))
        return found

    def _workload_changed(self, change: Change) -> None:
        self._owned.changed(change)
        metadata = change.subject.object.metadata
        lane = workload_lane(metadata)
        owner = metadata.controller_owner()
        for reference in metadata.owner_references if self._parents else ():
            if (parent := owner_lane(reference, lane.namespace)).kind in self._parents:
                self._look_at(parent)
        if lane.kind == POD_GROUP or owner is None:
            # Of a group, or one whose name a group needs.
            group = LaneKey(POD_GROUP, lane.namespace, change.subject.name)
            if self._groups.has(group) or (lane == group and metadata.deletion_timestamp is not None):
                self._look_at(group)
        if owner is None:
            if change.new is not None and _may_be_over(change.new):
                self._look_for_owner(lane)
            return
        self._look_at(lane)
        if change.new is not None and not self._keeps_all:
            self._look_at_time_kept(change.new)
        for token in self._tokens:
            for child in self._store.owned_by(token, owner.uid):
                self._look_at(self._lane(child))

    def _retry_waiting(self) -> None:
        for token in self._tokens:
            for stored in self._store.of_kind(token):
                if self._managed.may_be_managed(stored.object.metadata) and stored.raw:
                    self._look_at(self._lane(stored))

    def _look_at(self, lane: LaneKey) -> None:
        if lane.kind in self._parents:

            async def serve() -> None:
                await self._serving.reconcile(lane)

            self._lanes.submit(lane, serve, urgency=Urgency.START, name=_RECONCILE)
            return
        if lane.kind == FAMILY:
            self._look_at_family(lane)
            return
        kind = self._kinds.get(lane.kind)
        if kind is None:
            return

        async def run() -> None:
            again = await self._reconcilers.get(lane.kind, self._reconciler).reconcile(kind, lane)
            if again is not None:
                self._lanes.later(lane, run, delay_s=again, urgency=Urgency.STOP, name=_RECONCILE)

        self._lanes.submit(lane, run, urgency=self._urgency(lane), name=_RECONCILE)

    def _look_at_family(self, lane: LaneKey) -> None:
        async def run() -> None:
            again = await self._families.reconcile(lane)
            if again is not None:
                self._lanes.later(lane, run, delay_s=again, urgency=Urgency.STATUS, name=_RECONCILE)

        # A job is stopped, and quota given back, by what it does.
        self._lanes.submit(lane, run, urgency=Urgency.STOP, name=_RECONCILE)

    def _look_at_job_of(self, workload: Workload) -> None:
        self._look_at(workload_lane(workload.metadata))

    def _pods_are_ready(self, workload: Workload) -> bool:
        lane, owner = workload_lane(workload.metadata), workload.metadata.controller_owner()
        kind = self._kinds.get(lane.kind)
        job = None if kind is None else self._controls.get(lane.kind, self._control).load(kind, lane)
        if kind is None or job is None or (owner is not None and job.uid != owner.uid):
            return False
        return not kind.suspended(job.manifest) and kind.pods_ready(job.manifest)

    def _look_for_owner(self, lane: LaneKey) -> None:
        async def run() -> None:
            again = await self._reconciler.adopt_orphan(lane.namespace, lane.name)
            if again is not None:
                self._lanes.later(lane, run, delay_s=again, urgency=Urgency.STATUS, name=_ORPHAN)

        self._lanes.submit(lane, run, urgency=Urgency.STATUS, name=_ORPHAN)

    def _look_at_time_kept(self, stored: Stored) -> None:
        """Of a finished workload that no pass over its job looks at, as the kind of the job is not ours."""
        metadata = stored.object.metadata
        is_ours = workload_lane(metadata).kind in (*self._kinds, *self._parents)
        if is_ours or not is_finished(workload_of(stored)) or metadata.deletion_timestamp is not None:
            return
        lane = LaneKey(_TIME_KEPT, stored.namespace, stored.name)

        async def run() -> None:
            found = self._store.get("workload", stored.namespace, stored.name)
            again = None if found is None or found.uid != stored.uid else await self._retention.finished(found)
            if again is not None:
                self._lanes.later(lane, run, delay_s=again, urgency=Urgency.STATUS, name=_TIME_KEPT)

        self._lanes.submit(lane, run, urgency=Urgency.STATUS, name=_TIME_KEPT)

    def _urgency(self, lane: LaneKey) -> Urgency:
        """What stops a job goes first; what starts one, or takes in that it has ended, next."""
        urgency = Urgency.STATUS
        for stored in self._owned.of(lane):
            workload = workload_of(stored)
            if is_finished(workload):
                continue
            if is_evicted(workload) or workload.metadata.deletion_timestamp is not None:
                return Urgency.STOP
            if is_admitted(workload) and not self._runs(lane):
                urgency = Urgency.START
        return urgency

    def _runs(self, lane: LaneKey) -> bool:
        """Is it a Job that was started and has not ended? What is left to write about it (such as PodsReady) nobody waits for as others wait to start."""
        stored = self._store.get(lane.kind, lane.namespace, lane.name) if lane.kind == _JOB else None
        job = stored.object if stored is not None else None
        return isinstance(job, CoreJob) and not job.spec.suspend and not job.is_finished


def _may_be_over(stored: Stored) -> bool:
    """A workload without a job: is there anything that would be done about it? Most that change are only admitted, evicted or told why they wait."""
    metadata = stored.object.metadata
    return (
        metadata.deletion_timestamp is not None
        or bool(metadata.labels.get(names.JOB_UID_LABEL))
        or is_finished(workload_of(stored))
    )
