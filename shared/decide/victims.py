"""From targets to decisions: the Preempt of each victim, its message and paths (core rules 7.8 and 7.9).

Why it exists: the victim's condition tells a person who took its place, why, and from where in the tree to where; dashboards take the
parts out of the text. A victim that is on its way out already gets a Preempt too, marked so that nobody writes it.
"""

from __future__ import annotations

from shared.api import names
from shared.decide.decisions import Preempt
from shared.decide.preemption_request import Target
from shared.model.workload import WorkloadInfo
from shared.model.world import World

UNKNOWN = "UNKNOWN"

_CAUSES = {
    names.REASON_IN_CLUSTER_QUEUE: "prioritization in the ClusterQueue",
    names.REASON_IN_COHORT_RECLAMATION: "reclamation within the cohort",
    names.REASON_IN_COHORT_FAIR_SHARING: "Fair Sharing within the cohort",
    names.REASON_IN_COHORT_RECLAIM_WHILE_BORROWING: "reclamation within the cohort while borrowing",
}


def path_text(world: World, queue: str) -> str:
    """`/<root cohort>/.../parent/queue`, or `/queue` without a cohort."""
    return "/" + "/".join(world.forest.path(queue))


def message(preemptor: WorkloadInfo, reason: str, preemptor_path: str, preemptee_path: str) -> str:
    """The text of the Evicted and Preempted conditions."""
    who = f"(UID: {preemptor.uid or UNKNOWN}, JobUID: {preemptor.job_uid or UNKNOWN})"
    return (
        f"Preempted for another workload {who} due to {_CAUSES[reason]}; "
        f"preemptor path: {preemptor_path}; preemptee path: {preemptee_path}"
    )


def preempt(world: World, preemptor: WorkloadInfo, queue: str, target: Target) -> Preempt:
    """The decision to evict a target for this preemptor of ClusterQueue `queue`."""
    ways = path_text(world, queue), path_text(world, target.cluster_queue)
    text = message(preemptor, target.reason, *ways)
    return _decision(world, preemptor, queue, target, text, names.REASON_PREEMPTED, ways)


def migrate(world: World, variant: WorkloadInfo, queue: str, sibling: str) -> Preempt:
    """The decision to evict an admitted sibling so that this better variant can take its place."""
    text = f"Another variant on a preferred flavor can be admitted (UID: {variant.uid or UNKNOWN})"
    charge = world.charges[sibling]
    target = Target(sibling, charge.admission.cluster_queue, names.REASON_FLAVOR_MIGRATION, charge.vector)
    ways = path_text(world, queue), path_text(world, target.cluster_queue)
    return _decision(world, variant, queue, target, text, names.REASON_FLAVOR_MIGRATION, ways)


def _decision(
    world: World, preemptor: WorkloadInfo, queue: str, target: Target, text: str, eviction: str, ways: tuple[str, str]
) -> Preempt:
    """`ways`: the paths of preemptor and victim."""
    victim = world.workloads[target.key]
    return Preempt(
        key=target.key,
        uid=victim.uid,
        incarnation="" if target.key in world.assumed else victim.incarnation,
        cluster_queue=target.cluster_queue,
        domain=world.forest.tree_id(target.cluster_queue)[1],
        eviction=eviction,
        reason=target.reason,
        message=text,
        preemptor=preemptor.key,
        preemptor_uid=preemptor.uid,
        preemptor_cluster_queue=queue,
        priority=victim.priority,
        preemptor_priority=preemptor.priority,
        preemptor_path=ways[0],
        preemptee_path=ways[1],
        already_evicted=world.evicted(target.key),
    )
