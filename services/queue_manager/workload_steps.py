"""The steps of a workload's life that queue_manager executes, as commands (core spec 2.5, 2.7-2.9). Which step it is, `decide/lifecycle` says."""

from __future__ import annotations

from typing import TypedDict

from shared.api import names
from shared.decide import lifecycle
from shared.decide.lifecycle import LifecycleView, next_step
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
from shared.state.open_commands import Verdict


class _Target(TypedDict):
    id: str
    kind: str
    namespace: str
    name: str
    uid: str
    incarnation: str
    version: int


def workload_step(workload: Workload, world: World, now: float, *, finish_orphans: bool) -> Verdict:
    """The next step if it is ours, and when to look again."""
    released = _release_orphan(workload, finish_orphans=finish_orphans)
    if released is not None:
        return Verdict((released,))
    if workload.finished:
        return Verdict()
    verdict = next_step(lifecycle_view(workload, world), now)
    command = _command(workload, verdict.step) if verdict.step is not None else None
    return Verdict((command,) if command is not None else (), verdict.again_at)


def lifecycle_view(workload: Workload, world: World) -> LifecycleView:
    """What the life of this workload depends on, out of the folded world."""
    local_queue = world.local_queues.get(f"{workload.namespace}/{workload.queue_name}")
    name = local_queue.cluster_queue if local_queue is not None else ""
    if workload.admission is not None:
        name = workload.admission.cluster_queue
    cluster_queue = world.cluster_queues.get(name)
    info = world.workloads.get(workload.key)
    return LifecycleView(
        workload=workload,
        local_queue=local_queue,
        cluster_queue=cluster_queue,
        activity=world.activity(name) if cluster_queue is not None else None,
        namespace_matches=world.namespace_matches(name, workload.namespace),
        invalid=info.invalid if info is not None else "",
        in_cycle=cluster_queue is not None and world.forest.in_cycle(name),
    )


def _release_orphan(workload: Workload, *, finish_orphans: bool) -> Command | None:
    """Nobody but us looks after a workload without an owner, and after a finished one that is deleted."""
    if workload.deleting:
        if names.RESOURCE_IN_USE in workload.finalizers and (workload.finished or not workload.owners):
            return SetFinalizer(**_target(workload), present=False)
        return None
    if workload.finished or workload.owners or not workload.job_uid or not finish_orphans:
        return None
    if any(c.type == names.FINISHED and c.status for c in workload.conditions):
        return None
    return FinishWorkload(**_target(workload), reason=names.REASON_OWNER_NOT_FOUND, message="The owner is gone")


def _command(workload: Workload, step: lifecycle.Step) -> Command | None:
    target = _target(workload)
    match step:
        case lifecycle.SetRequeueAt(at, clear_state):
            return SetRequeueAt(**target, at=at, clear_state=clear_state)
        case lifecycle.MarkRequeued(reason, message, clear_requeue_at):
            return MarkRequeued(**target, reason=reason, message=message, clear_requeue_at=clear_requeue_at)
        case lifecycle.Unreserve(reason, message):
            return Unreserve(**target, reason=reason, message=message)
        case lifecycle.SyncChecks(checks):
            return SyncChecks(**target, checks=checks)
        case lifecycle.SyncAdmitted():
            return SyncAdmitted(**target)
        case lifecycle.ReportPending(reason, message):
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
