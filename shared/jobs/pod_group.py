"""Groups of plain pods that are queued as one job: which pods count, are too many, or are replaced, and when it is over (job specification 14.6-14.11).

Pure: a group is the tuple of its pods and the time. Order never depends on the order in which pods arrive.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from shared.api import names
from shared.jobs.pod_view import (
    Pod,
    condition,
    has_finalizer,
    is_active,
    is_deleting,
    is_gated,
    is_ready,
    is_retriable,
    is_terminated,
    occupies_node,
    role,
    total_count,
)
from shared.jobs.podset_info import PermanentError

MAX_ROLES = 18
_LONG_AGO = datetime.fromtimestamp(0, UTC)


class IncompleteGroup(PermanentError):
    """Not all pods are there yet."""


class Composition(msgspec.Struct, frozen=True):
    """What a group's pods are to its Workload. `absent`: pods that are missing."""

    kept: tuple[Pod, ...]
    excess: tuple[Pod, ...] = ()
    replaced: tuple[Pod, ...] = ()
    absent: int = 0


def sorted_pods(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """The eldest first; it speaks for the group."""
    return tuple(sorted(pods, key=lambda pod: (_created(pod), pod.metadata.name)))


def youngest(pods: Iterable[Pod]) -> datetime:
    """When the last of them was made."""
    return max(map(_created, pods), default=_LONG_AGO)


def is_fast(pods: Sequence[Pod]) -> bool:
    """One pod is enough to ask for the whole group."""
    return bool(pods) and pods[0].metadata.annotations.get(names.POD_GROUP_FAST_ADMISSION) == "true"


def is_serving(pods: Sequence[Pod]) -> bool:
    """Its pods are replaced for ever: it never finishes by itself."""
    return bool(pods) and pods[0].metadata.annotations.get(names.POD_GROUP_SERVING) == "true"


def in_order_of_keeping(active: Iterable[Pod]) -> list[Pod]:
    """Those at the end go first where there are too many."""
    return sorted(active, key=lambda pod: (not has_finalizer(pod), is_gated(pod), _created(pod), pod.metadata.name))


def in_order_of_replacement(inactive: Iterable[Pod], now: datetime) -> list[Pod]:
    """Those at the end are replaced first: the one that failed longest ago is the last."""
    youngest_end_first = sorted(inactive, key=lambda pod: (_created(pod), pod.metadata.name))
    youngest_end_first.sort(key=lambda pod: _ended(pod, now), reverse=True)
    return sorted(youngest_end_first, key=lambda pod: not has_finalizer(pod))


def compose(pods: Sequence[Pod], counts: Mapping[str, int], now: datetime) -> Composition:
    """`counts`: pods by role, as the Workload has them. Pods of another role are not kept."""
    fast = is_fast(pods)
    by_role: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        by_role[role(pod)].append(pod)
    kept: list[Pod] = []
    excess: list[Pod] = []
    replaced: list[Pod] = []
    absent = 0
    for name, count in counts.items():
        active = [pod for pod in by_role[name] if is_active(pod)]
        inactive = [pod for pod in by_role[name] if not is_active(pod)]
        absent += (1 if count > 0 and not active else 0) if fast else max(0, count - len(active))
        if len(active) > count:
            active = in_order_of_keeping(active)
            excess += active[count:]
        kept += active[:count]
        over = min(len(inactive), len(inactive) + len(active) - count)
        if over > 0:
            inactive = in_order_of_replacement(inactive, now)
            replaced += inactive[-over:]
            inactive = inactive[:-over]
        kept += inactive
    return Composition(sorted_pods(kept), tuple(excess), tuple(replaced), absent)


def roles(pods: Sequence[Pod]) -> dict[str, tuple[Pod, int]]:
    """Role to its eldest active pod and count, in order of their names: the pod sets to ask for. Raises PermanentError."""
    active = [pod for pod in pods if is_active(pod)]
    if is_fast(pods):
        if not active:
            raise IncompleteGroup("the group has no pod that could run")
        return {role(active[0]): (active[0], _total(pods))}
    found: dict[str, tuple[Pod, int]] = {}
    for pod in active:
        first, count = found.get(role(pod), (pod, 0))
        found[role(pod)] = (first, count + 1)
    if len(found) > MAX_ROLES:
        raise PermanentError(f"a group has at most {MAX_ROLES} roles, this one has {len(found)}")
    return dict(sorted(found.items()))


def check_complete(pods: Sequence[Pod]) -> None:
    """Raises PermanentError saying why no Workload can be made of the pods (yet)."""
    total = _total(pods)
    active = sum(is_active(pod) for pod in pods)
    index = pods[0].metadata.labels.get(names.POD_GROUP_POD_INDEX)
    if index and not (index.isascii() and index.isdigit() and int(index) < total):
        raise PermanentError(f"the index {index!r} of pod {pods[0].metadata.name} is not in 0 to {total - 1}")
    if not is_fast(pods) and active < total:
        # Not how many there are: each pod would bring another Event.
        raise IncompleteGroup(f"not all {total} pods of the group are there")
    queue = pods[0].metadata.labels.get(names.QUEUE_NAME_LABEL, "")
    for pod in pods:
        if pod.status.phase == "Failed":
            continue
        if pod.metadata.labels.get(names.QUEUE_NAME_LABEL, "") != queue:
            raise PermanentError(f"pod {pod.metadata.name} names another queue than {queue!r}")
        if total_count(pod.metadata) != total:
            raise PermanentError(f"pod {pod.metadata.name} counts another total than {total}")


def surplus(pods: Sequence[Pod]) -> tuple[Pod, ...]:
    """Active pods beyond the total count, before there is a Workload."""
    return tuple(in_order_of_keeping(pod for pod in pods if is_active(pod))[_total(pods) :])


def same_shape(wanted: Mapping[str, int], present: Sequence[tuple[str, int]], *, finished: bool) -> bool:
    """Whether a Workload with the pod sets `present` stands for a group of these roles: nothing more than it has. Missing pods do not matter."""
    if not finished and len(present) < len(wanted):
        return False
    at = 0
    for name, count in wanted.items():
        while at < len(present) and present[at][0] != name:
            at += 1
        if at == len(present) or (not finished and present[at][1] < count):
            return False
        at += 1
    return True


def is_suspended(pods: Sequence[Pod]) -> bool:
    """There is a pod to let run, or that will not run any more."""
    return any(is_gated(pod) or is_terminated(pod) for pod in pods)


def finished(pods: Sequence[Pod]) -> str | None:
    """The message of its end, None while it may go on."""
    total = total_count(pods[0].metadata) if pods else None
    if total is None or is_serving(pods):
        return None
    succeeded = sum(pod.status.phase == "Succeeded" for pod in pods)
    given_up = all(map(is_terminated, pods)) and not all(map(is_retriable, pods))
    return f"Pods succeeded: {succeeded}/{total}." if succeeded == total or given_up else None


def ready(pods: Sequence[Pod]) -> bool:
    """All pods are there, and ready."""
    total = total_count(pods[0].metadata) if pods else None
    return total is not None and len(pods) >= total and all(map(is_ready, pods))


def active(pods: Iterable[Pod], now: datetime, *, fast_release: bool = False) -> bool:
    """Some pod holds on to its node. `fast_release`: one that is being deleted does not count."""
    return any(occupies_node(pod, now) and not (fast_release and is_deleting(pod)) for pod in pods)


def reclaimable(pods: Sequence[Pod]) -> dict[str, int]:
    """Pods by role that have succeeded; none of a serving group."""
    found: dict[str, int] = {}
    if not is_serving(pods):
        for pod in pods:
            if pod.status.phase == "Succeeded":
                found[role(pod)] = found.get(role(pod), 0) + 1
    return found


def copied_labels(pods: Iterable[Pod], keys: Iterable[str]) -> dict[str, str]:
    """Labels of the pods under these keys. Raises PermanentError where two pods do not agree."""
    found: dict[str, str] = {}
    keys = tuple(keys)
    for pod in pods:
        for key in keys:
            value = pod.metadata.labels.get(key)
            if value is not None and found.setdefault(key, value) != value:
                raise PermanentError(f"pods of the group have different values of the label {key}")
    return found


def _total(pods: Sequence[Pod]) -> int:
    total = total_count(pods[0].metadata)
    if total is None:
        raise PermanentError(f"pod {pods[0].metadata.name} does not say how many pods its group has")
    return total


def _created(pod: Pod) -> datetime:
    return pod.metadata.creation_timestamp or _LONG_AGO


def _ended(pod: Pod, now: datetime) -> datetime:
    containers = condition(pod, "ContainersReady")
    failed = containers.last_transition_time if containers is not None and _is_failure(containers) else None
    return min(failed or now, pod.metadata.deletion_timestamp or now)


def _is_failure(found: msgspec.Struct) -> bool:
    return (getattr(found, "status", ""), getattr(found, "reason", "")) == ("False", "PodFailed")
