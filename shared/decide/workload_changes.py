"""What a change of a workload, from one state to the next, means for others: is its priority another, did its eviction end, how long did it run?

Why it exists: metrics, and whoever looks at two states of a workload, must mean the same. Nothing is decided about the workload itself.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from shared.api import names
from shared.model.sources import ConditionSource, WorkloadSource


class EvictionEnd(msgspec.Struct, frozen=True, gc=False):
    """An evicted workload gave its quota back. `since`: when it was evicted, seconds since the epoch."""

    cluster_queue: str
    reason: str
    since: int


def _true(workload: WorkloadSource, type_: str) -> ConditionSource | None:
    return next((c for c in workload.conditions if c.type == type_ and c.status), None)


def _holds_quota(workload: WorkloadSource) -> bool:
    return _true(workload, names.QUOTA_RESERVED) is not None or _true(workload, names.ADMITTED) is not None


def eviction_end(old: WorkloadSource | None, new: WorkloadSource) -> EvictionEnd | None:
    """The end of an eviction, if this change is one: it held quota of a ClusterQueue, and is pending again while evicted."""
    if old is None or old.admission is None or not old.admission.cluster_queue:
        return None
    evicted = _true(new, names.EVICTED)
    if evicted is None or not _holds_quota(old) or _holds_quota(new):
        return None
    return EvictionEnd(old.admission.cluster_queue, evicted.reason, evicted.changed)


def execution_s(admitted: ConditionSource | None, finished: ConditionSource | None, past_s: int) -> int | None:
    """Seconds that a finished workload was admitted in all, `past_s` before it was last evicted; None while it has not finished, or was
    not admitted at its end."""
    if admitted is None or finished is None or not (admitted.status and finished.status):
        return None
    return past_s + max(0, finished.changed - admitted.changed)


class PrioritySource(Protocol):
    """A workload's priority, and the class that it came from."""

    @property
    def priority(self) -> int: ...
    @property
    def priority_class(self) -> str: ...
    @property
    def priority_class_source(self) -> str: ...


def priority_changed(old: PrioritySource, new: PrioritySource) -> bool:
    """Was it given another WorkloadPriorityClass, or that class another value? What pods bring along counts once, at creation."""
    if new.priority_class_source != names.WORKLOAD_PRIORITY_CLASS:
        return False
    return (old.priority_class, old.priority) != (new.priority_class, new.priority)
