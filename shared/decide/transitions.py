"""Transitions of a Workload's status: the new whole status for each write (core rules 2.3, 2.4, appendix D).

Why it exists: fields that belong together change in one write, and every writer must mean the same by "evict" or "reserve".
All functions are pure: the old status in, the new one out; the same object when nothing changes. Sending it is the
gateway's work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from shared.api import conditions as conds
from shared.api import names
from shared.api.conditions import Conditions
from shared.api.meta import whole_seconds
from shared.api.quantity import format_amount
from shared.api.workload_status import (
    Admission,
    AdmissionCheckState,
    CheckState,
    EvictionCount,
    PodSetRequest,
    PodSetUpdate,
    PreemptionGateState,
    RequeueState,
    SchedulingStats,
    WorkloadStatus,
)

_REQUEUED_AT_ONCE = frozenset({names.REASON_PREEMPTED, names.REASON_NODE_FAILURES})


def _with(status: WorkloadStatus, **changes: Any) -> WorkloadStatus:
    return msgspec.structs.replace(status, **changes)


def _set(
    conditions: Conditions, type_: str, on: bool, reason: str, message: str, now: datetime, generation: int
) -> Conditions:
    new = conds.make(type_, on, reason, message, now=now, observed_generation=generation)
    return conds.set_condition(conditions, new)


def is_reserved(status: WorkloadStatus) -> bool:
    return conds.is_true(status.conditions, names.QUOTA_RESERVED)


def sync_admitted(status: WorkloadStatus, now: datetime, generation: int) -> WorkloadStatus:
    """Admitted as reservation, checks and delayed placements say; run time is added up when it ends."""
    current = conds.find(status.conditions, names.ADMITTED)
    if current is None and conds.find(status.conditions, names.QUOTA_RESERVED) is None:
        return status
    on, reason, message = _admitted(status)
    if current is not None and (current.status == "True") == on and current.reason == reason:
        return status
    past = status.accumulated_past_execution_time_seconds
    if current is not None and current.status == "True" and not on:
        ran = int((whole_seconds(now) - current.last_transition_time).total_seconds())
        past = (past or 0) + max(0, ran)
    return _with(
        status,
        conditions=_set(status.conditions, names.ADMITTED, on, reason, message, now, generation),
        accumulated_past_execution_time_seconds=past,
    )


def _admitted(status: WorkloadStatus) -> tuple[bool, str, str]:
    if not is_reserved(status):
        return False, names.REASON_NO_RESERVATION, "The workload holds no reservation"
    waiting = sorted(check.name for check in status.admission_checks if check.state != names.CHECK_READY)
    if waiting:
        return False, names.REASON_UNSATISFIED_CHECKS, f"Admission checks not ready: {', '.join(waiting)}"
    assignments = status.admission.pod_set_assignments if status.admission is not None else ()
    if any(one.delayed_topology_request == "Pending" and one.topology_assignment is None for one in assignments):
        return False, names.REASON_PENDING_DELAYED_TOPOLOGY, "Some pod sets still wait for their placement"
    return True, names.ADMITTED, "The workload is admitted"


def reserve(
    status: WorkloadStatus,
    *,
    admission: Admission,
    required_checks: Iterable[str],
    now: datetime,
    generation: int,
    message: str = "",
) -> WorkloadStatus:
    """The reservation, with Admitted in the same write unless required checks are not listed yet."""
    new = hold_quota(status, admission, now, generation, message)
    listed = {check.name for check in status.admission_checks}
    return sync_admitted(new, now, generation) if listed.issuperset(required_checks) else new


def hold_quota(
    status: WorkloadStatus, admission: Admission, now: datetime, generation: int, message: str = ""
) -> WorkloadStatus:
    """The reservation alone: what kept the workload from having it is over."""
    text = message or f"Quota reserved in ClusterQueue {admission.cluster_queue}"
    conditions = _set(status.conditions, names.QUOTA_RESERVED, True, names.QUOTA_RESERVED, text, now, generation)
    for type_ in (names.EVICTED, names.PREEMPTED, names.BLOCKED_ON_PREEMPTION_GATES):
        old = conds.find(conditions, type_)
        if old is not None and old.status == "True":
            before = f"Previously: {old.message}"
            conditions = _set(conditions, type_, False, names.QUOTA_RESERVED, before, now, generation)
    return _with(status, conditions=conditions, admission=admission, resource_requests=())


def unreserve(status: WorkloadStatus, reason: str, message: str, now: datetime, generation: int) -> WorkloadStatus:
    """The reservation is given back."""
    conditions = _set(status.conditions, names.QUOTA_RESERVED, False, reason, message, now, generation)
    return sync_admitted(_with(status, conditions=conditions, admission=None), now, generation)


def evict(
    status: WorkloadStatus,
    reason: str,
    message: str,
    now: datetime,
    generation: int,
    *,
    cause: str = "",
    clear_requeue_state: bool = False,
    clear_deactivation_target: bool = False,
    requeue_count: int | None = None,
    requeue_at: datetime | None = None,
    preempted_reason: str = "",
) -> WorkloadStatus:
    """Evicted=True and all that changes with it. The reservation stays until the job has stopped.

    `cause` refines the reason; only a deactivation shows it in the condition. `preempted_reason` also sets Preempted.
    """
    stored = f"{names.REASON_DEACTIVATED_DUE_TO}{cause}" if reason == names.REASON_DEACTIVATED and cause else reason
    conditions = status.conditions
    if clear_deactivation_target:
        conditions = conds.remove(conditions, names.DEACTIVATION_TARGET)
    if preempted_reason:
        conditions = _set(conditions, names.PREEMPTED, True, preempted_reason, message, now, 0)
    conditions = _set(conditions, names.EVICTED, True, stored, message, now, generation)
    if conds.is_true(conditions, names.BLOCKED_ON_PREEMPTION_GATES):
        conditions = _set(conditions, names.BLOCKED_ON_PREEMPTION_GATES, False, stored, message, now, generation)
    requeue = None if clear_requeue_state else status.requeue_state
    if requeue_count is not None or requeue_at is not None:
        old = requeue or RequeueState()
        requeue = RequeueState(
            count=old.count if requeue_count is None else requeue_count,
            requeue_at=_later(old.requeue_at, requeue_at),
        )
    return _with(
        status,
        conditions=conditions,
        requeue_state=requeue,
        admission_checks=tuple(_reset(check, now) for check in status.admission_checks),
        preemption_gates=tuple(_closed(gate, now) for gate in status.preemption_gates),
        scheduling_stats=_counted(status.scheduling_stats, reason, cause),
        cluster_name=None,
        nominated_cluster_names=(),
        unhealthy_nodes=(),
    )


def count_requeue(state: RequeueState | None, at: datetime, *, increment: bool) -> RequeueState:
    """The state after one more requeue not before `at`; only with `increment` it counts towards the limit."""
    old = state or RequeueState()
    return RequeueState(count=old.count + increment, requeue_at=_later(old.requeue_at, whole_seconds(at)))


def _later(old: datetime | None, new: datetime | None) -> datetime | None:
    if old is None or new is None:
        return new or old
    return max(old, new)


def _reset(check: AdmissionCheckState, now: datetime) -> AdmissionCheckState:
    if check.state == names.CHECK_PENDING:
        return check
    return AdmissionCheckState(
        name=check.name,
        state="Pending",
        last_transition_time=whole_seconds(now),
        message=f"Reset to Pending after eviction. Previously: {check.state}",
        requeue_after_seconds=check.requeue_after_seconds,
        retry_count=(check.retry_count or 0) + 1 if check.state == names.CHECK_RETRY else None,
    )


def _closed(gate: PreemptionGateState, now: datetime) -> PreemptionGateState:
    if gate.position == "Closed":
        return gate
    return PreemptionGateState(name=gate.name, position="Closed", last_transition_time=whole_seconds(now))


def _counted(stats: SchedulingStats | None, reason: str, cause: str) -> SchedulingStats:
    entries = list(stats.evictions) if stats is not None else []
    for position, entry in enumerate(entries):
        if (entry.reason, entry.underlying_cause) == (reason, cause):
            entries[position] = msgspec.structs.replace(entry, count=entry.count + 1)
            break
    else:
        entries.append(EvictionCount(reason=reason, underlying_cause=cause, count=1))
    return SchedulingStats(evictions=tuple(entries))


def release(status: WorkloadStatus, now: datetime, generation: int, *, again: bool | None = None) -> WorkloadStatus:
    """The job of an evicted workload has stopped: Requeued as its eviction says (or as `again` does), and the reservation is given back."""
    evicted = conds.find(status.conditions, names.EVICTED)
    if evicted is None or evicted.status != "True":
        return status
    if again is None:
        again = evicted.reason in _REQUEUED_AT_ONCE
    conditions = _set(status.conditions, names.REQUEUED, again, evicted.reason, evicted.message, now, generation)
    return unreserve(
        _with(status, conditions=conditions), names.REASON_PENDING_EVALUATION, evicted.message, now, generation
    )


def finish(status: WorkloadStatus, reason: str, message: str, now: datetime, generation: int) -> WorkloadStatus:
    """Finished=True; everything else stays as it is."""
    if conds.is_true(status.conditions, names.FINISHED):
        return status
    return _with(status, conditions=_set(status.conditions, names.FINISHED, True, reason, message, now, generation))


def report_pending(
    status: WorkloadStatus,
    reason: str,
    message: str,
    requests: Mapping[str, Mapping[str, int]] | None,
    now: datetime,
    generation: int,
    *,
    gated: bool = False,
) -> WorkloadStatus:
    """QuotaReserved=False with the reason of a refusal; the same status if it is reserved or already says so.

    `requests`: pod set -> resource -> total in base units; None leaves status.resourceRequests alone. `gated`: it would have to
    preempt but a preemption gate is closed.
    """
    if is_reserved(status):
        return status
    shown = status.resource_requests if requests is None else _requests(requests)
    current = conds.find(status.conditions, names.QUOTA_RESERVED)
    same = current is not None and (current.reason, current.message) == (
        reason,
        conds.cut(message, conds.MAX_MESSAGE_BYTES),
    )
    told = not gated or conds.is_true(status.conditions, names.BLOCKED_ON_PREEMPTION_GATES)
    if same and told and shown == status.resource_requests:
        return status
    conditions = _set(status.conditions, names.QUOTA_RESERVED, False, reason, message, now, generation)
    if gated:
        blocked = names.REASON_PREEMPTION_GATED
        conditions = _set(conditions, names.BLOCKED_ON_PREEMPTION_GATES, True, blocked, message, now, generation)
    return sync_admitted(_with(status, conditions=conditions, resource_requests=shown), now, generation)


def _requests(requests: Mapping[str, Mapping[str, int]]) -> tuple[PodSetRequest, ...]:
    return tuple(
        PodSetRequest(
            name=name, resources={resource: format_amount(resource, amount) for resource, amount in sorted(one.items())}
        )
        for name, one in requests.items()
    )


def sync_checks(status: WorkloadStatus, checks: Iterable[str], now: datetime) -> WorkloadStatus:
    """The list of admission checks is exactly this, sorted; new ones start Pending, known ones keep their state."""
    known = {check.name: check for check in status.admission_checks}
    wanted = sorted(set(checks))
    new = tuple(
        known.get(name)
        or AdmissionCheckState(name=name, state="Pending", last_transition_time=whole_seconds(now), message="")
        for name in wanted
    )
    return status if new == status.admission_checks else _with(status, admission_checks=new)


def set_check(
    status: WorkloadStatus,
    name: str,
    state: CheckState,
    message: str,
    now: datetime,
    *,
    requeue_after_s: int | None = None,
    pod_set_updates: tuple[PodSetUpdate, ...] = (),
) -> WorkloadStatus:
    """One check's new state; its time moves only when the state changes. A check that is not listed is ignored."""

    def updated(check: AdmissionCheckState) -> AdmissionCheckState:
        if check.name != name:
            return check
        return msgspec.structs.replace(
            check,
            state=state,
            message=conds.cut(message, conds.MAX_MESSAGE_BYTES),
            last_transition_time=check.last_transition_time if check.state == state else whole_seconds(now),
            requeue_after_seconds=requeue_after_s,
            pod_set_updates=pod_set_updates,
        )

    new = tuple(updated(check) for check in status.admission_checks)
    return status if new == status.admission_checks else _with(status, admission_checks=new)


def mark_requeued(
    status: WorkloadStatus, reason: str, message: str, now: datetime, generation: int, *, clear_requeue_at: bool = False
) -> WorkloadStatus:
    """Requeued=True: the workload may be queued again."""
    new = set_requeue_at(status, None) if clear_requeue_at else status
    return _with(new, conditions=_set(new.conditions, names.REQUEUED, True, reason, message, now, generation))


def set_requeue_at(status: WorkloadStatus, at: datetime | None, *, clear_state: bool = False) -> WorkloadStatus:
    """requeueState.requeueAt, only ever moved later; None clears the time, `clear_state` the whole state."""
    old = status.requeue_state
    if clear_state:
        return status if old is None else _with(status, requeue_state=None)
    if at is not None:
        new: RequeueState | None = count_requeue(old, at, increment=False)
    else:
        new = RequeueState(count=old.count) if old is not None and old.count else None
    return status if new == old else _with(status, requeue_state=new)


def without_deactivation_target(status: WorkloadStatus) -> WorkloadStatus:
    """The deactivation that was asked for is done."""
    conditions = conds.remove(status.conditions, names.DEACTIVATION_TARGET)
    return msgspec.structs.replace(status, conditions=conditions)


def set_deactivation_target(
    status: WorkloadStatus,
    reason: str,
    message: str,
    now: datetime,
    generation: int,
    *,
    clear_past_execution: bool = False,
) -> WorkloadStatus:
    """The order to deactivate the workload."""
    conditions = _set(status.conditions, names.DEACTIVATION_TARGET, True, reason, message, now, generation)
    past = None if clear_past_execution else status.accumulated_past_execution_time_seconds
    return _with(status, conditions=conditions, accumulated_past_execution_time_seconds=past)
