"""The steps of a workload's life that preemptor executes, as commands (core spec 2.5, 2.6, 9.5, 9.6). Which step it is, `decide/lifecycle` says. Pure."""

from __future__ import annotations

from typing import TypedDict

from shared.api import names
from shared.decide import lifecycle_steps as steps
from shared.decide.lifecycle import LifecycleView, next_step
from shared.decide.lifecycle_limits import PodsReadyLimits
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
    workload: Workload,
    local_queue: LocalQueue | None,
    cluster_queue: ClusterQueue | None,
    now: float,
    *,
    pods_ready: PodsReadyLimits | None = None,
    admission_gates: bool = True,
    legacy_reasons: bool = False,
) -> Verdict:
    """The next step if it is ours, and when to look again. `cluster_queue`: the one that holds the workload, else that of its LocalQueue.

    What only reasons of pending workloads depend on (activity, namespaces, limits) is left out of the view: none of our steps does."""
    view = LifecycleView(
        workload=workload,
        local_queue=local_queue,
        cluster_queue=cluster_queue,
        pods_ready=pods_ready,
        admission_gates=admission_gates,
        legacy_reasons=legacy_reasons,
        has_variants=workload.has_variants,
    )
    verdict = next_step(view, now)
    command = _command(workload, verdict.step) if verdict.step is not None else None
    return Verdict((command,) if command is not None else (), verdict.again_at)


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


def _command(workload: Workload, step: steps.Step) -> Command | None:
    target = _target(workload)
    match step:
        case steps.SetActive(active):
            return SetActive(**target, active=active)
        case steps.Evict():
            return Evict(
                **target,
                reason=step.reason,
                message=step.message,
                cause=step.cause,
                clear_requeue_state=step.clear_requeue_state,
                clear_deactivation_target=step.clear_deactivation_target,
                requeue_count=step.requeue_count,
                requeue_at=step.requeue_at,
            )
        case steps.SetDeactivationTarget(reason, message, event, clear_past_execution):
            return SetDeactivationTarget(
                **target, reason=reason, message=message, event=event, clear_past_execution=clear_past_execution
            )
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
