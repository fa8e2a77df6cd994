"""The loop of preemptor.

1. Fold workloads, queues, the log and its outcomes; nothing is done before the view is complete.
2. A change puts the workloads that it concerns on the agenda (handlers.py).
3. A workload that should stop is told so: deactivation, drained queues, failed checks, pods that are not ready, run-time limits (workload_steps.py).
4. A workload that was told to stop and still holds its quota after `victim_timeout_s` is told again; after `victim_attempts` times that is an error in
   the log (victims.py). A decision to preempt without an outcome for that long is one too: only the gateway can give it.
5. Send what is not asked for already, and wait for its outcome and for the view to show it.

One instance is active, by lease; the others fold along and judge everything when they become active. Victims of the cycle are chosen by the scheduler
and evicted by the gateway from the log: here they are only watched.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge

from services.preemptor.handlers import Watched
from services.preemptor.settings import PreemptorSettings
from services.preemptor.victims import Victims
from services.preemptor.workload_steps import condition, evict_again, workload_step
from shared.api import names
from shared.bus.interface import CaughtUp, FeedItem, Logged, ObjectChanged, Reset, Settled
from shared.decide.lifecycle_limits import PodsReadyLimits
from shared.events.commands import Command
from shared.events.objects import Workload
from shared.runtime.decision_settings import pods_ready_limits
from shared.runtime.service import Context
from shared.state.open_commands import CommandWriter, Verdict

KINDS = ("workload", "clusterqueue", "localqueue")
LEASE = "preemptor"
log = logging.getLogger("sluice.preemptor")


class PreemptorJudge:
    """Who should stop, and who was told to and does not."""

    def __init__(
        self,
        settings: PreemptorSettings,
        metrics: CollectorRegistry,
        *,
        pods_ready: PodsReadyLimits | None = None,
        admission_gates: bool = True,
        legacy_reasons: bool = False,
    ) -> None:
        self._settings = settings
        self._admission_gates = admission_gates
        self._legacy_reasons = legacy_reasons
        self._pods_ready = pods_ready
        self._start(0)
        self._late = Counter(
            "sluice_preemptor_victims_late",
            "Times that a victim was found to hold its quota for too long.",
            ["cause"],
            registry=metrics,
        )
        Gauge(
            "sluice_preemptor_victims_stuck",
            "Evicted workloads that hold their quota although they were asked again and again.",
            registry=metrics,
        ).set_function(lambda: self._victims.stuck(settings.victim_attempts))

    def _start(self, epoch: int) -> None:
        self._watched = Watched(epoch)
        self._victims = Victims(self._settings.victim_timeout_s)
        self._told: dict[str, float] = {}
        """Until when the log is quiet about a decision that has no outcome."""

    def fold(self, item: FeedItem, now: float) -> Iterable[str]:
        match item:
            case Reset(epoch=epoch):
                self._start(epoch)
            case ObjectChanged():
                change = self._watched.objects.apply(item)
                return self._watched.changed(change) if change is not None else ()
            case Logged():
                return self._watched.logged(item)
            case Settled(outcome=outcome):
                return self._watched.settled(outcome)
            case CaughtUp(positions=positions):
                self._watched.caught_up(positions)
            case _:
                pass
        return ()

    def version(self, kind: str, key: str) -> int:
        return self._watched.objects.version(kind, key)

    def everything(self) -> Iterator[str]:
        for key, workload in self._watched.objects.all(Workload).items():
            if not workload.finished:
                yield key

    def judge(self, key: str, now: float) -> Verdict:
        workload = self._watched.objects.get(Workload, key)
        if workload is None:
            self._victims.forget(key)
            self._told.pop(key, None)
            return Verdict()
        watched = self._watched
        local_queue, cluster_queue = watched.local_queue(workload), watched.cluster_queue(workload)
        step = workload_step(
            workload,
            local_queue,
            cluster_queue,
            now,
            pods_ready=self._pods_ready,
            admission_gates=self._admission_gates,
            legacy_reasons=self._legacy_reasons,
        )
        if step.commands:
            return step
        commands, at = self._watch_victim(workload, now)
        times = [t for t in (step.again_at, at, self._watch_decision(key, now)) if t is not None]
        return Verdict(commands, min(times, default=None))

    def _watch_victim(self, workload: Workload, now: float) -> tuple[tuple[Command, ...], float | None]:
        lateness = self._victims.look(workload, now)
        evicted = condition(workload, names.EVICTED)
        if lateness.state != "late" or evicted is None:
            return (), lateness.again_at
        self._late.labels("reservation held").inc()
        level = logging.ERROR if lateness.repeat >= self._settings.victim_attempts else logging.WARNING
        log.log(
            level,
            "evicted workload still holds its quota",
            extra={
                "workload": workload.key,
                "reason": evicted.reason,
                "held_s": int(now - evicted.changed),
                "asked_again": lateness.repeat,
            },
        )
        return (evict_again(workload, evicted),), lateness.again_at

    def _watch_decision(self, key: str, now: float) -> float | None:
        preemption = self._watched.preemption(key)
        if preemption is None:
            self._told.pop(key, None)
            return None
        due = self._told.get(key, preemption.decided_s + self._settings.victim_timeout_s)
        if now < due:
            return due
        self._late.labels("no outcome").inc()
        log.error(
            "decision to preempt has no outcome",
            extra={"workload": key, "preemptor": preemption.preemptor, "waits_s": int(now - preemption.decided_s)},
        )
        self._told[key] = now + self._settings.victim_timeout_s
        return self._told[key]


async def serve(ctx: Context[PreemptorSettings]) -> None:
    """Run until cancelled."""
    writer = CommandWriter(
        LEASE,
        PreemptorJudge(
            ctx.settings,
            ctx.metrics,
            pods_ready=pods_ready_limits(ctx.configured),
            admission_gates=ctx.configured.gates["AdmissionGatedBy"],
            legacy_reasons=not ctx.configured.gates["UnadmittedWorkloadsObservability"],
        ),
        ctx.metrics,
        leads=False,
    )
    await writer.run(ctx.bus, KINDS, ctx.now, lease=ctx.bus.lease(LEASE), decisions=True, ready=ctx.health.ready)
