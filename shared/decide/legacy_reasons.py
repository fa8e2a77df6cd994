"""Reasons of conditions as they were before the gate UnadmittedWorkloadsObservability (core rules 2.1, 2.2, 2.8).

There were fewer of them, and Admitted=False was only told when it ended a run.

Why it exists: with the gate off every writer has to say the old words, and every reader of its own words has to know them. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from shared.api import conditions as conds
from shared.api import names
from shared.api.conditions import Condition, Conditions
from shared.api.workload_status import WorkloadStatus

PENDING: Final = "Pending"
WAITING: Final = "Waiting"
UNSATISFIED_CHECKS: Final = "UnsatisfiedChecks"
NO_RESERVATION_UNSATISFIED_CHECKS: Final = "NoReservationUnsatisfiedChecks"

_BY_SCHEDULER: Final[Mapping[str, str]] = {names.REASON_WAITING_FOR_PODS_READY: WAITING}
_BY_CONTROLLER: Final[Mapping[str, str]] = {
    names.REASON_PENDING_EVALUATION: PENDING,
    names.REASON_MISCONFIGURED: names.REASON_INADMISSIBLE,
    names.REASON_SUSPENDED: names.REASON_INADMISSIBLE,
}


def of_scheduler(reason: str) -> str:
    """What the scheduler calls a refusal: nearly all of them are alike."""
    return _BY_SCHEDULER.get(reason, PENDING)


def of_controller(reason: str) -> str:
    """What everybody else calls it, as far as there is an old word."""
    return _BY_CONTROLLER.get(reason, reason)


def in_old_words(before: WorkloadStatus, after: WorkloadStatus) -> WorkloadStatus:
    """`after`, a status to be written in the place of `before`, with the old reasons of reservation and admission."""
    conditions = after.conditions
    reserved = conds.find(conditions, names.QUOTA_RESERVED)
    if reserved is not None and reserved.status == "False":
        conditions = _replaced(conditions, _with_reason(reserved, of_controller(reserved.reason)))
    admitted = conds.find(conditions, names.ADMITTED)
    if admitted is not None and admitted.status == "False":
        old = conds.find(before.conditions, names.ADMITTED)
        if old is None:
            conditions = conds.remove(conditions, names.ADMITTED)
        else:
            new = _with_reason(admitted, _not_admitted(admitted.reason, after))
            conditions = _replaced(conditions, new if old.status == "True" else old)
    return after if conditions == after.conditions else msgspec.structs.replace(after, conditions=conditions)


def _not_admitted(reason: str, status: WorkloadStatus) -> str:
    if reason == names.REASON_UNSATISFIED_CHECKS:
        return UNSATISFIED_CHECKS
    unsatisfied = any(check.state != names.CHECK_READY for check in status.admission_checks)
    return NO_RESERVATION_UNSATISFIED_CHECKS if reason == names.REASON_NO_RESERVATION and unsatisfied else reason


def _with_reason(condition: Condition, reason: str) -> Condition:
    return condition if condition.reason == reason else msgspec.structs.replace(condition, reason=reason)


def _replaced(conditions: Conditions, new: Condition) -> Conditions:
    """As it stands, its time included."""
    return tuple(new if condition.type == new.type else condition for condition in conditions)
