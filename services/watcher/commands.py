"""Carries out commands: typed writes that spend no quota, each with one outcome, after which it is deleted.

1. Take the open commands as they come; one that a newer one has replaced is answered without being carried out.
2. Commands that only inform (queue status, reasons of pending workloads) wait for the write budget before they enter a lane; if nothing would
   change they cost nothing.
3. In the lane of its object: plan on our copy, patch, answer (see `object_writer`).
4. A command that makes our code fail is put aside after the delivery limit, and rejected.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime

from opentelemetry.trace import Tracer

from services.watcher.admission_events import AdmissionEvents
from services.watcher.commands_queues import plan_check_active, plan_cohort_status, plan_finalizer, plan_queue_status
from services.watcher.commands_workload import StatusCommand, plan
from services.watcher.informing import Budget
from services.watcher.lane_keys import lane_of
from services.watcher.lanes import Lanes, Urgency
from services.watcher.object_writer import RESOURCES, ObjectWriter, Rejected, Result, Written
from services.watcher.outcomes import OutcomePublisher
from services.watcher.patches import Refusal
from services.watcher.projections_workload import incarnation_of
from services.watcher.provisioning_objects import ProvisioningObjects
from services.watcher.store import Store, Stored
from services.watcher.workload_state import get_workload, is_admitted, job_uid
from shared.api import names
from shared.api.cluster_queue import ClusterQueue
from shared.api.conditions import find
from shared.api.local_queue import LocalQueue
from shared.api.workload import Workload
from shared.api.workload_status import WorkloadStatus
from shared.bus.interface import GatewayBus, OpenCommand
from shared.events import commands
from shared.events.commands import Command
from shared.events.outcomes import CommandOutcome
from shared.jobs.manifest import JsonObject
from shared.telemetry.traces import context_of

logger = logging.getLogger(__name__)

_STREAM = "COMMANDS"
_INFORMATIONAL = (commands.ReportPending, commands.SetQueueStatus, commands.SetCohortStatus)
_REPLACED = Rejected("a newer command has replaced it")


class _Informing:
    """Commands that wait for one budget, by subject."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.waiting: OrderedDict[str, OpenCommand] = OrderedDict()
        self.told = asyncio.Event()


class CommandRunner:
    """`run` takes commands until cancelled. `now` gives seconds since the epoch."""

    def __init__(
        self,
        *,
        bus: GatewayBus,
        store: Store,
        writer: ObjectWriter,
        lanes: Lanes,
        outcomes: OutcomePublisher,
        events: AdmissionEvents,
        provisioning: ProvisioningObjects,
        queues: Budget,
        pending: Budget,
        tracer: Tracer,
        now: Callable[[], float],
        look_again: Callable[[Workload], None],
        pods_are_ready: Callable[[Workload], bool],
        is_answered: Callable[[str], bool],
    ) -> None:
        """`queues` and `pending`: budgets for the status of queues, and for the reasons of pending workloads. `look_again` has the job of a workload
        reconciled; `pods_are_ready` tells what the job itself says now; `is_answered` whether the outcomes of all decisions about a workload are out."""
        self._bus = bus
        self._store = store
        self._writer = writer
        self._lanes = lanes
        self._outcomes = outcomes
        self._events = events
        self._provisioning = provisioning
        self._queues = _Informing(queues)
        self._pending = _Informing(pending)
        self._tracer = tracer
        self._now = now
        self._look_again = look_again
        self._pods_are_ready = pods_are_ready
        self._is_answered = is_answered
        self._newest: dict[str, OpenCommand] = {}
        """The newest open command, per subject."""

    async def run(self) -> None:
        """Take commands as they come."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._inform(self._queues))
            group.create_task(self._inform(self._pending))
            async for batch in self._bus.commands():
                for command in batch:
                    self._take(command)

    def _take(self, taken: OpenCommand) -> None:
        newest = self._newest.get(taken.subject)
        if newest is not None and (newest.sequence, newest.command.id) == (taken.sequence, taken.command.id):
            # Delivered again; it is on its way. A lower sequence is no sign of that: streams may have been wiped.
            return
        self._newest[taken.subject] = taken
        if isinstance(taken.command, _INFORMATIONAL):
            line = self._pending if isinstance(taken.command, commands.ReportPending) else self._queues
            older = line.waiting.pop(taken.subject, None)
            if older is not None:
                self._answer(older, _REPLACED)
            if self._opens_or_closes(taken.command):
                self._submit(taken)
            else:
                line.waiting[taken.subject] = taken
                line.told.set()
        else:
            self._submit(taken)

    def _opens_or_closes(self, command: Command) -> bool:
        """Does a queue become active or inactive, or so for another reason? That is rare, and others wait for it."""
        if not isinstance(command, commands.SetQueueStatus):
            return False
        stored = self._store.get(command.kind, command.namespace, command.name)
        if stored is None or not isinstance(stored.object, ClusterQueue | LocalQueue):
            return False
        present = find(stored.object.status.conditions, names.ACTIVE)
        wanted = (command.active.status, command.active.reason)
        return present is None or (present.status == "True", present.reason) != wanted

    async def _inform(self, line: _Informing) -> None:
        while True:
            while not line.waiting:
                line.told.clear()
                await line.told.wait()
            subject, first = next(iter(line.waiting.items()))
            if self._changes(first.command):
                async with line.budget.spend():
                    # A newer one may have taken its place while we waited, or one that did not have to wait.
                    taken = line.waiting.pop(subject, None)
            else:
                taken = line.waiting.pop(subject, None)
            if taken is not None:
                self._submit(taken)
            await asyncio.sleep(0)

    def _changes(self, command: Command) -> bool:
        """Whether the command would write something on what our copy says."""
        stored = self._store.get(command.kind, command.namespace, command.name)
        if stored is None:
            return False
        now = self._moment()
        if isinstance(command, commands.SetQueueStatus):
            return bool(plan_queue_status(command, stored, now))
        if isinstance(command, commands.SetCohortStatus):
            return bool(plan_cohort_status(command, stored))
        if isinstance(command, commands.ReportPending) and isinstance(stored.object, Workload):
            planned = plan(command, stored.object, now)
            return not isinstance(planned, Refusal) and planned != stored.object.status
        return True

    def _submit(self, taken: OpenCommand) -> None:
        async def run() -> None:
            if self._newest.get(taken.subject) is taken:
                await self._carry_out(taken)
            else:
                self._answer(taken, _REPLACED)

        async def give_up(error: Exception, attempts: int) -> None:
            await self._put_aside(taken, error, attempts)

        command = taken.command
        lane = lane_of(self._store, command.kind, command.namespace, command.name)
        self._lanes.submit(lane, run, urgency=urgency_of(command), give_up=give_up)

    async def _carry_out(self, taken: OpenCommand) -> None:
        command = taken.command
        workload = get_workload(self._store, command.namespace, command.name) if command.kind == "workload" else None
        context = context_of(command.trace, "" if workload is None else job_uid(workload))
        token = commands.type_token(command).partition(":")[0].replace("-", "_")
        with self._tracer.start_as_current_span(f"watcher.{token}", context) as span:
            span.set_attribute("target", command.key)
            result = await self._result(command)
            span.set_attribute("outcome", "rejected" if isinstance(result, Rejected) else "applied")
        self._answer(taken, result)
        if isinstance(result, Written) and workload is not None:
            if result.changed:
                self._tell(command, workload)
            elif isinstance(command, commands.Evict):
                # Asked again for an eviction that is there: something on the way to the release must have been lost.
                self._look_again(workload)

    async def _result(self, command: Command) -> Result:
        match command:
            case commands.CreateProvisioningRequest():
                return await self._provisioning.create(command)
            case commands.DeleteProvisioningRequest():
                return await self._provisioning.delete(command)
            case _ if command.kind not in RESOURCES:
                return Rejected(f"no object of kind {command.kind!r} can be written")
            case commands.SetActive() | commands.SetPriority():
                return await self._change(command, lambda stored: plan_spec(command, stored))
            case commands.SetFinalizer():
                return await self._change(command, lambda stored: plan_finalizer(command, stored))
            case commands.SetQueueStatus():
                return await self._change(
                    command, lambda stored: plan_queue_status(command, stored, self._moment()), status=True
                )
            case commands.SetCohortStatus():
                return await self._change(command, lambda stored: plan_cohort_status(command, stored), status=True)
            case commands.SetCheckActive():
                return await self._change(
                    command, lambda stored: plan_check_active(command, stored, self._moment()), status=True
                )
            case _:
                return await self._workload_status(command)

    async def _change(
        self, command: Command, planner: Callable[[Stored], JsonObject | Refusal], *, status: bool = False
    ) -> Result:
        return await self._writer.change(
            command.kind,
            command.namespace,
            command.name,
            command.uid,
            planner,
            subresource="status" if status else "",
        )

    async def _workload_status(self, command: StatusCommand) -> Result:
        if command.kind != "workload":
            return Rejected(f"{type(command).__name__} is for workloads, not for {command.kind!r}")
        if isinstance(command, commands.Unreserve) and not self._is_answered(command.key):
            # It leaves the workload as it was before its decision, which whoever replays the log would then carry out once more.
            return Rejected("a decision about it has no outcome yet")

        def planned(workload: Workload) -> WorkloadStatus | Refusal:
            if _blames_pods(command) and self._pods_are_ready(workload):
                # Its condition is still on the way: after a take-over, or as the last pod became ready in time.
                self._look_again(workload)
                return Refusal("its pods are ready")
            return plan(command, workload, self._moment())

        return await self._writer.workload_status(command.namespace, command.name, command.uid, planned)

    def _tell(self, command: Command, before: Workload) -> None:
        after = get_workload(self._store, command.namespace, command.name)
        if after is None:
            return
        match command:
            case commands.Evict():
                self._events.evicted(after)
            case commands.ReportPending() if command.event:
                self._events.pending(after)
            case commands.Unreserve() if command.event:
                self._events.note(after, command.event, command.message)
            case commands.SetDeactivationTarget() if command.event:
                self._events.warn(after, command.event, command.message)
            case commands.SetCheckState():
                self._events.check_updated(before, after, command.check)
            case _ if is_admitted(after) and not is_admitted(before):
                self._events.checks_passed(after)

    def _answer(self, taken: OpenCommand, result: Result) -> None:
        command = taken.command
        if isinstance(result, Rejected):
            logger.info(
                "command rejected",
                extra={"command": type(command).__name__, "target": command.key, "why": result.why},
            )
            outcome = CommandOutcome(
                command=command.id,
                subject=taken.subject,
                status="rejected",
                version=result.version,
                why=result.why,
            )
        else:
            outcome = CommandOutcome(
                command=command.id, subject=taken.subject, status="applied", version=result.version
            )

        def done() -> None:
            if self._newest.get(taken.subject) is taken:
                del self._newest[taken.subject]

        self._outcomes.put(outcome, command=taken, done=done)

    async def _put_aside(self, taken: OpenCommand, error: Exception, attempts: int) -> None:
        await self._bus.dead_letter(
            stream=_STREAM,
            subject=taken.subject,
            sequence=taken.sequence,
            attempts=attempts,
            error=repr(error),
            payload=commands.codec.encode(taken.command),
        )
        self._answer(taken, Rejected(f"put aside after {attempts} attempts: {error}"))

    def _moment(self) -> datetime:
        return datetime.fromtimestamp(self._now(), UTC)


def _blames_pods(command: Command) -> bool:
    """Is it about pods that were not ready in time?"""
    match command:
        case commands.Evict():
            return command.reason == names.REASON_PODS_READY_TIMEOUT
        case commands.SetDeactivationTarget():
            return command.reason == names.REASON_REQUEUING_LIMIT_EXCEEDED
        case _:
            return False


def urgency_of(command: Command) -> Urgency:
    """What stops workloads goes first, what lets them start next."""
    match command:
        case commands.Evict() | commands.SetDeactivationTarget():
            return Urgency.STOP
        case commands.SetActive():
            return Urgency.START if command.active else Urgency.STOP
        case commands.SyncAdmitted() | commands.SetCheckState() | commands.SyncChecks():
            return Urgency.START
        case _:
            return Urgency.STATUS


def plan_spec(command: commands.SetActive | commands.SetPriority, stored: Stored) -> JsonObject | Refusal:
    """The patch of a workload's spec."""
    workload = stored.object
    if not isinstance(workload, Workload):
        return Refusal(f"a {stored.kind} has no spec of a workload")
    if isinstance(command, commands.SetActive):
        if workload.spec.active == command.active:
            return {}
        patch: JsonObject = {"spec": {"active": command.active}}
    else:
        if workload.spec.priority == command.priority:
            return {}
        patch = {"spec": {"priority": command.priority}}
    if command.incarnation and command.incarnation != incarnation_of(workload):
        return Refusal("the workload has changed since")
    return patch
