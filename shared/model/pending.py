"""All pending workloads: which LocalQueue and ClusterQueue they wait in, how they enter, come back, park and wake.

Why it exists: the placement rules of Kueue's queue manager, as plain data that can be folded from messages and driven by a
cycle. It decides nothing about quota. Namespace matching is asked of its owner through `matches`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import partial

import msgspec

from shared.model.pending_groups import Item, SortKey
from shared.model.pending_queue import PendingQueue, Preemptor
from shared.model.workload import WorkloadInfo, queue_timestamp


class RequeueReason(StrEnum):
    """Why a head comes back."""

    GENERIC = ""
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    NO_FIT = "NoFit"
    PREEMPTION_NO_CANDIDATES = "PreemptionNoCandidates"
    PREEMPTION_GATED = "PreemptionGated"
    PENDING_PREEMPTION = "PendingPreemption"
    PREEMPTION_FAILED = "PreemptionFailed"
    PENDING_MIGRATION = "PendingMigration"
    FAILED_AFTER_NOMINATION = "FailedAfterNomination"


_WAITS_FOR_VICTIMS = frozenset({RequeueReason.PENDING_PREEMPTION, RequeueReason.PENDING_MIGRATION})
_IMMEDIATE = _WAITS_FOR_VICTIMS | {RequeueReason.FAILED_AFTER_NOMINATION, RequeueReason.PREEMPTION_FAILED}
_HOPELESS = frozenset({RequeueReason.NO_FIT, RequeueReason.PREEMPTION_NO_CANDIDATES})


class ScanProgress(msgspec.Struct, frozen=True, gc=False):
    """Where the search for flavors stopped, per pod set and resource; -1 = the list was exhausted."""

    tried: tuple[tuple[tuple[str, int], ...], ...]
    generation: int = 0
    cycle: int = 0
    shape: str = ""

    def flavors_left(self) -> bool:
        """Are there flavors not yet tried?"""
        return any(index != -1 for pod_set in self.tried for _, index in pod_set)

    def next_index(self, pod_set: int, resource: str) -> int:
        """Where the next search starts for this resource."""
        if pod_set < len(self.tried):
            for name, index in self.tried[pod_set]:
                if name == resource:
                    return index + 1
        return 0


class OrderPolicy(msgspec.Struct, frozen=True, gc=False):
    """Settings that shape the order inside a ClusterQueue."""

    by_eviction: bool = True
    priority_within_cohort: bool = True
    equivalence_hashing: bool = True


class PendingQueues:
    """Waiting lines by ClusterQueue, and the LocalQueues that feed them.

    A workload is assigned to at most one LocalQueue and waits in at most one ClusterQueue.
    """

    def __init__(
        self, policy: OrderPolicy | None = None, matches: Callable[[str, str], bool] = lambda queue, namespace: True
    ) -> None:
        self.policy = policy or OrderPolicy()
        self.matches = matches
        self.queues: dict[str, PendingQueue] = {}
        self.local_queues: dict[str, str] = {}
        """LocalQueue key -> ClusterQueue name; only LocalQueues that are not stopped."""
        self.assigned: dict[str, str] = {}
        """Workload key -> LocalQueue key; kept while the workload is waiting or in flight."""
        self.progress: dict[str, ScanProgress] = {}
        self._place: dict[str, str] = {}
        self._local_counts: dict[str, int] = {}
        self._ready: dict[str, None] = {}

    # --- queues ----------------------------------------------------------------------------------------------------

    def set_cluster_queue(
        self, name: str, *, strict: bool, active: bool, usage_of: Callable[[str], float] | None = None
    ) -> None:
        """Add a ClusterQueue or change its strategy or activity. `usage_of`: order its LocalQueues by this, smaller first."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = PendingQueue(name)
        queue.strict, queue.active = strict, active
        queue.order_by_usage(usage_of)
        self._note_ready(queue)

    def remove_cluster_queue(self, name: str) -> list[WorkloadInfo]:
        """Forget a ClusterQueue; returns what waited in it, now in no queue."""
        queue = self.queues.pop(name, None)
        if queue is None:
            return []
        infos = [item.info for item in queue.items()]
        for info in infos:
            self._forget(info.key)
        self._ready.pop(name, None)
        return infos

    def set_local_queue(self, key: str, cluster_queue: str) -> None:
        """A LocalQueue is known and open. The owner pushes its workloads afterwards."""
        if self.local_queues.get(key, cluster_queue) != cluster_queue:
            self.remove_local_queue(key)
        self.local_queues[key] = cluster_queue

    def remove_local_queue(self, key: str) -> None:
        """A LocalQueue is gone or stopped: its workloads leave their ClusterQueue."""
        if self.local_queues.pop(key, None) is None:
            return
        for workload in [workload for workload, local in self.assigned.items() if local == key]:
            self.remove(workload)

    # --- entering and leaving --------------------------------------------------------------------------------------

    def push(self, info: WorkloadInfo, now: float, cluster_queue: str | None = None) -> bool:
        """A workload appeared or changed. False if it cannot wait anywhere (not admissible, its queue is unknown).

        `cluster_queue` overrides the way through the LocalQueue.
        """
        target = cluster_queue if cluster_queue is not None else self.local_queues.get(info.queue_key)
        if target is None or not info.admissible():
            self.remove(info.key)
            return False
        queue = self.queues.get(target)
        if self._place.get(info.key, target) != target:
            self.remove(info.key)
        self._assign(info, queue)
        if queue is None:
            return False
        if queue.inflight is not None and queue.inflight.info.key == info.key:
            return True
        self._push(queue, info, now)
        self._note_ready(queue)
        return True

    def _push(self, queue: PendingQueue, info: WorkloadInfo, now: float) -> None:
        item = Item(self._order(info), info)
        before = queue.waiting.get(info.key)
        parked = before is not None and queue.is_parked(before)
        if before is not None and parked and not _changed_decisively(before.info, info):
            queue.replace_parked(item)
        elif before is not None and not parked:
            queue.push(item)
        elif not info.backoff_expired(now):
            queue.park(item)
        elif not queue.strict and info.shape and queue.is_hopeless_shape(info.shape):
            queue.park_with_shape(item)
        else:
            queue.push(item)

    def adopt(self, info: WorkloadInfo) -> None:
        """Its LocalQueue has just opened: straight to the heap, whatever backoff or shape say (as Kueue does)."""
        name = self.local_queues.get(info.queue_key)
        queue = self.queues.get(name) if name is not None else None
        if queue is None or not info.admissible():
            return
        self._assign(info, queue)
        queue.push(Item(self._order(info), info))
        self._note_ready(queue)

    def remove(self, key: str) -> bool:
        """The workload is gone from the queues. True if it was waiting or in flight."""
        name = self._place.get(key)
        found = False
        if name is not None:
            queue = self.queues[name]
            flying = queue.inflight is not None and queue.inflight.info.key == key
            found = queue.discard(key)
            if not flying:
                self._note_ready(queue)
        self._forget(key)
        return found

    def _assign(self, info: WorkloadInfo, queue: PendingQueue | None) -> None:
        """Put under its LocalQueue, and in its ClusterQueue if that is known."""
        if queue is not None:
            self._place[info.key] = queue.name
        before = self.assigned.get(info.key)
        if before != info.queue_key:
            if before is not None:
                self._count(before, -1)
            self.assigned[info.key] = info.queue_key
            self._count(info.queue_key, 1)

    def _forget(self, key: str) -> None:
        local = self.assigned.pop(key, None)
        if local is not None:
            self._count(local, -1)
            self._place.pop(key, None)
        if self.progress:
            self.progress.pop(key, None)

    def _count(self, local_queue: str, by: int) -> None:
        total = self._local_counts.get(local_queue, 0) + by
        if total:
            self._local_counts[local_queue] = total
        else:
            self._local_counts.pop(local_queue, None)

    # --- a cycle ---------------------------------------------------------------------------------------------------

    def ready(self) -> list[str]:
        """Active ClusterQueues that have a head, sorted."""
        return sorted(self._ready)

    def pop(self, cluster_queue: str) -> WorkloadInfo | None:
        """Take the head of a ClusterQueue; it is in flight until `requeue`, `remove` or the next pop."""
        queue = self.queues[cluster_queue]
        info = queue.pop()
        self._note_ready(queue)
        return info

    def pop_key(self, cluster_queue: str, key: str) -> WorkloadInfo | None:
        """Take this workload as the head, if it is in the heap of an active ClusterQueue."""
        queue = self.queues.get(cluster_queue)
        if queue is None or not queue.active:
            return None
        item = queue.take(key)
        self._note_ready(queue)
        return item.info if item is not None else None

    def give_back(self, cluster_queue: str, info: WorkloadInfo) -> None:
        """A head that was taken but not looked at returns to the heap as if nothing had happened."""
        queue = self.queues[cluster_queue]
        taken, queue.inflight = queue.inflight, None
        queue.push(taken if taken is not None and taken.info is info else Item(self._order(info), info))
        self._note_ready(queue)

    def requeue(
        self,
        info: WorkloadInfo,
        reason: RequeueReason,
        now: float,
        *,
        cluster_queue: str | None = None,
        immediate: bool | None = None,
        refusal: str = "",
    ) -> bool:
        """A head comes back unadmitted; True if it was put back (False: already there, or it has no queue any more).

        `refusal` is the QuotaReserved reason, remembered for workloads of the same shape. `immediate` overrides what reason
        and strategy say.
        """
        target = cluster_queue if cluster_queue is not None else self.local_queues.get(info.queue_key)
        queue = self.queues.get(target) if target is not None else None
        if queue is None or not info.admissible():
            self.remove(info.key)
            return False
        if queue.inflight is not None and queue.inflight.info.key == info.key:
            queue.inflight = None
        self._assign(info, queue)
        if reason in _WAITS_FOR_VICTIMS:
            queue.preemptor = Preemptor(info.key, not queue.strict, info.generation)
        if immediate is None:
            immediate = reason is not RequeueReason.NAMESPACE_MISMATCH if queue.strict else reason in _IMMEDIATE
        added = self._put_back(queue, info, immediate, now)
        if added and info.key in queue.inadmissible:
            self._learn_shape(queue, info, reason, refusal, now)
        self._note_ready(queue)
        return added

    def _put_back(self, queue: PendingQueue, info: WorkloadInfo, immediate: bool, now: float) -> bool:
        progress = self.progress.get(info.key)
        untried = progress is not None and progress.flavors_left()
        if info.backoff_expired(now) and (immediate or untried or queue.retry_cycle >= queue.pop_cycle):
            before = queue.waiting.get(info.key)
            if before is not None and not queue.is_parked(before):
                return False
            queue.push(before or Item(self._order(info), info))
            return True
        if info.key in queue.waiting:
            return False
        queue.park(Item(self._order(info), info))
        return True

    def _learn_shape(
        self, queue: PendingQueue, info: WorkloadInfo, reason: RequeueReason, refusal: str, now: float
    ) -> None:
        if self.policy.equivalence_hashing and info.shape and not queue.strict and reason in _HOPELESS:
            if info.backoff_expired(now):
                queue.park_with_shape(Item(self._order(info), info))
            queue.park_shape(info.shape, refusal or "PendingEvaluation")

    def retry(self, cluster_queues: Iterable[str], now: float) -> int:
        """Something changed that could help: parked workloads of these ClusterQueues are heads again; how many moved."""
        moved = 0
        for name in cluster_queues:
            queue = self.queues.get(name)
            if queue is None:
                continue
            moved += queue.retry(now, partial(self.matches, name))
            self._note_ready(queue)
        return moved

    # --- questions -------------------------------------------------------------------------------------------------

    def pending_count(self, cluster_queue: str) -> int:
        """Waiting, parked and in flight."""
        queue = self.queues.get(cluster_queue)
        return len(queue) if queue is not None else 0

    def local_pending_count(self, local_queue: str) -> int:
        """Waiting and parked workloads of a LocalQueue; the one in flight is not counted."""
        name = self.local_queues.get(local_queue)
        queue = self.queues.get(name) if name is not None else None
        inflight = queue.inflight if queue is not None else None
        flying = inflight is not None and self.assigned.get(inflight.info.key) == local_queue
        return self._local_counts.get(local_queue, 0) - flying

    def place_of(self, key: str) -> str | None:
        """The ClusterQueue a workload waits in."""
        return self._place.get(key)

    def find(self, key: str) -> WorkloadInfo | None:
        """The waiting workload as the queues know it."""
        name = self._place.get(key)
        item = self.queues[name].find(key) if name is not None else None
        return item.info if item is not None else None

    def _order(self, info: WorkloadInfo) -> SortKey:
        stamp = queue_timestamp(
            info,
            by_eviction=self.policy.by_eviction,
            priority_within_cohort=self.policy.priority_within_cohort,
        )
        return (-info.priority, stamp, info.uid, info.key)

    def note_ready(self, cluster_queue: str) -> None:
        """Workloads of this ClusterQueue were parked or woken by its owner."""
        queue = self.queues.get(cluster_queue)
        if queue is not None:
            self._note_ready(queue)

    def _note_ready(self, queue: PendingQueue) -> None:
        if queue.active and queue.has_head():
            self._ready[queue.name] = None
        else:
            self._ready.pop(queue.name, None)


def _changed_decisively(old: WorkloadInfo, new: WorkloadInfo) -> bool:
    """Could this update of a parked workload change the answer?"""
    return (
        old.generation != new.generation
        or old.uid != new.uid
        or old.priority != new.priority
        or old.queue_key != new.queue_key
        or old.reclaimable != new.reclaimable
        or old.pod_sets != new.pod_sets
        or old.invalid != new.invalid
        or old.preemption_gated != new.preemption_gated
        or old.condition("Evicted") != new.condition("Evicted")
        or old.condition("Requeued") != new.condition("Requeued")
    )
