"""The loop of queue_manager.

1. Fold objects into the queue view (pending, reserving, admitted, usage, Active by queue); nothing is done before the view is complete.
2. A change puts the objects that it concerns on the agenda (handlers.py); a queue whose activity changed brings its workloads along.
3. Queues: their status, at most once a second while only numbers move (queue_status.py) and all together at a rate (status_rate.py), shares of fair
   sharing included; the past usage of LocalQueues when it is due (consumption.py). Queues, flavors, checks and topologies: their finalizer (finalizers.py).
4. Workloads: the value of their priority class (priorities.py), then the step of their life that is ours (`decide/lifecycle`), timers included.
5. Send what is not asked for already, and wait for its outcome and for the view to show it.

One instance is active, by lease; the others fold along and judge everything when they become active.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from services.queue_manager.consumption import Sampling
from services.queue_manager.finalizers import check_in_use, finalizer_change, flavor_in_use, topology_in_use
from services.queue_manager.handlers import GUARDED_KINDS, Handlers, key_of
from services.queue_manager.priorities import names_class, priority_change
from services.queue_manager.queue_status import NO_SAMPLE, cohort_change, status_change
from services.queue_manager.settings import QueueManagerSettings
from services.queue_manager.status_rate import StatusRate
from services.queue_manager.workload_steps import workload_step
from shared.bus.interface import CaughtUp, FeedItem, Reset
from shared.config.configuration import Configured
from shared.decide.fair_share import FairShares
from shared.events.objects import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    ResourceFlavor,
    Topology,
    Workload,
    WorkloadPriorityClass,
)
from shared.model.activity import Activity
from shared.runtime.decision_settings import admission_fair_sharing, fair_sharing, request_rules
from shared.runtime.service import Context
from shared.state.folding import KINDS as FOLDED
from shared.state.open_commands import CommandWriter, Verdict
from shared.state.queues import QueueView

KINDS = (*FOLDED, "workloadpriorityclass")
LEASE = "queue_manager"


class QueueJudge:
    """What queues, and workloads outside the scheduler's cycle, should look like."""

    def __init__(self, settings: QueueManagerSettings, configured: Configured | None = None) -> None:
        configured = configured if configured is not None else Configured()
        self._settings = settings
        self._finish_orphans = settings.finish_orphans and configured.gates["FinishOrphanedWorkloads"]
        self._admission_gates = configured.gates["AdmissionGatedBy"]
        self._legacy_reasons = not configured.gates["UnadmittedWorkloadsObservability"]
        self._explicit_status = configured.gates["UnadmittedWorkloadsExplicitStatus"]
        self._fair_sharing = fair_sharing(configured, settings) is not None
        self._view = QueueView(request_rules(configured), admission_fair_sharing(configured, settings))
        self._start()

    def _start(self) -> None:
        self._handlers = Handlers(self._view, shares=self._fair_sharing)
        self._sampling = Sampling()
        self._written: dict[str, float] = {}
        """When the status of a queue was last asked for."""
        self._rate = StatusRate(self._settings.status_per_s, self._settings.status_burst)
        self._activity: dict[str, tuple[Activity, bool]] = {}
        """What each queue was when last looked at, and whether its cohorts formed a cycle: its workloads are told."""

    def fold(self, item: FeedItem, now: float) -> Iterable[str]:
        change = self._view.apply(item, now)
        if isinstance(item, Reset):
            self._start()
        if isinstance(item, CaughtUp):
            self._remember_activities()
        if change is None:
            return ()
        keys = [*self._handlers.changed(change)]
        queues = [*self._handlers.queues_changed()]
        # Workloads never change what their queue is, and before CaughtUp nothing is judged.
        if self._view.caught_up and change.name.kind != "workload":
            if change.name.kind == "cohort":
                queues += [key_of("clusterqueue", name) for name in self._view.objects.all(ClusterQueue)]
            for key in queues:
                keys += self._if_activity_changed(key)
        return [*keys, *queues, *self._handlers.shares_changed(change, queues)]

    def version(self, kind: str, key: str) -> int:
        return self._view.objects.version(kind, key)

    def everything(self) -> Iterator[str]:
        objects = self._view.objects
        yield from (key_of("clusterqueue", key) for key in objects.all(ClusterQueue))
        yield from (key_of("localqueue", key) for key in objects.all(LocalQueue))
        yield from (key_of("resourceflavor", key) for key in objects.all(ResourceFlavor))
        yield from (key_of("admissioncheck", key) for key in objects.all(AdmissionCheck))
        yield from (key_of("topology", key) for key in objects.all(Topology))
        yield from (key_of("cohort", key) for key in objects.all(Cohort))
        for key, workload in objects.all(Workload).items():
            if not workload.finished or workload.deleting:
                yield key_of("workload", key)

    def judge(self, key: str, now: float) -> Verdict:
        kind, _, name = key.partition(" ")
        if kind == "workload":
            return self._judge_workload(name, now)
        if kind == "localqueue":
            return self._judge_status(kind, name, now)
        if kind == "cohort":
            return self._judge_cohort(name, now)
        if kind in GUARDED_KINDS:
            return self._judge_guarded(kind, name, now)
        raise ValueError(f"no such key: {key!r}")

    def _judge_guarded(self, kind: str, name: str, now: float) -> Verdict:
        objects = self._view.objects
        queues = objects.all(ClusterQueue).values()
        match kind:
            case "clusterqueue":
                queue = objects.get(ClusterQueue, name)
                if queue is None:
                    return self._judge_status(kind, name, now)
                change = finalizer_change(kind, queue, in_use=self._view.is_reserving(name))
                if change is not None and queue.deleting:
                    return Verdict((change,))
                status = self._judge_status(kind, name, now)
                return Verdict((change, *status.commands), status.again_at) if change is not None else status
            case "resourceflavor":
                flavor = objects.get(ResourceFlavor, name)
                change = finalizer_change(kind, flavor, in_use=flavor_in_use(name, queues)) if flavor else None
            case "admissioncheck":
                check = objects.get(AdmissionCheck, name)
                change = finalizer_change(kind, check, in_use=check_in_use(name, queues)) if check else None
            case _:
                topology = objects.get(Topology, name)
                in_use = topology_in_use(name, objects.all(ResourceFlavor).values())
                change = finalizer_change(kind, topology, in_use=in_use) if topology else None
        return Verdict((change,) if change is not None else ())

    def _judge_status(self, kind: str, name: str, now: float) -> Verdict:
        view, key = self._view, key_of(kind, name)
        queue: ClusterQueue | LocalQueue | None
        share, sample = None, NO_SAMPLE
        if kind == "clusterqueue":
            queue, status = view.objects.get(ClusterQueue, name), view.cluster_queue(name)
            if queue is not None and self._fair_sharing:
                share = FairShares(view.world).of_queue(name).rounded()
        else:
            queue = local = view.objects.get(LocalQueue, name)
            status = view.local_queue(name)
            if local is not None:
                sample = self._sampling.look(local, view.world, now)
        if queue is None or status is None:
            self._written.pop(key, None)
            self._rate.give_up(key)
            self._sampling.forget(name)
            return Verdict()
        change = status_change(kind, queue, status, now, share=share, sample=sample)
        if change is None:
            self._rate.give_up(key)
            return Verdict((), sample.again_at)
        turn = self._written.get(key, 0.0) + self._settings.status_interval_s
        if not change.urgent and now < turn:
            return Verdict((), turn)
        if not change.urgent and (later := self._rate.turn(key, now)):
            return Verdict((), later)
        self._written[key] = now
        return Verdict((change.command,), sample.again_at)

    def _judge_cohort(self, name: str, now: float) -> Verdict:
        key, cohort = key_of("cohort", name), self._view.objects.get(Cohort, name)
        if cohort is None:
            self._written.pop(key, None)
            return Verdict()
        share = FairShares(self._view.world).of_cohort(name).rounded() if self._fair_sharing else None
        command = cohort_change(cohort, share)
        if command is None:
            return Verdict()
        turn = self._written.get(key, 0.0) + self._settings.status_interval_s
        if now < turn:
            return Verdict((), turn)
        self._written[key] = now
        return Verdict((command,))

    def _judge_workload(self, key: str, now: float) -> Verdict:
        workload = self._view.objects.get(Workload, key)
        if workload is None:
            return Verdict()
        class_name = names_class(workload)
        class_ = self._view.objects.get(WorkloadPriorityClass, class_name) if class_name else None
        priority = priority_change(workload, class_)
        step = workload_step(
            workload,
            self._view.world,
            now,
            finish_orphans=self._finish_orphans,
            admission_gates=self._admission_gates,
            legacy_reasons=self._legacy_reasons,
            explicit_status=self._explicit_status,
        )
        return Verdict((priority, *step.commands), step.again_at) if priority is not None else step

    def _remember_activities(self) -> None:
        for name in self._view.objects.all(ClusterQueue):
            self._if_activity_changed(key_of("clusterqueue", name))
        for name in self._view.objects.all(LocalQueue):
            self._if_activity_changed(key_of("localqueue", name))

    def _if_activity_changed(self, key: str) -> list[str]:
        """Keys of the workloads of a queue that became active, inactive, or so for another reason."""
        kind, _, name = key.partition(" ")
        status = self._view.cluster_queue(name) if kind == "clusterqueue" else self._view.local_queue(name)
        before = self._activity.pop(key, None)
        if status is not None:
            in_cycle = kind == "clusterqueue" and self._view.world.forest.in_cycle(name)
            self._activity[key] = (status.active, in_cycle)
        return [*self._handlers.workloads_in(kind, name)] if before != self._activity.get(key) else []


async def serve(ctx: Context[QueueManagerSettings]) -> None:
    """Run until cancelled."""
    writer = CommandWriter(LEASE, QueueJudge(ctx.settings, ctx.configured), ctx.metrics, leads=False)
    await writer.run(ctx.bus, KINDS, ctx.now, lease=ctx.bus.lease(LEASE), ready=ctx.health.ready)
