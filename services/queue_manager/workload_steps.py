"""The steps of a workload's life that queue_manager executes, as commands (core spec 2.5, 2.7-2.9). Which step it is, `decide/lifecycle` says."""

from __future__ import annotations

from typing import TypedDict

from shared.decide import lifecycle_steps as steps
from shared.decide.lifecycle import next_step
from shared.events.commands import (
    Command,
    FinishWorkload,
    MarkRequeued,
    ReportPending,
    SetFinalizer,
    SetRequeueAt,
    SyncAdmitted,
    SyncChecks,
    Unreserve,
)
from shared.events.objects import Workload
from shared.model.world import World
from shared.state.lifecycle_view import lifecycle_view
from shared.state.open_commands import Verdict


class _Target(TypedDict):
    id: str
    kind: str
    namespace: str
    name: str
    uid: str
    incarnation: str
    version: int


def workload_step(
    workload: Workload,
    world: World,
    now: float,
    *,
    finish_orphans: bool,
    admission_gates: bool = True,
    legacy_reasons: bool = False,
    explicit_status: bool = False,
) -> Verdict:
    """The next step if it is ours, and when to look again."""
    view = lifecycle_view(
        workload,
        world,
        finish_orphans=finish_orphans,
        admission_gates=admission_gates,
        legacy_reasons=legacy_reasons,
        explicit_status=explicit_status,
    )
    verdict = next_step(view, now)
    command = _command(workload, verdict.step) if verdict.step is not None else None
    return Verdict((command,) if command is not None else (), verdict.again_at)


def _command(workload: Workload, step: steps.Step) -> Command | None:
    target = _target(workload)
    match step:
        case steps.ReleaseFinalizer():
            return SetFinalizer(**target, present=False)
        case steps.Finish(reason, message):
            return FinishWorkload(**target, reason=reason, message=message)
        case steps.SetRequeueAt(at, clear_state):
            return SetRequeueAt(**target, at=at, clear_state=clear_state)
        case steps.MarkRequeued(reason, message, clear_requeue_at):
            return MarkRequeued(**target, reason=reason, message=message, clear_requeue_at=clear_requeue_at)
        case steps.Unreserve(reason, message, event):
            return Unreserve(**target, reason=reason, message=message, event=event)
        case steps.SyncChecks(checks):
            return SyncChecks(**target, checks=checks)
        case steps.SyncAdmitted():
            return SyncAdmitted(**target)
        case steps.ReportPending(reason, message):
            return ReportPending(**target, reason=reason, message=message, event=False)
        case _:
            return None


def _target(workload: Workload) -> _Target:
    return {
        "id": "",
        "kind": "workload",
        "namespace": workload.namespace,
        "name": workload.name,
        "uid": workload.uid,
        "incarnation": workload.incarnation,
        "version": workload.version,
    }
