"""Batches: sequences of exact scheduling cycles, as one message of the log.

Why it exists: repeated single cycles (`shared.decide.single_cycle`) would decide the same, one message each; a batch decides it in one.
The caller appends the batch to the log, and calls `rollback` if the append was lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from shared.decide.decisions import Admit, Batch, Decision, NotAdmitted, Preempt
from shared.decide.hopeless import HopelessFamilies
from shared.decide.settings import DEFAULT_LIMITS, DEFAULT_SETTINGS, BatchLimits, CycleSettings
from shared.decide.single_cycle import Outcome, run_cycle
from shared.model.pending import ScanProgress
from shared.model.pending_queue import Preemptor
from shared.model.world import World

__all__ = [
    "Admit",
    "Batch",
    "BatchLimits",
    "CycleSettings",
    "Decision",
    "NotAdmitted",
    "Preempt",
    "rollback",
    "run_batch",
    "run_cycle",
]


def never_stop() -> bool:
    """No time budget."""
    return False


def run_batch(
    world: World,
    now: float,
    *,
    settings: CycleSettings = DEFAULT_SETTINGS,
    limits: BatchLimits = DEFAULT_LIMITS,
    should_stop: Callable[[], bool] = never_stop,
) -> Batch:
    """Cycles until nothing more can be decided, or a limit is reached. What was decided is assumed in `world`.

    A cycle that decided nothing and parked nothing ends the batch if the next one would begin as one before it did: from there all would come again.
    """
    made = _Made()
    families = HopelessFamilies(world, settings)
    seen: set[Beginning] = set()
    more = blocked = False
    world.flush_retries(now)
    while True:
        unsettled = len(world.assumed) + len(world.preempting)
        budget = min(limits.max_decisions - len(made.decisions), limits.max_unsettled - unsettled)
        if budget <= 0 or (made.cycles and should_stop()):
            families.stop()
            more = bool(world.pending.ready())
            break
        # What is left of a cut cycle says nothing about a whole one: its first part decided, and heads that lost to that come again at once.
        is_rest = world.unfinished is not None
        outcome = run_cycle(world, now, settings=settings, budget=budget)
        woken = families.passed(outcome.decisions, outcome.refused)
        if not outcome.heads:
            if woken or families.skip_ahead():
                continue
            break
        made.add(outcome)
        if outcome.blocked:
            blocked = True
            break
        if outcome.decisions or outcome.parked or woken:
            seen.clear()
        elif not outcome.cut and not is_rest:
            seen.add(_began(world, outcome))
            then = _next(world, outcome)
            # More heads than the ones that came back: somebody else has one now.
            if then in seen and len(then) == len(world.pending.ready()):
                if not families.skip_ahead():
                    break
                seen.clear()
    return made.batch(more, blocked)


Beginning = frozenset[tuple[str, object, Preemptor | None]]
"""What a cycle begins with, as far as it can differ while nothing is decided and nobody parked: its heads, how far each has searched (by flavors,
not by the number of the cycle in which it did), and who waits for victims where."""


def _began(world: World, outcome: Outcome) -> Beginning:
    """What this cycle began with."""
    return frozenset(
        (key, _standing(progress, world.cycle), mark)
        for (key, progress), (_, mark) in zip(outcome.heads, outcome.marks, strict=True)
    )


def _next(world: World, outcome: Outcome) -> Beginning:
    """What the next cycle begins with, if the heads that this one put back are all there is."""
    pending = world.pending
    return frozenset(
        (key, _standing(pending.progress.get(key), world.cycle + 1), pending.queues[name].preemptor)
        for (key, _), (name, _) in zip(outcome.heads, outcome.marks, strict=True)
        if pending.place_of(key) == name
    )


def _standing(progress: ScanProgress | None, cycle: int) -> object:
    """How far a search has come, as the cycle of this number sees it."""
    if progress is None:
        return None
    return progress.tried, progress.shape, progress.generation, progress.cycle >= cycle - 1


class _Made:
    """What the cycles of a batch did so far."""

    def __init__(self) -> None:
        self.decisions: list[Decision] = []
        self.awaited: dict[tuple[str, str], Preempt] = {}
        self.refused: dict[str, NotAdmitted] = {}
        self.cycles = 0
        self.skipped: Counter[str] = Counter()
        self.recomputations: Counter[tuple[str, str]] = Counter()
        self.progress: dict[str, ScanProgress | None] = {}
        self.preemptors: dict[str, Preemptor | None] = {}

    def add(self, outcome: Outcome) -> None:
        """One more cycle."""
        self.cycles += 1
        self.decisions.extend(outcome.decisions)
        for preempt in outcome.awaited:
            self.awaited.setdefault((preempt.key, preempt.preemptor), preempt)
        for key, progress in outcome.heads:
            self.progress.setdefault(key, progress)
        for name, mark in outcome.marks:
            self.preemptors.setdefault(name, mark)
        for entry in outcome.refused:
            self.refused[entry.key] = entry
        for decision in outcome.decisions:
            if isinstance(decision, Admit):
                self.refused.pop(decision.key, None)
        if outcome.skipped_preemptions:
            self.skipped.update(outcome.skipped_preemptions)
        if outcome.recomputations:
            self.recomputations.update(outcome.recomputations)

    def batch(self, more: bool, blocked: bool) -> Batch:
        """All of it."""
        return Batch(
            decisions=tuple(self.decisions),
            awaited=tuple(self.awaited.values()),
            refused=tuple(self.refused.values()),
            cycles=self.cycles,
            more=more,
            blocked=blocked,
            skipped_preemptions=dict(self.skipped),
            recomputations=dict(self.recomputations),
            progress_before=self.progress,
            preemptors_before=self.preemptors,
        )


def rollback(world: World, batch: Batch, now: float) -> None:
    """The batch did not reach the log: nothing of it happened. All it touched is looked at again."""
    for decision in batch.decisions:
        if isinstance(decision, Admit):
            world.settle(decision.key, now)
        else:
            world.settle_preempted(decision.key, now)
        world.request_retry(decision.cluster_queue)
    for entry in batch.refused:
        world.request_retry(entry.cluster_queue)
    for key, progress in batch.progress_before.items():
        if progress is None:
            world.pending.progress.pop(key, None)
        elif world.pending.place_of(key) is not None:
            world.pending.progress[key] = progress
    for name, mark in batch.preemptors_before.items():
        queue = world.pending.queues.get(name)
        if queue is not None and (mark is None or world.pending.place_of(mark.key) == name):
            queue.preemptor = mark
    world.unfinished = None
