"""The waiting line of one ClusterQueue: heap, parked workloads, the one in flight, and who waits for victims.

Why it exists: a cycle takes the first workload of each ClusterQueue, and 100,000 of them may wait. The heap deletes lazily;
parked workloads stay out of it until something happens that could help them. Where LocalQueues are ordered by their usage
(admission fair sharing) the heap has one lane per LocalQueue, so that a change of usage reorders nothing. Which LocalQueue a workload came through and
which ClusterQueue it belongs to is the business of `shared.model.pending`.
"""

from __future__ import annotations

from collections.abc import Callable
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
        "_lanes",
        "_pushes",
        "_shapes",
        "_stored",
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
        "usage_of",
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
        self.usage_of: Callable[[str], float] | None = None
        """Usage of a LocalQueue, where smaller usage goes first; set by `order_by_usage`."""
        self._lanes: dict[str, list[tuple[SortKey, int, Item]]] = {}
        self._stored = 0
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
            same_place = old.order == item.order and old.info.queue_key == item.info.queue_key
            if same_place and old.info.shape == item.info.shape:
                old.info = item.info
                return
            self._forget_shape(old)
        self.heap[key] = item
        self._pushes += 1
        self._stored += 1
        heappush(self._lane(item), (item.order, self._pushes, item))
        if item.info.shape:
            self._shapes.setdefault(item.info.shape, {})[key] = None
        if self._stored > 2 * len(self.heap) + 64:
            self._rebuild()

    def _lane(self, item: Item) -> list[tuple[SortKey, int, Item]]:
        name = item.info.queue_key if self.usage_of is not None else ""
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = []
        return lane

    def _rebuild(self) -> None:
        """Make the lanes anew, without what is no longer in the heap."""
        self._lanes = {}
        self._stored = len(self.heap)
        for place, item in enumerate(self.heap.values()):
            self._lane(item).append((item.order, place, item))
        for lane in self._lanes.values():
            heapify(lane)

    def stored(self) -> int:
        """Entries kept, stale ones included."""
        return self._stored

    def order_by_usage(self, usage_of: Callable[[str], float] | None) -> None:
        """From now on the usage of LocalQueues comes before everything else in the order; None = it does not count."""
        if usage_of != self.usage_of:
            self.usage_of = usage_of
            self._rebuild()

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
        sticky = self.heap.get(mark.key) if mark is not None and mark.sticky else None
        usage_of = self.usage_of
        first = self._first_by_usage(usage_of, sticky) if usage_of is not None else sticky or self._top("")
        return self.take_from_heap(first.info.key) if first is not None else None

    def _first_by_usage(self, usage_of: Callable[[str], float], sticky: Item | None) -> Item | None:
        """The head of the LocalQueue with the smallest usage; the sticky workload only leads its equals."""
        best: tuple[float, bool, SortKey] | None = None
        first: Item | None = None
        for name in list(self._lanes):
            item = self._top(name)
            if item is None:
                continue
            if sticky is not None and sticky.info.queue_key == name:
                item = sticky
            rank = (usage_of(name), item is not sticky, item.order)
            if best is None or rank < best:
                best, first = rank, item
        return first

    def _top(self, name: str) -> Item | None:
        """The first item of a lane that is still in the heap."""
        lane = self._lanes.get(name)
        while lane:
            item = lane[0][2]
            if self.heap.get(item.info.key) is item:
                return item
            heappop(lane)
            self._stored -= 1
        self._lanes.pop(name, None)
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
        usage_of = self.usage_of
        if usage_of is None:
            return sorted(everything, key=lambda item: (item.info.key != sticky, item.order))
        return sorted(everything, key=lambda item: (usage_of(item.info.queue_key), item.info.key != sticky, item.order))

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
