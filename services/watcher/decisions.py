"""Applies the decision log to the API server: the decision is the command, there is no second message (R4, R6).

 1. Read which decisions of the epoch have an outcome already: they are not touched again.
 2. Fold the log in order; each open decision goes into the lane of its workload, so that log order is kept per job and evictions go first among jobs.
 3. In the lane: is it the workload, the state, that was decided about? The answer comes from our own copy; the patch is bound to that copy.
    What the object carries already is applied; a state that has moved on is a rejection; no answer means: read again.
 4. Once an admission is written, the older slice of an elastic job that it replaces is finished. A victim that was on its way out already has its
    job looked at again. Nobody is evicted for a preemptor that is not there any more.
 5. One outcome per decision. A decision that makes our code fail is put aside after the delivery limit, and rejected.
 6. A reservation is taken back (a command) only once the outcome of its decision is out: nothing on the object would tell a replay that it was there.
 7. When an outcome is out and OBJECTS holds the state it names, the decision is settled; entries of the log below the first unsettled one are purged.

A decision of an earlier epoch is void: it is dropped without an outcome.
"""

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
from opentelemetry.trace import Tracer

from services.watcher.admission_events import AdmissionEvents
from services.watcher.lane_keys import lane_of
from services.watcher.lanes import Lanes, Urgency
from services.watcher.object_writer import ObjectWriter, Rejected, Result
from services.watcher.outcomes import OutcomePublisher
from services.watcher.patches import Refusal, admission_of, carries_admission
from services.watcher.projections_workload import incarnation_of
from services.watcher.store import Store
from services.watcher.workload_state import get_workload, is_evicted, is_finished, is_reserved, job_uid, split_key
from shared.api import names
from shared.api.workload import Workload
from shared.api.workload_status import WorkloadStatus
from shared.bus.interface import CaughtUp, GatewayBus, Logged, Reset, Settled
from shared.decide import transitions
from shared.events import subjects
from shared.events.decisions import Admit, Batch, Decision, DecisionId, Preempt
from shared.events.outcomes import DecisionOutcome
from shared.telemetry.traces import context_of

logger = logging.getLogger(__name__)

_PURGE_EVERY_S = 2.0


class _Entry:
    """A batch of the log and how many of its decisions are not settled."""

    __slots__ = ("open", "sequence")

    def __init__(self, sequence: int, open_: int) -> None:
        self.sequence = sequence
        self.open = open_


class DecisionLog:
    """Follows one epoch at a time; `now` gives seconds since the epoch of the clock."""

    def __init__(
        self,
        *,
        bus: GatewayBus,
        store: Store,
        writer: ObjectWriter,
        lanes: Lanes,
        outcomes: OutcomePublisher,
        events: AdmissionEvents,
        tracer: Tracer,
        now: Callable[[], float],
        look_again: Callable[[Workload], None],
        must_not_hold_quota: Callable[[Workload], bool] = lambda _: False,
    ) -> None:
        """`look_again` has the job of a workload reconciled; `must_not_hold_quota`: variants of the workload do that in its place."""
        self._bus = bus
        self._store = store
        self._writer = writer
        self._lanes = lanes
        self._outcomes = outcomes
        self._events = events
        self._tracer = tracer
        self._now = now
        self._look_again = look_again
        self._must_not_hold_quota = must_not_hold_quota
        self._shard = ""
        self._epoch = 0
        self._turn = 0
        """Counts calls of `follow`: work queued for an earlier one is void, the log is read again from its start."""
        self._entries: deque[_Entry] = deque()
        self._unpublished: dict[str, list[tuple[int, _Entry]]] = {}
        self._published: dict[str, int] = {}
        self.applied = 0
        """Highest sequence of the epoch's log that was read."""
        self.floor = 0
        """Entries below this sequence are settled."""
        self._replay_ends = -1
        """What the log held when it began to be followed ends here; below 0: not known yet."""
        self._unanswered: Counter[str] = Counter()
        """Workload -> decisions read whose outcome is not out."""

    def is_answered(self, key: str) -> bool:
        """Is the outcome of every decision about this workload out? Not before the log has been read: a gateway before us may have written one."""
        return 0 <= self._replay_ends <= self.applied and not self._unanswered[key]

    async def follow(self, *, shard: str, epoch: int) -> None:
        """Fold and apply the log of one epoch, until cancelled. Raises StreamsLost."""
        self._turn += 1
        self._shard, self._epoch = shard, epoch
        self._entries.clear()
        self._unpublished.clear()
        self._unanswered.clear()
        self.applied = self.floor = 0
        self._replay_ends = -1
        try:
            decided, self._replay_ends = await self._decided(epoch)
            # Not in a TaskGroup: what the log raises has to reach the caller as it is.
            purging = asyncio.create_task(self._purge(shard, epoch))
            try:
                async for entries in self._bus.log(shard=shard, epoch=epoch, after=0):
                    for logged in entries:
                        self._take(logged, decided)
            finally:
                purging.cancel()
                await asyncio.wait({purging})
        finally:
            self._turn += 1

    def published(self, key: str, version: int) -> None:
        """OBJECTS holds the workload `key` at `version` (or its tombstone)."""
        if get_workload(self._store, *split_key(key)) is None:
            self._published.pop(key, None)
            reached = self._unpublished.pop(key, [])
        else:
            self._published[key] = max(version, self._published.get(key, 0))
            waiting = self._unpublished.pop(key, [])
            reached = [item for item in waiting if item[0] <= version]
            late = [item for item in waiting if item[0] > version]
            if late:
                self._unpublished[key] = late
        for _, entry in reached:
            entry.open -= 1
        if reached:
            self._advance()

    async def _decided(self, epoch: int) -> tuple[dict[DecisionId, DecisionOutcome], int]:
        """The outcomes that are out already, and where the log ends."""
        found: dict[DecisionId, DecisionOutcome] = {}
        feed = self._bus.feed(kinds=("epoch",), decisions=True, outcomes=True)
        reading = False
        async with contextlib.AsyncExitStack() as stack:
            items = aiter(feed)
            close = getattr(items, "aclose", None)
            if close is not None:
                stack.push_async_callback(close)
            async for batch in items:
                for item in batch:
                    if isinstance(item, Reset):
                        found.clear()
                        reading = item.epoch == epoch
                    elif isinstance(item, Settled) and isinstance(item.outcome, DecisionOutcome):
                        if item.outcome.decision.epoch == epoch:
                            found.setdefault(item.outcome.decision, item.outcome)
                    elif isinstance(item, CaughtUp) and reading:
                        return found, item.positions.decisions
        return found, 0

    def _take(self, logged: Logged, decided: dict[DecisionId, DecisionOutcome]) -> None:
        self.applied = max(self.applied, logged.position)
        if not isinstance(logged.entry, Batch):
            return
        decisions = logged.entry.decisions
        entry = _Entry(logged.position, len(decisions))
        self._entries.append(entry)
        for index, decision in enumerate(decisions):
            id_ = DecisionId(self._epoch, logged.position, index)
            known = decided.pop(id_, None)
            if known is not None:
                self._settled(entry, known)
            else:
                self._submit(id_, decision, entry)
        self._advance()

    def _submit(self, id_: DecisionId, decision: Decision, entry: _Entry) -> None:
        turn = self._turn
        self._unanswered[decision.key] += 1

        async def run() -> None:
            if turn == self._turn:
                await self._apply(id_, decision, entry)

        async def give_up(error: Exception, attempts: int) -> None:
            if turn == self._turn:
                await self._put_aside(id_, decision, entry, error, attempts)

        urgency = Urgency.STOP if isinstance(decision, Preempt) else Urgency.START
        lane = lane_of(self._store, "workload", *split_key(decision.key))
        self._lanes.submit(lane, run, urgency=urgency, give_up=give_up)

    async def _apply(self, id_: DecisionId, decision: Decision, entry: _Entry) -> None:
        namespace, name = split_key(decision.key)
        before = get_workload(self._store, namespace, name)
        context = context_of(decision.trace, decision.uid if before is None else job_uid(before))
        with self._tracer.start_as_current_span(f"watcher.{_span(decision)}", context) as span:
            span.set_attribute("workload", decision.key)
            span.set_attribute("decision", str(id_))
            if isinstance(decision, Preempt):
                self._events.preempting(decision)
            result = await self._writer.workload_status(
                namespace, name, decision.uid, lambda workload: self._plan(decision, workload)
            )
            span.set_attribute("outcome", "rejected" if isinstance(result, Rejected) else "applied")
        if isinstance(decision, Admit) and decision.replaces and not isinstance(result, Rejected):
            await self._finish_replaced(decision)
        self._answer(id_, decision, entry, result)
        after = get_workload(self._store, namespace, name)
        if isinstance(result, Rejected) or after is None:
            return
        match decision:
            case Admit() if result.changed:
                self._events.admitted(after, decision, self._now())
            case Preempt() if result.changed:
                self._events.preempted(after, decision)
            case Preempt():
                self._look_again(after)
            case _:
                pass

    async def _finish_replaced(self, decision: Admit) -> None:
        """The older slice of an elastic job is over once the newer one has its quota."""
        message = f"Replaced by the workload slice {decision.key}"

        def plan(workload: Workload) -> WorkloadStatus | Refusal:
            now, generation = datetime.fromtimestamp(self._now(), UTC), workload.metadata.generation
            return transitions.finish(workload.status, names.REASON_SLICE_REPLACED, message, now, generation)

        namespace, name = split_key(decision.replaces)
        result = await self._writer.workload_status(namespace, name, decision.replaced_uid, plan)
        after = get_workload(self._store, namespace, name)
        if not isinstance(result, Rejected) and result.changed and after is not None:
            self._events.replaced(after, message)

    def _plan(self, decision: Decision, workload: Workload) -> WorkloadStatus | Refusal:
        now = datetime.fromtimestamp(self._now(), UTC)
        if is_finished(workload):
            return Refusal("the workload has finished")
        match decision:
            case Admit() if self._must_not_hold_quota(workload):
                return Refusal("variants hold the quota of this workload")
            case Admit():
                return plan_admit(decision, workload, now)
            case Preempt():
                preemptor = get_workload(self._store, *split_key(decision.preemptor))
                return plan_preempt(decision, workload, preemptor, now)
            case _:
                return Refusal("second passes are not applied by this version")

    def _answer(self, id_: DecisionId, decision: Decision, entry: _Entry, result: Result) -> None:
        if isinstance(result, Rejected):
            logger.info("decision rejected", extra={"decision": str(id_), "workload": decision.key, "why": result.why})
            outcome = DecisionOutcome(
                decision=id_,
                key=decision.key,
                uid=decision.uid,
                status="rejected",
                version=result.version,
                why=result.why,
                gone=result.gone,
            )
        else:
            outcome = DecisionOutcome(
                decision=id_, key=decision.key, uid=decision.uid, status="applied", version=result.version
            )
        turn = self._turn

        def done() -> None:
            if turn == self._turn:
                self._unanswered[decision.key] -= 1
            self._settled(entry, outcome)

        self._outcomes.put(outcome, done=done)

    async def _put_aside(
        self, id_: DecisionId, decision: Decision, entry: _Entry, error: Exception, attempts: int
    ) -> None:
        await self._bus.dead_letter(
            stream=subjects.decisions_stream(self._shard, id_.epoch),
            subject=subjects.decisions(self._shard, id_.epoch),
            sequence=id_.sequence,
            attempts=attempts,
            error=f"decision {id_}: {error!r}",
            payload=msgspec.msgpack.encode(decision),
        )
        stored = self._store.get("workload", *split_key(decision.key))
        version = 0 if stored is None else stored.version
        why = f"put aside after {attempts} attempts: {error}"
        self._answer(id_, decision, entry, Rejected(why, version, gone=stored is None))

    def _settled(self, entry: _Entry, outcome: DecisionOutcome) -> None:
        """The outcome is out; what is left is that OBJECTS shows what it names."""
        stored = self._store.get("workload", *split_key(outcome.key))
        waits = (
            outcome.status == "applied"
            and stored is not None
            and stored.uid == outcome.uid
            and self._published.get(outcome.key, 0) < outcome.version
        )
        if waits:
            self._unpublished.setdefault(outcome.key, []).append((outcome.version, entry))
            return
        entry.open -= 1
        self._advance()

    def _advance(self) -> None:
        while self._entries and self._entries[0].open <= 0:
            self.floor = self._entries.popleft().sequence + 1
        if self._entries:
            self.floor = self._entries[0].sequence

    async def _purge(self, shard: str, epoch: int) -> None:
        purged = 0
        while True:
            await asyncio.sleep(_PURGE_EVERY_S)
            if self.floor > purged:
                floor = self.floor
                try:
                    await self._bus.purge_settled(shard=shard, epoch=epoch, decisions=floor)
                    purged = floor
                except Exception as error:  # noqa: BLE001 - the log is only longer than it need be; the next turn tries again
                    logger.warning("cannot purge the log", extra={"floor": floor, "error": str(error)})


def plan_admit(decision: Admit, workload: Workload, now: datetime) -> WorkloadStatus | Refusal:
    """The status with the reservation, if the workload is still in the state that was decided about."""
    if is_reserved(workload) and carries_admission(workload, decision):
        return workload.status
    if workload.metadata.deletion_timestamp is not None:
        return Refusal("the workload is being deleted")
    if not workload.spec.active:
        return Refusal("the workload is not active")
    if is_reserved(workload):
        return Refusal("the workload has another reservation")
    if incarnation_of(workload) != decision.incarnation:
        return Refusal("the workload has changed since it was decided about")
    # What checks there are belongs into the write of the reservation: nobody may see one without the other.
    return transitions.reserve(
        transitions.sync_checks(workload.status, decision.required_checks, now),
        admission=admission_of(decision.cluster_queue, decision.pod_sets),
        required_checks=decision.required_checks,
        now=now,
        generation=workload.metadata.generation,
    )


def plan_preempt(
    decision: Preempt, workload: Workload, preemptor: Workload | None, now: datetime
) -> WorkloadStatus | Refusal:
    """The status with the eviction; a workload that is being evicted already will free its quota anyway.

    Without an incarnation the decision means the state that the victim's own Admit, just before it in the log, has left.
    """
    if is_evicted(workload):
        return workload.status
    if not is_reserved(workload):
        return Refusal("the workload holds no quota")
    if decision.incarnation and incarnation_of(workload) != decision.incarnation:
        return Refusal("the workload has changed since it was decided about")
    if not _waits(decision, preemptor):
        return Refusal("the preemptor is gone, or does not want quota any more")
    if decision.eviction == names.REASON_PREEMPTED and preemptor is not None and is_reserved(preemptor):
        # Decided on later, out of quota that others gave back, and written sooner: lanes do not wait for each other.
        return Refusal("the preemptor has got its quota without it")
    return transitions.evict(
        workload.status,
        decision.eviction,
        decision.message,
        now,
        workload.metadata.generation,
        preempted_reason=decision.reason if decision.eviction == names.REASON_PREEMPTED else "",
    )


def _waits(decision: Preempt, preemptor: Workload | None) -> bool:
    """Is there still somebody to evict for?"""
    return (
        preemptor is not None
        and preemptor.metadata.uid == decision.preemptor_uid
        and preemptor.metadata.deletion_timestamp is None
        and preemptor.spec.active
        and not is_finished(preemptor)
    )


def _span(decision: Decision) -> str:
    match decision:
        case Admit():
            return "apply_admission"
        case Preempt():
            return "apply_preemption"
        case _:
            return "apply_second_pass"
