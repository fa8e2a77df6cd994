"""The PodsReady condition of a workload, from what was and what its job says now (job specification 10.2)."""

from datetime import datetime

from services.watcher.workload_state import condition, is_admitted
from shared.api import conditions, names
from shared.api.conditions import Condition
from shared.api.workload import Workload

_MESSAGES = {
    names.REASON_STARTED: "All pods reached readiness and the workload is running",
    names.REASON_RECOVERED: "All pods are ready again",
    names.REASON_WAIT_FOR_START: "Not all pods are ready or succeeded",
    names.REASON_WAIT_FOR_RECOVERY: "At least one pod is not ready any more",
}


def pods_ready_condition(workload: Workload, ready: bool, now: datetime) -> Condition | None:
    """The condition to write; None if status and reason stay as they are."""
    old = condition(workload, names.PODS_READY)
    status, reason = _wanted(workload, old, ready)
    if old is not None and (old.status == "True", old.reason) == (status, reason):
        return None
    return conditions.make(
        names.PODS_READY,
        status,
        reason,
        _MESSAGES[reason],
        now=now,
        observed_generation=workload.metadata.generation,
    )


def _wanted(workload: Workload, old: Condition | None, ready: bool) -> tuple[bool, str]:
    if not is_admitted(workload):
        return False, names.REASON_WAIT_FOR_START
    recovering = old is not None and old.reason in (names.REASON_WAIT_FOR_RECOVERY, names.REASON_RECOVERED)
    if ready:
        return True, names.REASON_RECOVERED if recovering else names.REASON_STARTED
    if old is not None and (old.status == "True" or old.reason == names.REASON_WAIT_FOR_RECOVERY):
        return False, names.REASON_WAIT_FOR_RECOVERY
    return False, names.REASON_WAIT_FOR_START
