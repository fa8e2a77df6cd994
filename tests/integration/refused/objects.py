"""What refusals are written with: how one is described, and objects that are good but for what a caller changes."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.integration.admission_server import Document, cluster_queue, job, named

K = "kueue.x-k8s.io/"
TIME = "2026-01-01T12:00:00Z"
INVALID, UNSUPPORTED, DUPLICATE = "Invalid value", "Unsupported value", "Duplicate value"
REQUIRED, FORBIDDEN, NOT_FOUND = "Required value", "Forbidden", "Not found"
TOO_MANY, TOO_LONG = "Too many", "Too long"


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """`change` is a merge patch of an object that was accepted before (of its status with `status`)."""

    document: Document
    path: str
    kind: str
    code: int = 422
    value: str = ""
    before: tuple[Document, ...] = ()
    change: Document | None = None
    status: bool = False


def quota(name: str = "cpu", nominal: str = "9", **limits: str) -> Document:
    return {"name": name, "nominalQuota": nominal, **limits}


def group(*flavors: tuple[str, list[Document]], covered: tuple[str, ...] = ("cpu",)) -> Document:
    return {"coveredResources": list(covered), "flavors": [{"name": n, "resources": r} for n, r in flavors]}


def queue(**spec: Any) -> Document:
    return cluster_queue("x", **spec)


def grouped(*groups: Document, **spec: Any) -> Document:
    return queue(resourceGroups=list(groups), **spec)


def cohort(*groups: Document, **spec: Any) -> Document:
    return named("Cohort", "x", resourceGroups=list(groups), **spec)


def flavor(**spec: Any) -> Document:
    return named("ResourceFlavor", "x", **spec)


def kind(kind_: str, **spec: Any) -> Document:
    return named(kind_, "x", **spec)


def priority_class(**fields: Any) -> Document:
    return {**named("WorkloadPriorityClass", "x"), **fields}


def pod_set(name: str = "main", count: int = 2, **fields: Any) -> Document:
    container = {"name": "c", "image": "i", "resources": fields.pop("resources", {})}
    spec = {"restartPolicy": "Never", "containers": [container], **fields.pop("pod", {})}
    return {"name": name, "count": count, "template": {"metadata": fields.pop("meta", {}), "spec": spec}, **fields}


def workload(*pod_sets: Document, annotations: dict[str, str] | None = None, **spec: Any) -> Document:
    made = named("Workload", "x", podSets=list(pod_sets) or [pod_set()], **spec)
    made["metadata"]["annotations"] = annotations or {}
    return made


def condition(type_: str, **fields: Any) -> Document:
    return {"type": type_, "status": "True", "reason": "R", "message": "", "lastTransitionTime": TIME, **fields}


def held(**status: Any) -> Document:
    """A status with a reservation, as a merge patch."""
    assignment = {"name": "main", "count": 2, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "2"}}
    admission = {"clusterQueue": "q", "podSetAssignments": [assignment]}
    return {"status": {"conditions": [condition("QuotaReserved")], "admission": admission, **status}}


def status_of(**status: Any) -> Document:
    return {"status": status}


def check(state: str = "Ready", **update: Any) -> Document:
    updates = [{"name": "main", **update}]
    return {"name": "ac", "state": state, "message": "", "lastTransitionTime": TIME, "podSetUpdates": updates}


def batch_job(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **spec: Any) -> Document:
    made = job("x", labels={K + k: v for k, v in (labels or {}).items()})
    made["metadata"]["annotations"] = {K + k: v for k, v in (annotations or {}).items()}
    made["spec"] |= {"suspend": True, "parallelism": 4, **spec}
    return made


def placed(**annotations: str) -> Document:
    made = batch_job()
    keys = {K + "podset-" + key.replace("_", "-"): value for key, value in annotations.items()}
    made["spec"]["template"]["metadata"] = {"annotations": keys}
    return made
