"""Limits of time for a workload that is admitted: pods that do not become ready, and its maximum execution time (core rules 2.9, 9.5, 9.6).

Why it exists: both are the last things the life of a workload looks at, and only the clock brings them about. Blocking other admissions
until pods are ready is the cycle's work.
"""

from __future__ import annotations

from math import ceil

import msgspec

from shared.api import names
from shared.decide import backoff
from shared.decide.lifecycle_steps import NOTHING, Evict, SetDeactivationTarget, Verdict
from shared.model.sources import ConditionSource, WorkloadSource


class PodsReadyLimits(msgspec.Struct, frozen=True, gc=False):
    """waitForPodsReady: how long pods may take, and how often and when a workload that took too long is queued again. Seconds."""

    timeout_s: float = 1800.0
    recovery_timeout_s: float = 0.0
    """For pods that were ready before; 0 = no limit."""
    backoff_limit: int | None = None
    """requeuingStrategy.backoffLimitCount; None = no limit."""
    backoff_base_s: int = 60
    backoff_max_s: int = 3600


def time_limits(workload: WorkloadSource, pods_ready: PodsReadyLimits | None, now: float) -> Verdict:
    """The step of the first limit that is passed, else the earliest time at which one will be."""
    conditions = {condition.type: condition for condition in workload.conditions}
    admitted = conditions.get(names.ADMITTED)
    if admitted is None or not admitted.status or not workload.active:
        return NOTHING
    first = _pods_ready(workload, conditions, admitted, pods_ready, now) if pods_ready is not None else NOTHING
    if first.step is not None:
        return first
    second = _execution(workload, conditions, admitted, now)
    if second.step is not None:
        return second
    return Verdict(again_at=min((v.again_at for v in (first, second) if v.again_at is not None), default=None))


def _pods_ready(
    workload: WorkloadSource,
    conditions: dict[str, ConditionSource],
    admitted: ConditionSource,
    limits: PodsReadyLimits,
    now: float,
) -> Verdict:
    evicted = conditions.get(names.EVICTED)
    if (evicted is not None and evicted.status) or _is_variant(workload):
        return NOTHING
    ready = conditions.get(names.PODS_READY)
    if ready is not None and ready.status:
        return NOTHING
    if ready is not None and ready.reason == names.REASON_WAIT_FOR_RECOVERY:
        if not limits.recovery_timeout_s:
            return NOTHING
        cause, timeout_s, since = names.REASON_WAIT_FOR_RECOVERY, limits.recovery_timeout_s, ready.changed
    else:
        cause, timeout_s, since = names.REASON_WAIT_FOR_START, limits.timeout_s, admitted.changed
    deadline = since + timeout_s
    if now < deadline:
        return Verdict(again_at=ceil(deadline))
    count = workload.requeue_count
    if backoff.exceeds_limit(count, limits.backoff_limit):
        return Verdict(
            SetDeactivationTarget(
                names.REASON_REQUEUING_LIMIT_EXCEEDED,
                f"The workload was queued again {count} times as its pods were not ready in time; "
                f"{limits.backoff_limit} is the limit",
            )
        )
    return Verdict(
        Evict(
            names.REASON_PODS_READY_TIMEOUT,
            f"The pods were not ready within {timeout_s:g}s",
            cause,
            requeue_count=count + 1,
            requeue_at=int(now) + backoff.delay(count + 1, limits.backoff_base_s, limits.backoff_max_s),
        )
    )


def _is_variant(workload: WorkloadSource) -> bool:
    return any(owner.controller and owner.kind == names.WORKLOAD for owner in workload.owners)


def _execution(
    workload: WorkloadSource, conditions: dict[str, ConditionSource], admitted: ConditionSource, now: float
) -> Verdict:
    """The time of all admissions together."""
    target = conditions.get(names.DEACTIVATION_TARGET)
    if workload.max_execution_s is None or (target is not None and target.status):
        return NOTHING
    ends = admitted.changed + workload.max_execution_s - workload.past_execution_s
    if now < ends:
        return Verdict(again_at=ends)
    reason = names.REASON_MAXIMUM_EXECUTION_TIME_EXCEEDED
    message = f"The maximum execution time of {workload.max_execution_s}s is exceeded"
    return Verdict(SetDeactivationTarget(reason, message, event=reason, clear_past_execution=True))
