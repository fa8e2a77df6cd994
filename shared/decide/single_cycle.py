"""The scheduling cycle: one head per ClusterQueue, nominated, ordered, admitted or refused.

Why it exists: this is where quota is spent and taken back. A cycle works on the World itself; what is only set aside within a cycle is
taken back at its end by the journal, what is decided stays as an assumption. It writes nothing anywhere; sequences of cycles are
made by `shared.decide.cycle`.

Steps of a cycle (core rules 6.1, 6.6):
1. Take the head of each active ClusterQueue that has one; or go on with a cycle that was cut.
2. Nominate: refuse what cannot be looked at, else find flavors and victims on the state at the start of the cycle.
3. Order the entries (`shared.decide.order`, or the tournament of fair sharing).
4. Process one by one on the state as changed by earlier entries: admit; or evict victims and set the quota aside; or refuse.
5. Put back what was not admitted.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shared.decide import reasons, variants, victims
from shared.decide.assignment import Assignment, Mode
from shared.decide.decisions import Admit, Decision, NotAdmitted, Preempt, queued_since
from shared.decide.nomination import Entry, Nominator, obstacle, pins, replaced_slice
from shared.decide.order import EntrySequence, SortedEntries
from shared.decide.reservation import set_aside
from shared.decide.settings import DEFAULT_SETTINGS, CycleSettings
from shared.decide.tournament import Tournament
from shared.model.flavor_resources import Vector
from shared.model.pending import RequeueReason, ScanProgress
from shared.model.pending_queue import Preemptor
from shared.model.refusal import PendingReason, Refusal, Stop
from shared.model.workload import WorkloadInfo
from shared.model.world import World


class CutCycle(msgspec.Struct):
    """The rest of a cycle that reached its budget, with all it needs to go on as if it had not been cut."""

    changes: int
    """`World.changes` at the cut: after any change from outside a new cycle is taken instead."""
    entries: list[Entry]
    set_aside: list[tuple[str, Vector]]
    victims: dict[str, str]


class Outcome(msgspec.Struct):
    """What one cycle did."""

    decisions: list[Decision] = []
    awaited: list[Preempt] = []
    refused: list[NotAdmitted] = []
    heads: list[tuple[str, ScanProgress | None]] = []
    marks: list[tuple[str, Preemptor | None]] = []
    """ClusterQueues of the heads, with who waited for victims there before."""
    skipped_preemptions: dict[str, int] = {}
    recomputations: dict[tuple[str, str], int] = {}
    cut: bool = False
    parked: bool = False
    blocked: bool = False

    @property
    def admits(self) -> list[Admit]:
        return [decision for decision in self.decisions if isinstance(decision, Admit)]


class _Refused(msgspec.Struct, frozen=True, gc=False):
    """Why an entry is not admitted: how it comes back, the reason of its condition and what stopped it if no flavor did."""

    requeue: RequeueReason
    reason: str
    stop: Stop | None = None
    gated: bool = False


_NO_CANDIDATES = _Refused(
    RequeueReason.PREEMPTION_NO_CANDIDATES,
    PendingReason.WAITING_FOR_QUOTA,
    Stop("no_candidates"),
)
_OUTRUN = _Refused(
    RequeueReason.FAILED_AFTER_NOMINATION,
    PendingReason.WAITING_FOR_QUOTA,
    Stop("quota_taken"),
)
_OVERLAP = _Refused(
    RequeueReason.FAILED_AFTER_NOMINATION,
    PendingReason.WAITING_FOR_QUOTA,
    Stop("same_victims"),
)
_GATED = _Refused(
    RequeueReason.PREEMPTION_GATED,
    PendingReason.ADMISSION_GATED,
    Stop("preemption_gated"),
    gated=True,
)
_DEFERRED = _Refused(
    RequeueReason.PENDING_PREEMPTION,
    PendingReason.WAITING_FOR_PREEMPTED,
    Stop("waits_for_preemptions"),
)
_BETTER_VARIANT = _Refused(
    RequeueReason.FAILED_AFTER_NOMINATION,
    PendingReason.PENDING_EVALUATION,
    Stop("better_variant"),
)
_NO_MIGRATION = _Refused(
    RequeueReason.GENERIC,
    PendingReason.PENDING_EVALUATION,
    Stop("no_migration"),
)
_NOT_READY = _Refused(
    RequeueReason.FAILED_AFTER_NOMINATION,
    PendingReason.WAITING_FOR_PODS_READY,
    Stop("pods_not_ready"),
)


def run_cycle(
    world: World, now: float, *, settings: CycleSettings = DEFAULT_SETTINGS, budget: int = 1 << 30
) -> Outcome:
    """One exact cycle; after `budget` decisions the rest is left to the next call, which goes on where this one stopped."""
    return _Cycle(world, now, settings).run(budget)


class _Cycle:
    """One cycle in progress."""

    def __init__(self, world: World, now: float, settings: CycleSettings) -> None:
        self.world = world
        self.now = now
        self.settings = settings
        self.nominator = Nominator(world, settings)
        self.outcome = Outcome([], [], [], [], [], {}, {})
        self.set_aside: list[tuple[str, Vector]] = []
        self.victims: dict[str, str] = {}
        """Victims of entries processed so far -> their ClusterQueue."""
        self.victims_of_tree: dict[tuple[bool, str], list[tuple[str, str]]] = {}

    def run(self, budget: int) -> Outcome:
        sequence = self._sequence(self._left_over() or self._nominated())
        forest = self.world.forest
        mark = forest.mark()
        for queue, usage in self.set_aside:
            forest.add_usage(queue, usage)
        refusals: list[tuple[Entry, _Refused]] = []
        left: list[Entry] = []
        while (entry := sequence.next()) is not None:
            if len(self.outcome.decisions) >= budget:
                left = [entry, *sequence.rest()]
                self.outcome.cut = True
                break
            refused = self._process(entry)
            if refused is not None:
                refusals.append((entry, refused))
            if self.outcome.blocked:
                left = sequence.rest()
                break
        forest.undo_to(mark)
        self._assume()
        for entry, refused in refusals:
            refusal = reasons.refusal_of(entry.assignment, refused.reason, refused.stop)
            self._put_back(entry.queue.name, entry.info, refusal, refused.requeue, entry.assignment, refused.gated)
        self._give_back(left)
        return self.outcome

    # --- heads -----------------------------------------------------------------------------------------------------

    def _give_back(self, entries: list[Entry]) -> None:
        """Leave these entries to the next call."""
        for entry in entries:
            self.world.pending.give_back(entry.queue.name, entry.info)
        if entries and self.outcome.cut:
            self.world.unfinished = CutCycle(self.world.changes, entries, self.set_aside, self.victims)

    def _left_over(self) -> list[Entry]:
        """The rest of a cut cycle, if nothing has changed since."""
        left, self.world.unfinished = self.world.unfinished, None
        if not isinstance(left, CutCycle) or left.changes != self.world.changes:
            return []
        self.set_aside = left.set_aside
        for key, cluster_queue in left.victims.items():
            self._note_victim(key, cluster_queue)
        for entry in left.entries:
            self.world.pending.pop_key(entry.queue.name, entry.info.key)
        self._note_heads([(entry.queue.name, entry.info) for entry in left.entries])
        return left.entries

    def _nominated(self) -> list[Entry]:
        """The heads of a new cycle that can be looked at, in classical order."""
        self.world.cycle += 1
        pending = self.world.pending
        heads = [(name, info) for name in pending.ready() if (info := pending.pop(name)) is not None]
        self._note_heads(heads)
        entries = [entry for name, info in heads if (entry := self._nominate(name, info)) is not None]
        return sorted(entries, key=lambda entry: entry.order)

    def _note_heads(self, heads: Iterable[tuple[str, WorkloadInfo]]) -> None:
        progress = self.world.pending.progress
        for name, info in heads:
            self.outcome.heads.append((info.key, progress.get(info.key)))
            self.outcome.marks.append((name, self.world.pending.queues[name].preemptor))

    def _nominate(self, name: str, info: WorkloadInfo) -> Entry | None:
        """An entry, or None when the head was refused (and put back) or dropped."""
        if info.key in self.world.charges:
            self.world.pending.remove(info.key)
            return None
        found = obstacle(self.world, name, info)
        if found is not None:
            self._put_back(name, info, *found, None)
            return None
        return self.nominator.nominate(self.world.cluster_queues[name], info)

    def _sequence(self, entries: list[Entry]) -> EntrySequence[Entry]:
        return (
            SortedEntries(entries) if self.settings.fair is None else _FairEntries(self.world, self.settings, entries)
        )

    # --- one entry after the other ---------------------------------------------------------------------------------

    def _process(self, entry: Entry) -> _Refused | None:
        """None = admitted (its usage is added), else why not (core rule 6.6 a to m)."""
        world, queue, info = self.world, entry.queue, entry.info
        sibling = self._sibling(entry)
        if sibling and variants.place(world.workloads[sibling], queue) < variants.place(info, queue):
            return _BETTER_VARIANT
        slice_ = replaced_slice(world, info, queue.name) if info.replaces and self.settings.elastic_slices else ""
        overlaps = self._overlaps(entry, slice_)
        if overlaps and self.settings.recompute_overlap:
            self._recompute(entry)
            overlaps = self._overlaps(entry, "")
        if entry.mode is Mode.NO_FIT:
            return _Refused(RequeueReason.NO_FIT, entry.assignment.refusal())
        if entry.mode is Mode.PREEMPT and not entry.targets:
            self._reserve(entry)
            return _NO_CANDIDATES
        if entry.mode is Mode.PREEMPT and info.preemption_gated and self.settings.preemption_gates:
            return _GATED
        usage = entry.assignment.usage
        if entry.mode is Mode.DEFERRED_FIT:
            self._claim(queue.name, usage)
            return _DEFERRED
        if overlaps or not self._fits(queue.name, usage, entry):
            if entry.mode is Mode.PREEMPT:
                skipped = self.outcome.skipped_preemptions
                skipped[queue.name] = skipped.get(queue.name, 0) + 1
            return _OVERLAP if overlaps else _OUTRUN
        if entry.mode is Mode.PREEMPT:
            self._claim(queue.name, usage)
            return self._preempt(entry)
        if self.settings.block_admission and (world.not_ready or self.outcome.admits):
            self.outcome.blocked = True
            return _NOT_READY
        if sibling:
            self._claim(queue.name, usage)
            return self._migrate(entry, sibling)
        world.forest.add_usage(queue.name, usage)
        self._admit(entry, slice_)
        return None

    def _sibling(self, entry: Entry) -> str:
        if not self.settings.search.concurrent_admission:
            return ""
        return variants.admitted_sibling(self.world, entry.info, entry.queue)

    def _overlaps(self, entry: Entry, slice_: str) -> bool:
        victims_ = self.victims
        if not victims_:
            return False
        return slice_ in victims_ or any(target.key in victims_ for target in entry.targets)

    def _recompute(self, entry: Entry) -> None:
        """Look again without the victims of earlier entries, on the same flavors."""
        queue, info = entry.queue, entry.info
        had_targets = bool(entry.targets)
        forest = self.world.forest
        mark = forest.mark()
        self._remove_victims(queue.name)
        found = self.nominator.find(queue, info, pinned=pins(entry.assignment), excluded=self.victims)
        forest.undo_to(mark)
        entry.assignment, entry.mode, entry.targets = found
        result = "skipped"
        if entry.mode is Mode.FIT:
            result, entry.mode = "deferred_fit", Mode.DEFERRED_FIT
        elif entry.targets:
            result = "new_targets"
        if had_targets:
            counts = self.outcome.recomputations
            counts[queue.name, result] = counts.get((queue.name, result), 0) + 1

    def _remove_victims(self, queue: str) -> None:
        """Take out the usage of all victims so far that can matter to this ClusterQueue; the caller undoes it."""
        forest = self.world.forest
        for key, cluster_queue in self.victims_of_tree.get(forest.tree_id(queue), ()):
            forest.remove_usage(cluster_queue, self.world.charges[key].vector)

    def _fits(self, queue: str, usage: Vector, entry: Entry) -> bool:
        """Is there room once all victims so far and its own are gone?"""
        forest = self.world.forest
        if self._has_room(queue, usage):
            return True
        if not self.victims and not entry.targets:
            return False
        mark = forest.mark()
        for target in entry.targets:
            forest.remove_usage(target.cluster_queue, target.vector)
        fits = bool(entry.targets) and self._has_room(queue, usage)
        if not fits and self.victims:
            self._remove_victims(queue)
            fits = self._has_room(queue, usage)
        forest.undo_to(mark)
        return fits

    def _has_room(self, queue: str, usage: Vector) -> bool:
        forest = self.world.forest
        for index, amount in usage.items():  # noqa: SIM110 - asked for each head, and a generator costs more than the answer
            if amount > forest.available(queue, index):
                return False
        return True

    def _reserve(self, entry: Entry) -> None:
        """Set capacity aside for a head that finds no victims, unless it can take the quota back later."""
        if entry.queue.preemption.reclaim_within_cohort == "Any" and not (
            entry.preemptor and self.settings.order.prioritize_preemptors
        ):
            return
        name, assignment = entry.queue.name, entry.assignment
        self._claim(name, set_aside(self.world.forest, name, assignment.level, assignment.usage))

    def _claim(self, queue: str, usage: Vector) -> None:
        """Count usage until the end of the cycle only."""
        self.world.forest.add_usage(queue, usage)
        self.set_aside.append((queue, usage))

    # --- decisions -------------------------------------------------------------------------------------------------

    def _preempt(self, entry: Entry) -> _Refused:
        for target in entry.targets:
            self._evict(victims.preempt(self.world, entry.info, entry.queue.name, target))
        stop = Stop("preempting", count=len(entry.targets))
        return _Refused(RequeueReason.PENDING_PREEMPTION, PendingReason.WAITING_FOR_PREEMPTED, stop)

    def _migrate(self, entry: Entry, sibling: str) -> _Refused:
        if not variants.may_migrate(entry.info, entry.queue):
            return _NO_MIGRATION
        self._evict(victims.migrate(self.world, entry.info, entry.queue.name, sibling))
        stop = Stop("migrating", count=1)
        return _Refused(RequeueReason.PENDING_MIGRATION, PendingReason.WAITING_FOR_PREEMPTED, stop)

    def _evict(self, decision: Preempt) -> None:
        self._note_victim(decision.key, decision.cluster_queue)
        if decision.already_evicted:
            self.outcome.awaited.append(decision)
        else:
            self.outcome.decisions.append(decision)

    def _note_victim(self, key: str, cluster_queue: str) -> None:
        self.victims[key] = cluster_queue
        tree = self.world.forest.tree_id(cluster_queue)
        self.victims_of_tree.setdefault(tree, []).append((key, cluster_queue))

    def _admit(self, entry: Entry, slice_: str) -> None:
        info, queue, world = entry.info, entry.queue, self.world
        admission = entry.assignment.admission(queue.name)
        self.outcome.decisions.append(
            Admit(
                key=info.key,
                uid=info.uid,
                incarnation=info.incarnation,
                cluster_queue=queue.name,
                domain=world.forest.tree_id(queue.name)[1],
                admission=admission,
                required_checks=queue.required_checks(admission.flavors()),
                queued_since=queued_since(info),
                considered=reasons.considered_flavors(entry.assignment),
                replaces=slice_,
                replaced_uid=world.workloads[slice_].uid if slice_ in world.workloads else "",
            )
        )

    def _assume(self) -> None:
        """From now on the decisions count, in this World and for later cycles."""
        for decision in self.outcome.decisions:
            if isinstance(decision, Admit):
                self.world.assume(decision.key, decision.admission, at=int(self.now))
            else:
                self.world.assume_preempted(decision.key, decision.preemptor)

    def _put_back(
        self,
        name: str,
        info: WorkloadInfo,
        refusal: Refusal,
        requeue: RequeueReason,
        assignment: Assignment | None,
        gated: bool = False,
    ) -> None:
        pending = self.world.pending
        progress = assignment.progress if assignment is not None and self._keeps_progress(requeue) else None
        if progress is not None and progress.flavors_left():
            pending.progress[info.key] = progress
        elif assignment is not None:
            pending.progress.pop(info.key, None)
        pending.requeue(info, requeue, self.now, cluster_queue=name, refusal=refusal.reason)
        queue = pending.queues[name]
        self.outcome.parked |= info.key in queue.inadmissible
        requests = {pod_set.name: pod_set.requests for pod_set in info.pod_sets}
        self.outcome.refused.append(
            NotAdmitted(
                key=info.key,
                uid=info.uid,
                incarnation=info.incarnation,
                version=info.version,
                cluster_queue=name,
                refusal=refusal,
                requeue=requeue,
                requests=requests,
                gated=gated,
            )
        )

    def _keeps_progress(self, requeue: RequeueReason) -> bool:
        if requeue is RequeueReason.FAILED_AFTER_NOMINATION:
            return self.settings.preserve_scan_progress
        return requeue not in (RequeueReason.PENDING_PREEMPTION, RequeueReason.PENDING_MIGRATION)


class _FairEntries:
    """Entries in the order of the tournament."""

    def __init__(self, world: World, settings: CycleSettings, entries: list[Entry]) -> None:
        self._tournament: Tournament[Entry] = Tournament(world, settings.order)
        for entry in entries:
            self._tournament.add(entry, entry.info, entry.queue.name, entry.assignment.usage, preemptor=entry.preemptor)

    def next(self) -> Entry | None:
        return self._tournament.pop()

    def rest(self) -> list[Entry]:
        return self._tournament.remaining()
