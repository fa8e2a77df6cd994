"""What each change means for queue_manager: which objects to look at again. One function per kind of object.

Keys of the agenda are `<kind> <key>` of the object that a command would be about.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from services.queue_manager.finalizers import checks_of, flavors_of
from services.queue_manager.priorities import names_class
from shared.events.objects import (
    ClusterQueue,
    Cohort,
    LocalQueue,
    Namespace,
    Object,
    ResourceFlavor,
    Workload,
    WorkloadPriorityClass,
)
from shared.events.subjects import ObjectName
from shared.state.objects import Change
from shared.state.queues import QueueView

GUARDED_KINDS = ("clusterqueue", "resourceflavor", "admissioncheck", "topology")


def key_of(kind: str, key: str) -> str:
    """The agenda's name of an object."""
    return f"{kind} {key}"


class Handlers:
    """Beside the view: which workloads name which priority class, and what each queue's activity was when last looked at."""

    def __init__(self, view: QueueView, *, shares: bool = False) -> None:
        """`shares`: fair sharing is on, so the status of cohorts and of neighbours may differ too."""
        self._view = view
        self._shares = shares
        self._by_class: dict[str, set[str]] = {}

    def changed(self, change: Change[Object]) -> Iterator[str]:
        """Keys that a change concerns, beside the status of queues (see `queues_changed`)."""
        kind, old, new = change.name.kind, change.old, change.new
        if kind == "workload" or (kind in GUARDED_KINDS and new is not None):
            yield key_of(kind, change.name.key)
        yield from (key_of("workload", workload) for workload in self._view.recounted)
        match new if new is not None else old:
            case Workload():
                self._workload(old, new)
            case LocalQueue():
                yield from self._local_queue(change.name, old, new)
            case ClusterQueue():
                yield from self._cluster_queue(change.name.key, old, new)
            case ResourceFlavor():
                for flavor in (old, new):
                    if isinstance(flavor, ResourceFlavor) and flavor.topology:
                        yield key_of("topology", flavor.topology)
            case Namespace(name=name):
                for queue in self._view.objects.all(LocalQueue).values():
                    if queue.namespace == name:
                        yield from self.workloads_in("localqueue", queue.key)
            case WorkloadPriorityClass(name=name):
                for workload in self._by_class.get(name, ()):
                    yield key_of("workload", workload)

    def queues_changed(self) -> Iterator[str]:
        """Keys of queues whose status may differ."""
        for name in self._view.take_changed():
            yield key_of(name.kind, name.key)

    def shares_changed(self, change: Change[Object], queues: Iterable[str]) -> Iterator[str]:
        """Keys of queues and cohorts whose share may differ, of which `queues` are told already.

        A share depends on usage below the node, and on the quotas and weights of the whole tree.
        """
        if not self._shares:
            if change.name.kind == "cohort":
                yield key_of("cohort", change.name.key)
            return
        match change.old, change.new:
            case (ClusterQueue() | Cohort() as old, ClusterQueue() | Cohort() as new) if _same_spec(old, new):
                pass
            case (ClusterQueue() | Cohort(), _) | (_, ClusterQueue() | Cohort()):
                yield from (key_of("clusterqueue", name) for name in self._view.objects.all(ClusterQueue))
                yield from (key_of("cohort", name) for name in self._view.objects.all(Cohort))
                return
            case _:
                pass
        if change.name.kind == "cohort":
            yield key_of("cohort", change.name.key)
        forest = self._view.world.forest
        for key in queues:
            kind, _, name = key.partition(" ")
            if kind == "clusterqueue" and forest.has_cluster_queue(name) and not forest.in_cycle(name):
                yield from (key_of("cohort", cohort) for cohort in forest.path(name)[:-1])

    def workloads_in(self, kind: str, key: str) -> Iterator[str]:
        """Keys of the workloads of a queue: looked at again when the queue becomes active, inactive, or otherwise."""
        found: Iterable[Workload] = (
            self._view.workloads_of_cluster_queue(key)
            if kind == "clusterqueue"
            else self._view.workloads_of_local_queue(key)
        )
        for workload in found:
            if not workload.finished:
                yield key_of("workload", workload.key)

    def _workload(self, old: Object | None, new: Object | None) -> None:
        before = names_class(old) if isinstance(old, Workload) else ""
        after = names_class(new) if isinstance(new, Workload) else ""
        if before == after:
            return
        if before and isinstance(old, Workload):
            self._by_class[before].discard(old.key)
        if after and isinstance(new, Workload):
            self._by_class.setdefault(after, set()).add(new.key)

    def _local_queue(self, name: ObjectName, old: Object | None, new: Object | None) -> Iterator[str]:
        if not (
            isinstance(old, LocalQueue)
            and isinstance(new, LocalQueue)
            and (old.cluster_queue, old.stop_policy, old.deleting) == (new.cluster_queue, new.stop_policy, new.deleting)
        ):
            yield from self.workloads_in("localqueue", name.key)

    def _cluster_queue(self, key: str, old: Object | None, new: Object | None) -> Iterator[str]:
        if isinstance(old, ClusterQueue) and isinstance(new, ClusterQueue) and _same_spec(old, new):
            return
        yield from self.workloads_in("clusterqueue", key)
        for queue in (old, new):
            if isinstance(queue, ClusterQueue):
                yield from (key_of("resourceflavor", name) for name in flavors_of(queue))
                yield from (key_of("admissioncheck", name) for name in checks_of(queue))


def _same_spec(old: ClusterQueue | Cohort, new: ClusterQueue | Cohort) -> bool:
    return (old.uid, old.generation, old.deleting) == (new.uid, new.generation, new.deleting)
