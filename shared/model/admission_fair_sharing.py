"""Admission fair sharing: what each LocalQueue has consumed, decayed over time, and the order that follows (core rule 8.3).

Why it exists: LocalQueues that share a ClusterQueue take turns by past usage instead of by priority and age alone. The truth is
`status.fairSharing.admissionFairSharingStatus` of the LocalQueue, written by one service that samples; every other one follows it
and adds what is not in it yet: entry penalties of workloads that were decided to be admitted but do not run so far.

A penalty lives from the decision until its workload is Admitted (then it becomes consumption) or will not be admitted.
Amounts are whole nano-units (of cores, bytes, pieces), the finest a Kubernetes quantity holds. No clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import msgspec

from shared.model.workload import Admission, WorkloadInfo

Nanos = dict[str, int]
"""Nano-units per resource; an absent resource is 0."""

_NANO_OF_MILLI = 10**6
_NANO = 10**9


class AfsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`admissionFairSharing` of the configuration."""

    half_life_s: float = 0.0
    """usageHalfLifeTime: after it, half of the past counts. 0 = no history."""
    sampling_s: float = 300.0
    """usageSamplingInterval."""
    weights: Mapping[str, float] = {}
    """resourceWeights; a resource not named here has weight 1."""


class UsageRecord(msgspec.Struct, frozen=True):
    """admissionFairSharingStatus: consumption as of `updated` (seconds since the epoch)."""

    consumed: Nanos
    updated: float


def alpha(elapsed_s: float, half_life_s: float) -> float:
    """The share that `elapsed_s` of new usage has in the average; 0 without a half-life."""
    return 1.0 - 0.5 ** (max(0.0, elapsed_s) / half_life_s) if half_life_s > 0 else 0.0


def in_nanos(amounts: Mapping[str, int]) -> Nanos:
    """Amounts in model units (milli-cpu, bytes, pieces) as nano-units."""
    return {name: amount * (_NANO_OF_MILLI if name == "cpu" else _NANO) for name, amount in amounts.items() if amount}


def scaled(amounts: Mapping[str, int], factor: float) -> Nanos:
    """Each amount times a factor, rounded down to whole nano-units."""
    numerator, denominator = factor.as_integer_ratio()
    return {name: found for name, amount in amounts.items() if (found := amount * numerator // denominator)}


def added(left: Mapping[str, int], right: Mapping[str, int]) -> Nanos:
    """The sum, without zeros."""
    total = dict(left)
    for name, amount in right.items():
        total[name] = total.get(name, 0) + amount
    return {name: amount for name, amount in total.items() if amount}


def decayed(consumed: Mapping[str, int], admitted: Mapping[str, int], elapsed_s: float, half_life_s: float) -> Nanos:
    """Consumption after `elapsed_s` seconds with this usage. Nothing without a half-life."""
    if half_life_s <= 0:
        return {}
    new = alpha(elapsed_s, half_life_s)
    return added(scaled(consumed, 1.0 - new), scaled(admitted, new))


def entry_penalty(requests: Mapping[str, int], settings: AfsSettings) -> Nanos:
    """What a workload asking for `requests` (model units) is charged in advance: as if it had run for one sampling interval."""
    return scaled(in_nanos(requests), alpha(settings.sampling_s, settings.half_life_s))


def weighted_usage(consumed: Mapping[str, int], settings: AfsSettings, weight: float) -> float:
    """The number LocalQueues are ordered by; infinite for weight 0."""
    if weight <= 0:
        return inf
    total = 0.0
    for name in sorted(consumed):
        total += settings.weights.get(name, 1.0) * (consumed[name] / _NANO)
    return total / weight


def charged_requests(info: WorkloadInfo, covered: Mapping[str, int]) -> dict[str, int]:
    """What a workload asks for in all, of the resources that a ClusterQueue covers (pods included)."""
    total: dict[str, int] = {}
    for pod_set in info.pod_sets:
        for name, amount in {**pod_set.requests, "pods": pod_set.count}.items():
            if name in covered:
                total[name] = total.get(name, 0) + amount
    return total


def held_resources(admission: Admission) -> dict[str, int]:
    """What a reservation holds, summed over pod sets and flavors."""
    total: dict[str, int] = {}
    for pod_set in admission.pod_sets:
        for name, amount in pod_set.usage.items():
            total[name] = total.get(name, 0) + amount
    return total


class _Account:
    """One LocalQueue."""

    __slots__ = ("admitted", "ahead", "consumed", "penalties", "updated", "usage", "weight")

    def __init__(self) -> None:
        self.weight = 1.0
        self.consumed: Nanos = {}
        self.updated: float | None = None
        self.penalties: dict[str, Nanos] = {}
        self.admitted: Nanos = {}
        self.ahead = False
        self.usage: float | None = None


class AdmissionFairSharing:
    """Consumption and penalties of all LocalQueues, by key `namespace/name`."""

    def __init__(self, settings: AfsSettings) -> None:
        self.settings = settings
        self._accounts: dict[str, _Account] = {}
        self._penalized: dict[str, str] = {}
        self._counted: dict[str, tuple[str, Nanos]] = {}

    # --- LocalQueues -----------------------------------------------------------------------------------------------

    def set_weight(self, local_queue: str, weight: float) -> None:
        """spec.fairSharing.weight of a LocalQueue."""
        account = self._account(local_queue)
        account.weight = weight
        account.usage = None

    def take_record(self, local_queue: str, record: UsageRecord) -> None:
        """A status was read: it counts unless what is held is as new, which then includes more."""
        account = self._account(local_queue)
        if account.updated is not None and record.updated <= account.updated:
            if record.updated == account.updated and record.consumed == account.consumed:
                account.ahead = False
            return
        account.consumed = dict(record.consumed)
        account.updated = record.updated
        account.ahead = False
        account.usage = None

    def forget(self, local_queue: str) -> None:
        """The LocalQueue is gone, and its history with it. What still runs counts if it comes back."""
        account = self._accounts.pop(local_queue, None)
        if account is None:
            return
        for key in account.penalties:
            del self._penalized[key]
        if account.admitted:
            self._account(local_queue).admitted = account.admitted

    # --- workloads -------------------------------------------------------------------------------------------------

    def penalize(self, key: str, local_queue: str, requests: Mapping[str, int]) -> None:
        """It is decided that this workload gets quota (model units); an earlier penalty of it is replaced."""
        self.drop(key)
        account = self._account(local_queue)
        account.penalties[key] = entry_penalty(requests, self.settings)
        account.usage = None
        self._penalized[key] = local_queue

    def drop(self, key: str) -> None:
        """The workload will not be admitted after all: its penalty is void."""
        local_queue = self._penalized.pop(key, None)
        if local_queue is not None:
            account = self._accounts[local_queue]
            del account.penalties[key]
            account.usage = None

    def follow(self, before: WorkloadInfo | None, info: WorkloadInfo, covered: Mapping[str, int] | None) -> None:
        """A workload changed from `before` (None: not known). `covered`: resources of its ClusterQueue, None if that does not order by usage.

        A workload that is Admitted when first seen is taken as counted in its LocalQueue's record already.
        """
        runs = info.admission is not None and info.is_true("Admitted")
        self._count(info, runs)
        if before is None:
            return
        if runs and not (before.admission is not None and before.is_true("Admitted")):
            if covered is not None:
                self._settle(info, covered)
            self.drop(info.key)
        elif before.queue_key != info.queue_key or (not info.active and info.admission is None):
            self.drop(info.key)

    def gone(self, key: str) -> None:
        """The workload is finished or deleted."""
        self.drop(key)
        counted = self._counted.pop(key, None)
        if counted is not None:
            self._take_off(*counted)

    def _settle(self, info: WorkloadInfo, covered: Mapping[str, int]) -> None:
        """It runs now: its penalty becomes consumption, as of the moment it was admitted."""
        account = self._account(info.queue_key)
        penalty = account.penalties.get(info.key)
        if penalty is None:
            penalty = entry_penalty(charged_requests(info, covered), self.settings)
        condition = info.condition("Admitted")
        at = float(condition.changed) if condition is not None else 0.0
        before = account.updated if account.updated is not None else at
        past = decayed(account.consumed, account.admitted, at - before, self.settings.half_life_s)
        account.consumed = added(past, penalty)
        account.updated = max(at, before)
        account.ahead = True
        account.usage = None

    def _count(self, info: WorkloadInfo, runs: bool) -> None:
        """Keep the sum of what Admitted workloads hold."""
        before = self._counted.pop(info.key, None)
        if before is not None:
            self._take_off(*before)
        if runs and info.admission is not None:
            amounts = in_nanos(held_resources(info.admission))
            self._counted[info.key] = (info.queue_key, amounts)
            account = self._account(info.queue_key)
            account.admitted = added(account.admitted, amounts)

    def _take_off(self, local_queue: str, amounts: Nanos) -> None:
        account = self._account(local_queue)
        account.admitted = added(account.admitted, {name: -amount for name, amount in amounts.items()})

    # --- questions -------------------------------------------------------------------------------------------------

    def usage(self, local_queue: str) -> float:
        """What workloads of this LocalQueue are ordered by, smaller first."""
        account = self._accounts.get(local_queue)
        if account is None:
            return 0.0
        if account.usage is None:
            total: Mapping[str, int] = account.consumed
            for penalty in account.penalties.values():
                total = added(total, penalty)
            account.usage = weighted_usage(total, self.settings, account.weight)
        return account.usage

    def sampled(self, local_queue: str, now: float) -> UsageRecord:
        """The record to write at `now`. Nothing changes here until the written status comes back by `take_record`."""
        account = self._account(local_queue)
        before = account.updated if account.updated is not None else now
        consumed = decayed(account.consumed, account.admitted, now - before, self.settings.half_life_s)
        return UsageRecord(consumed, max(now, before))

    def next_sample(self, local_queue: str) -> float | None:
        """When a record is due to be written: None = at once (never written, or something was admitted since)."""
        account = self._accounts.get(local_queue)
        if account is None or account.updated is None or account.ahead:
            return None
        return account.updated + self.settings.sampling_s

    def _account(self, local_queue: str) -> _Account:
        account = self._accounts.get(local_queue)
        if account is None:
            account = self._accounts[local_queue] = _Account()
        return account
