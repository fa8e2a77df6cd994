"""Waiting workloads in groups of one shape, and groups in families that differ only in how much they ask for.

Why it exists: what is true of one workload is often true of all like it. A group is parked and woken as one, whatever its size; a family that
could not even admit a workload asking for the least of each resource is parked as one as well. Order is kept by heaps that delete lazily.
Which workload is hopeless, and for how long, is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from math import inf

import msgspec

from shared.model.workload import WorkloadInfo

SortKey = tuple[float, float, str, str]
"""(-priority, queue timestamp, uid, workload key): smaller is earlier."""

_SLACK = 64
"""Stale entries that a heap may hold beyond as many as it has live ones."""


class Item(msgspec.Struct):
    """A waiting workload with its place in the order. Mutable: its info is replaced by updates that keep the place."""

    order: SortKey
    info: WorkloadInfo
    group: Group | None = None
    """None = parked by itself, or in flight."""


class Group:
    """Workloads of one shape and namespace in one lane. All of them wait, or all are parked."""

    __slots__ = ("_heap", "_pushes", "delayed", "family", "items", "namespace", "parked", "shape")

    def __init__(self, family: Family, shape: str, namespace: str) -> None:
        self.family = family
        self.shape = shape
        self.namespace = namespace
        self.items: dict[str, Item] = {}
        self.parked = False
        self.delayed = False
        """Some workload may not be tried before a certain time: a retry must look at each."""
        self._heap: list[tuple[SortKey, int, Item]] = []
        self._pushes = 0

    def add(self, item: Item) -> None:
        """Put in, replacing nothing."""
        info = item.info
        self.items[info.key] = item
        item.group = self
        self.note_delay(info)
        self._pushes += 1
        heappush(self._heap, (item.order, self._pushes, item))
        if len(self._heap) > 2 * len(self.items) + _SLACK:
            self._heap = [(one.order, place, one) for place, one in enumerate(self.items.values())]
            self._pushes = len(self._heap)
            heapify(self._heap)

    def note_delay(self, info: WorkloadInfo) -> None:
        """A workload that may have to wait for a time of its own is in here."""
        if info.requeue_at is not None or not info.backoff_expired(inf):
            self.delayed = True

    def remove(self, item: Item) -> None:
        """Take out; the entry in the heap goes when it comes up."""
        del self.items[item.info.key]
        item.group = None

    def top(self) -> Item | None:
        """Its first workload, unless it is parked."""
        if self.parked:
            return None
        heap = self._heap
        while heap:
            item = heap[0][2]
            if item.group is self and item.order == heap[0][0]:
                return item
            heappop(heap)
        return None

    @property
    def stored(self) -> int:
        return len(self._heap)


class Ordered:
    """Children in the order of their first workloads; a child that has none, or is parked, is passed over."""

    __slots__ = ("_entries", "_pushes")

    def __init__(self) -> None:
        self._entries: list[tuple[SortKey, int, Group | Family]] = []
        self._pushes = 0

    def offer(self, order: SortKey, child: Group | Family) -> bool:
        """The child's first workload may now have this order. True if it comes before all others."""
        self._pushes += 1
        entry = (order, self._pushes, child)
        heappush(self._entries, entry)
        return self._entries[0] is entry

    def top(self) -> Item | None:
        """The first workload of all children."""
        entries = self._entries
        while entries:
            order, place, child = entries[0]
            item = child.top()
            if item is None:
                heappop(entries)
            elif item.order == order:
                return item
            else:
                heapreplace(entries, (item.order, place, child))
        return None

    def compact(self, children: int) -> bool:
        """Are there so many stale entries that it should be made anew?"""
        return len(self._entries) > 2 * children + _SLACK


class Refused(msgspec.Struct, frozen=True):
    """Amounts that could not be had: per pod set, of the resources that were short."""

    order: SortKey
    amounts: tuple[dict[str, int], ...]

    def covers(self, item: Item) -> bool:
        """Does this workload of the same family, later in the order, ask for no less?"""
        if item.order <= self.order:
            return False
        for pod_set, amounts in zip(item.info.pod_sets, self.amounts, strict=False):
            requests = pod_set.requests
            for name, amount in amounts.items():
                if requests.get(name, 0) < amount:
                    return False
        return True


class Family:
    """Groups whose workloads differ only in amounts and priority. Parked as one when the least of them is hopeless."""

    __slots__ = (
        "_floors",
        "_groups",
        "_park",
        "_parked_floor",
        "_parked_priority",
        "_priorities",
        "key",
        "lane",
        "ordered",
        "parked",
        "reason",
        "refused",
    )

    def __init__(self, lane: str, key: str, park: Callable[[Group], None]) -> None:
        self.lane = lane
        self.key = key
        self._park = park
        self.refused: list[Refused] = []
        """What was refused since the last retry: who asks for no less is parked without a look."""
        self.parked = False
        self.reason = ""
        """Why it is parked: the QuotaReserved reason."""
        self.ordered = Ordered()
        self._groups: dict[tuple[str, str], Group] = {}
        self._floors: list[dict[str, list[tuple[int, int, Group]]]] | None = None
        self._priorities: list[tuple[int, int, Group]] = []
        self._parked_floor: tuple[dict[str, int], ...] = ()
        self._parked_priority = 0

    def group(self, shape: str, namespace: str, info: WorkloadInfo) -> Group:
        """The group of this shape; made if it does not exist."""
        found = self._groups.get((shape, namespace))
        if found is None:
            found = self._groups[shape, namespace] = Group(self, shape, namespace)
            if self._floors is not None:
                self._note_amounts(found, info)
        return found

    def groups(self) -> Mapping[tuple[str, str], Group]:
        """Its groups by (shape, namespace). Read only."""
        return self._groups

    def drop(self, group: Group) -> None:
        """An empty group goes."""
        self._groups.pop((group.shape, group.namespace), None)

    def top(self) -> Item | None:
        """Its first workload that is not parked, nor hopeless for asking no less than a refused one before it."""
        if self.parked:
            return None
        item = self.ordered.top()
        while item is not None and self.refused and any(one.covers(item) for one in self.refused):
            assert item.group is not None
            self._park(item.group)
            item = self.ordered.top()
        return item

    def offer(self, order: SortKey, group: Group) -> bool:
        """A group's first workload may now have this order. True if it comes before all others of the family."""
        if self.ordered.compact(len(self._groups)):
            self.ordered = Ordered()
            for one in self._groups.values():
                top = one.top()
                if top is not None:
                    self.ordered.offer(top.order, one)
        return self.ordered.offer(order, group)

    # --- the least of it --------------------------------------------------------------------------------------------

    def floor(self) -> tuple[dict[str, int], ...]:
        """Per pod set the least amount of each resource that any of its workloads asks for."""
        if self._floors is None:
            self._floors = []
            for group in self._groups.values():
                item = next(iter(group.items.values()), None)
                if item is not None:
                    self._note_amounts(group, item.info)
        return tuple({name: self._least(heap) for name, heap in one.items()} for one in self._floors)

    def top_priority(self) -> int:
        """The highest priority among its groups."""
        self.floor()
        return -self._least(self._priorities)

    def _note_amounts(self, group: Group, info: WorkloadInfo) -> None:
        assert self._floors is not None
        heappush(self._priorities, (-info.priority, id(group), group))
        for place, pod_set in enumerate(info.pod_sets):
            if place == len(self._floors):
                self._floors.append({})
            for name, amount in pod_set.requests.items():
                heap = self._floors[place].setdefault(name, [])
                heappush(heap, (amount, id(group), group))

    def _least(self, heap: list[tuple[int, int, Group]]) -> int:
        while heap:
            amount, _, group = heap[0]
            if self._groups.get((group.shape, group.namespace)) is group:
                return amount
            heappop(heap)
        return 0

    def park(self, reason: str) -> None:
        """Park all of it; what holds for its least workload now is remembered for those that come later."""
        self._parked_floor, self._parked_priority = self.floor(), self.top_priority()
        self.parked, self.reason = True, reason

    def covers(self, info: WorkloadInfo) -> bool:
        """Does this workload ask for no less than the least one when the family was parked, at no higher priority?"""
        floors = self._parked_floor
        if len(floors) != len(info.pod_sets) or info.priority > self._parked_priority:
            return False
        return all(
            pod_set.requests.get(name, 0) >= amount
            for pod_set, floor in zip(info.pod_sets, floors, strict=True)
            for name, amount in floor.items()
        )
