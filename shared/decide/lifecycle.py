"""The life of a workload outside the cycle: what should happen to it next (core rules 2.5, 2.7 to 2.10, 9.5, 9.6).

Why it exists: two services act on workloads between admissions; one pure function in the order of Kueue's workload controller
tells both what comes first, and which of them does it. Level-triggered: each step changes the workload, and the new
view brings the next step. Release after an eviction is not here: it needs the job. Nor are families of variants
(`variant_family`) and the preparation of device requests.
"""

from __future__ import annotations

import msgspec

from shared.api import names
from shared.decide.lifecycle_limits import PodsReadyLimits, time_limits
from shared.decide.lifecycle_steps import (
    NOTHING,
    Evict,
    Finish,
    MarkRequeued,
    ReleaseFinalizer,
    ReportPending,
    SetActive,
    SetDeactivationTarget,
    SetRequeueAt,
    Step,
    SyncAdmitted,
    SyncChecks,
    Unreserve,
    Verdict,
)
from shared.decide.requests import GATED_BY_ANNOTATION
from shared.model.activity import Activity
from shared.model.cluster_queue import ClusterQueue, LocalQueue
from shared.model.sources import ConditionSource, WorkloadSource


class LifecycleView(msgspec.Struct, frozen=True, kw_only=True):
    """All that the life of one workload depends on. Queues are None when their object is missing."""

    workload: WorkloadSource
    local_queue: LocalQueue | None = None
    cluster_queue: ClusterQueue | None = None
    """The one the LocalQueue points to; for a reserved workload the one that holds it."""
    activity: Activity | None = None
    """Of that ClusterQueue."""
    namespace_matches: bool = True
    invalid: str = ""
    """Why the requests are refused, or empty."""
    in_cycle: bool = False
    """Its cohorts form a cycle."""
    finish_orphans: bool = False
    """Gate FinishOrphanedWorkloads."""
    admission_gates: bool = True
    """Gate AdmissionGatedBy."""
    explicit_status: bool = False
    """Gate UnadmittedWorkloadsExplicitStatus: QuotaReserved and Admitted say no from the first look on."""
    legacy_reasons: bool = False
    """Gate UnadmittedWorkloadsObservability is off (`legacy_reasons`)."""
    pods_ready: PodsReadyLimits | None = None
    """waitForPodsReady; None = off."""
    has_variants: bool = False
    """A parent of concurrent admission: checks are those of its variants."""


_KEPT_REASONS = frozenset(
    {
        names.REASON_WAITING_FOR_QUOTA,
        names.REASON_NO_MATCHING_FLAVOR,
        names.REASON_EXCEEDS_MAX_QUOTA,
        names.REASON_TOPOLOGY_PLACEMENT_FAILED,
        names.REASON_WAITING_FOR_PREEMPTED,
        names.REASON_WAITING_FOR_PODS_READY,
        names.REASON_PENDING_EVALUATION,
    }
)
NOT_LOOKED_AT = "Waiting to be looked at"
_AFTER_BACKOFF = frozenset({names.REASON_PODS_READY_TIMEOUT, names.REASON_ADMISSION_CHECK})


def next_step(view: LifecycleView, now: float) -> Verdict:
    """What comes next for this workload, first match in the order of core 2.5."""
    return _Life(view, now).verdict()


def why_not_tried(view: LifecycleView) -> tuple[str, str] | None:
    """What keeps a pending workload from being tried at all: reason and message; None = nothing does, it is the scheduler's."""
    return _Life(view, 0.0).obstacle()


class _Life:
    """One look at one workload."""

    def __init__(self, view: LifecycleView, now: float) -> None:
        self.view = view
        self.now = now
        self.workload = view.workload
        self.conditions = {condition.type: condition for condition in view.workload.conditions}
        self.reserved = self._is_true(names.QUOTA_RESERVED)
        self.admitted = self._is_true(names.ADMITTED)
        self.evicted = self._is_true(names.EVICTED)

    def _is_true(self, type_: str) -> bool:
        found = self.conditions.get(type_)
        return found is not None and found.status

    def verdict(self) -> Verdict:
        step = self._orphan()
        if step is not None:
            return Verdict(step)
        if self._finished:
            return NOTHING
        step = self._delay_of_checks()
        if step is not None:
            # Once that time has come the step is none any more, and the next one may be another service's, which nobody else would tell of it.
            return Verdict(step, again_at=step.at)
        at = self.workload.requeue_at
        if self.workload.active and not self._is_true(names.DEACTIVATION_TARGET) and at is not None and at > self.now:
            # What a check takes away it takes now: quota does not wait with the workload.
            return Verdict(self._failed_checks() if self.reserved else None, again_at=at)
        step = (
            self._activation()
            or self._local_queue_restart()
            or self._gates()
            or self._cluster_queue_restart()
            or self._checks()
            or self._pending()
        )
        return Verdict(step) if step is not None else self._holding()

    @property
    def _finished(self) -> bool:
        return self.workload.finished or self._is_true(names.FINISHED)

    def _orphan(self) -> Step | None:
        """Nobody but us looks after a workload without an owner, and after a finished one that is deleted (step 2)."""
        workload = self.workload
        if workload.deleting:
            alone = self._finished or not workload.owners
            return ReleaseFinalizer() if alone and names.RESOURCE_IN_USE in workload.finalizers else None
        if self._finished or workload.owners or not workload.job_uid or not self.view.finish_orphans:
            return None
        return Finish(names.REASON_OWNER_NOT_FOUND, "The owner is gone")

    def _delay_of_checks(self) -> SetRequeueAt | None:
        """A check asked for a retry later: remember the latest such time (step 6)."""
        times = [
            check.changed + check.requeue_after_s
            for check in self.workload.checks
            if check.state == names.CHECK_RETRY and check.requeue_after_s is not None
        ]
        latest = max(times, default=0)
        if latest > self.now and latest > (self.workload.requeue_at or 0):
            return SetRequeueAt(latest)
        return None

    def _activation(self) -> Step | None:
        """Deactivation, reactivation and the end of a backoff (step 8)."""
        if not self.workload.active:
            return self._inactive()
        if self._is_true(names.DEACTIVATION_TARGET):
            return SetActive(False)
        expired = self.workload.requeue_at is not None and not self.reserved
        requeued = self.conditions.get(names.REQUEUED)
        if requeued is not None and not requeued.status:
            # The expired time goes in the same write: one fewer than Kueue makes, with the same end.
            if requeued.reason == names.REASON_DEACTIVATED or requeued.reason.startswith(
                names.REASON_DEACTIVATED_DUE_TO
            ):
                # Also after a deactivation by us: Kueue leaves those parked for good, though their user has said that they may go on.
                return MarkRequeued(names.REASON_REACTIVATED, "The workload was reactivated", expired)
            if requeued.reason in _AFTER_BACKOFF:
                return MarkRequeued(names.REASON_BACKOFF_FINISHED, "The backoff has ended", expired)
        return SetRequeueAt(None) if expired else None

    def _inactive(self) -> Step | None:
        target = self.conditions.get(names.DEACTIVATION_TARGET)
        if target is not None and target.status:
            # Also of one that is evicted already: what asked for it must not outlive it, or it could never be activated again.
            message = f"The workload is deactivated: {target.message}"
            return Evict(names.REASON_DEACTIVATED, message, target.reason, True, True)
        if not self.evicted:
            return Evict(names.REASON_DEACTIVATED, "The workload is deactivated", "", True, True)
        return SetRequeueAt(None, clear_state=True) if self.workload.has_requeue_state else None

    def _requeued_false(self, reason: str) -> bool:
        requeued = self.conditions.get(names.REQUEUED)
        return requeued is not None and not requeued.status and requeued.reason == reason

    def _local_queue_restart(self) -> Step | None:
        local = self.view.local_queue
        if local is not None and not local.stopped and self._requeued_false(names.REASON_LOCAL_QUEUE_STOPPED):
            return MarkRequeued(names.REASON_LOCAL_QUEUE_RESTARTED, f"LocalQueue {local.key} is open again")
        return None

    def _gates(self) -> Step | None:
        """Admission gates of the annotation (step 10)."""
        gates = self._gated_by()
        gated = self._pending_reason() == names.REASON_ADMISSION_GATED
        if gates and not gated:
            return Unreserve(names.REASON_ADMISSION_GATED, f"Admission is gated by {gates}", "AdmissionGated")
        if not gates and gated and not self._preemption_gated():
            cleared = "The admission gates are cleared"
            return Unreserve(names.REASON_PENDING_EVALUATION, cleared, "AdmissionGateCleared")
        return None

    def _gated_by(self) -> str:
        return self.workload.annotations.get(GATED_BY_ANNOTATION, "") if self.view.admission_gates else ""

    def _preemption_gated(self) -> bool:
        """Is it the scheduler's word on closed preemption gates? Taken away, it would only be said again."""
        told = self._pending_reason() == names.REASON_ADMISSION_GATED
        return told and self._is_true(names.BLOCKED_ON_PREEMPTION_GATES)

    def _cluster_queue_restart(self) -> Step | None:
        queue = self.view.cluster_queue
        if self.view.local_queue is None or queue is None or queue.stop_policy != names.STOP_NONE:
            return None
        if self._requeued_false(names.REASON_CLUSTER_QUEUE_STOPPED):
            return MarkRequeued(names.REASON_CLUSTER_QUEUE_RESTARTED, f"ClusterQueue {queue.name} is open again")
        return None

    def _checks(self) -> Step | None:
        """The list of admission checks (2.7)."""
        queue, admission = self.view.cluster_queue, self.workload.admission
        if queue is None:
            return None
        if self.view.has_variants:
            wanted: tuple[str, ...] = ()
        elif admission is not None:
            flavors = frozenset(flavor for pod_set in admission.pod_sets for flavor in pod_set.flavors.values())
            wanted = queue.required_checks(flavors)
        else:
            wanted = queue.unconditional_checks()
        listed = tuple(check.name for check in self.workload.checks)
        return SyncChecks(wanted) if listed != wanted else None

    def _pending(self) -> Step | None:
        """Not admitted: why it is pending, and whether Admitted says so (step 12)."""
        if self.admitted:
            return None
        if not self.reserved:
            told = self._reason_told() if not self.view.legacy_reasons else self._old_reason_told()
            if told is not None and (
                self.view.legacy_reasons or told[0] != self._pending_reason() or self._misses_a_queue_still(told[1])
            ):
                return ReportPending(*told)
        elif self.view.cluster_queue is None:
            # Which checks apply is unknown; the reservation will be given back.
            return None
        return SyncAdmitted() if self._admitted_is_stale() else None

    def _old_reason_told(self) -> tuple[str, str] | None:
        """The same in the old words, of which there is one, and only for queues."""
        told = self._queue_refuses() if self.workload.active else None
        shown = self.conditions.get(names.QUOTA_RESERVED)
        if told is None or self._pending_reason() == names.REASON_ON_HOLD:
            return None
        if shown is not None and (shown.reason, shown.message) == (names.REASON_INADMISSIBLE, told[1]):
            return None
        return names.REASON_INADMISSIBLE, told[1]

    def _misses_a_queue_still(self, told: str) -> bool:
        """The text is about a queue that was not there, and now it is something else under the same reason. Other texts of one reason are left alone: the
        scheduler has words of its own for them."""
        shown = self.conditions[names.QUOTA_RESERVED].message
        return (
            shown != told and shown.startswith(("LocalQueue ", "ClusterQueue ")) and shown.endswith(" does not exist")
        )

    def _pending_reason(self) -> str:
        condition = self.conditions.get(names.QUOTA_RESERVED)
        return condition.reason if condition is not None and not condition.status else ""

    def _reason_told(self) -> tuple[str, str] | None:
        """What QuotaReserved=False should say (2.8, first match); None = leave it."""
        found = self.obstacle()
        if found is not None:
            return None if found[0] == names.REASON_ON_HOLD else found
        if names.QUOTA_RESERVED not in self.conditions:
            return (names.REASON_PENDING_EVALUATION, NOT_LOOKED_AT) if self.view.explicit_status else None
        if self._pending_reason() in _KEPT_REASONS:
            return None
        if self._preemption_gated():
            return None
        return names.REASON_PENDING_EVALUATION, NOT_LOOKED_AT

    def obstacle(self) -> tuple[str, str] | None:
        """Why it cannot be tried at all, first match (2.8)."""
        if not self.workload.active:
            return names.REASON_DEACTIVATED, "The workload is deactivated"
        if self._pending_reason() == names.REASON_ON_HOLD:
            return names.REASON_ON_HOLD, self.conditions[names.QUOTA_RESERVED].message
        blocked = self._queue_blocks()
        if blocked is not None:
            return blocked
        if self.view.invalid:
            return names.REASON_MISCONFIGURED, self.view.invalid
        if self._gated_by():
            return names.REASON_ADMISSION_GATED, "Admission is gated"
        return None

    def _queue_blocks(self) -> tuple[str, str] | None:
        refused, queue = self._queue_refuses(), self.view.cluster_queue
        if refused is not None or queue is None:
            return refused
        if not self.view.namespace_matches:
            text = f"namespace {self.workload.namespace} does not match the selector of ClusterQueue {queue.name}"
            return names.REASON_MISCONFIGURED, text
        return None

    def _queue_refuses(self) -> tuple[str, str] | None:
        """Queues that are missing or closed."""
        local, queue, activity = self.view.local_queue, self.view.cluster_queue, self.view.activity
        if local is None:
            return names.REASON_MISCONFIGURED, f"LocalQueue {self.workload.queue_name} does not exist"
        if local.stopped:
            return names.REASON_SUSPENDED, f"LocalQueue {self.workload.queue_name} is stopped"
        if queue is None:
            return names.REASON_MISCONFIGURED, f"ClusterQueue {local.cluster_queue} does not exist"
        if activity is not None and not activity.active:
            return names.REASON_SUSPENDED, f"ClusterQueue {queue.name} is inactive: {activity.message}"
        if self.view.in_cycle:
            return names.REASON_SUSPENDED, f"ClusterQueue {queue.name} is inactive: its cohorts form a cycle"
        return None

    def _admitted_is_stale(self) -> bool:
        current: ConditionSource | None = self.conditions.get(names.ADMITTED)
        if self.view.legacy_reasons:
            # Only a change of truth is told, and here it is False or not there.
            ready = all(check.state == names.CHECK_READY for check in self.workload.checks)
            return self.reserved and ready and not self._lacks_placement()
        if current is None and names.QUOTA_RESERVED not in self.conditions:
            return False
        if not self.reserved:
            wanted = names.REASON_NO_RESERVATION
        elif any(check.state != names.CHECK_READY for check in self.workload.checks):
            wanted = names.REASON_UNSATISFIED_CHECKS
        else:
            # All checks passed: admit now, unless a placement is known to be missing.
            wanted = names.REASON_PENDING_DELAYED_TOPOLOGY
        return current is None or current.reason != wanted

    def _lacks_placement(self) -> bool:
        admission = self.workload.admission
        return admission is not None and any(pod_set.delayed_topology for pod_set in admission.pod_sets)

    def _holding(self) -> Verdict:
        """It holds quota: failed checks, stopped or missing queues, limits of time (step 13)."""
        if not self.reserved:
            return NOTHING
        step = self._failed_checks() or self._held_by_local_queue() or self._held_by_cluster_queue()
        return Verdict(step) if step is not None else time_limits(self.workload, self.view.pods_ready, self.now)

    def _failed_checks(self) -> Step | None:
        rejected = self._checks_told(names.CHECK_REJECTED)
        if rejected:
            if self._is_true(names.DEACTIVATION_TARGET):
                return None
            message = f"Admission checks rejected: {rejected}"
            return SetDeactivationTarget(names.REASON_ADMISSION_CHECK, message, "AdmissionCheckRejected")
        retry = self._checks_told(names.CHECK_RETRY)
        if retry and not self.evicted:
            return Evict(names.REASON_ADMISSION_CHECK, f"Admission checks ask for a retry: {retry}")
        return None

    def _checks_told(self, state: str) -> str:
        """The checks in this state by name, each with what it says."""
        told = sorted((check.name, check.message) for check in self.workload.checks if check.state == state)
        return ", ".join(f'"{name}" ({message})' if message else f'"{name}"' for name, message in told)

    def _held_by_local_queue(self) -> Step | None:
        local, name = self.view.local_queue, self.workload.queue_name
        if self.admitted:
            drains = local is not None and local.stop_policy == names.STOP_HOLD_AND_DRAIN
            if drains and not self.evicted:
                return Evict(names.REASON_LOCAL_QUEUE_STOPPED, f"LocalQueue {name} is stopped")
            return None
        if local is None or local.deleting:
            return Unreserve(names.REASON_MISCONFIGURED, f"LocalQueue {name} does not exist or is being deleted")
        if local.stopped:
            return Unreserve(names.REASON_SUSPENDED, f"LocalQueue {name} is stopped")
        return None

    def _held_by_cluster_queue(self) -> Step | None:
        queue, admission = self.view.cluster_queue, self.workload.admission
        name = queue.name if queue is not None else (admission.cluster_queue if admission is not None else "")
        if self.admitted:
            drains = queue is not None and queue.stop_policy == names.STOP_HOLD_AND_DRAIN
            if drains and not self.evicted:
                return Evict(names.REASON_CLUSTER_QUEUE_STOPPED, f"ClusterQueue {name} is stopped")
            return None
        if queue is None or queue.deleting:
            return Unreserve(names.REASON_MISCONFIGURED, f"ClusterQueue {name} does not exist or is being deleted")
        if queue.stop_policy != names.STOP_NONE:
            return Unreserve(names.REASON_SUSPENDED, f"ClusterQueue {name} is stopped")
        return None
