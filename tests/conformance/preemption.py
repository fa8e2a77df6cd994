"""Steps about preemption on their own: a search for victims, the order of candidates, the order of heads."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from shared.decide import victims
from shared.decide.candidates import Candidate, in_order
from shared.decide.order import HeadOrder, head_key
from shared.decide.preemption import find_targets
from shared.decide.preemption_request import PreemptionRequest
from shared.decide.single_cycle import Outcome
from shared.model.cluster_queue import ClusterQueue
from shared.model.reservations import rank_of
from shared.model.workload import WorkloadInfo
from tests.conformance import cycle
from tests.conformance.engine import Engine
from tests.conformance.objects import cluster_queue as read_queue
from tests.conformance.scenario import demand_equal

Json = dict[str, Any]


def preempt(engine: Engine, step: Json) -> None:
    """Find the victims of a waiting workload whose flavors are given, and issue the preemptions."""
    world = engine.world
    info = engine.info(step["incoming"])
    queue = world.cluster_queues[step["clusterQueue"]]
    demand, need = _demand(engine, info, step["assignment"])
    usage_of = world.afs.usage if world.afs is not None else None
    request = PreemptionRequest(preemptor=info, queue=queue, need=need, demand=demand, usage_of=usage_of)
    before = world.forest.dump()
    targets = find_targets(world, request, cycle.fair_sharing(engine))
    demand_equal("state after the search", world.forest.dump(), before)
    engine.outcome = Outcome([], [])
    for target in targets:
        decision = victims.preempt(world, info, queue.name, target)
        if decision.already_evicted:
            engine.outcome.awaited.append(decision)
        else:
            engine.outcome.decisions.append(decision)
            cycle.evict(engine, decision)


def _demand(engine: Engine, info: WorkloadInfo, assignment: Json) -> tuple[dict[int, int], frozenset[int]]:
    pod_sets = {pod_set.name: pod_set for pod_set in info.pod_sets}
    amounts: list[tuple[str, str, int]] = []
    need: set[int] = set()
    for raw in assignment["podSets"]:
        pod_set = pod_sets[raw["name"]]
        for resource, choice in raw["flavors"].items():
            amount = pod_set.count if resource == "pods" else pod_set.requests.get(resource, 0)
            amounts.append((choice["flavor"], resource, amount))
            if choice["mode"] == "Preempt":
                need.add(engine.world.interned.index(choice["flavor"], resource))
    return engine.world.interned.vector(amounts), frozenset(need)


def order_candidates(engine: Engine, step: Json) -> None:
    """Sort possible victims; their ClusterQueues have no objects in these cases."""
    usage: dict[str, float] = {}
    candidates: list[Candidate] = []
    for entry in step["entries"]:
        info = engine.info(entry["workload"])
        engine.world.upsert(info, engine.now)
        reserved = info.condition("QuotaReserved")
        at = reserved.changed if reserved is not None and reserved.status else engine.now
        queue = entry["workload"]["status"]["admission"]["clusterQueue"]
        candidates.append((rank_of(info, info.is_true("Evicted"), at), queue))
        if "localQueueFairShareUsage" in entry:
            usage[info.queue_key] = entry["localQueueFairShareUsage"]
            engine.world.set_cluster_queue(
                read_queue(
                    {
                        "metadata": {"name": queue},
                        "spec": {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}},
                    }
                )
            )
    request = PreemptionRequest(
        preemptor=WorkloadInfo(namespace="", name="", key=""),
        queue=ClusterQueue(name=step["clusterQueue"]),
        need=frozenset(),
        demand={},
        usage_of=(lambda local: usage.get(local, 0.0)) if usage else None,
    )
    engine.answers["order"] = [rank[4] for rank, _ in in_order(engine.world, candidates, request)]


def order_heads(engine: Engine, step: Json) -> None:
    """Sort the heads of one cycle, without fair sharing."""
    policy = engine.world.pending.policy
    order = HeadOrder(
        by_eviction=policy.by_eviction,
        priority_within_cohort=policy.priority_within_cohort,
        prioritize_preemptors=engine.gate("PrioritizePreemptorWorkloads"),
    )
    keyed = []
    for entry in step["entries"]:
        info = engine.info(entry["workload"])
        # The last part, the workload's own key, only makes ties deterministic; the cases leave ties as they are listed.
        keyed.append((head_key(info, entry["borrowing"], entry["preemptor"], order)[:-1], info.key))
    engine.answers["order"] = [key for _, key in sorted(keyed, key=itemgetter(0))]


STEPS: dict[str, Callable[[Engine, Json], None]] = {
    "preempt": preempt,
    "orderCandidates": order_candidates,
    "orderHeads": order_heads,
}
