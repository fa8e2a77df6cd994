"""What the change of a workload from one projection to the next means for counters and histograms. Pure.

Times in conditions have whole seconds, so waits do too.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from shared.api import names
from shared.decide.workload_changes import eviction_end, execution_s
from shared.events.objects import Condition, Workload


class Observation(msgspec.Struct, frozen=True):
    """One increment or one observed value of a family, labels in the table's order (without the role)."""

    name: str
    labels: tuple[str, ...]
    value: float = 1.0


def find(workload: Workload, type_: str) -> Condition | None:
    """The condition of that type, if there is one."""
    return next((c for c in workload.conditions if c.type == type_), None)


def true(workload: Workload, type_: str) -> Condition | None:
    """The condition of that type, if it is true."""
    condition = find(workload, type_)
    return condition if condition is not None and condition.status else None


def became(old: Workload, new: Workload, type_: str) -> Condition | None:
    """The condition, if it became true, or was true and became true anew (another transition time)."""
    now = true(new, type_)
    if now is None:
        return None
    before = true(old, type_)
    return now if before is None or before.changed != now.changed else None


def waiting_since(workload: Workload) -> int:
    """When the present wait began: creation, or the last requeue (seconds)."""
    requeued = true(workload, "Requeued")
    return max(workload.created, requeued.changed if requeued else 0)


def observations(old: Workload, new: Workload) -> list[Observation]:
    """Counters and histograms touched by the step from `old` to `new`, two states of one workload."""
    found: list[Observation] = []
    if old.uid != new.uid or old.finished:
        return found
    cluster_queue = next((a.cluster_queue for a in (new.admission, old.admission) if a is not None), "")
    queue = (new.queue_name or old.queue_name, new.namespace)
    priority_class = new.priority_class or old.priority_class
    local = (*queue, priority_class)

    def both(name: str, value: float = 1.0) -> None:
        found.append(Observation(name, (cluster_queue, priority_class), value))
        found.append(Observation(f"local_queue_{name}", local, value))

    if new.finished:
        both("finished_workloads_total")
        finished = true(new, "Finished")
        ran = execution_s(true(old, "Admitted"), finished, old.past_execution_s)
        if ran is not None:
            both("execution_time_seconds", ran)
        if finished and finished.reason == names.REASON_SLICE_REPLACED:
            found.append(Observation("replaced_workload_slices_total", (cluster_queue,)))
        return found
    reserved = became(old, new, "QuotaReserved")
    if reserved:
        both("quota_reserved_workloads_total")
        both("quota_reserved_wait_time_seconds", max(0, reserved.changed - waiting_since(old)))
    admitted = became(old, new, "Admitted")
    if admitted:
        both("admitted_workloads_total")
        both("admission_wait_time_seconds", max(0, admitted.changed - waiting_since(old)))
        holding = true(new, "QuotaReserved")
        if holding and new.checks:
            both("admission_checks_wait_time_seconds", max(0, admitted.changed - holding.changed))
    _ready(old, new, both)
    found += _evictions(old, new, cluster_queue, queue, priority_class)
    return found


def _ready(old: Workload, new: Workload, both: Callable[[str, float], None]) -> None:
    ready = became(old, new, names.PODS_READY)
    if ready:
        both("ready_wait_time_seconds", max(0, ready.changed - waiting_since(new)))
        admitted = true(new, "Admitted")
        if admitted:
            both("admitted_until_ready_wait_time_seconds", max(0, ready.changed - admitted.changed))


def _evictions(
    old: Workload, new: Workload, cluster_queue: str, queue: tuple[str, str], priority_class: str
) -> list[Observation]:
    found: list[Observation] = []
    evicted = became(old, new, "Evicted")
    if evicted:
        reason, cause = why_evicted(old, evicted)
        labels = (cluster_queue, reason, cause, priority_class)
        found.append(Observation("evicted_workloads_total", labels))
        found.append(Observation("local_queue_evicted_workloads_total", (*queue, reason, cause, priority_class)))
        ready = true(old, names.PODS_READY)
        if ready:
            lasted = max(0, evicted.changed - ready.changed)
            found.append(Observation("pods_ready_to_evicted_time_seconds", (cluster_queue, reason, cause), lasted))
    end, released = eviction_end(old, new), find(new, "QuotaReserved")
    if end is not None and released is not None:
        reason, _ = split_reason(end.reason)
        waited = max(0, released.changed - end.since)
        found.append(Observation("workload_eviction_latency_seconds", (end.cluster_queue, reason), waited))
    return found


def why_evicted(old: Workload, evicted: Condition) -> tuple[str, str]:
    """Reason and cause of an eviction. The cause of PodsReadyTimeout is what the workload was waiting for when time was up."""
    if evicted.reason == names.REASON_PODS_READY_TIMEOUT:
        waiting = find(old, names.PODS_READY)
        recovering = waiting is not None and waiting.reason == names.REASON_WAIT_FOR_RECOVERY
        return evicted.reason, names.REASON_WAIT_FOR_RECOVERY if recovering else names.REASON_WAIT_FOR_START
    return split_reason(evicted.reason)


def split_reason(reason: str) -> tuple[str, str]:
    """`DeactivatedDueToX` is reason Deactivated with cause X; others have no cause."""
    head, marker, cause = reason.partition("DeactivatedDueTo")
    return ("Deactivated", cause) if marker and not head else (reason, "")
