"""The old words of conditions, and when Admitted is told at all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.api import conditions as conds
from shared.api.workload_status import Admission, AdmissionCheckState, CheckState, WorkloadStatus
from shared.decide import transitions as to
from shared.decide.legacy_reasons import in_old_words, of_controller, of_scheduler

START = datetime(2025, 3, 1, 12, tzinfo=UTC)
ADMISSION = Admission(cluster_queue="cq")


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def told(status: WorkloadStatus) -> dict[str, str]:
    return {one.type: f"{one.status[0]}/{one.reason}" for one in status.conditions}


def with_check(status: WorkloadStatus, state: CheckState) -> WorkloadStatus:
    return to.set_check(to.sync_checks(status, ("c",), at(0)), "c", state, "", at(0))


def reserved(status: WorkloadStatus | None = None) -> WorkloadStatus:
    return to.sync_admitted(to.hold_quota(status or WorkloadStatus(), ADMISSION, at(1), 1), at(1), 1)


@pytest.mark.parametrize(
    ("reason", "scheduler", "controller"),
    [
        ("PendingEvaluation", "Pending", "Pending"),
        ("WaitingForQuota", "Pending", "WaitingForQuota"),
        ("NoMatchingFlavor", "Pending", "NoMatchingFlavor"),
        ("ExceedsMaxQuota", "Pending", "ExceedsMaxQuota"),
        ("Misconfigured", "Pending", "Inadmissible"),
        ("Suspended", "Pending", "Inadmissible"),
        ("WaitingForPodsReady", "Waiting", "WaitingForPodsReady"),
        ("AdmissionGated", "Pending", "AdmissionGated"),
        ("OnHold", "Pending", "OnHold"),
    ],
)
def test_words(reason: str, scheduler: str, controller: str) -> None:
    assert (of_scheduler(reason), of_controller(reason)) == (scheduler, controller)


def test_a_release_says_pending_and_that_the_run_is_over() -> None:
    running = reserved()
    assert told(in_old_words(WorkloadStatus(), running)) == {
        "QuotaReserved": "T/QuotaReserved",
        "Admitted": "T/Admitted",
    }
    evicted = to.evict(running, "Preempted", "m", at(5), 1)
    released = in_old_words(evicted, to.release(evicted, at(9), 1))
    assert told(released) == {
        "QuotaReserved": "F/Pending",
        "Admitted": "F/NoReservation",
        "Evicted": "T/Preempted",
        "Requeued": "T/Preempted",
    }
    assert released.accumulated_past_execution_time_seconds == 8
    assert conds.find(released.conditions, "Admitted") == conds.find(
        to.release(evicted, at(9), 1).conditions, "Admitted"
    )


def test_checks_that_are_not_ready_are_named_beside_the_reservation() -> None:
    running = with_check(reserved(), "Ready")
    unsatisfied = to.sync_admitted(with_check(running, "Retry"), at(7), 1)
    assert told(in_old_words(running, unsatisfied))["Admitted"] == "F/UnsatisfiedChecks"
    gone = to.unreserve(with_check(running, "Retry"), "PendingEvaluation", "m", at(7), 1)
    assert told(in_old_words(running, gone))["Admitted"] == "F/NoReservationUnsatisfiedChecks"


def test_what_was_not_admitted_before_is_not_told_to_be_so() -> None:
    waiting = reserved(with_check(WorkloadStatus(), "Pending"))
    assert "Admitted" in told(waiting)
    assert "Admitted" not in told(in_old_words(WorkloadStatus(), waiting))


def test_another_reason_for_the_same_truth_is_not_told() -> None:
    running = with_check(reserved(), "Ready")
    lost = in_old_words(running, to.unreserve(running, "Misconfigured", "no queue", at(7), 1))
    assert told(lost)["QuotaReserved"] == "F/Inadmissible"
    again = reserved(with_check(lost, "Pending"))
    assert conds.find(in_old_words(lost, again).conditions, "Admitted") == conds.find(lost.conditions, "Admitted")


@given(st.sampled_from(["Pending", "Ready", "Retry"]), st.lists(st.sampled_from("ruex"), max_size=8))
def test_truth_is_never_touched_and_words_are_said_once(state: CheckState, happens: list[str]) -> None:
    status = with_check(WorkloadStatus(), state)
    for second, what in enumerate(happens):
        match what:
            case "r":
                new = to.reserve(status, admission=ADMISSION, required_checks=("c",), now=at(second), generation=1)
            case "u":
                new = to.unreserve(status, "PendingEvaluation", "m", at(second), 1)
            case "e":
                new = to.evict(status, "Preempted", "m", at(second), 1)
            case _:
                new = to.sync_admitted(status, at(second), 1)
        old = in_old_words(status, new)
        for kind in ("QuotaReserved", "Admitted", "Evicted"):
            assert conds.is_true(old.conditions, kind) == conds.is_true(new.conditions, kind)
        # Said again, nothing is left to say.
        assert in_old_words(old, old) == old
        assert not any(c.reason in ("PendingEvaluation", "UnsatisfiedAdmissionChecks") for c in old.conditions)
        status = old


def test_checks_keep_what_they_say() -> None:
    running = with_check(reserved(), "Retry")
    assert in_old_words(running, running).admission_checks == running.admission_checks
    assert isinstance(running.admission_checks[0], AdmissionCheckState)
