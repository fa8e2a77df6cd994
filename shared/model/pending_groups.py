"""Waiting workloads in groups of one shape, and groups in families that differ only in how much they ask for.

Why it exists: what is true of one workload is often true of all like it. A group is parked and woken as one, whatever its size; a family that
could not even admit a workload asking for the least of each resource is parked as one as well, and left behind by those that come later.
Order is kept by heaps that delete lazily.
Which workload is hopeless, and for how long, is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
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


class Family:
    """Groups whose workloads differ only in amounts. Parked as one when the least of them is hopeless and all had their turn."""

    __slots__ = ("_groups", "_least", "_most", "key", "lane", "namespaces", "ordered", "parked", "reason")

    def __init__(self, lane: str, key: str) -> None:
        self.lane = lane
        self.key = key
        self.parked = False
        self.reason = ""
        """Why it is parked: the QuotaReserved reason."""
        self.ordered = Ordered()
        self.namespaces: dict[str, int] = {}
        """Namespace -> how many of its groups are there."""
        self._groups: dict[tuple[str, str], Group] = {}
        self._least: dict[str, list[tuple[int, int, Group]]] | None = None
        self._most: dict[str, list[tuple[int, int, Group]]] = {}

    def group(self, shape: str, namespace: str, info: WorkloadInfo) -> Group:
        """The group of this shape; made if it does not exist."""
        found = self._groups.get((shape, namespace))
        if found is None:
            found = Group(self, shape, namespace)
            self._take_in(found, info)
        return found

    def _take_in(self, group: Group, info: WorkloadInfo) -> None:
        self._groups[group.shape, group.namespace] = group
        self.namespaces[group.namespace] = self.namespaces.get(group.namespace, 0) + 1
        if self._least is not None:
            self._note_amounts(group, info)

    def groups(self) -> Mapping[tuple[str, str], Group]:
        """Its groups by (shape, namespace). Read only."""
        return self._groups

    def drop(self, group: Group) -> None:
        """An empty group goes."""
        if self._groups.pop((group.shape, group.namespace), None) is None:
            return
        left = self.namespaces[group.namespace] - 1
        if left:
            self.namespaces[group.namespace] = left
        else:
            del self.namespaces[group.namespace]

    def active(self) -> list[Group]:
        """Groups that are not parked by themselves, in the order of their first workloads."""
        tops = [(top.order, group) for group in self._groups.values() if (top := group.top()) is not None]
        tops.sort(key=_first)
        return [group for _, group in tops]

    def active_shapes(self) -> int:
        """How many different shapes are not parked."""
        if len(self.namespaces) == 1:
            return [group.parked for group in self._groups.values()].count(False)
        return len({shape for (shape, _), group in self._groups.items() if not group.parked})

    def absorb(self, other: Family) -> None:
        """Take over the groups of another family of the same key. Workloads of a group that both have become one group."""
        for place, group in list(other._groups.items()):
            own = self._groups.get(place)
            first = next(iter(group.items.values()))
            if own is None:
                group.family = self
                self._take_in(group, first.info)
                own = group
            else:
                own.parked = own.parked and group.parked
                for item in list(group.items.values()):
                    own.add(item)
            top = own.top()
            if top is not None:
                self.offer(top.order, own)

    def top(self) -> Item | None:
        """Its first workload that is not parked."""
        return None if self.parked else self.ordered.top()

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

    def bounds(self) -> tuple[dict[str, int], dict[str, int]]:
        """(least, most) amount of each resource that any of its workloads asks for; they have one pod set."""
        if self._least is None:
            self._least = {}
            for group in self._groups.values():
                item = next(iter(group.items.values()), None)
                if item is not None:
                    self._note_amounts(group, item.info)
        least = {name: self._extreme(heap) for name, heap in self._least.items()}
        return least, {name: -self._extreme(heap) for name, heap in self._most.items()}

    def _note_amounts(self, group: Group, info: WorkloadInfo) -> None:
        assert self._least is not None
        for pod_set in info.pod_sets:
            for name, amount in pod_set.requests.items():
                heappush(self._least.setdefault(name, []), (amount, id(group), group))
                heappush(self._most.setdefault(name, []), (-amount, id(group), group))

    def _extreme(self, heap: list[tuple[int, int, Group]]) -> int:
        while heap:
            amount, _, group = heap[0]
            if self._groups.get((group.shape, group.namespace)) is group:
                return amount
            heappop(heap)
        return 0


def _first(pair: tuple[SortKey, Group]) -> SortKey:
    return pair[0]
