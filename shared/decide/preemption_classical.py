"""The search for victims without fair sharing (core rules 7.3 and 7.4).

Why it exists: a ClusterQueue takes back what others borrow of it, may preempt lower priorities in its own line, and, where
borrowWithinCohort allows, from others while it borrows itself. Steps:
1. Find the ClusterQueues of the tree that use more than their quota, by the ancestor through which they would be reached.
2. Decide which attempts to make: with the preemptor borrowing, without, or both, in which order.
3. Per attempt remove candidates in order until the preemptor fits, then keep those that need not go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import repeat

from shared.api import names
from shared.decide.candidates import NOBODY, in_order, own_candidates, queue_candidates
from shared.decide.preemption_request import PreemptionRequest, Target
from shared.decide.preemption_trial import Trial, fill_back
from shared.model.quota_tree import Node
from shared.model.reservations import Rank
from shared.model.world import World


class _Source:
    """A ClusterQueue of the tree that exceeds its quota. `advantage`: the preemptor would stay within the quota of a subtree that this
    one is not part of, and so takes back what is its own."""

    __slots__ = ("advantage", "lca", "node")

    def __init__(self, node: Node, lca: Node, advantage: bool) -> None:
        self.node = node
        self.lca = lca
        self.advantage = advantage


_Item = tuple[Rank, _Source | None]
"""A candidate; without a source it is of the preemptor's own ClusterQueue."""


def exceeds(node: Node, need: Iterable[int]) -> bool:
    """Does the node use more than the quota of its subtree, on at least one of these flavor-resources?"""
    cells = node.cells
    for index in need:
        cell = cells.get(index)
        if cell is not None and cell.usage > cell.subtree:
            return True
    return False


def search(trial: Trial) -> list[Target]:
    """Victims in the order of 7.5; empty if there is no way. The forest is left changed: the caller undoes to its mark."""
    world, request = trial.world, trial.request
    sources = _sources(world, request)
    for allow_borrowing in _attempts(world, request, sources):
        mark = world.forest.mark()
        targets = _attempt(trial, sources, allow_borrowing)
        world.forest.undo_to(mark)
        if targets:
            return targets
    return []


def _attempt(trial: Trial, sources: list[_Source], allow_borrowing: bool) -> list[Target]:
    request = trial.request
    targets: list[Target] = []
    for rank, source in _candidates(trial.world, request, sources):
        if source is None:
            queue, reason = request.queue.name, names.REASON_IN_CLUSTER_QUEUE
        else:
            reason = _reason(request, source, rank[1])
            if allow_borrowing and not reason:
                continue
            if not _still_exceeds(source, request.need):
                continue
            queue, reason = source.node.name, reason or names.REASON_IN_COHORT_RECLAMATION
        target = trial.target(rank[4], queue, reason)
        trial.remove(target)
        targets.append(target)
        if trial.fits(allow_borrowing):
            return fill_back(trial, targets, allow_borrowing)
    return []


def _reason(request: PreemptionRequest, source: _Source, priority: int) -> str:
    """Why a candidate of another ClusterQueue may go; empty if only while the preemptor does not borrow."""
    if source.advantage:
        return names.REASON_IN_COHORT_RECLAMATION
    policy = request.queue.preemption
    if policy.borrow_within_cohort == "Never" or priority >= request.preemptor.priority:
        return ""
    if policy.borrow_max_priority is not None and priority > policy.borrow_max_priority:
        return ""
    return names.REASON_IN_COHORT_RECLAIM_WHILE_BORROWING


def _still_exceeds(source: _Source, need: frozenset[int]) -> bool:
    """A ClusterQueue is left alone as soon as it, or a cohort between it and the common ancestor, is within quota."""
    node: Node | None = source.node
    while node is not None and node is not source.lca:
        if not exceeds(node, need):
            return False
        node = node.parent
    return True


def _sources(world: World, request: PreemptionRequest) -> list[_Source]:
    """Where candidates of other ClusterQueues may be, nearest ancestor first."""
    node = world.forest.queue_node(request.queue.name)
    if node.parent is None or node.cyclic or request.queue.preemption.reclaim_within_cohort == "Never":
        return []
    found: list[_Source] = []
    forest = world.forest
    rest = dict(request.demand)
    advantage = False
    below: Node = node
    at: Node | None = node.parent
    while at is not None:
        fits = True
        for index, amount in rest.items():
            cell = forest.node_cell(below, index)
            fits = fits and not cell.borrows_with(amount)
            rest[index] = max(0, amount - cell.local_available())
        advantage = advantage or fits
        _collect(world, request, at, at, below, advantage, found)
        below, at = at, at.parent
    return found


def _collect(
    world: World, request: PreemptionRequest, top: Node, lca: Node, skip: Node, advantage: bool, found: list[_Source]
) -> None:
    need = request.need
    for child in top.children.values():
        if child is skip or not exceeds(child, need):
            continue
        if child.is_cohort:
            _collect(world, request, child, lca, skip, advantage, found)
        elif world.in_snapshot(child.name):
            found.append(_Source(child, lca, advantage))


def _attempts(world: World, request: PreemptionRequest, sources: list[_Source]) -> tuple[bool, ...]:
    """Whether the preemptor may borrow, per attempt."""
    forbidden = request.queue.preemption.borrow_within_cohort == "Never"
    hierarchical = _any(world, request, (source for source in sources if source.advantage))
    others = hierarchical or _any(world, request, (source for source in sources if not source.advantage))
    if not others or (forbidden and not _under_nominal(world, request)):
        return (True,)
    return (False, True) if forbidden and not hierarchical else (True, False)


def _under_nominal(world: World, request: PreemptionRequest) -> bool:
    cells = (world.forest.cell(request.queue.name, index) for index in request.need)
    return all(cell.usage < cell.nominal for cell in cells)


def _any(world: World, request: PreemptionRequest, sources: Iterable[_Source]) -> bool:
    return any(next(queue_candidates(world, request, source.node.name), None) is not None for source in sources)


def _candidates(world: World, request: PreemptionRequest, sources: list[_Source]) -> Iterator[_Item]:
    """All candidates in order: those already evicted first; taken back by advantage, then by priority, then the own line."""
    groups = [[one for one in sources if one.advantage], [one for one in sources if not one.advantage]]
    for evicted in (True, False):
        for group in groups:
            if group:
                yield from _of_others(world, request, group, evicted)
        for rank in own_candidates(world, request, evicted=evicted):
            yield rank, None


def _of_others(
    world: World, request: PreemptionRequest, sources: list[_Source], evicted: bool
) -> Iterator[tuple[Rank, _Source]]:
    if request.usage_of is not None:
        by_name = {source.node.name: source for source in sources}
        everyone = [
            (rank, name) for name in by_name for rank in queue_candidates(world, request, name, evicted=evicted)
        ]
        return ((rank, by_name[name]) for rank, name in in_order(world, everyone, request))
    lines = []
    for source in sources:
        ranks = queue_candidates(world, request, source.node.name, evicted=evicted)
        if ranks is not NOBODY:
            lines.append(zip(ranks, repeat(source)))
    if not lines:
        return iter(())
    return lines[0] if len(lines) == 1 else merge(*lines)
