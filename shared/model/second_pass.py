"""Workloads that hold quota and wait for a second look: their placement was put off until their checks passed (core rule 4.8).

Why it exists: such a workload is in no queue, yet a cycle must take it. Each request waits 1 s, twice as long after every failure, at most
30 s; the need is judged again when the wait is over. Placing is not done here.
"""

from __future__ import annotations

from collections.abc import Callable

from shared.model.workload import WorkloadInfo

LONGEST_DELAY_S = 30


def needs_second_pass(info: WorkloadInfo) -> bool:
    """Does it hold quota, with all checks passed, and lack the placement that was put off?"""
    if info.finished or info.admission is None or info.on_hold or info.is_true("Evicted") or info.is_true("Admitted"):
        return False
    passed = bool(info.checks) and all(state == "Ready" for _, state in info.checks)
    return passed and any(pod_set.delayed_topology for pod_set in info.admission.pod_sets)


def delay(attempt: int) -> int:
    """Seconds before the attempt of this number (from 1; 0 means the first as well)."""
    return min(1 << min(max(attempt - 1, 0), 10), LONGEST_DELAY_S)


class SecondPasses:
    """Requests by workload, each with the time it becomes due."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}

    def request(self, info: WorkloadInfo, attempt: int, now: float) -> bool:
        """Ask for attempt `attempt`. False if there is no need (then an earlier request is void) or one is waiting."""
        if not needs_second_pass(info):
            self.cancel(info.key)
            return False
        if info.key in self._due:
            return False
        self._due[info.key] = now + delay(attempt)
        return True

    def cancel(self, key: str) -> None:
        """The workload is gone or left its queue."""
        self._due.pop(key, None)

    def next_due(self) -> float | None:
        """When the earliest request is due."""
        return min(self._due.values(), default=None)

    def ready(self, now: float, find: Callable[[str], WorkloadInfo | None]) -> list[WorkloadInfo]:
        """Take the requests that are due and still needed, earliest first; `find` gives the newest state of a workload."""
        due = sorted((at, key) for key, at in self._due.items() if at <= now)
        found = []
        for _, key in due:
            del self._due[key]
            info = find(key)
            if info is not None and needs_second_pass(info):
                found.append(info)
        return found
