"""Projections with few words, and a cluster reduced to what a scheduler sees of it.

`Cluster` is the API server and the gateway in one: it holds the truth, applies the log by the rules of the real gateway (incarnation must match, one outcome
each), and writes the three streams. What of them reaches a scheduler, and when, is the test's choice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from shared.bus.interface import CaughtUp, Logged, ObjectChanged, Reset, Settled
from shared.events.decisions import Admit, Batch, Decision, DecisionId, EpochOpened, Positions, Preempt
from shared.events.incarnation import incarnation
from shared.events.objects import (
    KINDS,
    Admission,
    ClusterQueue,
    Condition,
    Container,
    Flavor,
    FlavorQuota,
    LimitItem,
    LimitRange,
    LocalQueue,
    Namespace,
    Object,
    PodSet,
    PodSetAssignment,
    ResourceFlavor,
    ResourceGroup,
    RuntimeClass,
    Selector,
    Tombstone,
    Workload,
)
from shared.events.outcomes import DecisionOutcome
from shared.events.subjects import ObjectName
from shared.state.scheduling import SchedulerState

NOW = 1_000_000.0


def name_of(object_: Object) -> ObjectName:
    """Where a projection stands in OBJECTS."""
    kind = next(kind for kind, type_ in KINDS.items() if type_ is type(object_))
    return ObjectName(kind, object_.namespace, object_.name)


def identified(workload: Workload) -> Workload:
    """The workload with its incarnation, computed as the gateway does."""
    by_type = {c.type: c for c in workload.conditions}
    reserved = by_type.get("QuotaReserved")
    holds = reserved is not None and reserved.status and workload.admission is not None
    evicted, requeued = by_type.get("Evicted"), by_type.get("Requeued")
    return msgspec.structs.replace(
        workload,
        incarnation=incarnation(
            uid=workload.uid,
            generation=workload.generation,
            reserved_in=workload.admission.cluster_queue if holds and workload.admission is not None else "",
            reserved_at=reserved.changed if holds and reserved is not None else 0,
            evicted=(evicted.status, evicted.changed) if evicted is not None else (False, 0),
            requeued=(requeued.status, requeued.changed) if requeued is not None else (None, 0),
            requeue_at=workload.requeue_at,
            evictions=workload.evictions,
        ),
    )


def workload(
    name: str, cpu: str = "1", *, queue: str = "lq", count: int = 1, pods: dict[str, Any] | None = None, **more: Any
) -> Workload:
    """A pending workload of one pod set in namespace `ns`; `pods` are further fields of its pod set."""
    fields: dict[str, Any] = {"namespace": "ns", "uid": f"uid-{name}", "version": 1, "generation": 1} | more
    pod_set = PodSet(count=count, **({"containers": (Container(requests={"cpu": cpu}),)} | (pods or {})))
    return identified(Workload(name=name, queue_name=queue, pod_sets=(pod_set,), **fields))


def condition(type_: str, status: bool, reason: str = "Because", changed: int = 10) -> Condition:
    """A condition."""
    return Condition(type=type_, status=status, reason=reason, changed=changed)


def with_condition(before: Workload, *conditions: Condition, **more: Any) -> Workload:
    """The workload with these conditions set and these fields replaced, one version later."""
    types = {c.type for c in conditions}
    kept = tuple(c for c in before.conditions if c.type not in types)
    more = {"version": before.version + 1} | more
    return identified(msgspec.structs.replace(before, conditions=(*kept, *conditions), **more))


def reserved(
    before: Workload, queue: str = "cq", *, flavor: str = "default", admitted: bool = True, **more: Any
) -> Workload:
    """The workload holding quota for all it requests."""
    assignments = tuple(
        PodSetAssignment(name=p.name, count=p.count, flavors={"cpu": flavor}, usage={"cpu": p.count * millis(p)})
        for p in before.pod_sets
    )
    conditions = [condition("QuotaReserved", True)]
    if admitted:
        conditions.append(condition("Admitted", True))
    return with_condition(before, *conditions, admission=Admission(queue, assignments), **more)


def released(before: Workload, **more: Any) -> Workload:
    """The workload after an eviction, its quota given back."""
    return with_condition(
        before,
        condition("QuotaReserved", False, "PendingEvaluation", before.version),
        condition("Admitted", False, "NoReservation", before.version),
        condition("Evicted", True, "Preempted", before.version),
        condition("Requeued", True, "Preempted", before.version),
        admission=None,
        evictions=before.evictions + (not any(c.type == "Evicted" and c.status for c in before.conditions)),
        **more,
    )


def millis(pod_set: PodSet) -> int:
    """Milli-cpu of one pod of a pod set made here."""
    text = pod_set.containers[0].requests["cpu"]
    return int(text[:-1]) if text.endswith("m") else 1000 * int(text)


def cluster_queue(
    name: str = "cq", cpu: str = "4", *, flavors: tuple[str, ...] = ("default",), **more: Any
) -> ClusterQueue:
    """A ClusterQueue with quota for cpu that accepts every namespace."""
    group = ResourceGroup(
        covered=("cpu",),
        flavors=tuple(Flavor(name=f, quotas=(FlavorQuota(resource="cpu", nominal=cpu),)) for f in flavors),
    )
    fields: dict[str, Any] = {"uid": f"uid-{name}", "version": 1, "groups": (group,), "namespace_selector": Selector()}
    return ClusterQueue(name=name, **(fields | more))


def local_queue(name: str = "lq", queue: str = "cq", **more: Any) -> LocalQueue:
    """A LocalQueue in namespace `ns`."""
    fields: dict[str, Any] = {"namespace": "ns", "uid": f"uid-{name}", "version": 1} | more
    return LocalQueue(name=name, cluster_queue=queue, **fields)


def flavor(name: str = "default", **more: Any) -> ResourceFlavor:
    """A ResourceFlavor."""
    fields: dict[str, Any] = {"uid": f"uid-{name}", "version": 1} | more
    return ResourceFlavor(name=name, **fields)


def namespace(name: str = "ns", **labels: str) -> Namespace:
    """A Namespace."""
    return Namespace(name=name, uid=f"uid-{name}", version=1, labels=labels)


def limit_range(name: str = "limits", **item: dict[str, str]) -> LimitRange:
    """A LimitRange of containers in namespace `ns`."""
    return LimitRange(
        namespace="ns", name=name, uid=f"uid-{name}", version=1, items=(LimitItem(type="Container", **item),)
    )


def runtime_class(name: str = "kata", **overhead: str) -> RuntimeClass:
    """A RuntimeClass with this overhead for each pod."""
    return RuntimeClass(name=name, uid=f"uid-{name}", version=1, overhead=overhead)


def basics() -> tuple[Object, ...]:
    """One of each that a workload needs: namespace, flavor, ClusterQueue `cq` with 4 cpu, LocalQueue `lq`."""
    return namespace(), flavor(), cluster_queue(), local_queue()


def admit_of(before: Workload, queue: str = "cq", flavor: str = "default") -> Admit:
    """The decision that `reserved` is the result of."""
    admission = reserved(before, queue, flavor=flavor).admission
    assert admission is not None
    return Admit(
        key=before.key,
        uid=before.uid,
        incarnation=before.incarnation,
        cluster_queue=queue,
        domain=queue,
        pod_sets=admission.pod_sets,
    )


class Cluster:
    """The truth and the streams made of it. Versions are one counter for all objects."""

    def __init__(self, objects: Iterable[Object] = (), *, epoch: int = 1) -> None:
        self.epoch = epoch
        self.version = 0
        self.truth: dict[ObjectName, Object] = {}
        self.objects: list[ObjectChanged] = []
        self.log: list[Logged] = []
        self.outcomes: list[Settled] = []
        self.applied = 0
        opened = Positions(epoch=epoch)
        self.log.append(Logged(EpochOpened(epoch=epoch, shard="0", positions=opened, opened_ns=0), 1))
        for object_ in objects:
            self.put(object_)

    def put(self, object_: Object) -> ObjectChanged:
        """Write an object."""
        self.version += 1
        object_ = msgspec.structs.replace(object_, version=self.version)
        if isinstance(object_, Workload):
            object_ = identified(object_)
        name = name_of(object_)
        self.truth[name] = object_
        return self._publish(name, object_)

    def delete(self, name: ObjectName) -> ObjectChanged:
        """Delete an object."""
        self.version += 1
        gone = self.truth.pop(name)
        tombstone = Tombstone(namespace=name.namespace, name=name.name, uid=gone.uid, version=self.version)
        return self._publish(name, tombstone)

    def _publish(self, name: ObjectName, object_: Object) -> ObjectChanged:
        self.objects.append(ObjectChanged(name, object_, len(self.objects) + 1))
        return self.objects[-1]

    def workload(self, key: str) -> Workload | None:
        """The truth about a workload."""
        namespace, _, name = key.partition("/")
        found = self.truth.get(ObjectName("workload", namespace, name))
        return found if isinstance(found, Workload) else None

    def append(self, batch: Batch) -> bool:
        """The fence: True if the batch is in the log."""
        if batch.positions.epoch != self.epoch or batch.positions.decisions != len(self.log):
            return False
        self.log.append(Logged(batch, len(self.log) + 1))
        return True

    def apply_next(self) -> bool:
        """The gateway applies the next entry of the log; False if there is none."""
        if self.applied >= len(self.log):
            return False
        item = self.log[self.applied]
        self.applied += 1
        if isinstance(item.entry, Batch):
            for index, decision in enumerate(item.entry.decisions):
                id_ = DecisionId(self.epoch, item.position, index)
                if isinstance(decision, Admit):
                    self._apply(id_, decision)
                elif isinstance(decision, Preempt):
                    self._evict(id_, decision)
        return True

    def _evict(self, id_: DecisionId, preempt: Preempt) -> None:
        found, preemptor = self.workload(preempt.key), self.workload(preempt.preemptor)
        if found is None or found.uid != preempt.uid:
            version = found.version if found is not None else self.version
            self._settle(id_, preempt, "rejected", version, gone=True)
        elif any(c.type == "Evicted" and c.status for c in found.conditions):
            self._settle(id_, preempt, "applied", found.version)
        elif (
            preemptor is None
            or preemptor.uid != preempt.preemptor_uid
            or preemptor.finished
            or not preemptor.active
            or found.finished
            or found.admission is None
            or preempt.incarnation not in ("", found.incarnation)
        ):
            self._settle(id_, preempt, "rejected", found.version)
        else:
            self.version += 1
            evicted = condition("Evicted", True, preempt.eviction, self.version)
            new = with_condition(found, evicted, evictions=found.evictions + 1, version=self.version)
            self.truth[name_of(new)] = new
            self._publish(name_of(new), new)
            self._settle(id_, preempt, "applied", self.version)

    def _apply(self, id_: DecisionId, admit: Admit) -> None:
        found = self.workload(admit.key)
        if found is None or found.uid != admit.uid:
            version = found.version if found is not None else self.version
            self._settle(id_, admit, "rejected", version, gone=True)
        elif found.incarnation != admit.incarnation or found.admission is not None or found.finished:
            self._settle(id_, admit, "rejected", found.version)
        else:
            self.version += 1
            admission = Admission(admit.cluster_queue, admit.pod_sets)
            conditions = [condition("QuotaReserved", True, changed=self.version), condition("Admitted", True)]
            if any(c.type == "Evicted" for c in found.conditions):
                conditions.append(condition("Evicted", False, "QuotaReserved", self.version))
            new = with_condition(found, *conditions, admission=admission, version=self.version)
            self.truth[name_of(new)] = new
            self._publish(name_of(new), new)
            self._settle(id_, admit, "applied", self.version)

    def _settle(self, id_: DecisionId, decision: Decision, status: Any, version: int, *, gone: bool = False) -> None:
        outcome = DecisionOutcome(
            decision=id_, key=decision.key, uid=decision.uid, status=status, version=version, gone=gone
        )
        self.outcomes.append(Settled(outcome, len(self.outcomes) + 1))

    def used(self) -> dict[tuple[str, str], int]:
        """Quota held in truth, by ClusterQueue and flavor (milli-cpu)."""
        total: dict[tuple[str, str], int] = {}
        for found in self.truth.values():
            if isinstance(found, Workload) and found.admission is not None and not found.finished:
                for part in found.admission.pod_sets:
                    at = (found.admission.cluster_queue, part.flavors["cpu"])
                    total[at] = total.get(at, 0) + part.usage["cpu"]
        return total

    def everything(self) -> list[list[ObjectChanged] | list[Logged] | list[Settled]]:
        """The three streams."""
        return [self.objects, self.log, self.outcomes]

    @property
    def positions(self) -> Positions:
        """The tails of the streams."""
        return Positions(
            epoch=self.epoch, objects=len(self.objects), decisions=len(self.log), outcomes=len(self.outcomes)
        )


def fed(cluster: Cluster, state: SchedulerState | None = None, now: float = NOW) -> SchedulerState:
    """A scheduler's state that has read everything."""
    state = state or SchedulerState()
    state.apply(Reset(cluster.epoch, "start"), now)
    for item in cluster.objects:
        state.apply(item, now)
    for entry in cluster.log:
        state.apply(entry, now)
    for outcome in cluster.outcomes:
        state.apply(outcome, now)
    state.apply(CaughtUp(cluster.positions), now)
    return state
