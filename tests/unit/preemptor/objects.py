"""Objects for the tests of preemptor, and the service without its loop."""

from __future__ import annotations

from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from services.preemptor.service import PreemptorJudge
from services.preemptor.settings import PreemptorSettings
from shared.api import names
from shared.bus.interface import CaughtUp, FeedItem, Logged, ObjectChanged, Reset, Settled
from shared.events.commands import Command
from shared.events.decisions import Batch, DecisionId, Positions, Preempt
from shared.events.objects import (
    KINDS,
    Admission,
    CheckRule,
    CheckState,
    ClusterQueue,
    Condition,
    LocalQueue,
    Object,
    Owner,
    PodSet,
    PodSetAssignment,
    Tombstone,
    Workload,
)
from shared.events.outcomes import CommandOutcome, DecisionOutcome
from shared.events.subjects import ObjectName
from shared.state.open_commands import CommandWriter

_KIND_OF = {type_: kind for kind, type_ in KINDS.items()}


def condition(
    type_: str, reason: str = "Any", changed: int = 0, message: str = "", *, status: bool = True
) -> Condition:
    return Condition(type_, status, reason, message, changed)


def workload(*conditions: Condition, admitted_at: int | None = 500, **changes: Any) -> Workload:
    """A workload that holds quota since second 400 and runs since `admitted_at`; None: it holds quota only."""
    base = Workload(
        namespace="ns",
        name="wl",
        uid="wl-uid",
        version=1,
        generation=1,
        incarnation="inc",
        queue_name="lq",
        pod_sets=(PodSet(count=1),),
        owners=(Owner("batch/v1", "Job", "job", "job-uid", controller=True),),
        admission=Admission("cq", (PodSetAssignment(name="main", count=1, flavors={"cpu": "default"}),)),
        conditions=(
            condition(names.QUOTA_RESERVED, changed=400),
            *((condition(names.ADMITTED, changed=admitted_at),) if admitted_at is not None else ()),
            *conditions,
        ),
    )
    return msgspec.structs.replace(base, **changes)


def released(*conditions: Condition, **changes: Any) -> Workload:
    """A workload that holds nothing."""
    base = workload(*conditions, **changes)
    rest = tuple(c for c in base.conditions if c.type not in (names.QUOTA_RESERVED, names.ADMITTED))
    reserved = condition(names.QUOTA_RESERVED, "PendingEvaluation", status=False)
    return msgspec.structs.replace(base, admission=None, conditions=(reserved, *rest))


def check_state(state: Any, name: str = "check", **changes: Any) -> CheckState:
    return CheckState(name=name, state=state, **changes)


def cluster_queue(**changes: Any) -> ClusterQueue:
    base = ClusterQueue(name="cq", uid="cq-uid", version=1, generation=1)
    return msgspec.structs.replace(base, **changes)


def local_queue(**changes: Any) -> LocalQueue:
    base = LocalQueue(namespace="ns", name="lq", uid="lq-uid", version=1, generation=1, cluster_queue="cq")
    return msgspec.structs.replace(base, **changes)


def with_check(queue: ClusterQueue) -> ClusterQueue:
    return msgspec.structs.replace(queue, checks=(CheckRule("check"),))


class Preemptor:
    """The service without its loop: put objects, let time pass, see the commands."""

    def __init__(self, *objects: Object, now: float = 1000.0, **settings: Any) -> None:
        self.metrics = CollectorRegistry()
        judge = PreemptorJudge(PreemptorSettings(**settings), self.metrics)
        self.writer = CommandWriter("preemptor", judge, self.metrics, leads=True)
        self.position = 10
        self.now = now
        changes = [self.change(object_) for object_ in objects]
        self.writer.fold([Reset(1, ""), *changes, CaughtUp(Positions(epoch=1))], now)

    def fold(self, *items: FeedItem) -> list[Command]:
        self.writer.fold(items, self.now)
        return self.step()

    def step(self, now: float | None = None) -> list[Command]:
        self.now = self.now if now is None else now
        commands: list[Command] = []
        while (due := self.writer.agenda.next) is not None and due <= self.now:
            commands += self.writer.step(self.now)
        return commands

    def change(self, object_: Object, **changes: Any) -> ObjectChanged:
        self.position += 1
        changes.setdefault("version", self.position)
        new = msgspec.structs.replace(object_, **changes)
        return ObjectChanged(ObjectName(_KIND_OF[type(new)], new.namespace, new.name), new, self.position)

    def put(self, object_: Object, **changes: Any) -> list[Command]:
        return self.fold(self.change(object_, **changes))

    def gone(self, object_: Object) -> list[Command]:
        self.position += 1
        name = ObjectName(_KIND_OF[type(object_)], object_.namespace, object_.name)
        tombstone = Tombstone(namespace=object_.namespace, name=object_.name, uid=object_.uid, version=self.position)
        return self.fold(ObjectChanged(name, tombstone, self.position))

    def settle(self, command: Command, status: Any = "applied", version: int = 0) -> list[Command]:
        return self.fold(Settled(CommandOutcome(command=command.id, subject="", status=status, version=version), 1))

    def preempt(self, position: int, decided_s: int = 1000) -> list[Command]:
        decision = Preempt(
            key="ns/wl",
            uid="wl-uid",
            incarnation="inc",
            reason="InClusterQueue",
            message="for another",
            preemptor="ns/other",
            preemptor_uid="other-uid",
        )
        batch = Batch(
            author="scheduler", positions=Positions(epoch=1), decided_ns=decided_s * 10**9, decisions=(decision,)
        )
        return self.fold(Logged(batch, position))

    def outcome(self, position: int, status: Any, version: int = 0) -> list[Command]:
        id_ = DecisionId(1, position, 0)
        return self.fold(
            Settled(DecisionOutcome(decision=id_, key="ns/wl", uid="wl-uid", status=status, version=version), 1)
        )

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.get_sample_value(f"sluice_preemptor_{name}", labels)
