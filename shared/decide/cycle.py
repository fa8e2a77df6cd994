"""The scheduling cycle: one head per ClusterQueue, nominated, ordered, admitted or refused; and batches of cycles.

Why it exists: this is where quota is spent. A cycle works on the World itself; what is only set aside within a cycle is taken
back at its end by the journal, what is admitted stays as an assumption. It writes nothing anywhere: the caller appends the
batch to the log, and calls `rollback` if the append was lost.

Steps of a cycle (core rules 6.1, 6.6):
1. Take the head of each active ClusterQueue that has one (or the heads left over from a cut cycle).
2. Nominate: refuse what cannot be looked at, else find flavors on the state at the start of the cycle.
3. Order the entries (`shared.decide.order`).
4. Process one by one on the state as changed by earlier entries: admit, or refuse and set capacity aside.
5. Put back what was not admitted.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from shared.decide import reasons
from shared.decide.assignment import Assignment, Mode
from shared.decide.flavors import SearchSettings, assign
from shared.decide.order import HeadKey, HeadOrder, head_key
from shared.decide.reservation import set_aside
from shared.model.cluster_queue import ClusterQueue
from shared.model.flavor_resources import Vector
from shared.model.pending import RequeueReason, ScanProgress
from shared.model.refusal import PendingReason, Refusal
from shared.model.workload import Admission, WorkloadInfo
from shared.model.world import World


class CycleSettings(msgspec.Struct, frozen=True):
    """Gates and configuration of the cycle."""

    search: SearchSettings = SearchSettings()
    order: HeadOrder = HeadOrder()
    preserve_scan_progress: bool = True


class BatchLimits(msgspec.Struct, frozen=True, gc=False):
    """How much one batch may decide: its own size, and all decisions that are not settled (R6)."""

    max_decisions: int = 256
    max_unsettled: int = 512


class Admit(msgspec.Struct, frozen=True, kw_only=True):
    """Reserve quota for a workload."""

    key: str
    uid: str
    incarnation: str
    cluster_queue: str
    domain: str
    """Root of the cohort tree, or the ClusterQueue itself."""
    admission: Admission
    required_checks: tuple[str, ...]
    """Checks that apply to the assigned flavors, sorted; empty = admitted at once."""
    queued_since: int
    considered: str


class NotAdmitted(msgspec.Struct, frozen=True, kw_only=True):
    """A head that was looked at and stays pending."""

    key: str
    uid: str
    incarnation: str
    version: int
    cluster_queue: str
    refusal: Refusal
    message: str
    requeue: RequeueReason
    requests: dict[str, dict[str, int]]
    """status.resourceRequests: pod set -> resource -> total."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a sequence of cycles."""

    admits: tuple[Admit, ...] = ()
    refused: tuple[NotAdmitted, ...] = ()
    """The last refusal of each head that was looked at and not admitted later in the batch."""
    cycles: int = 0
    more: bool = False
    """It stopped on a limit: another batch has something to look at."""
    progress_before: dict[str, ScanProgress | None] = {}
    """Scan progress of each head before the batch, for `rollback`."""


class _Entry(msgspec.Struct):
    """A nominated head."""

    info: WorkloadInfo
    queue: ClusterQueue
    assignment: Assignment
    order: HeadKey


class _Outcome(msgspec.Struct):
    """What one cycle did."""

    admits: list[Admit] = []
    refused: list[NotAdmitted] = []
    heads: list[tuple[str, ScanProgress | None]] = []
    cut: bool = False
    parked: bool = False


def never_stop() -> bool:
    """No time budget."""
    return False


DEFAULT_SETTINGS = CycleSettings()
DEFAULT_LIMITS = BatchLimits()


def run_batch(
    world: World,
    now: float,
    *,
    settings: CycleSettings = DEFAULT_SETTINGS,
    limits: BatchLimits = DEFAULT_LIMITS,
    should_stop: Callable[[], bool] = never_stop,
) -> Batch:
    """Cycles until nothing more can be admitted, or a limit is reached. Admitted workloads are assumed in `world`.

    A cycle that admitted nothing, parked nothing and only saw heads it had seen in the same state ends the batch.
    """
    admits: list[Admit] = []
    refused: dict[str, NotAdmitted] = {}
    before: dict[str, ScanProgress | None] = {}
    seen: set[tuple[str, ScanProgress | None]] = set()
    cycles = 0
    more = False
    world.flush_retries(now)
    while True:
        budget = min(limits.max_decisions - len(admits), limits.max_unsettled - len(world.assumed))
        if budget <= 0 or (cycles and should_stop()):
            more = bool(world.cut_heads or world.pending.ready())
            break
        outcome = run_cycle(world, now, settings=settings, budget=budget)
        if not outcome.heads:
            break
        cycles += 1
        admits.extend(outcome.admits)
        for key, progress in outcome.heads:
            before.setdefault(key, progress)
        for entry in outcome.refused:
            refused[entry.key] = entry
        for admit in outcome.admits:
            refused.pop(admit.key, None)
        if outcome.admits or outcome.parked:
            seen.clear()
        elif not outcome.cut and seen.issuperset(outcome.heads):
            break
        seen.update(outcome.heads)
    return Batch(
        admits=tuple(admits), refused=tuple(refused.values()), cycles=cycles, more=more, progress_before=before
    )


def rollback(world: World, batch: Batch, now: float) -> None:
    """The batch did not reach the log: nothing of it happened. All it touched is looked at again."""
    for admit in batch.admits:
        world.settle(admit.key, now)
        world.request_retry(admit.cluster_queue)
    for entry in batch.refused:
        world.request_retry(entry.cluster_queue)
    for key, progress in batch.progress_before.items():
        if progress is None:
            world.pending.progress.pop(key, None)
        elif world.pending.place_of(key) is not None:
            world.pending.progress[key] = progress
    world.cut_heads.clear()


def run_cycle(
    world: World, now: float, *, settings: CycleSettings = DEFAULT_SETTINGS, budget: int = 1 << 30
) -> _Outcome:
    """One exact cycle; entries beyond `budget` admissions are given back unseen and come first in the next cycle."""
    return _Cycle(world, now, settings).run(budget)


class _Cycle:
    """One cycle in progress."""

    def __init__(self, world: World, now: float, settings: CycleSettings) -> None:
        self.world = world
        self.now = now
        self.settings = settings
        self.outcome = _Outcome([], [], [])
        world.cycle += 1

    def run(self, budget: int) -> _Outcome:
        entries = []
        for name, info in self._heads():
            entry = self._nominate(name, info)
            if entry is not None:
                entries.append(entry)
        entries.sort(key=lambda entry: entry.order)
        forest = self.world.forest
        mark = forest.mark()
        admitted: list[_Entry] = []
        refusals: list[tuple[_Entry, RequeueReason, str]] = []
        cut: list[_Entry] = []
        for entry in entries:
            if len(admitted) >= budget:
                cut.append(entry)
                continue
            verdict = self._process(entry)
            if verdict is None:
                admitted.append(entry)
            else:
                refusals.append((entry, *verdict))
        forest.undo_to(mark)
        for entry in admitted:
            self._admit(entry)
        for entry, requeue, reason in refusals:
            refusal = reasons.refusal_of(entry.assignment, reason, _note(requeue))
            self._put_back(entry.queue.name, entry.info, refusal, requeue, entry.assignment)
        for entry in cut:
            self.world.pending.give_back(entry.queue.name, entry.info)
            self.world.cut_heads[entry.queue.name] = entry.info.key
        self.outcome.cut = bool(cut)
        return self.outcome

    def _heads(self) -> list[tuple[str, WorkloadInfo]]:
        pending = self.world.pending
        left, self.world.cut_heads = self.world.cut_heads, {}
        heads = []
        for name, key in left.items():
            info = pending.pop_key(name, key)
            if info is not None:
                heads.append((name, info))
        if not heads:
            for name in pending.ready():
                info = pending.pop(name)
                if info is not None:
                    heads.append((name, info))
        self.outcome.heads = [(info.key, pending.progress.get(info.key)) for _, info in heads]
        return heads

    def _nominate(self, name: str, info: WorkloadInfo) -> _Entry | None:
        """An entry, or None when the head was refused (and put back) or dropped."""
        world = self.world
        queue = world.cluster_queues.get(name)
        if info.key in world.charges:
            world.pending.remove(info.key)
            return None
        generic = RequeueReason.GENERIC
        if bad := sorted(check for check, state in info.checks if state in ("Retry", "Rejected")):
            note = f"admission checks not passed: {', '.join(bad)}"
            self._refuse(name, info, PendingReason.PENDING_EVALUATION, note, generic)
        elif queue is None:
            self._refuse(name, info, PendingReason.MISCONFIGURED, f"ClusterQueue {name} not found", generic)
        elif not world.in_snapshot(name):
            self._refuse(name, info, PendingReason.SUSPENDED, f"ClusterQueue {name} is inactive", generic)
        elif not world.namespace_matches(name, info.namespace):
            note = f"namespace {info.namespace} does not match the selector of ClusterQueue {name}"
            self._refuse(name, info, PendingReason.MISCONFIGURED, note, RequeueReason.NAMESPACE_MISMATCH)
        elif info.invalid:
            self._refuse(name, info, PendingReason.MISCONFIGURED, info.invalid, generic)
        else:
            return self._assign(queue, info)
        return None

    def _assign(self, queue: ClusterQueue, info: WorkloadInfo) -> _Entry:
        world = self.world
        assignment = assign(
            info,
            queue,
            world.forest,
            world.flavors,
            settings=self.settings.search,
            progress=self._current_progress(queue, info),
            cycle=world.cycle,
        )
        mark = world.pending.queues[queue.name].preemptor
        preemptor = mark is not None and mark.key == info.key and mark.generation == info.generation
        return _Entry(info, queue, assignment, head_key(info, assignment.level, preemptor, self.settings.order))

    def _current_progress(self, queue: ClusterQueue, info: WorkloadInfo) -> ScanProgress | None:
        """Where the last search stopped, unless quotas or the workload have changed since."""
        progress = self.world.pending.progress.get(info.key)
        if progress is None:
            return None
        if self.settings.preserve_scan_progress:
            if progress.shape and info.shape and progress.shape != info.shape:
                return None
            if progress.cycle >= self.world.cycle - 1:
                return progress
        outdated = self.world.forest.queue_node(queue.name).generation > progress.generation
        return None if outdated else progress

    def _process(self, entry: _Entry) -> tuple[RequeueReason, str] | None:
        """None = admitted (its usage is added), else why it comes back and why it is pending."""
        forest, assignment, queue = self.world.forest, entry.assignment, entry.queue
        mode = assignment.mode
        if mode is Mode.NO_FIT:
            return RequeueReason.NO_FIT, assignment.refusal()
        if mode is Mode.PREEMPT:
            if queue.preemption.reclaim_within_cohort != "Any":
                forest.add_usage(queue.name, set_aside(forest, queue.name, assignment.level, assignment.usage))
            return RequeueReason.PREEMPTION_NO_CANDIDATES, PendingReason.WAITING_FOR_QUOTA
        if not self._fits(queue.name, assignment.usage):
            return RequeueReason.FAILED_AFTER_NOMINATION, PendingReason.WAITING_FOR_QUOTA
        forest.add_usage(queue.name, assignment.usage)
        return None

    def _fits(self, queue: str, usage: Vector) -> bool:
        forest = self.world.forest
        return all(amount <= forest.available(queue, index) for index, amount in usage.items())

    def _admit(self, entry: _Entry) -> None:
        info, queue = entry.info, entry.queue
        admission = entry.assignment.admission(queue.name)
        domain = self.world.forest.tree_id(queue.name)[1]
        self.world.assume(info.key, admission)
        self.outcome.admits.append(
            Admit(
                key=info.key,
                uid=info.uid,
                incarnation=info.incarnation,
                cluster_queue=queue.name,
                domain=domain,
                admission=admission,
                required_checks=queue.required_checks(admission.flavors()),
                queued_since=queued_since(info),
                considered=reasons.considered_flavors(entry.assignment),
            )
        )

    def _refuse(self, name: str, info: WorkloadInfo, reason: PendingReason, note: str, requeue: RequeueReason) -> None:
        self._put_back(name, info, Refusal(reason, note=note), requeue, None)

    def _put_back(
        self,
        name: str,
        info: WorkloadInfo,
        refusal: Refusal,
        requeue: RequeueReason,
        assignment: Assignment | None,
    ) -> None:
        pending = self.world.pending
        keep = requeue is not RequeueReason.FAILED_AFTER_NOMINATION or self.settings.preserve_scan_progress
        if assignment is not None and assignment.progress is not None and keep and assignment.progress.flavors_left():
            pending.progress[info.key] = assignment.progress
        elif assignment is not None:
            pending.progress.pop(info.key, None)
        pending.requeue(info, requeue, self.now, cluster_queue=name, refusal=refusal.reason)
        queue = pending.queues[name]
        self.outcome.parked |= info.key in queue.inadmissible
        requests = {pod_set.name: dict(pod_set.requests) for pod_set in info.pod_sets}
        self.outcome.refused.append(
            NotAdmitted(
                key=info.key,
                uid=info.uid,
                incarnation=info.incarnation,
                version=info.version,
                cluster_queue=name,
                refusal=refusal,
                message=reasons.message(refusal),
                requeue=requeue,
                requests=requests,
            )
        )


def queued_since(info: WorkloadInfo) -> int:
    """Since when the workload has been waiting: its last requeue, or its creation."""
    requeued = info.condition("Requeued")
    return requeued.changed if requeued is not None else info.created


def _note(requeue: RequeueReason) -> str:
    if requeue is RequeueReason.PREEMPTION_NO_CANDIDATES:
        return "no workloads can be preempted to make room"
    if requeue is RequeueReason.FAILED_AFTER_NOMINATION:
        return "other workloads of this cycle took the quota"
    return ""
