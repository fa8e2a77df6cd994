"""The waiting line of one ClusterQueue: heap, parked workloads, the one in flight, and who waits for victims.

Why it exists: a cycle takes the first workload of each ClusterQueue, and 100,000 of them may wait. Workloads of one shape are kept as a group that
is parked and woken as one (`shared.model.pending_groups`), so that a retry costs as much as there are kinds of workloads, not as there are workloads.
Where LocalQueues are ordered by their usage (admission fair sharing) there is one lane per LocalQueue, so that a change of usage reorders nothing.
Which LocalQueue a workload came through and which ClusterQueue it belongs to is the business of `shared.model.pending`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from shared.model.pending_groups import Family, Group, Item, Ordered, SortKey
from shared.model.workload import WorkloadInfo


class Preemptor(msgspec.Struct, frozen=True, gc=False):
    """The workload of this ClusterQueue that waits for its victims; sticky = first in line whatever its key."""

    key: str
    sticky: bool
    generation: int


class _Lane:
    """Families of one lane in the order of their first workloads."""

    __slots__ = ("families", "ordered")

    def __init__(self) -> None:
        self.families: dict[str, Family] = {}
        self.ordered = Ordered()

    def offer(self, order: SortKey, family: Family) -> None:
        if self.ordered.compact(len(self.families)):
            self.ordered = Ordered()
            for one in self.families.values():
                top = one.top()
                if top is not None:
                    self.ordered.offer(top.order, one)
        self.ordered.offer(order, family)


class View(Mapping[str, Item]):
    """The workloads of a queue that wait, or those that are parked, by key. Live; not to be changed."""

    __slots__ = ("_parked", "_queue")

    def __init__(self, queue: PendingQueue, parked: bool) -> None:
        self._queue = queue
        self._parked = parked

    def __getitem__(self, key: str) -> Item:
        item = self._queue.waiting[key]
        if self._queue.is_parked(item) is not self._parked:
            raise KeyError(key)
        return item

    def __contains__(self, key: object) -> bool:
        item = self._queue.waiting.get(key) if isinstance(key, str) else None
        return item is not None and self._queue.is_parked(item) is self._parked

    def __iter__(self) -> Iterator[str]:
        is_parked = self._queue.is_parked
        return (key for key, item in self._queue.waiting.items() if is_parked(item) is self._parked)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class PendingQueue:
    """States of a workload here: heap (waiting), inadmissible (parked), inflight; at most one of them.

    `pop_cycle` counts pops, `retry_cycle` is its value at the last retry: a retry that came while a workload was in
    flight is thus noticed when it comes back.
    """

    __slots__ = (
        "_by_shape",
        "_lanes",
        "_parked_families",
        "_parked_groups",
        "_parked_items",
        "_several",
        "active",
        "hash_reasons",
        "inflight",
        "name",
        "pop_cycle",
        "preemptor",
        "resting",
        "retry_cycle",
        "strict",
        "usage_of",
        "waiting",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.strict = False
        self.active = True
        self.waiting: dict[str, Item] = {}
        """All workloads that wait or are parked, by key."""
        self.inflight: Item | None = None
        self.preemptor: Preemptor | None = None
        self.resting = False
        """Within a batch: its next turns are known to come to nothing, so that it has no head."""
        self.hash_reasons: dict[str, str] = {}
        self.pop_cycle = 0
        self.retry_cycle = -1
        self.usage_of: Callable[[str], float] | None = None
        """Usage of a LocalQueue, where smaller usage goes first; set by `order_by_usage`."""
        self._lanes: dict[str, _Lane] = {}
        self._by_shape: dict[str, dict[Group, None]] = {}
        self._several: dict[str, None] = {}
        """Shapes that may have more than one group: none where every workload differs, and then nobody has to look for them."""
        self._parked_items: dict[str, Item] = {}
        self._parked_groups: dict[Group, None] = {}
        self._parked_families: dict[Family, None] = {}

    # --- questions -------------------------------------------------------------------------------------------------

    @property
    def heap(self) -> View:
        """Workloads that wait to be looked at."""
        return View(self, parked=False)

    @property
    def inadmissible(self) -> View:
        """Workloads that are parked until something happens that could help."""
        return View(self, parked=True)

    @staticmethod
    def is_parked(item: Item) -> bool:
        """Is this workload of the queue parked: by itself, with its shape or with its family?"""
        group = item.group
        return group is None or group.parked or group.family.parked

    def find(self, key: str) -> Item | None:
        """The item of this workload in whatever state."""
        if self.inflight is not None and self.inflight.info.key == key:
            return self.inflight
        return self.waiting.get(key)

    def has_head(self) -> bool:
        """Does any workload wait to be looked at?"""
        if self.resting:
            return False
        for lane in self._lanes.values():  # noqa: SIM110 - asked after each change, and a generator costs more than the answer
            if lane.ordered.top() is not None:
                return True
        return False

    def parked_reason(self, key: str) -> str:
        """The reason with which others like this workload were refused, if it is parked for their sake; else empty."""
        item = self.waiting.get(key)
        if item is None or item.group is None:
            return ""
        if item.group.family.parked:
            return item.group.family.reason
        return self.hash_reasons.get(item.info.shape, item.group.family.reason) if item.group.parked else ""

    def sticky_key(self) -> str | None:
        """The workload that goes first whatever its order."""
        return self.preemptor.key if self.preemptor is not None and self.preemptor.sticky else None

    def items(self) -> list[Item]:
        """Everything pending, in queue order."""
        sticky = self.sticky_key()
        everything = list(self.waiting.values())
        if self.inflight is not None:
            everything.append(self.inflight)
        usage_of = self.usage_of
        if usage_of is None:
            return sorted(everything, key=lambda item: (item.info.key != sticky, item.order))
        return sorted(everything, key=lambda item: (usage_of(item.info.queue_key), item.info.key != sticky, item.order))

    def __len__(self) -> int:
        return len(self.waiting) + (self.inflight is not None)

    def alike(self) -> Iterator[tuple[WorkloadInfo, bool, int]]:
        """Everything pending, those of one shape together: one of them, whether they are parked, how many they are."""
        families = [family for lane in self._lanes.values() for family in lane.families.values()]
        for family in (*families, *self._parked_families):
            for group in family.groups().values():
                yield next(iter(group.items.values())).info, group.parked or family.parked, len(group.items)
        for item in self._parked_items.values():
            yield item.info, True, 1
        if self.inflight is not None:
            yield self.inflight.info, False, 1

    def stored(self) -> int:
        """Entries kept for the order, stale ones included."""
        return sum(
            group.stored
            for lane in self._lanes.values()
            for one in lane.families.values()
            for group in one.groups().values()
        )

    # --- in and out ------------------------------------------------------------------------------------------------

    def push(self, item: Item) -> None:
        """Put into the heap, replacing an earlier version wherever that is."""
        old = self.waiting.get(item.info.key)
        if old is not None:
            same_line = old.order == item.order and old.info.queue_key == item.info.queue_key
            same_kind = old.info.shape == item.info.shape and family_key(old.info) == family_key(item.info)
            if same_line and same_kind and not self.is_parked(old):
                self._renew(old, item.info)
                return
            self._take(old)
        self._join(item)

    def park(self, item: Item) -> None:
        """Park by itself, replacing an earlier version wherever that is."""
        old = self.waiting.get(item.info.key)
        if old is not None:
            self._take(old)
        item.group = None
        self.waiting[item.info.key] = item
        self._parked_items[item.info.key] = item

    def park_with_shape(self, item: Item) -> None:
        """Park among those of its shape, which is known to be hopeless."""
        old = self.waiting.get(item.info.key)
        if old is not None:
            self._take(old)
        group = self._group_of(item.info)
        self._park_group(group)
        group.add(item)
        self.waiting[item.info.key] = item

    def replace_parked(self, item: Item) -> None:
        """A parked workload changed in nothing that could help it: it stays where it is."""
        old = self.waiting[item.info.key]
        if old.group is not None and family_key(old.info) != family_key(item.info):
            self.park(item)
        elif old.order == item.order:
            self._renew(old, item.info)
        elif old.group is None:
            self.park(item)
        elif old.group.parked:
            self.park_with_shape(item)
        else:
            self.push(item)

    @staticmethod
    def _renew(item: Item, info: WorkloadInfo) -> None:
        item.info = info
        if item.group is not None:
            item.group.note_delay(info)

    def _join(self, item: Item) -> None:
        group = self._group_of(item.info)
        if group.parked:
            self._wake_group(group)
        group.add(item)
        self.waiting[item.info.key] = item
        self._offer(group, item.order)

    def _offer(self, group: Group, order: SortKey) -> None:
        family = group.family
        if group.top() is not None and family.offer(order, group) and not family.parked:
            self._lanes[family.lane].offer(order, family)

    def _group_of(self, info: WorkloadInfo) -> Group:
        lane_name = info.queue_key if self.usage_of is not None else ""
        lane = self._lanes.get(lane_name)
        if lane is None:
            lane = self._lanes[lane_name] = _Lane()
        shape = info.shape or f"={info.key}"
        key = family_key(info) or shape
        family = lane.families.get(key)
        if family is None:
            family = lane.families[key] = Family(lane_name, key)
        group = family.group(shape, info.namespace, info)
        if info.shape:
            alike = self._by_shape.setdefault(info.shape, {})
            alike[group] = None
            if len(alike) > 1:
                self._several[info.shape] = None
        return group

    def _take(self, item: Item) -> None:
        """Out of wherever it waits."""
        key = item.info.key
        del self.waiting[key]
        group = item.group
        if group is None:
            del self._parked_items[key]
            return
        group.remove(item)
        if not group.items:
            self._drop(group)

    def _drop(self, group: Group) -> None:
        family = group.family
        family.drop(group)
        self._parked_groups.pop(group, None)
        members = self._by_shape.get(group.shape)
        if members is not None:
            members.pop(group, None)
            self._several.pop(group.shape, None)
            if not members:
                del self._by_shape[group.shape]
            elif len(members) > 1:
                self._several[group.shape] = None
        if family.groups():
            return
        if family.parked:
            self._parked_families.pop(family, None)
        else:
            self._forget_family(family)

    def _forget_family(self, family: Family) -> None:
        lane = self._lanes[family.lane]
        del lane.families[family.key]
        if not lane.families:
            del self._lanes[family.lane]

    def discard(self, key: str) -> bool:
        """Remove the workload in whatever state, with its preemptor mark. True if it was here."""
        if self.preemptor is not None and self.preemptor.key == key:
            self.preemptor = None
        if self.inflight is not None and self.inflight.info.key == key:
            self.inflight = None
            return True
        item = self.waiting.get(key)
        if item is not None:
            self._take(item)
        return item is not None

    # --- heads -----------------------------------------------------------------------------------------------------

    def pop(self) -> WorkloadInfo | None:
        """Take the head and make it the one in flight."""
        self.pop_cycle += 1
        item = self._first()
        if item is None:
            return None
        self._take(item)
        self.inflight = item
        return item.info

    def take(self, key: str) -> Item | None:
        """Make this workload of the heap the one in flight."""
        self.pop_cycle += 1
        item = self.heap.get(key)
        if item is not None:
            self._take(item)
            self.inflight = item
        return item

    def _first(self) -> Item | None:
        mark = self.preemptor
        sticky = self.heap.get(mark.key) if mark is not None and mark.sticky else None
        if self.usage_of is not None:
            return self._first_by_usage(self.usage_of, sticky)
        if sticky is not None:
            return sticky
        lane = self._lanes.get("")
        return lane.ordered.top() if lane is not None else None

    def _first_by_usage(self, usage_of: Callable[[str], float], sticky: Item | None) -> Item | None:
        """The head of the LocalQueue with the smallest usage; the sticky workload only leads its equals."""
        best: tuple[float, bool, SortKey] | None = None
        first: Item | None = None
        for name, lane in self._lanes.items():
            item = lane.ordered.top()
            if item is None:
                continue
            if sticky is not None and sticky.info.queue_key == name:
                item = sticky
            rank = (usage_of(name), item is not sticky, item.order)
            if best is None or rank < best:
                best, first = rank, item
        return first

    def order_by_usage(self, usage_of: Callable[[str], float] | None) -> None:
        """From now on the usage of LocalQueues comes before everything else in the order; None = it does not count."""
        if usage_of == self.usage_of:
            return
        grouped = [(item, self.is_parked(item)) for item in self.waiting.values() if item.group is not None]
        for item, _ in grouped:
            self._take(item)
        self.usage_of = usage_of
        for item, parked in grouped:
            if parked:
                self.park(item)
            else:
                self._join(item)

    # --- parking and waking ----------------------------------------------------------------------------------------

    def park_shape(self, shape: str, reason: str) -> None:
        """Remember that workloads of this shape are hopeless until a retry, and park those in the heap."""
        self.hash_reasons[shape] = reason
        for group in self._by_shape.get(shape, ()):
            self._park_group(group)

    def _park_group(self, group: Group) -> None:
        group.parked = True
        self._parked_groups[group] = None

    def _wake_group(self, group: Group) -> None:
        group.parked = False
        self._parked_groups.pop(group, None)
        top = group.top()
        if top is not None:
            self._offer(group, top.order)

    def is_hopeless_shape(self, shape: str) -> bool:
        """Was a workload of this shape refused, or passed over with its family, since the last retry?"""
        if shape in self.hash_reasons:
            return True
        return bool(self._parked_families) and any(group.family.parked for group in self._by_shape.get(shape, ()))

    def leading_family(self, info: WorkloadInfo) -> Family | None:
        """The family of this workload, if all next turns are its: its groups come before everything else that waits here."""
        lane = self._lanes.get("")
        key = family_key(info)
        if lane is None or not key or self.usage_of is not None or self.inflight is not None:
            return None
        family, first = lane.families.get(key), lane.ordered.top()
        if family is None or first is None or first.group is None or first.group.family is not family:
            return None
        priority = first.order[0]
        for other in lane.families.values():
            if other is not family and (top := other.top()) is not None and top.order[0] <= priority:
                return None
        sticky = self.sticky_key()
        return family if sticky is None or sticky not in self.heap else None

    def park_family(self, family: Family, reason: str) -> None:
        """All of this family had its turn. It is left behind: who comes later starts a new family of the same key."""
        for shape, _ in family.groups() if self._several else ():
            if len(self._by_shape.get(shape, ())) > 1:
                self.park_shape(shape, reason)
        family.parked, family.reason = True, reason
        self._parked_families[family] = None
        self._forget_family(family)

    def _wake_family(self, family: Family) -> None:
        """Its workloads wait again, except those parked for their shape."""
        family.parked, family.reason = False, ""
        self._parked_families.pop(family, None)
        lane = self._lanes.setdefault(family.lane, _Lane())
        newer = lane.families.get(family.key)
        lane.families[family.key] = family
        if newer is not None:
            for group in newer.groups().values():
                # Groups that are merged into one of the same shape vanish.
                if (group.shape, group.namespace) in family.groups():
                    self._parked_groups.pop(group, None)
                    self._by_shape.get(group.shape, {}).pop(group, None)
            family.absorb(newer)
        top = family.top()
        if top is not None:
            lane.offer(top.order, family)

    def retry(self, now: float, matches: Callable[[str], bool]) -> int:
        """Wake what is parked and may be tried now; `matches` tells if a namespace may use this queue. How many woke."""
        self.retry_cycle = self.pop_cycle
        self.hash_reasons.clear()
        woken = 0
        for family in list(self._parked_families):
            woken += len(family.groups())
            closed = {namespace for namespace in family.namespaces if not matches(namespace)}
            for group in [one for one in family.groups().values() if one.namespace in closed] if closed else ():
                for item in list(group.items.values()):
                    self.park(item)
            if family.groups():
                self._wake_family(family)
        for group in list(self._parked_groups):
            woken += self._retry_group(group, now, matches)
        for item in list(self._parked_items.values()):
            if item.info.backoff_expired(now) and matches(item.info.namespace):
                self._take(item)
                self._join(item)
                woken += 1
        return woken

    def _retry_group(self, group: Group, now: float, matches: Callable[[str], bool]) -> int:
        ready = matches(group.namespace)
        if ready and not group.delayed:
            self._wake_group(group)
            return len(group.items)
        for item in [one for one in group.items.values() if not ready or not one.info.backoff_expired(now)]:
            self.park(item)
        if group.items:
            self._wake_group(group)
        return len(group.items)


def family_key(info: WorkloadInfo) -> str:
    """Equal for workloads that differ in nothing but amounts, so that what is true of the least of them is true of all; or empty."""
    plain = (
        info.family
        and not info.checks
        and not info.invalid
        and not info.replaces
        and not info.parent_uid
        and info.requeue_at is None
        and len(info.pod_sets) == 1
    )
    if not plain:
        return ""
    for condition in info.conditions:
        if condition.type == "Requeued" and not condition.status:
            return ""
    return f"{info.family}|{info.priority}"
