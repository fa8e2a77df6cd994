"""Variants of concurrent admission within a cycle: which sibling holds quota, and may a better variant replace it (core rule 9.4).

Why it exists: a workload that may run on several flavors waits as one variant per flavor. Creating, activating and opening the gates
of variants is not done here.
"""

from __future__ import annotations

from shared.model.cluster_queue import ClusterQueue
from shared.model.workload import WorkloadInfo
from shared.model.world import World


def admitted_sibling(world: World, info: WorkloadInfo, queue: ClusterQueue) -> str:
    """Key of another variant of the same parent that is admitted in this ClusterQueue; empty if there is none."""
    for key in sorted(world.families.get(info.parent_uid, ())) if info.parent_uid else ():
        sibling, charge = world.workloads.get(key), world.charges.get(key)
        if key == info.key or sibling is None or charge is None or charge.admission.cluster_queue != queue.name:
            continue
        assumed = key in world.assumed and not queue.required_checks(charge.admission.flavors())
        if assumed or (key not in world.assumed and sibling.is_true("Admitted")):
            return key
    return ""


def place(info: WorkloadInfo, queue: ClusterQueue) -> int:
    """How preferred the flavor of a variant is: smaller is better."""
    order = queue.flavor_names()
    allowed = info.allowed_flavors or frozenset()
    return min((number for number, name in enumerate(order) if name in allowed), default=len(order))


def may_migrate(info: WorkloadInfo, queue: ClusterQueue) -> bool:
    """Is the variant's flavor one that admitted workloads may still move to?"""
    last = queue.last_acceptable_flavor
    order = queue.flavor_names()
    return not last or last not in order or place(info, queue) <= order.index(last)
