"""The scheduler: spends quota, one fenced batch at a time.

1. Fold what the feed brings: objects, decisions, outcomes. A standby does this too, and so is warm when its turn comes.
2. Once caught up, ask for the lease. The rest is done only while it is held; the fence makes a second scheduler harmless anyway.
3. If something changed and fewer than K decisions are unsettled, run a batch of cycles (`shared.decide.cycle`), bounded in time, decisions and bytes.
4. Append the batch behind the last entry folded.
   - Appended: it counts at once; its echo is recognised by position.
   - Lost the race, or the epoch is over: none of it happened. Fold what is newer, then decide again.
   - Refused, for want of room: none of it happened, and none of it would the next time. Not ready, and after a pause once more.
   - Unknown: the same, but first wait until the log shows something new or a second is over. Whatever the late append does, the fence lets one entry
     stand at that position, and the fold takes up the one that does.
5. Nothing admitted and nobody preempted: nothing is logged. What was refused stays parked in the state until something changes that could help; who
   waits for victims is looked at again, a little later, whenever something changed.
6. Report why workloads are pending (`reports`), seldom.
7. Sleep until the feed brings something, or a timer ends (requeueAt, a rejection's back-off, a report that waits).

What a timer or a message cannot change is not looked at again: there is no polling.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable

import msgspec
from opentelemetry.trace import Span, Tracer
from prometheus_client import CollectorRegistry

from services.scheduler import handlers
from services.scheduler.faults import quarantine
from services.scheduler.metrics import PendingCollector, SchedulerMetrics
from services.scheduler.reports import PendingReports, RefusedHead
from services.scheduler.settings import SchedulerSettings
from shared.bus.interface import (
    Appended,
    AppendResult,
    Bus,
    CaughtUp,
    FeedItem,
    Lease,
    LostRace,
    ObjectChanged,
    Refused,
    Reset,
    Settled,
)
from shared.config.configuration import Configured
from shared.config.custom_labels import custom_labels
from shared.decide.cycle import Batch as DecidedBatch
from shared.decide.cycle import BatchLimits, NotAdmitted, Preempt, rollback, run_batch
from shared.events.decisions import Batch
from shared.events.decisions import codec as decisions_codec
from shared.events.objects import Object
from shared.events.outcomes import CommandOutcome
from shared.runtime.decision_settings import admission_fair_sharing, cycle_settings, order_policy, request_rules
from shared.state.folding import KINDS
from shared.state.objects import Change
from shared.state.scheduling import SchedulerState
from shared.telemetry import traces
from shared.telemetry.metrics import FOLLOWER, LEADER, STANDALONE

log = logging.getLogger("sluice.scheduler")

BEHIND = 64
"""Unsettled decisions with which the gateway has work for a while, whatever else is decided now: twice what it writes at once."""
TIMES_ITS_COST = 4
"""After a batch no other for so many times what it took: deciding takes a fifth of a processor."""
LONGEST_DELAY = 2
"""In units of the setting."""
ROOM = 4
"""Part of K that has to be free again once it was reached."""
LISTS_AT_ONCE = 64
"""Lists of the feed folded before looking at anything else; also how many may wait to be folded."""
SHAPES_KEPT = 10_000
NO_ROOM_WAIT_S = 2.0
"""Before the next append after one for which the log had no room."""
SILENT_APPENDS = 3
"""So many without an answer are more than a bad moment."""
RETELL_S = 10.0
"""How often those that are parked with a refused workload are told anew, while the reason stays."""
PASSED_OVER = "passed over"
"""Stands for a shape where it is about those that were passed over."""


class Scheduler:
    """One instance. `run` is the loop; `step` is one round of it."""

    def __init__(
        self,
        bus: Bus,
        settings: SchedulerSettings,
        *,
        now: Callable[[], float],
        tracer: Tracer,
        registry: CollectorRegistry,
        ready: Callable[[bool, str], None],
        loaded: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        configured: Configured | None = None,
    ) -> None:
        """`ready` hears whether the state can be relied on; `loaded` is called after each replay; `clock` times the budget of a batch."""
        self.author = f"{bus.service}-{uuid.uuid4().hex[:8]}"
        configured = configured if configured is not None else Configured()
        self.state = SchedulerState(
            order_policy(configured), request_rules(configured), admission_fair_sharing(configured, settings)
        )
        self._cycle = cycle_settings(configured, settings)
        elected = configured.configuration.leader_election.leader_elect
        self.metrics = SchedulerMetrics(registry, LEADER if elected else STANDALONE)
        registry.register(
            PendingCollector(
                self.state,
                lambda: (LEADER if self._active else FOLLOWER) if elected else STANDALONE,
                custom_labels(configured),
                hashes=configured.gates["SchedulingEquivalenceHashing"],
                resources=configured.configuration.metrics.enable_cluster_queue_resources,
            )
        )
        self.reports = PendingReports(
            self.author,
            interval_s=settings.report_interval_s,
            per_s=settings.reports_per_s,
            burst=settings.report_burst,
            legacy_reasons=not configured.gates["UnadmittedWorkloadsObservability"],
        )
        self._bus = bus
        self._settings = settings
        self._now = now
        self._clock = clock
        self._tracer = tracer
        self._ready = ready
        self._loaded = loaded
        self._inbox: asyncio.Queue[list[FeedItem]] = asyncio.Queue(LISTS_AT_ONCE)
        self._lease: Lease | None = None
        self._watch: asyncio.Task[None] | None = None
        self._refused_shapes: dict[tuple[str, str], RefusedHead] = {}
        """The last refusal of a shape in a ClusterQueue; of use while the queue's own memory of refused shapes lasts."""
        self._told: dict[tuple[str, str], tuple[str, float]] = {}
        """(ClusterQueue, shape) -> which reason all that are parked with it were told, and when."""
        self._not_before = 0.0
        self._raced = False
        self._unanswered = 0
        """Appends in a row that nobody took or answered."""
        self._took = 0.0
        """Seconds that the last batch took to decide."""
        self._room = 1
        """So many unsettled decisions less than K are waited for: at K a batch for each single outcome would look at all heads for one admission."""

    async def run(self) -> None:
        """Work until cancelled."""
        self._ready(False, "reading the bus")
        await self._bus.serve("positions", self._answer_positions)
        await self._bus.serve("explain", self._answer_explain)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read())
            while True:
                await self.step(tasks)

    async def _read(self) -> None:
        feed = self._bus.feed(kinds=KINDS, decisions=True, outcomes=True)
        async for items in feed:
            await self._inbox.put(items)

    async def _answer_positions(self, _: bytes) -> bytes:
        return handlers.positions(self.state)

    async def _answer_explain(self, payload: bytes) -> bytes:
        return handlers.explain(self.state, self.reports, payload, self._now())

    # --- a round ---------------------------------------------------------------------------------------------------

    async def step(self, tasks: asyncio.TaskGroup) -> None:
        """Fold what is there, waiting for it if there is nothing else to do; then decide, then report."""
        await self._receive()
        now = self._now()
        self.state.wake(now)
        if self.state.caught_up:
            self._ask_for_lease(tasks)
        self.metrics.active.set(self._active)
        if self._may_decide(now):
            await self._decide(now)
        if self._active:
            await self._report(self._now())
        self.metrics.unsettled.set(self.state.assumptions.spending)

    async def _receive(self) -> None:
        try:
            async with asyncio.timeout(self._wait_s()):
                self._fold(await self._inbox.get())
        except TimeoutError:
            return
        for _ in range(LISTS_AT_ONCE):
            if self._inbox.empty():
                break
            self._fold(self._inbox.get_nowait())

    def _wait_s(self) -> float | None:
        """How long the inbox may stay empty before something else is due; None: for ever."""
        now = self._now()
        times = [self.state.next_timer()]
        if self._active:
            times.append(self.reports.next_due(now))
            if self._wants_to_decide():
                times.append(self._not_before)
        due = [at for at in times if at is not None]
        return max(0.0, min(due) - now) if due else None

    def _fold(self, items: list[FeedItem]) -> None:
        now = self._now()
        for item in items:
            change = self._apply(item, now)
            match item:
                case ObjectChanged() if change is not None and change.name.kind == "workload":
                    self._notice_workload(change.name.key)
                case Settled(outcome=CommandOutcome() as outcome):
                    self.reports.outcome(outcome)
                case Settled(outcome=outcome) if outcome.status == "rejected":
                    self.metrics.rejected.inc()
                case Reset():
                    log.info("reading the bus from the start", extra={"epoch": item.epoch, "why": item.why})
                    self.reports.clear()
                    self._refused_shapes.clear()
                    self._told.clear()
                    self._ready(False, item.why)
                case CaughtUp():
                    log.info("caught up", extra={"epoch": item.positions.epoch})
                    self._loaded()
                    self._ready(True, "")
                case _:
                    pass
        if items and self._raced:
            self._raced, self._not_before = False, 0.0

    def _apply(self, item: FeedItem, now: float) -> Change[Object] | None:
        """Fold one item; what cannot be folded is logged and left out, the rest goes on (R9)."""
        try:
            change = self.state.apply(item, now)
        except Exception:
            log.exception(
                "cannot fold a message", extra={"item": type(item).__name__, "name": getattr(item, "name", "")}
            )
            self.metrics.unfoldable.inc()
            return None
        if isinstance(item, ObjectChanged):
            why = self.state.fold.faults.get(item.name) or self.state.objects.misfits.get(item.name)
            if why is not None:
                log.warning("%s %s cannot be used: %s", item.name.kind, item.name.key, why)
        return change

    def _notice_workload(self, key: str) -> None:
        """A workload that waits no more needs no report; one parked on arrival, as one of its shape was refused, gets that one's."""
        pending = self.state.world.pending
        place = pending.place_of(key)
        if place is None:
            self.reports.forget(key)
            return
        queue = pending.queues[place]
        item = queue.inadmissible.get(key)
        if item is not None and item.info.shape in queue.hash_reasons and key not in self.reports.refused:
            known = self._refused_shapes.get((place, item.info.shape))
            if known is not None:
                self.reports.refuse(key, known)

    # --- the lease -------------------------------------------------------------------------------------------------

    @property
    def _active(self) -> bool:
        return self._lease is not None and self._lease.held

    def _ask_for_lease(self, tasks: asyncio.TaskGroup) -> None:
        if self._lease is None:
            self._lease = self._bus.lease("scheduler")
        if not self._lease.held and (self._watch is None or self._watch.done()):
            self._watch = tasks.create_task(self._wait_for_turn(self._lease))

    async def _wait_for_turn(self, lease: Lease) -> None:
        await lease.wait_until_held()
        log.info("active")
        self.state.dirty = True
        await self._inbox.put([])

    # --- deciding --------------------------------------------------------------------------------------------------

    def _wants_to_decide(self) -> bool:
        state = self.state
        return (
            state.dirty
            and state.caught_up
            and state.epoch > 0
            and state.assumptions.spending <= self._settings.max_unsettled - self._room
        )

    def _may_decide(self, now: float) -> bool:
        return self._active and now >= self._not_before and self._wants_to_decide()

    async def _decide(self, now: float) -> None:
        """Steps 3 to 5."""
        started = self._clock()
        decided, spans, batch = self._batch(now)
        took = self._took = self._clock() - started
        if decided.cycles:
            self.metrics.attempt(bool(decided.admits), took)
            self.metrics.preempted(decided.skipped_preemptions, decided.recomputations)
        self.metrics.cycles.inc(decided.cycles)
        self.metrics.heads.inc(len(decided.admits) + len(decided.refused))
        self.state.dirty = decided.more
        if not decided.decisions:
            self._pace(decided, now)
            self._note_refusals(decided, now)
            return
        try:
            result = await self._bus.append(batch)
        except BaseException:
            rollback(self.state.world, decided, now)
            raise
        self._conclude(result, decided, batch, now)
        for span in spans:
            span.set_attribute("sluice.append", type(result).__name__)
            span.end()

    def _pace(self, decided: DecidedBatch, now: float) -> None:
        """After a batch changes are gathered for a moment: each batch looks at all heads again, and most would be refused again. The moment is shorter
        where somebody was admitted and the gateway keeps up; one that is behind applies nothing sooner for being told sooner."""
        self._not_before = 0.0
        most = self._settings.max_unsettled
        self._room = max(1, most // ROOM) if self.state.assumptions.spending >= most else 1
        if decided.more or not (decided.decisions or decided.refused):
            return
        keeps_up = self.state.assumptions.spending < BEHIND
        delay = self._settings.retry_delay_s
        least = delay / 2 if decided.decisions and keeps_up else delay
        # On a machine that is crowded a batch takes longer: the more it takes, the more changes have to make up for it.
        self._not_before = now + max(least, min(self._took * TIMES_ITS_COST, delay * LONGEST_DELAY))

    def _batch(self, now: float) -> tuple[DecidedBatch, list[Span], Batch]:
        """A batch of cycles and the message it becomes, small enough to be appended. What it admits is assumed in the World."""
        state, settings = self.state, self._settings
        limit = settings.batch_decisions
        while True:
            counted = len(state.world.assumed) + len(state.world.preempting)
            limits = BatchLimits(
                max_decisions=limit,
                max_unsettled=settings.max_unsettled - state.assumptions.spending + counted,
            )
            try:
                decided = run_batch(state.world, now, settings=self._cycle, limits=limits, should_stop=self._budget())
            except Exception as error:
                log.exception("a cycle failed")
                self.metrics.failed.inc()
                if not quarantine(state, f"cannot be decided on: {error!r}", now):
                    raise
                continue
            spans = self._spans(decided)
            message = handlers.batch_message(
                decided,
                author=self.author,
                positions=state.positions,
                now=now,
                traces=[traces.traceparent_of(span) for span in spans],
            )
            # One preemptor's victims stay together whatever the limit.
            smallest = limit <= 1 or len(decided.decisions) <= 1
            if smallest or len(decisions_codec.encode(message)) <= settings.batch_bytes:
                return decided, spans, message
            rollback(state.world, decided, now)
            limit = max(1, min(limit, len(decided.decisions)) // 2)

    def _budget(self) -> Callable[[], bool]:
        deadline = self._clock() + self._settings.cycle_budget_s
        return lambda: self._clock() > deadline

    def _spans(self, decided: DecidedBatch) -> list[Span]:
        """A span per decision, in the trace of the job that it is about; one of a preemption names the workload it is for."""
        spans = []
        for decision in decided.decisions:
            info = self.state.world.workloads.get(decision.key)
            uid = (info.job_uid if info is not None else "") or decision.uid
            attributes = {"sluice.workload": decision.key, "sluice.cluster_queue": decision.cluster_queue}
            if isinstance(decision, Preempt):
                attributes["sluice.preemptor"] = decision.preemptor
            spans.append(
                self._tracer.start_span(
                    "scheduler.preempt" if isinstance(decision, Preempt) else "scheduler.admit",
                    context=traces.context_of(self.state.traces.get(decision.key, ""), uid),
                    attributes=attributes,
                )
            )
        return spans

    def _conclude(self, result: AppendResult, decided: DecidedBatch, batch: Batch, now: float) -> None:
        """Step 4, after the answer."""
        if isinstance(result, Appended | LostRace) and self._unanswered:
            self._unanswered = 0
            self._ready(True, "")
        if isinstance(result, Appended):
            self.state.appended(batch, result.position, now)
            self.metrics.appended.inc()
            self.metrics.preemptions.inc(len(decided.preempts))
            self._pace(decided, now)
            for admit in decided.admits:
                self.reports.forget(admit.key)
            self._note_refusals(decided, now)
            return
        rollback(self.state.world, decided, now)
        self.state.dirty = True
        if isinstance(result, LostRace):
            self._raced, self._not_before = True, now + self._settings.race_wait_s
            self.metrics.lost.inc()
            log.info("lost a race for the log: %s", result.why, extra={"decisions": len(batch.decisions)})
            return
        self._unanswered += 1
        if isinstance(result, Refused):
            self._not_before = now + NO_ROOM_WAIT_S
            self.metrics.refused.inc()
            why = f"the log of decisions takes nothing: {result.why}"
            if self._unanswered == 1:
                log.error("%s", why)
            self._ready(False, why)
            return
        self._raced, self._not_before = True, now + self._settings.race_wait_s
        self.metrics.unknown.inc()
        log.warning("an append is unanswered", extra={"decisions": len(batch.decisions)})
        if self._unanswered >= SILENT_APPENDS:
            self._ready(False, "the log of decisions does not answer: NATS may have no room, its /healthz says so")

    # --- reports ---------------------------------------------------------------------------------------------------

    def _note_refusals(self, decided: DecidedBatch, now: float) -> None:
        """Remember why heads were refused, and with them all that were parked for having the same shape."""
        positions = self.state.positions
        shapes: dict[tuple[str, str], NotAdmitted] = {}
        for entry in decided.refused:
            self.reports.refuse(entry.key, RefusedHead(entry, positions, now))
            info = self.state.world.workloads.get(entry.key)
            queue = self.state.world.pending.queues.get(entry.cluster_queue)
            if info is not None and queue is not None and info.shape in queue.hash_reasons:
                shapes[entry.cluster_queue, info.shape] = entry
        if len(self._refused_shapes) > SHAPES_KEPT:
            self._refused_shapes.clear()
            self._told.clear()
        for (name, shape), entry in shapes.items():
            self._refused_shapes[name, shape] = RefusedHead(entry, positions, now, like=entry.key)
        due = {what: entry for what, entry in shapes.items() if self._is_to_be_told(what, entry, now)}
        for name in dict.fromkeys(name for name, _ in due):
            for key, item in self.state.world.pending.queues[name].inadmissible.items():
                entry_of_shape = due.get((name, item.info.shape))
                if entry_of_shape is not None and entry_of_shape.key != key:
                    self.reports.refuse(key, RefusedHead(entry_of_shape, positions, now, like=entry_of_shape.key))
        self._note_passed_over(decided, now)

    def _is_to_be_told(self, what: tuple[str, str], entry: NotAdmitted, now: float) -> bool:
        """Whether all that are parked with this one are told now: at once when the reason is new, else now and then. There may be thousands of them, and
        hardly one of their texts would be written."""
        reason = str(entry.refusal.reason)
        before = self._told.get(what)
        if before is not None and before[0] == reason and now < before[1] + RETELL_S:
            return False
        self._told[what] = (reason, now)
        return True

    def _note_passed_over(self, decided: DecidedBatch, now: float) -> None:
        """What was parked without a look of its own, since one of its family that asks for less was refused, is told so."""
        positions = self.state.positions
        for name, entry in {entry.cluster_queue: entry for entry in decided.refused}.items():
            queue = self.state.world.pending.queues.get(name)
            if queue is None or not queue.parked_reason(entry.key):
                continue
            if not self._is_to_be_told((name, PASSED_OVER), entry, now):
                continue
            said = f"Passed over: {entry.key}, which asks for no more, was refused: {entry.message}"
            for key in queue.inadmissible:
                if key not in self.reports.refused and queue.parked_reason(key):
                    passed = msgspec.structs.replace(entry, words=said, requests={})
                    self.reports.refuse(key, RefusedHead(passed, positions, now, like=entry.key))

    async def _report(self, now: float) -> None:
        commands = self.reports.due(self.state.objects, self.state.traces, now)
        if commands:
            await self._bus.command(commands)
            self.metrics.reports.inc(len(commands))
