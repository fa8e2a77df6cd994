"""A cluster reduced to what the engine sees of it: objects, outcomes, and workloads that run and end in simulated time.

Why it exists: the benchmark measures deciding and folding, so the API server, the gateway and the jobs are played by the cheapest thing that
sends the same messages. Every decision is applied at once; an evicted workload gives its quota back at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from shared.bus.interface import FeedItem, ObjectChanged, Settled
from shared.events.decisions import Admit, Batch, Decision, DecisionId, Preempt
from shared.events.incarnation import incarnation
from shared.events.objects import Admission, Condition, Object, Workload
from shared.events.outcomes import DecisionOutcome
from shared.events.subjects import ObjectName


class Cluster:
    """Holds the truth; turns what happens into feed items."""

    def __init__(self, epoch: int) -> None:
        self.workloads: dict[str, Workload] = {}
        self.epoch = epoch
        self.evictions = 0
        self._position = 0
        self._outcomes = 0

    def put(self, kind: str, new: Object) -> ObjectChanged:
        """An object as the gateway publishes it."""
        self._position += 1
        if isinstance(new, Workload):
            self.workloads[new.key] = new
        return ObjectChanged(ObjectName(kind, new.namespace, new.name), new, self._position)

    def apply(self, batch: Batch, sequence: int, now_s: int) -> Iterator[tuple[str, list[FeedItem]]]:
        """(workload, messages) of each decision of a batch at `sequence` of the log."""
        for index, decision in enumerate(batch.decisions):
            yield decision.key, list(self._apply(decision, DecisionId(self.epoch, sequence, index), now_s))

    def _apply(self, decision: Decision, id_: DecisionId, now_s: int) -> Iterator[FeedItem]:
        before = self.workloads[decision.key]
        if isinstance(decision, Admit):
            yield self.put("workload", _admitted(before, decision, now_s))
        elif isinstance(decision, Preempt) and before.admission is not None:
            self.evictions += 1
            evicted = _evicted(before, decision, now_s)
            yield self.put("workload", evicted)
            yield self._outcome(decision, id_, evicted.version)
            yield self.put("workload", _released(evicted, now_s))
            return
        yield self._outcome(decision, id_, self.workloads[decision.key].version)

    def _outcome(self, decision: Decision, id_: DecisionId, version: int) -> Settled:
        self._outcomes += 1
        outcome = DecisionOutcome(decision=id_, key=decision.key, uid=decision.uid, status="applied", version=version)
        return Settled(outcome, self._outcomes)

    def finish(self, key: str) -> ObjectChanged:
        """The workload has run to its end; only a stub is kept."""
        old = self.workloads.pop(key)
        stub = Workload(
            namespace=old.namespace,
            name=old.name,
            uid=old.uid,
            version=old.version + 1,
            queue_name=old.queue_name,
            finished=True,
        )
        self._position += 1
        return ObjectChanged(ObjectName("workload", old.namespace, old.name), stub, self._position)


def _admitted(before: Workload, decision: Admit, now_s: int) -> Workload:
    reset = tuple(
        Condition(one.type, False, "QuotaReserved", changed=now_s)
        for one in before.conditions
        if one.type in ("Evicted", "Preempted")
    )
    conditions = (
        Condition("QuotaReserved", True, "QuotaReserved", changed=now_s),
        Condition("Admitted", True, "Admitted", changed=now_s),
        *reset,
    )
    return _changed(before, conditions, admission=Admission(decision.cluster_queue, decision.pod_sets))


def _evicted(before: Workload, decision: Preempt, now_s: int) -> Workload:
    conditions = (
        Condition("Evicted", True, "Preempted", decision.message, now_s),
        Condition("Preempted", True, decision.reason, decision.message, now_s),
    )
    return _changed(before, conditions, evictions=before.evictions + 1)


def _released(before: Workload, now_s: int) -> Workload:
    conditions = (
        Condition("QuotaReserved", False, "PendingEvaluation", changed=now_s),
        Condition("Admitted", False, "NoReservation", changed=now_s),
        Condition("Requeued", True, "Preempted", changed=now_s),
    )
    return _changed(before, conditions, admission=None)


def _changed(before: Workload, conditions: tuple[Condition, ...], **fields: object) -> Workload:
    """The next version with these conditions, its incarnation computed as the gateway does."""
    types = {condition.type for condition in conditions}
    kept = (condition for condition in before.conditions if condition.type not in types)
    new = msgspec.structs.replace(before, version=before.version + 1, conditions=(*kept, *conditions), **fields)
    by_type = {condition.type: condition for condition in new.conditions}
    reserved, evicted, requeued = (by_type.get(name) for name in ("QuotaReserved", "Evicted", "Requeued"))
    return msgspec.structs.replace(
        new,
        incarnation=incarnation(
            uid=new.uid,
            generation=new.generation,
            reserved_in=new.admission.cluster_queue if new.admission is not None else "",
            reserved_at=reserved.changed if reserved is not None and reserved.status else 0,
            evicted=(evicted.status, evicted.changed) if evicted is not None else (False, 0),
            requeued=(requeued.status, requeued.changed) if requeued is not None else (None, 0),
            requeue_at=None,
            evictions=new.evictions,
        ),
    )
