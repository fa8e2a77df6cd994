"""Partial admission: fewer pods than asked for, when all of them do not fit (core rule 9.1).

Why it exists: a pod set with `minCount` below `count` may run smaller. The largest acceptable size is found by bisection; that
a smaller size is acceptable whenever a larger one is, is assumed and not checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from shared.model.workload import PodSetInfo, WorkloadInfo

Found = TypeVar("Found")


def slack(pod_sets: tuple[PodSetInfo, ...]) -> int:
    """How many pods could be left out altogether; 0 = not reducible."""
    return sum(_spare(pod_set) for pod_set in pod_sets)


def _spare(pod_set: PodSetInfo) -> int:
    return max(0, pod_set.count - pod_set.min_count) if pod_set.min_count is not None else 0


def reduced(pod_sets: tuple[PodSetInfo, ...], step: int) -> tuple[PodSetInfo, ...]:
    """The pod sets at this step of the search: step 0 = all pods, step `slack` = the minimum of each."""
    total = slack(pod_sets)
    return tuple(_shrunk(pod_set, pod_set.count - _spare(pod_set) * step // total) for pod_set in pod_sets)


def _shrunk(pod_set: PodSetInfo, count: int) -> PodSetInfo:
    if count == pod_set.count:
        return pod_set
    return msgspec.structs.replace(pod_set, count=count, requests=scaled(pod_set, count))


def scaled(pod_set: PodSetInfo, count: int) -> dict[str, int]:
    """What `count` pods of this pod set ask for: the share of one pod (integer) times the count."""
    if pod_set.count == 0:
        return dict.fromkeys(pod_set.requests, 0)
    return {resource: amount // pod_set.count * count for resource, amount in pod_set.requests.items()}


def largest(info: WorkloadInfo, attempt: Callable[[WorkloadInfo], Found | None]) -> Found | None:
    """What `attempt` finds for the largest acceptable size (None = not acceptable); None if no size is."""
    total = slack(info.pod_sets)
    if total == 0:
        return None
    low, high = 0, total + 1
    best: Found | None = None
    while low < high:
        middle = (low + high) // 2
        found = None
        if middle <= total:
            found = attempt(msgspec.structs.replace(info, pod_sets=reduced(info.pod_sets, middle)))
        if found is not None:
            best, high = found, middle
        else:
            low = middle + 1
    return best
