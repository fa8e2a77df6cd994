"""The steps of a workload's life that are the preemptor's: who is told to stop, for which reason, with what in the same write."""

from __future__ import annotations

from typing import Any

import pytest

from services.preemptor.workload_steps import evict_again, workload_step
from shared.api import names
from shared.decide.lifecycle_limits import PodsReadyLimits
from shared.events.commands import Evict, SetActive, SetDeactivationTarget
from shared.events.objects import ClusterQueue, LocalQueue, Workload
from shared.model import cluster_queue as configs
from shared.model.flavor_resources import FlavorResources
from shared.state.open_commands import Verdict
from tests.unit.preemptor.objects import (
    check_state,
    cluster_queue,
    condition,
    local_queue,
    released,
    with_check,
    workload,
)


def step(
    wl: Workload,
    queue: ClusterQueue | None = None,
    local: LocalQueue | None = None,
    now: float = 1000.0,
    pods_ready: PodsReadyLimits | None = None,
) -> Verdict:
    config = configs.cluster_queue(queue or cluster_queue(), FlavorResources())
    return workload_step(wl, configs.local_queue(local or local_queue()), config, now, pods_ready=pods_ready)


def test_all_is_well() -> None:
    assert step(workload()) == Verdict()


def test_a_user_deactivates() -> None:
    (command,) = step(workload(active=False)).commands
    assert isinstance(command, Evict)
    assert (command.reason, command.cause) == ("Deactivated", "")
    assert command.clear_requeue_state
    assert command.clear_deactivation_target
    assert (command.kind, command.key, command.uid, command.incarnation, command.version) == (
        "workload",
        "ns/wl",
        "wl-uid",
        "inc",
        1,
    )


@pytest.mark.parametrize("cause", ["AdmissionCheck", "RequeuingLimitExceeded", "MaximumExecutionTimeExceeded"])
def test_the_order_to_deactivate_becomes_the_cause(cause: str) -> None:
    target = condition(names.DEACTIVATION_TARGET, cause, message="because")
    (first,) = step(workload(target)).commands
    assert isinstance(first, SetActive)
    assert first.active is False
    (second,) = step(workload(target, active=False)).commands
    assert isinstance(second, Evict)
    assert (second.reason, second.cause, second.clear_deactivation_target) == ("Deactivated", cause, True)
    assert "because" in second.message


def test_a_pending_workload_is_deactivated_too() -> None:
    (command,) = step(released(active=False)).commands
    assert isinstance(command, Evict)


def test_an_evicted_workload_is_not_evicted_again() -> None:
    assert step(workload(condition(names.EVICTED, "Deactivated"), active=False)).commands == ()


@pytest.mark.parametrize(
    ("queue", "local", "reason"),
    [
        ({"stop_policy": "HoldAndDrain"}, {}, "ClusterQueueStopped"),
        ({}, {"stop_policy": "HoldAndDrain"}, "LocalQueueStopped"),
        ({"stop_policy": "HoldAndDrain"}, {"stop_policy": "HoldAndDrain"}, "LocalQueueStopped"),
        ({"stop_policy": "Hold"}, {}, None),
        ({}, {"stop_policy": "Hold"}, None),
    ],
)
def test_only_draining_queues_stop_what_runs(queue: dict[str, Any], local: dict[str, Any], reason: str | None) -> None:
    commands = step(workload(), cluster_queue(**queue), local_queue(**local)).commands
    assert [c.reason for c in commands if isinstance(c, Evict)] == ([reason] if reason else [])


def test_drained_once_is_enough() -> None:
    evicted = workload(condition(names.EVICTED, "ClusterQueueStopped"))
    assert step(evicted, cluster_queue(stop_policy="HoldAndDrain")).commands == ()


def test_what_is_not_admitted_is_not_drained_but_given_back_by_another_service() -> None:
    wl = workload(
        condition(names.ADMITTED, "UnsatisfiedAdmissionChecks", status=False),
        admitted_at=None,
        checks=(check_state("Pending"),),
    )
    assert step(wl, with_check(cluster_queue(stop_policy="HoldAndDrain"))).commands == ()


def test_a_check_that_asks_for_a_retry_evicts() -> None:
    (command,) = step(workload(checks=(check_state("Retry"),)), with_check(cluster_queue())).commands
    assert isinstance(command, Evict)
    assert (command.reason, command.clear_requeue_state) == ("AdmissionCheck", False)


def test_a_retry_later_gives_the_quota_back_at_once() -> None:
    wl = workload(checks=(check_state("Retry"),), requeue_at=1060, has_requeue_state=True)
    found = step(wl, with_check(cluster_queue()))
    (command,) = found.commands
    assert isinstance(command, Evict)
    assert (command.reason, found.again_at) == ("AdmissionCheck", 1060)


def test_a_rejection_does_not_wait_for_the_retry_of_another_check() -> None:
    wl = workload(checks=(check_state("Rejected"),), requeue_at=1060, has_requeue_state=True)
    (command,) = step(wl, with_check(cluster_queue())).commands
    assert isinstance(command, SetDeactivationTarget)


def test_a_rejected_check_orders_the_deactivation_and_wins_over_a_retry() -> None:
    wl = workload(checks=(check_state("Rejected", "check"),))
    (command,) = step(wl, with_check(cluster_queue())).commands
    assert isinstance(command, SetDeactivationTarget)
    assert (command.reason, command.event) == ("AdmissionCheck", "AdmissionCheckRejected")
    assert command.clear_past_execution is False


def test_finished_workloads_are_left_alone() -> None:
    assert step(workload(active=False, finished=True)) == Verdict()


# --- run time -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("past", "ends"), [(0, 800), (100, 700), (299, 501)])
def test_time_admitted_is_limited_over_all_admissions(past: int, ends: int) -> None:
    wl = workload(max_execution_s=300, past_execution_s=past)
    assert step(wl, now=500.0) == Verdict((), ends)
    assert step(wl, now=ends - 1.0) == Verdict((), ends)
    (command,) = step(wl, now=float(ends)).commands
    assert isinstance(command, SetDeactivationTarget)
    assert command.reason == command.event == "MaximumExecutionTimeExceeded"
    assert command.clear_past_execution


@pytest.mark.parametrize(
    "wl",
    [
        workload(),
        workload(max_execution_s=1, admitted_at=None),
        workload(condition(names.EVICTED, "Deactivated"), max_execution_s=1, active=False),
        released(max_execution_s=1),
    ],
)
def test_no_limit_applies(wl: Workload) -> None:
    assert step(wl, now=5000.0) == Verdict()


def test_pods_that_are_not_ready_in_time_cost_the_reservation() -> None:
    limits = PodsReadyLimits(timeout_s=300)
    wl = workload(requeue_count=1, has_requeue_state=True)
    assert step(wl, now=799.0, pods_ready=limits) == Verdict((), 800)
    (command,) = step(wl, now=800.0, pods_ready=limits).commands
    assert isinstance(command, Evict)
    assert (command.reason, command.cause) == ("PodsReadyTimeout", "WaitForStart")
    assert (command.requeue_count, command.requeue_at) == (2, 920)
    assert step(wl, now=800.0) == Verdict()


def test_the_limit_is_looked_at_after_all_else() -> None:
    assert step(workload(max_execution_s=900)) == Verdict((), 1400)
    (command,) = step(workload(max_execution_s=1), cluster_queue(stop_policy="HoldAndDrain")).commands
    assert isinstance(command, Evict)


# --- asking again ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "reason", "cause"),
    [
        ("Preempted", "Preempted", ""),
        ("Deactivated", "Deactivated", ""),
        ("DeactivatedDueToAdmissionCheck", "Deactivated", "AdmissionCheck"),
        ("ClusterQueueStopped", "ClusterQueueStopped", ""),
    ],
)
def test_the_same_eviction_is_asked_for_again(stored: str, reason: str, cause: str) -> None:
    evicted = condition(names.EVICTED, stored, 900, "the text")
    command = evict_again(workload(evicted), evicted)
    assert (command.reason, command.cause, command.message) == (reason, cause, "the text")
    assert (command.incarnation, command.clear_requeue_state) == ("inc", False)
