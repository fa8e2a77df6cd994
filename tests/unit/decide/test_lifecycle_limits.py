"""Limits of time: pods that do not become ready, and the maximum execution time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.decide.lifecycle_limits import PodsReadyLimits, time_limits
from shared.decide.lifecycle_steps import NOTHING, Evict, SetDeactivationTarget, Verdict
from shared.events import objects as o
from tests.unit.model.builders import condition, reserved, workload

LIMITS = PodsReadyLimits(timeout_s=300, recovery_timeout_s=60, backoff_limit=3, backoff_base_s=60, backoff_max_s=200)


def at(source: o.Condition, second: int) -> o.Condition:
    return msgspec.structs.replace(source, changed=second)


def running(*more: o.Condition, since: int = 500, **fields: Any) -> o.Workload:
    admitted = at(condition("Admitted", True, "Admitted"), since)
    return reserved(workload("a", conditions=(admitted, *more), **fields), "cq", cpu=1000)


def not_ready(reason: str, second: int = 700) -> o.Condition:
    return at(condition("PodsReady", False, reason), second)


@pytest.mark.parametrize(
    ("conditions", "deadline", "cause"),
    [
        ((), 800, "WaitForStart"),
        ((not_ready("WaitForStart"),), 800, "WaitForStart"),
        ((not_ready("PodsReady"),), 800, "WaitForStart"),
        ((not_ready("WaitForRecovery"),), 760, "WaitForRecovery"),
    ],
)
def test_pods_have_until_the_deadline(conditions: tuple[o.Condition, ...], deadline: int, cause: str) -> None:
    source = running(*conditions)
    assert time_limits(source, LIMITS, deadline - 1) == Verdict(again_at=deadline)
    step = time_limits(source, LIMITS, deadline).step
    assert isinstance(step, Evict)
    assert (step.reason, step.cause) == ("PodsReadyTimeout", cause)
    assert (step.requeue_count, step.requeue_at) == (1, deadline + 60)
    assert not step.clear_requeue_state


@pytest.mark.parametrize(
    ("source", "limits"),
    [
        (running(), None),
        (running(condition("PodsReady", True, "Started")), LIMITS),
        (running(condition("PodsReady", True, "Recovered")), LIMITS),
        (running(condition("Evicted", True, "Preempted")), LIMITS),
        (running(active=False), LIMITS),
        (running(not_ready("WaitForRecovery")), msgspec.structs.replace(LIMITS, recovery_timeout_s=0)),
        (running(owners=(o.Owner("kueue.x-k8s.io/v1beta2", "Workload", "p", "u", controller=True),)), LIMITS),
        (reserved(workload("a"), "cq", cpu=1000), LIMITS),
    ],
)
def test_who_has_no_deadline(source: o.Workload, limits: PodsReadyLimits | None) -> None:
    assert time_limits(source, limits, 1_000_000) == NOTHING


def test_an_earlier_eviction_that_is_over_does_not_count() -> None:
    assert isinstance(time_limits(running(condition("Evicted", False, "QuotaReserved")), LIMITS, 900).step, Evict)


@pytest.mark.parametrize(("count", "waits"), [(0, 60), (1, 120), (2, 200)])
def test_each_requeue_waits_twice_as_long_up_to_the_maximum(count: int, waits: int) -> None:
    step = time_limits(running(requeue_count=count), LIMITS, 900.7).step
    assert isinstance(step, Evict)
    assert (step.requeue_count, step.requeue_at) == (count + 1, 900 + waits)


@pytest.mark.parametrize(("limit", "count"), [(3, 3), (3, 4), (0, 0)])
def test_after_the_last_requeue_it_is_deactivated(limit: int, count: int) -> None:
    limits = msgspec.structs.replace(LIMITS, backoff_limit=limit)
    step = time_limits(running(requeue_count=count), limits, 800).step
    assert isinstance(step, SetDeactivationTarget)
    assert (step.reason, step.event, step.clear_past_execution) == ("RequeuingLimitExceeded", "", False)


def test_without_a_limit_it_is_requeued_for_ever() -> None:
    limits = msgspec.structs.replace(LIMITS, backoff_limit=None)
    assert isinstance(time_limits(running(requeue_count=1000), limits, 800).step, Evict)


@pytest.mark.parametrize(("past", "ends"), [(0, 800), (100, 700), (299, 501), (400, 400)])
def test_execution_time_is_that_of_all_admissions(past: int, ends: int) -> None:
    source = running(max_execution_s=300, past_execution_s=past)
    if ends > 500:
        assert time_limits(source, None, ends - 1) == Verdict(again_at=ends)
    step = time_limits(source, None, ends).step
    assert isinstance(step, SetDeactivationTarget)
    assert step.reason == step.event == "MaximumExecutionTimeExceeded"
    assert step.clear_past_execution


def test_an_order_to_deactivate_is_given_once() -> None:
    ordered = running(condition("DeactivationTarget", True, "AdmissionCheck"), max_execution_s=1)
    assert time_limits(ordered, None, 1_000_000) == NOTHING
    taken_back = running(condition("DeactivationTarget", False, "AdmissionCheck"), max_execution_s=1)
    assert isinstance(time_limits(taken_back, None, 1_000_000).step, SetDeactivationTarget)


@given(
    timeout=st.integers(1, 1000),
    execution=st.none() | st.integers(1, 1000),
    past=st.integers(0, 100),
    now=st.integers(500, 3000),
)
def test_looking_again_when_told_to_always_leads_to_a_step(
    timeout: int, execution: int | None, past: int, now: int
) -> None:
    source = running(max_execution_s=execution, past_execution_s=past)
    limits = PodsReadyLimits(timeout_s=timeout)
    first = time_limits(source, limits, now)
    if first.step is None:
        assert first.again_at is not None
        assert first.again_at > now
        assert time_limits(source, limits, first.again_at - 1).step is None
        first = time_limits(source, limits, first.again_at)
    assert first.step is not None
