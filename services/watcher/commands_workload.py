"""What each command about a workload's status makes of it: one pure function per command, workload in, status out.

The same status back means that nothing is left to write, so a command asked for twice is applied twice and written once. A Refusal means that the
command is about a state that has passed; its writer will look again.
"""

from datetime import UTC, datetime

from services.watcher.patches import Refusal
from services.watcher.projections_workload import incarnation_of
from services.watcher.workload_state import condition, is_admitted, is_evicted, is_finished, is_reserved
from shared.api import names
from shared.api.pods import Toleration
from shared.api.workload import Workload
from shared.api.workload_status import PodSetUpdate, WorkloadStatus
from shared.decide import transitions
from shared.events import commands

StatusCommand = (
    commands.ReportPending
    | commands.Evict
    | commands.Unreserve
    | commands.MarkRequeued
    | commands.SetRequeueAt
    | commands.SyncChecks
    | commands.SyncAdmitted
    | commands.SetDeactivationTarget
    | commands.FinishWorkload
    | commands.SetCheckState
)
StatusPlan = WorkloadStatus | Refusal


def plan(command: StatusCommand, workload: Workload, now: datetime) -> StatusPlan:
    """The status that the command asks for, if the workload is still in the state that its writer looked at."""
    if is_finished(workload):
        return Refusal("the workload has finished")
    wanted = _plan(command, workload, now)
    if isinstance(wanted, Refusal) or wanted == workload.status:
        # Content that is there already is applied, whatever else has changed.
        return wanted
    if command.incarnation and command.incarnation != incarnation_of(workload):
        return Refusal("the workload has changed since")
    return wanted


def _plan(command: StatusCommand, workload: Workload, now: datetime) -> StatusPlan:
    status, generation = workload.status, workload.metadata.generation
    match command:
        case commands.ReportPending():
            return transitions.report_pending(
                status, command.reason, command.message, command.requests, now, generation, gated=command.gated
            )
        case commands.Evict():
            return _evict(command, workload, now)
        case commands.Unreserve():
            return _unreserve(command, workload, now)
        case commands.MarkRequeued():
            return transitions.mark_requeued(
                status, command.reason, command.message, now, generation, clear_requeue_at=command.clear_requeue_at
            )
        case commands.SetRequeueAt():
            return transitions.set_requeue_at(status, _time(command.at), clear_state=command.clear_state)
        case commands.SyncChecks():
            return transitions.sync_checks(status, command.checks, now)
        case commands.SyncAdmitted():
            return transitions.sync_admitted(status, now, generation)
        case commands.SetDeactivationTarget():
            return transitions.set_deactivation_target(
                status,
                command.reason,
                command.message,
                now,
                generation,
                clear_past_execution=command.clear_past_execution,
            )
        case commands.FinishWorkload():
            return transitions.finish(status, command.reason, command.message, now, generation)
        case commands.SetCheckState():
            return _set_check(command, workload, now)


def _evict(command: commands.Evict, workload: Workload, now: datetime) -> StatusPlan:
    if is_evicted(workload):
        # Evicted once is enough; only what the newer command clears is left to do.
        status = workload.status
        if command.clear_requeue_state:
            status = transitions.set_requeue_at(status, None, clear_state=True)
        if command.clear_deactivation_target:
            status = transitions.without_deactivation_target(status)
        return status
    return transitions.evict(
        workload.status,
        command.reason,
        command.message,
        now,
        workload.metadata.generation,
        cause=command.cause,
        clear_requeue_state=command.clear_requeue_state,
        clear_deactivation_target=command.clear_deactivation_target,
        requeue_count=command.requeue_count,
        requeue_at=_time(command.requeue_at),
    )


def _unreserve(command: commands.Unreserve, workload: Workload, now: datetime) -> StatusPlan:
    if is_admitted(workload):
        return Refusal("the workload is admitted: it has to be evicted first")
    refused = condition(workload, names.QUOTA_RESERVED)
    if not is_reserved(workload) and refused is not None and refused.reason == command.reason:
        return workload.status
    return transitions.unreserve(workload.status, command.reason, command.message, now, workload.metadata.generation)


def _set_check(command: commands.SetCheckState, workload: Workload, now: datetime) -> StatusPlan:
    if all(check.name != command.check for check in workload.status.admission_checks):
        return Refusal(f"the workload has no admission check {command.check}")
    return transitions.set_check(
        workload.status,
        command.check,
        command.state,
        command.message,
        now,
        requeue_after_s=command.requeue_after_s,
        pod_set_updates=tuple(_update(update) for update in command.pod_set_updates),
    )


def _update(update: commands.PodSetUpdate) -> PodSetUpdate:
    return PodSetUpdate(
        name=update.name,
        labels=update.labels,
        annotations=update.annotations,
        node_selector=update.node_selector,
        tolerations=tuple(
            Toleration(key=t.key, operator=t.operator, value=t.value, effect=t.effect) for t in update.tolerations
        ),
    )


def _time(seconds: int | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
