"""Objects for the tests of provisioning_request: a workload with quota and one pending check, its check, its configuration, a request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from shared.api import names
from shared.events.objects import (
    Admission,
    AdmissionCheck,
    CheckState,
    Condition,
    Container,
    Owner,
    PodSet,
    PodSetAssignment,
    ProvisioningRequest,
    ProvisioningRequestConfig,
    Workload,
)

RESERVED = Condition(names.QUOTA_RESERVED, True, "QuotaReserved")
EVICTED = Condition(names.EVICTED, True, "Preempted")
ADMITTED = Condition(names.ADMITTED, True, "Admitted")


def true(type_: str, message: str = "") -> Condition:
    return Condition(type_, True, type_, message)


def pod_set(name: str = "main", count: int = 2, **changes: Any) -> PodSet:
    base = PodSet(name=name, count=count, containers=(Container(requests={"cpu": "1"}),))
    return msgspec.structs.replace(base, **changes)


def workload(
    *,
    checks: Iterable[CheckState] = (CheckState(name="prov"),),
    pod_sets: Iterable[PodSet] | None = None,
    **changes: Any,
) -> Workload:
    pod_sets = tuple(pod_sets) if pod_sets is not None else (pod_set(),)
    base = Workload(
        namespace="ns",
        name="wl",
        uid="wl-uid",
        version=10,
        incarnation="inc",
        pod_sets=pod_sets,
        conditions=(RESERVED,),
        admission=Admission("cq", tuple(PodSetAssignment(name=p.name, count=p.count) for p in pod_sets)),
        checks=tuple(checks),
    )
    return msgspec.structs.replace(base, **changes)


def config(**changes: Any) -> ProvisioningRequestConfig:
    base = ProvisioningRequestConfig(name="cfg", version=1, class_name="check-capacity", parameters={"p": "1"})
    return msgspec.structs.replace(base, **changes)


def check(**changes: Any) -> AdmissionCheck:
    base = AdmissionCheck(
        name="prov",
        uid="ac-uid",
        version=5,
        generation=2,
        controller=names.PROVISIONING_REQUEST_CONTROLLER,
        parameters_group=names.GROUP,
        parameters_kind=names.PROVISIONING_REQUEST_CONFIG,
        parameters_name="cfg",
        active=Condition(names.ACTIVE, True, "Active"),
    )
    return msgspec.structs.replace(base, **changes)


def request(attempt: int = 1, *conditions: Condition, **changes: Any) -> ProvisioningRequest:
    name = f"wl-prov-{attempt}"
    base = ProvisioningRequest(
        namespace="ns",
        name=name,
        uid=f"pr-uid-{attempt}",
        version=20,
        class_name="check-capacity",
        parameters={"p": "1"},
        pod_sets=((f"ppt-{name}-main", 2),),
        owners=(Owner(names.GROUP_VERSION, names.WORKLOAD, "wl", "wl-uid", controller=True),),
        conditions=conditions,
    )
    return msgspec.structs.replace(base, **changes)
