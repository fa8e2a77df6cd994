"""The steps of a workload's life that preemptor executes, as commands (core spec 2.5, 2.6, 9.6).

Which step it is, `decide/lifecycle` says; run-time limits are added here. Pure.
"""

from __future__ import annotations

from typing import TypedDict

from shared.api import names
from shared.decide import lifecycle
from shared.decide.lifecycle import LifecycleView, next_step
from shared.events.commands import Command, Evict, SetActive, SetDeactivationTarget
from shared.events.objects import Condition, Workload
from shared.model.cluster_queue import ClusterQueue, LocalQueue
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
    workload: Workload, local_queue: LocalQueue | None, cluster_queue: ClusterQueue | None, now: float
) -> Verdict:
    """The next step if it is ours, and when to look again. `cluster_queue`: the one that holds the workload, else that of its LocalQueue.

    What only reasons of pending workloads depend on (activity, namespaces, limits) is left out of the view: none of our steps does."""
    if workload.finished:
        return Verdict()
    view = LifecycleView(workload=workload, local_queue=local_queue, cluster_queue=cluster_queue)
    verdict = next_step(view, now)
    if verdict.step is not None:
        command = _command(workload, verdict.step)
        return Verdict((command,) if command is not None else (), verdict.again_at)
    if verdict.again_at is not None:
        return Verdict((), verdict.again_at)
    return execution_limit(workload, now)


def execution_limit(workload: Workload, now: float) -> Verdict:
    """maximumExecutionTimeSeconds: the order to deactivate once the time of all admissions together is over (core spec 9.6)."""
    admitted = condition(workload, names.ADMITTED)
    if workload.max_execution_s is None or admitted is None or not admitted.status or not workload.active:
        return Verdict()
    target = condition(workload, names.DEACTIVATION_TARGET)
    if target is not None and target.status:
        return Verdict()
    ends = admitted.changed + workload.max_execution_s - workload.past_execution_s
    if now < ends:
        return Verdict((), ends)
    return Verdict(
        (
            SetDeactivationTarget(
                **_target(workload),
                reason=names.REASON_MAXIMUM_EXECUTION_TIME_EXCEEDED,
                message=f"The maximum execution time of {workload.max_execution_s}s is exceeded",
                event=names.REASON_MAXIMUM_EXECUTION_TIME_EXCEEDED,
                clear_past_execution=True,
            ),
        )
    )


def evict_again(workload: Workload, evicted: Condition) -> Evict:
    """The eviction that the workload carries, asked for once more."""
    reason, cause = evicted.reason, ""
    if reason.startswith(names.REASON_DEACTIVATED_DUE_TO):
        reason, cause = names.REASON_DEACTIVATED, reason.removeprefix(names.REASON_DEACTIVATED_DUE_TO)
    return Evict(**_target(workload), reason=reason, message=evicted.message, cause=cause)


def condition(workload: Workload, type_: str) -> Condition | None:
    """The condition of this type, if present."""
    return next((c for c in workload.conditions if c.type == type_), None)


def is_true(workload: Workload, type_: str) -> bool:
    """Is this condition present and True?"""
    found = condition(workload, type_)
    return found is not None and found.status


def _command(workload: Workload, step: lifecycle.Step) -> Command | None:
    target = _target(workload)
    match step:
        case lifecycle.SetActive(active):
            return SetActive(**target, active=active)
        case lifecycle.Evict(reason, message, cause, clear_requeue_state, clear_deactivation_target):
            return Evict(
                **target,
                reason=reason,
                message=message,
                cause=cause,
                clear_requeue_state=clear_requeue_state,
                clear_deactivation_target=clear_deactivation_target,
            )
        case lifecycle.SetDeactivationTarget(reason, message, event):
            return SetDeactivationTarget(**target, reason=reason, message=message, event=event)
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
