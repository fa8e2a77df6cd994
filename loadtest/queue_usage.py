"""How much of their quota ClusterQueues say is used, over time: the statistic of Kueue's performance suite, from the queues' own status.

It is as late as the controller's status writes are; what admissions really held is in the timelines. CPU alone is counted.
"""

from __future__ import annotations

import msgspec

from shared.api.quantity import request_units


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    resource_version: str = "0"


class _Resource(msgspec.Struct, frozen=True):
    name: str
    total: str | int = "0"


class _Flavor(msgspec.Struct, frozen=True):
    name: str
    resources: tuple[_Resource, ...] = ()


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    flavors_usage: tuple[_Flavor, ...] = ()


class SeenQueue(msgspec.Struct, frozen=True):
    """The part of a ClusterQueue that is read."""

    metadata: _Meta
    status: _Status = _Status()

    @property
    def milli(self) -> int:
        """CPU in use, in thousandths."""
        flavors = self.status.flavors_usage
        return sum(request_units("cpu", r.total) for flavor in flavors for r in flavor.resources if r.name == "cpu")


class QueueUsage:
    """Tell it each state with the time it was seen (seconds)."""

    def __init__(self) -> None:
        self._first: dict[str, float] = {}
        self._last: dict[str, tuple[float, int]] = {}
        self._used: dict[str, float] = {}

    def saw(self, queue: SeenQueue, at: float) -> None:
        """What was in use at the previous event counts until this one."""
        name = queue.metadata.name
        before = self._last.get(name)
        if before is not None:
            self._used[name] = self._used.get(name, 0.0) + before[1] * (at - before[0])
        self._first.setdefault(name, at)
        self._last[name] = (at, queue.milli)

    def percent(self, nominal_milli: dict[str, int]) -> float | None:
        """Of the quota of these queues between the earliest event of any and the latest; None if nothing was seen."""
        seen = [name for name in nominal_milli if name in self._last]
        if not seen:
            return None
        elapsed = max(self._last[n][0] for n in seen) - min(self._first[n] for n in seen)
        quota = sum(nominal_milli.values()) * elapsed
        return 100 * sum(self._used.get(name, 0.0) for name in seen) / quota if quota else None
