"""Preemption: whom to evict so that a workload fits, and what that could give for one flavor (core rules 6.5 and 7).

Why it exists: the cycle asks for targets, the search for flavors asks what targets could give; both get the same search, classical or
with fair sharing. It works on the live quota forest and always restores it. Deciding and wording are done elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from shared.decide import fair_preemption, preemption_classical
from shared.decide.assignment import Assignment, Grade, GranularMode, Mode, api_mode
from shared.decide.preemption_request import PreemptionRequest, Target
from shared.decide.preemption_trial import Trial
from shared.decide.settings import FairSharing
from shared.model.cluster_queue import ClusterQueue
from shared.model.flavor_resources import Vector
from shared.model.workload import WorkloadInfo
from shared.model.world import World


def find_targets(world: World, request: PreemptionRequest, fair: FairSharing | None = None) -> tuple[Target, ...]:
    """The workloads to preempt; empty if there is no way. With `fair`, by the strategies of fair sharing."""
    if not _may_preempt(world, request.queue):
        return ()
    mark = world.forest.mark()
    try:
        trial = Trial(world, request)
        found = preemption_classical.search(trial) if fair is None else fair_preemption.search(trial, fair)
        return tuple(found)
    finally:
        world.forest.undo_to(mark)


def _may_preempt(world: World, queue: ClusterQueue) -> bool:
    policy = queue.preemption
    if policy.within_cluster_queue != "Never":
        return True
    return policy.reclaim_within_cohort != "Never" and world.forest.has_parent(queue.name)


def needed(assignment: Assignment) -> frozenset[int]:
    """Flavor-resources of an assignment that do not fit without preemption."""
    return frozenset(
        choice.index
        for pod_set in assignment.pod_sets
        for choice in pod_set.flavors.values()
        if api_mode(choice.mode) is Mode.PREEMPT
    )


class PreemptionOracle:
    """Tells the search for flavors what preemption could give for one flavor-resource, all else aside."""

    def __init__(
        self,
        world: World,
        preemptor: WorkloadInfo,
        queue: ClusterQueue,
        fair: FairSharing | None = None,
        *,
        excluded: Collection[str] = (),
        usage_of: Callable[[str], float] | None = None,
    ) -> None:
        self._world = world
        self._preemptor = preemptor
        self._queue = queue
        self._fair = fair
        self._excluded = excluded
        self._usage_of = usage_of
        self._known: dict[tuple[int, int], tuple[Target, ...]] = {}

    def known(self, need: frozenset[int], demand: Vector) -> tuple[Target, ...] | None:
        """The victims, if exactly this was simulated before; else None."""
        if len(need) != 1 or len(demand) != 1 or need != demand.keys():
            return None
        return self._known.get(next(iter(demand.items())))

    def simulate(self, index: int, amount: int, level: int) -> Grade:
        """Reclaim if all victims are of other ClusterQueues; the borrowing level is that after the removal."""
        request = PreemptionRequest(
            preemptor=self._preemptor,
            queue=self._queue,
            need=frozenset((index,)),
            demand={index: amount},
            excluded=self._excluded,
            usage_of=self._usage_of,
        )
        targets = self._known[index, amount] = find_targets(self._world, request, self._fair)
        if not targets:
            return Grade(GranularMode.NO_PREEMPTION_CANDIDATES, level)
        own = self._queue.name
        forest = self._world.forest
        mark = forest.mark()
        for target in targets:
            forest.remove_usage(target.cluster_queue, target.vector)
        after, _ = forest.find_height(own, index, amount)
        forest.undo_to(mark)
        inside = any(target.cluster_queue == own for target in targets)
        return Grade(GranularMode.PREEMPT if inside else GranularMode.RECLAIM, after)
