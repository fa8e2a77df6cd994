"""Worlds in which something must go, for tests of preemption."""

from __future__ import annotations

from typing import Any

from shared.decide.preemption import find_targets
from shared.decide.preemption_request import PreemptionRequest, Target
from shared.decide.settings import FairSharing
from shared.events import objects as o
from shared.model.world import World
from tests.unit.model.builders import condition, info, pod_set, workload


def holder(name: str, cluster_queue: str, cpu: int, priority: int = 0, at: int = 0, **fields: Any) -> o.Workload:
    """A workload that holds `cpu` whole cpu of flavor `default`, reserved `at`."""
    flavor = fields.pop("flavor", "default")
    evicted = fields.pop("evicted", False)
    usage = fields.pop("usage", {"cpu": cpu * 1000})
    assignment = o.PodSetAssignment(name="main", count=1, flavors=dict.fromkeys(usage, flavor), usage=usage)
    conditions = (condition("QuotaReserved", True, "QuotaReserved", at), *fields.pop("conditions", ()))
    if evicted:
        conditions += (condition("Evicted", True, "Preempted", at),)
    fields.setdefault("pod_sets", (pod_set(requests={"cpu": str(cpu)}),))
    return workload(
        name,
        fields.pop("local_queue", f"l-{cluster_queue}"),
        priority=priority,
        admission=o.Admission(cluster_queue, (assignment,)),
        conditions=conditions,
        incarnation=f"inc-{name}",
        **fields,
    )


def ask(
    built: World, cluster_queue: str, cpu: int, priority: int = 0, fair: FairSharing | None = None, **fields: Any
) -> list[tuple[str, str]]:
    """(victim, reason) of making room for a workload of `cpu` whole cpu of flavor `default`."""
    return [
        (one.key.removeprefix("ns/"), one.reason)
        for one in targets(built, cluster_queue, cpu, priority, fair, **fields)
    ]


def targets(
    built: World, cluster_queue: str, cpu: int, priority: int = 0, fair: FairSharing | None = None, **fields: Any
) -> tuple[Target, ...]:
    """The targets themselves."""
    index = built.interned.index("default", "cpu")
    excluded = fields.pop("excluded", ())
    preemptor = info(workload("P", "lq", cpu=str(cpu), priority=priority, **fields))
    request = PreemptionRequest(
        preemptor=preemptor,
        queue=built.cluster_queues[cluster_queue],
        need=frozenset((index,)),
        demand={index: cpu * 1000},
        excluded=excluded,
    )
    before = built.forest.dump()
    found = find_targets(built, request, fair)
    assert built.forest.dump() == before
    return found
