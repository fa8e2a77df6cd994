"""Who may be preempted by whom, and in which order (core rules 7.1 and 7.2).

Why it exists: classical and fair-sharing preemption choose among the same candidates. A candidate is a workload that holds quota,
admitted or not, here a `Rank` of its ClusterQueue. Candidates come lazily: a search that needs ten of ten thousand reads ten.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cmp_to_key
from operator import itemgetter

from shared.decide.preemption_request import PreemptionRequest
from shared.model.reservations import Rank
from shared.model.workload import WorkloadInfo, queue_timestamp
from shared.model.world import World

Candidate = tuple[Rank, str]
"""(rank, ClusterQueue)."""

NOBODY: Iterator[Rank] = iter(())


def own_candidates(world: World, request: PreemptionRequest, *, evicted: bool | None = None) -> Iterator[Rank]:
    """Workloads of the preemptor's own ClusterQueue that it may preempt, in order. `evicted` restricts to those (not) on their way out."""
    policy = request.queue.preemption.within_cluster_queue
    return _eligible(world, request, request.queue.name, policy, evicted)


def queue_candidates(
    world: World, request: PreemptionRequest, queue: str, *, evicted: bool | None = None
) -> Iterator[Rank]:
    """Workloads of another ClusterQueue of the tree that the preemptor may take quota back from, in order."""
    return _eligible(world, request, queue, request.queue.preemption.reclaim_within_cohort, evicted)


def _eligible(
    world: World, request: PreemptionRequest, queue: str, policy: str, evicted: bool | None
) -> Iterator[Rank]:
    """`NOBODY` when it is clear without a walk."""
    if policy == "Never":
        return NOBODY
    ranked = world.ranked(queue)
    first, last = 0, len(ranked)
    if evicted is not None:
        border = bisect_left(ranked, 1, key=itemgetter(0)) if ranked and not ranked[0][0] else 0
        first, last = (0, border) if evicted else (border, last)
    if first == last:
        return NOBODY
    config = world.cluster_queues.get(queue)
    by_usage = request.usage_of is not None and config is not None and config.usage_based_admission
    if by_usage:
        ranked = _by_usage(world, request, queue)
    elif policy == "LowerPriority" and ranked[first][0] and ranked[first][1] >= request.preemptor.priority:
        return NOBODY
    return _walk(world, request, ranked, range(first, last), policy, stop_early=not by_usage)


def _walk(
    world: World, request: PreemptionRequest, ranked: Sequence[Rank], places: range, policy: str, *, stop_early: bool
) -> Iterator[Rank]:
    charges, need, excluded, own = world.charges, request.need, request.excluded, request.preemptor
    limit, newer = own.priority, policy == "LowerOrNewerEqualPriority"
    for place in places:
        rank = ranked[place]
        priority, key = rank[1], rank[4]
        if priority >= limit and policy != "Any":
            if priority > limit or not newer:
                if rank[0] and stop_early:
                    return
                continue
            if not _stamp(world, own) < _stamp(world, world.workloads[key]):
                continue
        if key not in excluded and not need.isdisjoint(charges[key].vector) and key != own.key:
            yield rank


def _by_usage(world: World, request: PreemptionRequest, queue: str) -> list[Rank]:
    return [rank for rank, _ in in_order(world, ((rank, queue) for rank in world.ranked(queue)), request)]


def _stamp(world: World, info: WorkloadInfo) -> float:
    policy = world.pending.policy
    return queue_timestamp(info, by_eviction=policy.by_eviction, priority_within_cohort=policy.priority_within_cohort)


def in_order(world: World, candidates: Iterable[Candidate], request: PreemptionRequest) -> list[Candidate]:
    """Candidates of any ClusterQueues, first to be preempted first, admission fair sharing included."""
    own, usage_of = request.queue.name, request.usage_of

    def compare(left: Candidate, right: Candidate) -> int:
        (rank, queue), (other, other_queue) = left, right
        if rank[0] != other[0]:
            return rank[0] - other[0]
        if (queue == own) != (other_queue == own):
            return 1 if queue == own else -1
        if usage_of is not None and queue == other_queue and _usage_based(world, queue):
            local, other_local = world.workloads[rank[4]].queue_key, world.workloads[other[4]].queue_key
            if local != other_local and usage_of(local) != usage_of(other_local):
                return -1 if usage_of(local) > usage_of(other_local) else 1
        return -1 if rank < other else 1 if other < rank else 0

    return sorted(candidates, key=cmp_to_key(compare))


def _usage_based(world: World, queue: str) -> bool:
    config = world.cluster_queues.get(queue)
    return config is not None and config.usage_based_admission
