"""What waits, holds quota and runs in each ClusterQueue and LocalQueue, and whether the queue is active: what its status says.

Folded from objects alone: a decision shows here once the object carries it. For services that write or show queue status; it takes no decisions.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from shared.bus.interface import CaughtUp, FeedItem, ObjectChanged, Reset
from shared.decide.requests import DEFAULT_RULES, RequestRules
from shared.events.objects import ClusterQueue, LocalQueue, Object, QueueUsage, Workload
from shared.events.subjects import ObjectName
from shared.model.activity import Activity
from shared.model.admission_fair_sharing import AfsSettings
from shared.model.flavor_resources import Vector
from shared.state.folding import Fold
from shared.state.objects import Change


class QueueStatus(msgspec.Struct, frozen=True):
    """The status of one queue, by the rules of core spec 1.12. Amounts are base units (milli-cpu, bytes, pieces)."""

    pending: int
    reserving: int
    admitted: int
    reservation: QueueUsage
    """What all reserving workloads hold, for every flavor and resource of the ClusterQueue's spec, zeros included."""
    usage: QueueUsage
    """The same of those that are admitted."""
    active: Activity


class _Tally:
    """Sums over the workloads that hold quota through one queue."""

    __slots__ = ("admitted", "reserved", "reserving", "running")

    def __init__(self) -> None:
        self.reserving = 0
        self.running = 0
        self.reserved: Vector = {}
        self.admitted: Vector = {}

    def add(self, part: _Part, sign: int) -> None:
        self.reserving += sign * part.counts
        _add(self.reserved, part.vector, sign)
        if part.admitted:
            self.running += sign * part.counts
            _add(self.admitted, part.vector, sign)

    @property
    def empty(self) -> bool:
        return not (self.reserving or self.reserved or self.admitted)


class _Part(msgspec.Struct, frozen=True):
    """What one workload adds to its queues."""

    cluster_queue: str
    local_queue: str
    vector: Vector
    counts: bool
    """Deactivated workloads still hold quota but are not counted as reserving."""
    admitted: bool


def _add(total: Vector, vector: Vector, sign: int) -> None:
    for index, amount in vector.items():
        left = total.get(index, 0) + sign * amount
        if left:
            total[index] = left
        else:
            total.pop(index, None)


class QueueView:
    """Fold feed items with `apply`, then ask. `take_changed` names the queues whose status may be another than before."""

    def __init__(self, rules: RequestRules = DEFAULT_RULES, afs: AfsSettings | None = None) -> None:
        self._rules = rules
        self._afs = afs
        self._start(0)

    def _start(self, epoch: int) -> None:
        self.epoch = epoch
        self.caught_up = False
        self._fold = Fold(rules=self._rules, afs=self._afs)
        self.objects = self._fold.objects
        self.world = self._fold.world
        self._parts: dict[str, _Part] = {}
        self._by_cluster_queue: dict[str, _Tally] = {}
        self._by_local_queue: dict[str, _Tally] = {}
        self._workloads_of: dict[str, dict[str, None]] = {}
        self._changed: set[ObjectName] = set()

    def apply(self, item: FeedItem, now: float) -> Change[Object] | None:
        """Fold one item; the change it made to an object, if any. Entries of the log and outcomes are of no interest here."""
        match item:
            case Reset():
                self._start(item.epoch)
            case CaughtUp():
                self.caught_up = True
            case ObjectChanged():
                return self._object(item, now)
            case _:
                pass
        return None

    def _object(self, item: ObjectChanged, now: float) -> Change[Object] | None:
        if item.name.kind == "workload":
            self._touch_workload(item.name.key)
        change = self._fold.change(item, now)
        self.world.flush_retries(now)
        if change is None:
            return None
        match item.name.kind:
            case "workload":
                self._workload(change)
            case "localqueue":
                self._changed.add(item.name)
                self._touch_cluster_queue(change.old)
                self._touch_cluster_queue(change.new)
            case "clusterqueue":
                self._touch(item.name.key)
            case "resourceflavor" | "admissioncheck" | "topology":
                for queue in self.objects.all(ClusterQueue):
                    self._touch(queue)
            case _:
                pass
        return change

    def _touch(self, cluster_queue: str) -> None:
        self._changed.add(ObjectName("clusterqueue", "", cluster_queue))
        for local_queue in self.objects.all(LocalQueue).values():
            if local_queue.cluster_queue == cluster_queue:
                self._changed.add(ObjectName("localqueue", local_queue.namespace, local_queue.name))

    def _touch_cluster_queue(self, local_queue: Object | None) -> None:
        if isinstance(local_queue, LocalQueue):
            self._changed.add(ObjectName("clusterqueue", "", local_queue.cluster_queue))

    def _touch_workload(self, key: str) -> None:
        """Mark the queues that the workload is counted in as it stands."""
        workload = self.objects.get(Workload, key)
        if workload is not None and workload.queue_name:
            self._changed.add(ObjectName("localqueue", workload.namespace, workload.queue_name))
            local_queue = self.objects.get(LocalQueue, f"{workload.namespace}/{workload.queue_name}")
            self._touch_cluster_queue(local_queue)
        part = self._parts.get(key)
        if part is not None:
            self._changed.add(ObjectName("clusterqueue", "", part.cluster_queue))

    def _workload(self, change: Change[Object]) -> None:
        key = change.name.key
        old, new = change.old, change.new
        if isinstance(old, Workload):
            self._list(old, present=False)
        if isinstance(new, Workload):
            self._list(new, present=True)
        before, after = self._parts.pop(key, None), self._part(key)
        if after is not None:
            self._parts[key] = after
        if before != after:
            for part, sign in ((before, -1), (after, 1)):
                if part is not None:
                    _tally(self._by_cluster_queue, part.cluster_queue, part, sign)
                    _tally(self._by_local_queue, part.local_queue, part, sign)
        self._touch_workload(key)

    def _list(self, workload: Workload, *, present: bool) -> None:
        local_queue = f"{workload.namespace}/{workload.queue_name}"
        members = self._workloads_of.setdefault(local_queue, {})
        if present:
            members[workload.key] = None
        else:
            members.pop(workload.key, None)
            if not members:
                del self._workloads_of[local_queue]

    def _part(self, key: str) -> _Part | None:
        info = self.world.workloads.get(key)
        charge = self.world.charges.get(key)
        if info is None or charge is None:
            return None
        queue = charge.admission.cluster_queue
        return _Part(queue, info.queue_key, charge.vector, info.active, info.is_true("Admitted"))

    @property
    def recounted(self) -> tuple[str, ...]:
        """Workloads whose requests the last change made others, though they did not change themselves."""
        return self._fold.recounted

    def take_changed(self) -> frozenset[ObjectName]:
        """ClusterQueues and LocalQueues whose status may have changed since the last call (also such that are gone by now)."""
        changed, self._changed = frozenset(self._changed), set()
        return changed

    def cluster_queue(self, name: str) -> QueueStatus | None:
        """Status of a ClusterQueue; None if there is no such object."""
        if self.objects.get(ClusterQueue, name) is None:
            return None
        tally = self._by_cluster_queue.get(name, _EMPTY)
        return QueueStatus(
            pending=self.world.pending.pending_count(name),
            reserving=tally.reserving,
            admitted=tally.running,
            reservation=self._rows(name, tally.reserved, whole=True),
            usage=self._rows(name, tally.admitted, whole=True),
            active=self._fold.activity(name),
        )

    def local_queue(self, key: str) -> QueueStatus | None:
        """Status of a LocalQueue (`namespace/name`); None if there is no such object. Rows say nothing of borrowing."""
        local_queue = self.objects.get(LocalQueue, key)
        if local_queue is None:
            return None
        queue = local_queue.cluster_queue
        known = self.objects.get(ClusterQueue, queue) is not None
        tally = self._by_local_queue.get(key, _EMPTY) if known else _EMPTY
        return QueueStatus(
            pending=self.world.pending.local_pending_count(key) if known else self._orphans(key),
            reserving=tally.reserving,
            admitted=tally.running,
            reservation=self._rows(queue, tally.reserved, whole=False),
            usage=self._rows(queue, tally.admitted, whole=False),
            active=self._fold.local_activity(key),
        )

    def _orphans(self, local_queue: str) -> int:
        """Workloads that could wait if the ClusterQueue of their LocalQueue existed."""
        if local_queue not in self.world.pending.local_queues:
            return 0
        infos = (self.world.workloads.get(key) for key in self._workloads_of.get(local_queue, ()))
        return sum(1 for info in infos if info is not None and info.admissible())

    def _rows(self, queue: str, held: Vector, *, whole: bool) -> QueueUsage:
        config = self.world.cluster_queues.get(queue)
        if config is None:
            return QueueUsage()
        rows: list[tuple[str, str, int, int]] = []
        for group in config.groups:
            for flavor in group.flavors:
                for resource, index in sorted(flavor.cells.items()):
                    used = held.get(index, 0)
                    borrowed = max(0, used - config.quotas[index].nominal) if whole and config.cohort else 0
                    rows.append((flavor.name, resource, used, borrowed))
        return QueueUsage(tuple(rows))

    def workloads_of_local_queue(self, key: str) -> Iterator[Workload]:
        """Every workload that names this LocalQueue (`namespace/name`), finished ones included."""
        for workload in tuple(self._workloads_of.get(key, ())):
            found = self.objects.get(Workload, workload)
            if found is not None:
                yield found

    def workloads_of_cluster_queue(self, name: str) -> Iterator[Workload]:
        """Every workload whose LocalQueue leads to this ClusterQueue, or that holds quota in it."""
        keys: dict[str, None] = {}
        for key, local_queue in self.objects.all(LocalQueue).items():
            if local_queue.cluster_queue == name:
                keys.update(self._workloads_of.get(key, {}))
        keys.update(self.world.members.get(name, {}))
        for workload in keys:
            found = self.objects.get(Workload, workload)
            if found is not None:
                yield found

    def is_reserving(self, cluster_queue: str) -> bool:
        """Does any workload hold quota in this ClusterQueue (known or not)? Its finalizer stays while one does."""
        return bool(self.world.members.get(cluster_queue))


_EMPTY = _Tally()


def _tally(tallies: dict[str, _Tally], queue: str, part: _Part, sign: int) -> None:
    tally = tallies.setdefault(queue, _Tally())
    tally.add(part, sign)
    if tally.empty:
        del tallies[queue]
