"""All that the scheduler decides on, folded from the three streams: objects, decisions, outcomes (R6).

The World holds queues, quota and waiting lines; `Assumptions` holds decisions that are not settled; this module keeps the two together:

1. An object changes: the World takes it over. Decisions whose outcome named this version or an older one settle.
2. A batch is read (or was just appended by us): its Admits count as spent, their workloads wait no more. The echo of our own batch is recognised by position.
   The victims of its Preempts count as on their way out: they keep their quota, and are the first to be chosen by whoever needs some.
3. An outcome is read: `rejected` frees the quota, is a retry for the whole cohort tree and puts the workload back in line, not before our view shows what
   proved the rejection; `applied` waits until our view has the version that carries it. A rejected Preempt waits like an applied one, and then the tree
   is retried.
4. A new epoch voids all older decisions.

What waits, counts and is assumed at given positions does not depend on how the streams were interleaved. It decides nothing and knows no bus.
"""

from __future__ import annotations

from heapq import heappop, heappush

import msgspec

from shared.bus.interface import CaughtUp, FeedItem, Logged, ObjectChanged, Reset, Settled, Skipped
from shared.decide.requests import DEFAULT_RULES, RequestRules
from shared.events.decisions import Admit, Batch, Decision, DecisionId, EpochOpened, Positions, Preempt
from shared.events.objects import Object, Workload
from shared.events.outcomes import DecisionOutcome
from shared.model.admission_fair_sharing import AfsSettings
from shared.model.pending import OrderPolicy
from shared.model.workload import Admission, PodSetAssignment
from shared.model.world import World
from shared.state.assumptions import Assumptions, Rejection, Settlement
from shared.state.folding import Fold
from shared.state.objects import Change
from shared.state.story import Chapter, Stories

REJECTION_BACKOFF_S = 1.0
REJECTION_BACKOFF_MAX_S = 60.0


class Setback(msgspec.Struct, frozen=True, gc=False):
    """Preemptions of one workload that were rejected batch after batch: it is no head until `until`."""

    uid: str
    batch: DecisionId
    count: int
    at: float
    until: float


class SchedulerState:
    """Fold with `apply`, decide on `world`, tell `appended` what was decided. `dirty`: something changed that a cycle should look at."""

    def __init__(
        self,
        policy: OrderPolicy | None = None,
        rules: RequestRules = DEFAULT_RULES,
        afs: AfsSettings | None = None,
    ) -> None:
        self.policy = policy
        self.rules = rules
        self.afs = afs
        self.stories = Stories()
        self._start(0)

    def _start(self, epoch: int) -> None:
        self.fold = Fold(self.policy, self.rules, self.afs)
        self.world = self.fold.world
        self.objects = self.fold.objects
        self.assumptions = Assumptions(self._version_of, self._uid_of)
        self.assumptions.open_epoch(epoch)
        self.caught_up = False
        self.dirty = False
        self.traces: dict[str, str] = {}
        """Workload key -> traceparent of its newest projection."""
        self._objects_position = 0
        self._outcomes_position = 0
        self._timers: list[tuple[float, str]] = []
        self._not_before: dict[str, float] = {}
        self._setbacks: dict[str, Setback] = {}

    def _version_of(self, key: str) -> int:
        return self.objects.version("workload", key)

    def _uid_of(self, key: str) -> str:
        found = self.objects.get(Workload, key)
        return found.uid if found is not None else ""

    @property
    def epoch(self) -> int:
        """The open epoch; 0 while there is none."""
        return self.assumptions.epoch

    @property
    def positions(self) -> Positions:
        """How far the streams are folded; what a decision taken now is based on."""
        assumptions = self.assumptions
        return Positions(
            epoch=assumptions.epoch,
            objects=self._objects_position,
            decisions=assumptions.folded,
            outcomes=self._outcomes_position,
        )

    # --- folding ---------------------------------------------------------------------------------------------------

    def apply(self, item: FeedItem, now: float) -> Change[Object] | None:
        """Fold one item; the change it made to an object, if any."""
        match item:
            case ObjectChanged():
                return self._object(item, now)
            case Logged():
                self._logged(item, now)
            case Settled():
                self._outcomes_position = max(self._outcomes_position, item.position)
                if isinstance(item.outcome, DecisionOutcome):
                    settled = self.assumptions.outcome(item.outcome)
                    if settled:
                        self._finish(settled, now)
                    else:
                        self._reconcile(item.outcome.key, now)
            case Skipped():
                self._skipped(item)
            case CaughtUp():
                self._caught_up(item.positions)
            case Reset():
                self._start(item.epoch)
        return None

    def appended(self, batch: Batch, position: int, now: float) -> None:
        """Our batch is entry `position` of the log: counted from now on, without waiting for its echo."""
        self._logged(Logged(batch, position), now)

    def _object(self, item: ObjectChanged, now: float) -> Change[Object] | None:
        if item.position > self._objects_position:
            self._objects_position = item.position
        change = self.fold.change(item, now)
        if change is None:
            return None
        self.dirty = True
        if change.name.kind == "workload":
            self._workload(change, now)
        for key in self.fold.recounted:
            self._reconcile(key, now)
        return change

    def _workload(self, change: Change[Object], now: float) -> None:
        key, new = change.key, change.new
        if isinstance(new, Workload):
            self.traces[key] = change.trace
            if new.requeue_at is not None and new.requeue_at > now:
                heappush(self._timers, (float(new.requeue_at), key))
            self.stories.tell(key, now, "seen", f"version {new.version}, incarnation {new.incarnation}")
        else:
            self.traces.pop(key, None)
            self._setbacks.pop(key, None)
            self.stories.tell(key, now, "gone")
        settled = self.assumptions.seen(key)
        if settled:
            self._finish(settled, now)
        else:
            self._reconcile(key, now)

    def _logged(self, item: Logged, now: float) -> None:
        entry, position = item.entry, item.position
        if isinstance(entry, EpochOpened):
            self._epoch_opened(entry, position, now)
            return
        settled = self.assumptions.log(entry, position)
        if settled is None:
            return
        self.dirty = True
        for index, decision in enumerate(entry.decisions):
            id_ = DecisionId(entry.positions.epoch, position, index)
            self.stories.tell(decision.key, now, "decided", _Decided(decision, id_))
        self._finish(settled, now)
        for decision in entry.decisions:
            self._reconcile(decision.key, now)

    def _epoch_opened(self, entry: EpochOpened, position: int, now: float) -> None:
        if entry.epoch > self.assumptions.epoch:
            for key in self.assumptions.open_epoch(entry.epoch, position):
                self._reconcile(key, now)
            self.dirty = True
        elif entry.epoch == self.assumptions.epoch:
            self.assumptions.folded = max(self.assumptions.folded, position)

    def _skipped(self, item: Skipped) -> None:
        """What nobody can read decides nothing, but an append has to stand behind it."""
        match item.stream:
            case "OBJECTS":
                self._objects_position = max(self._objects_position, item.position)
            case "DECISIONS":
                self.assumptions.folded = max(self.assumptions.folded, item.position)
                self.dirty = True
            case "OUTCOMES":
                self._outcomes_position = max(self._outcomes_position, item.position)

    def _caught_up(self, positions: Positions) -> None:
        if positions.epoch != self.assumptions.epoch:
            return
        # Entries that were purged before the replay are not delivered, but the fence stands behind them.
        self.assumptions.folded = max(self.assumptions.folded, positions.decisions)
        self.assumptions.caught_up()
        self._objects_position = max(self._objects_position, positions.objects)
        self._outcomes_position = max(self._outcomes_position, positions.outcomes)
        self.caught_up = True
        self.dirty = True

    # --- decisions and the world -----------------------------------------------------------------------------------

    def _finish(self, settled: list[Settlement], now: float) -> None:
        for settlement in settled:
            decision = settlement.decision
            what = "applied" if settlement.landed else "rejected"
            self.stories.tell(decision.key, now, what, settlement.why or _Decided(decision))
            self.dirty = True
            self._reconcile(decision.key, now)
            if isinstance(decision, Preempt):
                if not settlement.landed:
                    self._preemption_failed(settlement.id, decision, now)
                continue
            if settlement.landed or not isinstance(decision, Admit):
                continue
            self.world.request_retry(decision.cluster_queue)
            rejection = self.assumptions.rejections.get(decision.key)
            if rejection is not None and rejection.count > 1:
                delay = min(REJECTION_BACKOFF_S * 2.0 ** min(rejection.count - 2, 10), REJECTION_BACKOFF_MAX_S)
                self._not_before[decision.key] = now + delay
                heappush(self._timers, (now + delay, decision.key))
                self._reconcile(decision.key, now)

    def _preemption_failed(self, id_: DecisionId, preempt: Preempt, now: float) -> None:
        """Whoever needs the quota looks again; after repeated failures within a minute not at once, for something that our view does not show stops it."""
        self.world.request_retry(preempt.preemptor_cluster_queue)
        before = self._setbacks.get(preempt.preemptor)
        if before is not None and (
            before.uid != preempt.preemptor_uid or now > before.at + 2 * REJECTION_BACKOFF_MAX_S
        ):
            before = None
        batch = DecisionId(id_.epoch, id_.sequence, 0)
        if before is not None and before.batch == batch:
            return
        count = before.count + 1 if before is not None else 1
        delay = min(REJECTION_BACKOFF_S * 2.0 ** min(count - 2, 10), REJECTION_BACKOFF_MAX_S) if count > 1 else 0.0
        self._setbacks[preempt.preemptor] = Setback(preempt.preemptor_uid, batch, count, now, now + delay)
        if delay:
            heappush(self._timers, (now + delay, preempt.preemptor))
            self._reconcile(preempt.preemptor, now)

    def _reconcile(self, key: str, now: float) -> None:
        """Make the World agree with what is assumed about this workload."""
        world = self.world
        preempt, found = self.assumptions.newest(key)
        if preempt is None:
            if key in world.preempting:
                world.settle_preempted(key, now)
        elif world.preempting.get(key) != preempt.preemptor:
            world.assume_preempted(key, preempt.preemptor)
        if found is not None:
            admit, decided = found
            admission = admission_of(admit)
            known = world.assumed.get(key) == admission and key in world.charges
            if not known or world.assumed_at(key) != decided:
                world.assume(key, admission, at=decided)
            return
        if key in world.assumed:
            world.settle(key, now)
        if self._not_before or self._setbacks or self.assumptions.rejections:
            self._forget_rejection(key)
            if self._held_back(key, now):
                world.pending.remove(key)

    def _forget_rejection(self, key: str) -> None:
        """Once our view shows another incarnation than the rejected decision was about, the rejection says nothing more."""
        rejection = self.assumptions.rejections.get(key)
        if rejection is None:
            return
        info = self.world.workloads.get(key)
        if info is not None and info.uid == rejection.uid:
            over = not self._hides(rejection, info.version) and info.incarnation != rejection.incarnation
        else:
            over = self._version_of(key) >= rejection.version and self._version_of(key) > 0
        if over:
            del self.assumptions.rejections[key]
            self._not_before.pop(key, None)

    def _held_back(self, key: str, now: float) -> bool:
        """Was the last decision about this workload rejected on grounds that our view does not show yet, or again and again?"""
        if self._not_before.get(key, 0.0) > now:
            return True
        rejection = self.assumptions.rejections.get(key)
        setback = self._setbacks.get(key)
        if rejection is None and setback is None:
            return False
        info = self.world.workloads.get(key)
        if setback is not None and setback.until > now and info is not None and info.uid == setback.uid:
            return True
        if rejection is None or info is None or info.uid != rejection.uid:
            return False
        return self._hides(rejection, info.version)

    @staticmethod
    def _hides(rejection: Rejection, version: int) -> bool:
        """Is a view at this version older than what proved the rejection?"""
        if rejection.gone:
            return rejection.version == 0 or version <= rejection.version
        return version < rejection.version

    # --- time ------------------------------------------------------------------------------------------------------

    def next_timer(self) -> float | None:
        """When `wake` has something to do (seconds since the epoch)."""
        return self._timers[0][0] if self._timers else None

    def wake(self, now: float) -> None:
        """Put workloads in line whose waiting time has ended."""
        while self._timers and self._timers[0][0] <= now:
            key = heappop(self._timers)[1]
            if self._not_before.get(key, now + 1) <= now:
                del self._not_before[key]
            info = self.world.workloads.get(key)
            if info is None or key in self.world.charges or not info.admissible() or not info.backoff_expired(now):
                continue
            if not self._held_back(key, now):
                self.world.pending.remove(key)
                self.dirty |= self.world.pending.push(info, now)

    def take_over(self, world: World) -> None:
        """Replace a World that a failed decision left half changed by one made anew (`validation.recomputed`)."""
        self.world = self.fold.world = world
        self.dirty = True

    # --- questions -------------------------------------------------------------------------------------------------

    def is_held_back(self, key: str, now: float) -> bool:
        """Is this pending workload kept out of the line because of a rejected decision?"""
        return self._held_back(key, now)

    def story(self, key: str) -> tuple[Chapter, ...]:
        """Everything that happened to one workload, oldest first (the last few dozen chapters)."""
        return self.stories.of(key)


def admission_of(admit: Admit) -> Admission:
    """What an Admit spends, in the model's terms."""
    return Admission(
        admit.cluster_queue,
        tuple(PodSetAssignment(name=p.name, count=p.count, flavors=p.flavors, usage=p.usage) for p in admit.pod_sets),
    )


class _Decided(msgspec.Struct, frozen=True, gc=False):
    """A decision in a story, put into words when somebody reads them: nearly nobody does."""

    decision: Decision
    id: DecisionId | None = None

    def __str__(self) -> str:
        words = _words(self.decision)
        return f"{words} ({self.id})" if self.id is not None else words


def _words(decision: Decision) -> str:
    match decision:
        case Admit():
            flavors = sorted({flavor for pod_set in decision.pod_sets for flavor in pod_set.flavors.values()})
            return f"Admit to {decision.cluster_queue} on {', '.join(flavors) or 'no flavor'}"
        case Preempt():
            return f"{decision.eviction} for {decision.preemptor} ({decision.reason})"
        case _:
            return type(decision).__name__
