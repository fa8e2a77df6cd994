"""Workloads that hold quota, per ClusterQueue, in the order in which they would be preempted.

Why it exists: a search for victims should cost what it takes, not what it could take. The order within one ClusterQueue (core rule
7.2) does not depend on the preemptor, so it is kept up to date and a search reads as much of it as it needs. A ClusterQueue is
sorted when first asked for; queues nobody preempts from pay next to nothing. Who may be preempted is decided elsewhere.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from shared.model.workload import WorkloadInfo

Rank = tuple[int, int, float, str, str]
"""(0 if being evicted else 1, priority, -time of the reservation, uid, workload key): smaller is preempted first."""

NEWEST = float("inf")
"""Time of a reservation that is newer than all known ones."""


def rank_of(info: WorkloadInfo, evicted: bool, reserved_at: float) -> Rank:
    """The place of a workload among those of its ClusterQueue."""
    return (0 if evicted else 1, info.priority, -reserved_at, info.uid, info.key)


class Reservations:
    """Ranks of workloads that hold quota, by ClusterQueue. A workload is in at most one."""

    __slots__ = ("_of", "_ranks", "_sorted")

    def __init__(self) -> None:
        self._of: dict[str, str] = {}
        self._ranks: dict[str, dict[str, Rank]] = {}
        self._sorted: dict[str, list[Rank]] = {}

    def put(self, key: str, cluster_queue: str, rank: Rank) -> None:
        """This workload holds quota of the ClusterQueue, with this rank."""
        ranks = self._ranks.setdefault(cluster_queue, {})
        if ranks.get(key) == rank:
            return
        self.drop(key)
        self._of[key] = cluster_queue
        self._ranks.setdefault(cluster_queue, ranks)[key] = rank
        ranked = self._sorted.get(cluster_queue)
        if ranked is not None:
            insort(ranked, rank)

    def drop(self, key: str) -> None:
        """This workload holds nothing any more."""
        cluster_queue = self._of.pop(key, None)
        if cluster_queue is None:
            return
        ranks = self._ranks[cluster_queue]
        rank = ranks.pop(key)
        ranked = self._sorted.get(cluster_queue)
        if ranked is not None:
            del ranked[bisect_left(ranked, rank)]
        if not ranks:
            del self._ranks[cluster_queue]
            self._sorted.pop(cluster_queue, None)

    def ranked(self, cluster_queue: str) -> Sequence[Rank]:
        """All ranks of a ClusterQueue, first to be preempted first. Valid until the next change; read only."""
        ranked = self._sorted.get(cluster_queue)
        if ranked is None:
            ranks = self._ranks.get(cluster_queue)
            if ranks is None:
                return ()
            ranked = self._sorted[cluster_queue] = sorted(ranks.values())
        return ranked
