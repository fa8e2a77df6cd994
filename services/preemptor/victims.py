"""Whether victims free their quota: how late each is, and how often it was asked again. Level-triggered, no clock of its own.

A victim is a workload that is evicted and still holds a reservation, or one with a decision to preempt in the log that has no outcome. Quota is
released by the gateway once the job has stopped; here is only noticed that it takes too long.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from services.preemptor.workload_steps import condition
from shared.api import names
from shared.events.objects import Workload


class Lateness(msgspec.Struct, frozen=True):
    """What to do about a victim: nothing before `again_at`, or ask it again (`repeat`: for which time, from 1)."""

    state: Literal["free", "in time", "late"]
    again_at: float | None = None
    repeat: int = 0


class Victims:
    """Evicted workloads that were asked again, by key; what has freed its quota is forgotten."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._asked: dict[str, tuple[str, int, float]] = {}

    def look(self, workload: Workload, now: float) -> Lateness:
        """Is this workload a victim that takes too long? Each eviction is counted by itself; one that is late counts as asked again."""
        evicted = condition(workload, names.EVICTED)
        if evicted is None or not evicted.status or workload.admission is None or workload.finished:
            self.forget(workload.key)
            return Lateness("free")
        eviction = f"{workload.uid}/{workload.evictions}/{evicted.changed}"
        known, repeats, last = self._asked.get(workload.key, ("", 0, 0.0))
        if known != eviction:
            repeats, last = 0, float(evicted.changed)
        if now < last + self._timeout_s:
            return Lateness("in time", last + self._timeout_s)
        self._asked[workload.key] = (eviction, repeats + 1, now)
        return Lateness("late", now + self._timeout_s, repeats + 1)

    def repeats(self, key: str) -> int:
        """How often this workload was asked again for its present eviction."""
        return self._asked.get(key, ("", 0, 0.0))[1]

    def forget(self, key: str) -> None:
        """It is gone, or free."""
        self._asked.pop(key, None)

    def stuck(self, attempts: int) -> int:
        """How many were asked again at least so often."""
        return sum(repeats >= attempts for _, repeats, _ in self._asked.values())
