"""Projections and Worlds with few words, for tests of the model and of decisions."""

from __future__ import annotations

from typing import Any

import msgspec

from shared.decide.requests import DEFAULT_RULES, RequestRules, workload_info
from shared.events import objects as o
from shared.model.pending import OrderPolicy
from shared.model.workload import WorkloadInfo
from shared.model.world import World


def flavor(name: str, **fields: Any) -> o.ResourceFlavor:
    return o.ResourceFlavor(name=name, version=1, **fields)


def quota(text: str) -> o.FlavorQuota:
    """`resource=nominal[,borrow=x][,lend=y]`."""
    first, *limits = text.split(",")
    resource, _, nominal = first.partition("=")
    named = dict(limit.split("=") for limit in limits)
    return o.FlavorQuota(resource, nominal, named.get("borrow"), named.get("lend"))


def group(**flavors: str | tuple[str, ...]) -> o.ResourceGroup:
    """`group(spot="cpu=4", od=("cpu=8", "memory=1Gi"))`: the first flavor names the covered resources."""
    built = {
        name: tuple(quota(text) for text in ((texts,) if isinstance(texts, str) else texts))
        for name, texts in flavors.items()
    }
    covered = tuple(one.resource for one in next(iter(built.values()), ()))
    return o.ResourceGroup(covered, tuple(o.Flavor(name, quotas) for name, quotas in built.items()))


def queue(name: str, *groups: o.ResourceGroup, cohort: str = "", **fields: Any) -> o.ClusterQueue:
    fields.setdefault("namespace_selector", o.Selector())
    return o.ClusterQueue(name=name, version=1, cohort=cohort, groups=groups, **fields)


def local(name: str, cluster_queue: str, namespace: str = "ns", **fields: Any) -> o.LocalQueue:
    return o.LocalQueue(namespace=namespace, name=name, version=1, cluster_queue=cluster_queue, **fields)


def cohort(name: str, parent: str = "", *groups: o.ResourceGroup) -> o.Cohort:
    return o.Cohort(name=name, version=1, parent=parent, groups=groups)


def condition(type_: str, status: bool, reason: str = "", changed: int = 0, message: str = "") -> o.Condition:
    return o.Condition(type_, status, reason, message, changed)


def pod_set(name: str = "main", count: int = 1, **fields: Any) -> o.PodSet:
    """A pod set of one container; requests are keywords with `requests=`."""
    requests = fields.pop("requests", {})
    limits = fields.pop("limits", {})
    fields.setdefault("containers", (o.Container(requests=requests, limits=limits),))
    return o.PodSet(name=name, count=count, **fields)


def workload(name: str, local_queue: str = "lq", cpu: str = "1", **fields: Any) -> o.Workload:
    """A workload of one pod asking for `cpu`, in namespace `ns` unless told otherwise."""
    fields.setdefault("pod_sets", (pod_set(requests={"cpu": cpu}),))
    fields.setdefault("namespace", "ns")
    fields.setdefault("uid", f"uid-{name}")
    return o.Workload(name=name, version=1, queue_name=local_queue, **fields)


def reserved(source: o.Workload, cluster_queue: str, flavor_name: str = "default", **usage: int) -> o.Workload:
    """The workload with a reservation of `usage`, all in one flavor."""
    assignment = o.PodSetAssignment(
        name=source.pod_sets[0].name, count=1, flavors=dict.fromkeys(usage, flavor_name), usage=dict(usage)
    )
    return msgspec.structs.replace(
        source,
        admission=o.Admission(cluster_queue, (assignment,)),
        conditions=(*source.conditions, condition("QuotaReserved", True, "QuotaReserved")),
    )


def info(source: o.Workload, rules: RequestRules = DEFAULT_RULES) -> WorkloadInfo:
    return workload_info(source, rules)


def world(*objects: o.Object, policy: OrderPolicy | None = None, now: float = 0) -> World:
    """A World of these objects, with namespace `ns` and a flavor `default`; put in order of dependency."""
    built = World(policy)
    built.set_namespace("ns", {})
    built.set_resource_flavor(flavor("default"))
    put(built, *objects, now=now)
    return built


def put(target: World, *objects: o.Object, now: float = 0) -> None:
    """Apply objects in the given order."""
    for one in objects:
        match one:
            case o.ResourceFlavor():
                target.set_resource_flavor(one)
            case o.AdmissionCheck():
                target.set_admission_check(one)
            case o.Cohort():
                target.set_cohort(one)
            case o.ClusterQueue():
                target.set_cluster_queue(one)
            case o.LocalQueue():
                target.set_local_queue(one)
            case o.Namespace():
                target.set_namespace(one.name, one.labels)
            case o.Workload():
                target.upsert(info(one), now)
            case _:
                raise TypeError(type(one).__name__)
