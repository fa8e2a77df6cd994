"""Objects for the tests of queue_manager, and a feed of them."""

from __future__ import annotations

from typing import Any

import msgspec

from shared.api import names
from shared.bus.interface import ObjectChanged
from shared.events.objects import (
    KINDS,
    Admission,
    AdmissionCheck,
    CheckRule,
    ClusterQueue,
    Condition,
    Container,
    Flavor,
    FlavorQuota,
    LocalQueue,
    Namespace,
    Object,
    Owner,
    PodSet,
    PodSetAssignment,
    ResourceFlavor,
    ResourceGroup,
    Selector,
    Tombstone,
    Workload,
)
from shared.events.subjects import ObjectName

IN_USE = (names.RESOURCE_IN_USE,)
_KIND_OF = {type_: kind for kind, type_ in KINDS.items()}


def condition(type_: str, status: bool, reason: str = "Any", changed: int = 0, message: str = "") -> Condition:
    return Condition(type_, status, reason, message, changed)


def cluster_queue(name: str = "cq", *, flavors: tuple[str, ...] = ("default",), **changes: Any) -> ClusterQueue:
    quotas = (FlavorQuota(resource="cpu", nominal="10"),)
    groups = (ResourceGroup(("cpu",), tuple(Flavor(flavor, quotas) for flavor in flavors)),) if flavors else ()
    base = ClusterQueue(
        name=name,
        uid=f"{name}-uid",
        version=1,
        generation=1,
        finalizers=IN_USE,
        namespace_selector=Selector(),
        groups=groups,
    )
    return msgspec.structs.replace(base, **changes)


def local_queue(name: str = "lq", **changes: Any) -> LocalQueue:
    base = LocalQueue(namespace="ns", name=name, uid=f"{name}-uid", version=1, generation=1, cluster_queue="cq")
    return msgspec.structs.replace(base, **changes)


def flavor(name: str = "default", **changes: Any) -> ResourceFlavor:
    base = ResourceFlavor(name=name, uid=f"{name}-uid", version=1, generation=1, finalizers=IN_USE)
    return msgspec.structs.replace(base, **changes)


def check(name: str = "check", *, active: bool = True, **changes: Any) -> AdmissionCheck:
    base = AdmissionCheck(
        name=name,
        uid=f"{name}-uid",
        version=1,
        generation=1,
        finalizers=IN_USE,
        controller="example.com/checker",
        active=condition(names.ACTIVE, active),
    )
    return msgspec.structs.replace(base, **changes)


def namespace(name: str = "ns", **labels: str) -> Namespace:
    return Namespace(name=name, uid=f"{name}-uid", version=1, labels=labels)


def workload(name: str = "wl", **changes: Any) -> Workload:
    base = Workload(
        namespace="ns",
        name=name,
        uid=f"{name}-uid",
        version=1,
        generation=1,
        incarnation=f"{name}-inc",
        queue_name="lq",
        pod_sets=(PodSet(count=1, containers=(Container(requests={"cpu": "1"}),)),),
        owners=(Owner("batch/v1", "Job", "job", "job-uid", controller=True),),
    )
    return msgspec.structs.replace(base, **changes)


def reserved(base: Workload, *, cpu: int = 1000, admitted: bool = False, queue: str = "cq") -> Workload:
    """`base` with quota for `cpu` milli-cpu of flavor `default`."""
    assignment = PodSetAssignment(name="main", count=1, flavors={"cpu": "default"}, usage={"cpu": cpu})
    kept = tuple(c for c in base.conditions if c.type not in (names.QUOTA_RESERVED, names.ADMITTED))
    conditions = (*kept, condition(names.QUOTA_RESERVED, True))
    if admitted:
        conditions = (*conditions, condition(names.ADMITTED, True))
    return msgspec.structs.replace(base, admission=Admission(queue, (assignment,)), conditions=conditions)


def pending(base: Workload, reason: str = "PendingEvaluation") -> Workload:
    """`base` as the scheduler has looked at it: nothing left to say."""
    conditions = (condition(names.QUOTA_RESERVED, False, reason), condition(names.ADMITTED, False, "NoReservation"))
    return msgspec.structs.replace(base, conditions=(*base.conditions, *conditions))


def rules(*checks: str) -> tuple[CheckRule, ...]:
    return tuple(CheckRule(name) for name in checks)


class Stream:
    """OBJECTS in the making: positions count up, and so do versions unless told."""

    def __init__(self) -> None:
        self.position = 10

    def put(self, object_: Object, **changes: Any) -> ObjectChanged:
        self.position += 1
        changes.setdefault("version", self.position)
        new = msgspec.structs.replace(object_, **changes)
        return ObjectChanged(ObjectName(_KIND_OF[type(new)], new.namespace, new.name), new, self.position)

    def gone(self, object_: Object) -> ObjectChanged:
        self.position += 1
        tombstone = Tombstone(namespace=object_.namespace, name=object_.name, uid=object_.uid, version=self.position)
        name = ObjectName(_KIND_OF[type(object_)], object_.namespace, object_.name)
        return ObjectChanged(name, tombstone, self.position)
