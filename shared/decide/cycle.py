"""The scheduling cycle: one head per ClusterQueue, nominated, ordered, admitted or refused; and batches of cycles.

Why it exists: this is where quota is spent. A cycle works on the World itself; what is only set aside within a cycle is taken
back at its end by the journal, what is admitted stays as an assumption. It writes nothing anywhere: the caller appends the
batch to the log, and calls `rollback` if the append was lost.

Steps of a cycle (core rules 6.1, 6.6):
1. Take the head of each active ClusterQueue that has one; or go on with a cycle that was cut.
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
from shared.decide.partial import largest
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
    partial_admission: bool = True


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


class _CutCycle(msgspec.Struct):
    """The rest of a cycle that reached its budget, with all it needs to go on as if it had not been cut."""

    changes: int
    """`World.changes` at the cut: after any change from outside a new cycle is taken instead."""
    entries: list[_Entry]
    set_aside: list[tuple[str, Vector]]


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
            more = bool(world.pending.ready())
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
    world.unfinished = None


def run_cycle(
    world: World, now: float, *, settings: CycleSettings = DEFAULT_SETTINGS, budget: int = 1 << 30
) -> _Outcome:
    """One exact cycle; after `budget` admissions the rest is left to the next call, which goes on where this one stopped."""
    return _Cycle(world, now, settings).run(budget)


class _Cycle:
    """One cycle in progress."""

    def __init__(self, world: World, now: float, settings: CycleSettings) -> None:
        self.world = world
        self.now = now
        self.settings = settings
        self.outcome = _Outcome([], [], [])
        self.set_aside: list[tuple[str, Vector]] = []

    def run(self, budget: int) -> _Outcome:
        entries = self._left_over() or self._nominated()
        forest = self.world.forest
        mark = forest.mark()
        for queue, usage in self.set_aside:
            forest.add_usage(queue, usage)
        admitted: list[_Entry] = []
        refusals: list[tuple[_Entry, RequeueReason, str]] = []
        cut: list[_Entry] = []
        for place, entry in enumerate(entries):
            if len(admitted) >= budget:
                cut = entries[place:]
                break
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
        self._cut(cut)
        return self.outcome

    def _cut(self, entries: list[_Entry]) -> None:
        """Leave these entries to the next call."""
        for entry in entries:
            self.world.pending.give_back(entry.queue.name, entry.info)
        if entries:
            self.outcome.cut = True
            self.world.unfinished = _CutCycle(self.world.changes, entries, self.set_aside)

    def _left_over(self) -> list[_Entry]:
        """The rest of a cut cycle, if nothing has changed since."""
        left, self.world.unfinished = self.world.unfinished, None
        if not isinstance(left, _CutCycle) or left.changes != self.world.changes:
            return []
        self.set_aside = left.set_aside
        for entry in left.entries:
            self.world.pending.pop_key(entry.queue.name, entry.info.key)
        self._note_heads([entry.info for entry in left.entries])
        return left.entries

    def _nominated(self) -> list[_Entry]:
        """The heads of a new cycle that can be looked at, in order."""
        self.world.cycle += 1
        pending = self.world.pending
        heads = [(name, info) for name in pending.ready() if (info := pending.pop(name)) is not None]
        self._note_heads([info for _, info in heads])
        entries = [entry for name, info in heads if (entry := self._nominate(name, info)) is not None]
        return sorted(entries, key=lambda entry: entry.order)

    def _note_heads(self, infos: list[WorkloadInfo]) -> None:
        progress = self.world.pending.progress
        self.outcome.heads = [(info.key, progress.get(info.key)) for info in infos]

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
        assignment = self._flavors(queue, info)
        if assignment.mode is not Mode.FIT and self.settings.partial_admission:
            assignment = largest(info, lambda smaller: self._fitting(queue, smaller)) or assignment
        mark = world.pending.queues[queue.name].preemptor
        preemptor = mark is not None and mark.key == info.key and mark.generation == info.generation
        return _Entry(info, queue, assignment, head_key(info, assignment.level, preemptor, self.settings.order))

    def _fitting(self, queue: ClusterQueue, info: WorkloadInfo) -> Assignment | None:
        found = self._flavors(queue, info)
        return found if found.mode is Mode.FIT else None

    def _flavors(self, queue: ClusterQueue, info: WorkloadInfo) -> Assignment:
        world = self.world
        return assign(
            info,
            queue,
            world.forest,
            world.flavors,
            settings=self.settings.search,
            progress=self._current_progress(queue, info),
            cycle=world.cycle,
        )

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
                reserved = set_aside(forest, queue.name, assignment.level, assignment.usage)
                forest.add_usage(queue.name, reserved)
                self.set_aside.append((queue.name, reserved))
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
