"""The waiting line of one ClusterQueue: heap, parked workloads, the one in flight, and who waits for victims.

Why it exists: a cycle takes the first workload of each ClusterQueue, and 100,000 of them may wait. The heap deletes lazily;
parked workloads stay out of it until something happens that could help them. Which LocalQueue a workload came through and
which ClusterQueue it belongs to is the business of `shared.model.pending`.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import msgspec

from shared.model.workload import WorkloadInfo

SortKey = tuple[float, float, str, str]
"""(-priority, queue timestamp, uid, workload key): smaller is earlier."""


class Preemptor(msgspec.Struct, frozen=True, gc=False):
    """The workload of this ClusterQueue that waits for its victims; sticky = first in line whatever its key."""

    key: str
    sticky: bool
    generation: int


class Item(msgspec.Struct):
    """A waiting workload with its place in the order. Mutable: its info is replaced by updates that keep the place."""

    order: SortKey
    info: WorkloadInfo


class PendingQueue:
    """States of a workload here: heap, inadmissible (parked), inflight; at most one of them.

    `pop_cycle` counts pops, `retry_cycle` is its value at the last retry: a retry that came while a workload was in
    flight is thus noticed when it comes back.
    """

    __slots__ = (
        "_heap",
        "_pushes",
        "_shapes",
        "active",
        "hash_reasons",
        "heap",
        "inadmissible",
        "inflight",
        "name",
        "pop_cycle",
        "preemptor",
        "retry_cycle",
        "strict",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.strict = False
        self.active = True
        self.heap: dict[str, Item] = {}
        self.inadmissible: dict[str, Item] = {}
        self.inflight: Item | None = None
        self.preemptor: Preemptor | None = None
        self.hash_reasons: dict[str, str] = {}
        self.pop_cycle = 0
        self.retry_cycle = -1
        self._heap: list[tuple[SortKey, int, Item]] = []
        self._pushes = 0
        self._shapes: dict[str, dict[str, None]] = {}

    def find(self, key: str) -> Item | None:
        """The item of this workload in whatever state."""
        if self.inflight is not None and self.inflight.info.key == key:
            return self.inflight
        return self.heap.get(key) or self.inadmissible.get(key)

    def push(self, item: Item) -> None:
        """Put into the heap, replacing an earlier version there."""
        key = item.info.key
        old = self.heap.get(key)
        if old is not None:
            if old.order == item.order and old.info.shape == item.info.shape:
                old.info = item.info
                return
            self._forget_shape(old)
        self.heap[key] = item
        self._pushes += 1
        heappush(self._heap, (item.order, self._pushes, item))
        if item.info.shape:
            self._shapes.setdefault(item.info.shape, {})[key] = None
        if len(self._heap) > 2 * len(self.heap) + 64:
            self._heap = [(entry.order, place, entry) for place, entry in enumerate(self.heap.values())]
            heapify(self._heap)

    def park(self, item: Item) -> None:
        """Put among the inadmissible."""
        self.inadmissible[item.info.key] = item

    def take_from_heap(self, key: str) -> Item | None:
        """Remove from the heap, if there."""
        item = self.heap.pop(key, None)
        if item is not None:
            self._forget_shape(item)
        return item

    def discard(self, key: str) -> bool:
        """Remove the workload in whatever state, with its preemptor mark. True if it was here."""
        if self.preemptor is not None and self.preemptor.key == key:
            self.preemptor = None
        if self.inflight is not None and self.inflight.info.key == key:
            self.inflight = None
            return True
        return self.take_from_heap(key) is not None or self.inadmissible.pop(key, None) is not None

    def pop(self) -> WorkloadInfo | None:
        """Take the head and make it the one in flight."""
        self.pop_cycle += 1
        item = self._first()
        if item is None:
            return None
        self.inflight = item
        return item.info

    def take(self, key: str) -> Item | None:
        """Make this workload of the heap the one in flight."""
        self.pop_cycle += 1
        item = self.take_from_heap(key)
        if item is not None:
            self.inflight = item
        return item

    def _first(self) -> Item | None:
        mark = self.preemptor
        if mark is not None and mark.sticky and mark.key in self.heap:
            return self.take_from_heap(mark.key)
        while self._heap:
            item = heappop(self._heap)[2]
            if self.heap.get(item.info.key) is item:
                return self.take_from_heap(item.info.key)
        return None

    def sticky_key(self) -> str | None:
        """The workload that goes first whatever its order."""
        return self.preemptor.key if self.preemptor is not None and self.preemptor.sticky else None

    def park_shape(self, shape: str, reason: str) -> list[str]:
        """Remember that workloads of this shape are hopeless until a retry, and park those in the heap; their keys."""
        self.hash_reasons[shape] = reason
        parked = sorted(self._shapes.get(shape, ()))
        for key in parked:
            item = self.take_from_heap(key)
            if item is not None:
                self.park(item)
        return parked

    def items(self) -> list[Item]:
        """Everything pending, in queue order."""
        sticky = self.sticky_key()
        everything = [*self.heap.values(), *self.inadmissible.values()]
        if self.inflight is not None:
            everything.append(self.inflight)
        return sorted(everything, key=lambda item: (item.info.key != sticky, item.order))

    def __len__(self) -> int:
        return len(self.heap) + len(self.inadmissible) + (self.inflight is not None)

    def _forget_shape(self, item: Item) -> None:
        shape = item.info.shape
        if not shape:
            return
        members = self._shapes.get(shape)
        if members is not None:
            members.pop(item.info.key, None)
            if not members:
                del self._shapes[shape]
