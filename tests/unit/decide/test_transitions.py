"""Status transitions: what changes together, what stays, and the condition timelines users see."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.api import conditions as conds
from shared.api.workload_status import (
    Admission,
    AdmissionCheckState,
    EvictionCount,
    PodSetAssignment,
    PodSetRequest,
    PodSetUpdate,
    PreemptionGateState,
    RequeueState,
    SchedulingStats,
    UnhealthyNode,
    WorkloadStatus,
)
from shared.decide import transitions as to

START = datetime(2025, 3, 1, 12, tzinfo=UTC)
ADMISSION = Admission(
    cluster_queue="cq",
    pod_set_assignments=(PodSetAssignment(flavors={"cpu": "default"}, resource_usage={"cpu": "1"}, count=1),),
)


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def truth(status: WorkloadStatus) -> dict[str, str]:
    """`type: "T/Reason"` of every condition."""
    return {one.type: f"{one.status[0]}/{one.reason}" for one in status.conditions}


def check(name: str, state: str = "Pending", **fields: Any) -> AdmissionCheckState:
    given = {"last_transition_time": START, "message": "", **fields}
    return AdmissionCheckState(name=name, state=state, **given)  # type: ignore[arg-type]


def admitted(seconds: int = 0, status: WorkloadStatus | None = None, checks: tuple[str, ...] = ()) -> WorkloadStatus:
    return to.reserve(
        status or WorkloadStatus(), admission=ADMISSION, required_checks=checks, now=at(seconds), generation=3
    )


def test_reservation_without_checks_admits_in_the_same_write() -> None:
    waiting = to.report_pending(WorkloadStatus(), "WaitingForQuota", "no", {"main": {"cpu": 1500}}, at(0), 3)
    assert waiting.resource_requests == (PodSetRequest(name="main", resources={"cpu": "1500m"}),)
    status = admitted(5, waiting)
    assert truth(status) == {"QuotaReserved": "T/QuotaReserved", "Admitted": "T/Admitted"}
    assert (status.admission, status.resource_requests) == (ADMISSION, ())
    assert all((one.last_transition_time, one.observed_generation) == (at(5), 3) for one in status.conditions)


def test_reservation_with_a_pending_check_is_not_admitted_until_it_is_ready() -> None:
    status = admitted(0, WorkloadStatus(admission_checks=(check("c"),)), ("c",))
    assert truth(status) == {"QuotaReserved": "T/QuotaReserved", "Admitted": "F/UnsatisfiedAdmissionChecks"}
    update = PodSetUpdate(name="main", labels={"a": "b"})
    status = to.set_check(status, "c", "Ready", "done", at(9), pod_set_updates=(update,))
    assert status.admission_checks[0].last_transition_time == at(9)
    assert to.set_check(status, "c", "Ready", "done", at(99), pod_set_updates=(update,)) is status
    assert to.set_check(status, "c", "Ready", "still", at(99)).admission_checks[0].last_transition_time == at(9)
    assert to.set_check(status, "other", "Ready", "", at(9)) is status
    assert truth(to.sync_admitted(status, at(10), 3))["Admitted"] == "T/Admitted"


def test_a_required_check_that_is_not_listed_leaves_admitted_alone() -> None:
    status = admitted(0, None, ("c",))
    assert truth(status) == {"QuotaReserved": "T/QuotaReserved"}
    assert to.sync_checks(status, ("d", "c", "c"), at(1)).admission_checks == (
        check("c", last_transition_time=at(1)),
        check("d", last_transition_time=at(1)),
    )


def test_a_missing_placement_holds_admission_back() -> None:
    delayed = Admission(
        cluster_queue="cq", pod_set_assignments=(PodSetAssignment(count=1, delayed_topology_request="Pending"),)
    )
    status = to.reserve(WorkloadStatus(), admission=delayed, required_checks=(), now=at(0), generation=1)
    assert truth(status)["Admitted"] == "F/PendingDelayedTopologyRequests"


def test_sync_of_an_untouched_workload_writes_nothing() -> None:
    empty = WorkloadStatus()
    assert to.sync_admitted(empty, at(0), 1) is empty
    status = admitted()
    assert to.sync_admitted(status, at(50), 9) is status


def test_a_victim_from_eviction_to_readmission() -> None:
    status = admitted(0, WorkloadStatus(admission_checks=(check("c", "Ready"),)), ("c",))
    status = to.evict(status, "Preempted", "for another", at(10), 3, preempted_reason="InClusterQueue")
    assert truth(status) == {
        "QuotaReserved": "T/QuotaReserved",
        "Admitted": "T/Admitted",
        "Preempted": "T/InClusterQueue",
        "Evicted": "T/Preempted",
    }
    assert conds.find(status.conditions, "Preempted").observed_generation == 0  # type: ignore[union-attr]
    assert status.admission == ADMISSION
    assert (status.admission_checks[0].state, status.admission_checks[0].retry_count) == ("Pending", None)
    assert status.scheduling_stats == SchedulingStats(
        evictions=(EvictionCount(reason="Preempted", underlying_cause="", count=1),)
    )
    status = to.release(status, at(25), 3)
    assert truth(status) == {
        "QuotaReserved": "F/PendingEvaluation",
        "Admitted": "F/NoReservation",
        "Preempted": "T/InClusterQueue",
        "Evicted": "T/Preempted",
        "Requeued": "T/Preempted",
    }
    assert (status.admission, status.accumulated_past_execution_time_seconds) == (None, 25)
    status = to.reserve(status, admission=ADMISSION, required_checks=(), now=at(30), generation=3)
    assert truth(status)["Evicted"] == "F/QuotaReserved"
    assert truth(status)["Preempted"] == "F/QuotaReserved"
    evicted = conds.find(status.conditions, "Evicted")
    assert evicted is not None
    assert evicted.message == "Previously: for another"
    assert truth(status)["Admitted"] == "F/UnsatisfiedAdmissionChecks"


def test_run_time_adds_up_over_evictions() -> None:
    status = to.release(to.evict(admitted(), "NodeFailures", "m", at(5), 1), at(10), 1)
    status = to.release(to.evict(admitted(100, status), "NodeFailures", "m", at(101), 1), at(107), 1)
    assert status.accumulated_past_execution_time_seconds == 17
    assert truth(status)["Requeued"] == "T/NodeFailures"
    assert status.scheduling_stats is not None
    assert status.scheduling_stats.evictions[0].count == 2


@pytest.mark.parametrize("reason", ["PodsReadyTimeout", "AdmissionCheck", "ClusterQueueStopped", "LocalQueueStopped"])
def test_other_evictions_keep_out_of_the_queue_after_release(reason: str) -> None:
    status = to.release(to.evict(admitted(), reason, "m", at(5), 1), at(10), 1)
    assert truth(status)["Requeued"] == f"F/{reason}"


def test_release_needs_an_eviction() -> None:
    status = admitted()
    assert to.release(status, at(1), 1) is status


def test_deactivation_names_its_cause_and_clears_what_it_must() -> None:
    status = to.set_deactivation_target(admitted(), "AdmissionCheck", "rejected", at(1), 1)
    status = to.set_requeue_at(status, at(60))
    status = to.evict(
        status,
        "Deactivated",
        "m",
        at(2),
        1,
        cause="AdmissionCheck",
        clear_requeue_state=True,
        clear_deactivation_target=True,
    )
    assert truth(status)["Evicted"] == "T/DeactivatedDueToAdmissionCheck"
    assert "DeactivationTarget" not in truth(status)
    assert status.requeue_state is None
    assert status.scheduling_stats is not None
    (count,) = status.scheduling_stats.evictions
    assert (count.reason, count.underlying_cause) == ("Deactivated", "AdmissionCheck")


def test_a_pods_ready_timeout_counts_and_delays_in_the_same_write() -> None:
    status = to.evict(
        admitted(), "PodsReadyTimeout", "m", at(2), 1, cause="WaitForStart", requeue_count=1, requeue_at=at(62)
    )
    assert status.requeue_state == RequeueState(count=1, requeue_at=at(62))
    assert truth(status)["Evicted"] == "T/PodsReadyTimeout"
    status = to.release(status, at(5), 1)
    done = to.mark_requeued(status, "BackoffFinished", "m", at(62), 1, clear_requeue_at=True)
    assert done.requeue_state == RequeueState(count=1)
    assert truth(done)["Requeued"] == "T/BackoffFinished"


def test_eviction_resets_checks_gates_and_cluster_fields() -> None:
    before = WorkloadStatus(
        admission_checks=(
            check("p"),
            check("r", "Retry", retry_count=2, requeue_after_seconds=9),
            check("x", "Rejected"),
        ),
        preemption_gates=(
            PreemptionGateState(name="open", position="Open", last_transition_time=START),
            PreemptionGateState(name="shut", position="Closed", last_transition_time=START),
        ),
        cluster_name="worker",
        unhealthy_nodes=(UnhealthyNode(name="n"),),
        conditions=(conds.make("BlockedOnPreemptionGates", True, "PreemptionGated", "m", now=START),),
    )
    status = to.evict(before, "ClusterQueueStopped", "m", at(4), 1)
    pending, retried, rejected = status.admission_checks
    assert pending == check("p")
    assert (retried.state, retried.retry_count, retried.requeue_after_seconds) == ("Pending", 3, 9)
    assert (rejected.state, rejected.retry_count) == ("Pending", None)
    assert "Rejected" in rejected.message
    assert [gate.position for gate in status.preemption_gates] == ["Closed", "Closed"]
    assert [gate.last_transition_time for gate in status.preemption_gates] == [at(4), START]
    assert (status.cluster_name, status.unhealthy_nodes) == (None, ())
    assert truth(status)["BlockedOnPreemptionGates"] == "F/ClusterQueueStopped"


def test_requeue_time_only_moves_later() -> None:
    status = to.set_requeue_at(WorkloadStatus(), at(50))
    assert to.set_requeue_at(status, at(20)) is status
    assert to.set_requeue_at(status, at(80)).requeue_state == RequeueState(requeue_at=at(80))
    assert to.set_requeue_at(status, None).requeue_state is None
    assert to.set_requeue_at(status, None, clear_state=True).requeue_state is None
    empty = WorkloadStatus()
    assert to.set_requeue_at(empty, None, clear_state=True) is empty


def test_pending_reports_are_written_only_when_they_say_something_new() -> None:
    status = to.report_pending(WorkloadStatus(), "WaitingForQuota", "m", {"main": {"memory": 2**30}}, at(0), 1)
    assert truth(status) == {"QuotaReserved": "F/WaitingForQuota", "Admitted": "F/NoReservation"}
    assert status.resource_requests[0].resources == {"memory": "1Gi"}
    assert to.report_pending(status, "WaitingForQuota", "m", None, at(9), 1) is status
    assert to.report_pending(status, "WaitingForQuota", "m", {"main": {"memory": 2**30}}, at(9), 1) is status
    gated = to.report_pending(status, "WaitingForQuota", "m", None, at(9), 1, gated=True)
    assert truth(gated)["BlockedOnPreemptionGates"] == "T/PreemptionGated"
    assert to.report_pending(gated, "WaitingForQuota", "m", None, at(9), 1, gated=True) is gated
    other = to.report_pending(status, "ExceedsMaxQuota", "m", None, at(9), 1)
    assert truth(other)["QuotaReserved"] == "F/ExceedsMaxQuota"
    assert conds.find(other.conditions, "QuotaReserved").last_transition_time == at(0)  # type: ignore[union-attr]
    held = admitted()
    assert to.report_pending(held, "WaitingForQuota", "m", None, at(9), 1) is held


def test_finish_keeps_everything_else_and_happens_once() -> None:
    status = to.finish(admitted(), "Succeeded", "done", at(7), 1)
    assert truth(status) == {"QuotaReserved": "T/QuotaReserved", "Admitted": "T/Admitted", "Finished": "T/Succeeded"}
    assert status.admission == ADMISSION
    assert to.finish(status, "Failed", "no", at(8), 1) is status


def test_deactivation_target_may_clear_run_time() -> None:
    ran = WorkloadStatus(accumulated_past_execution_time_seconds=5)
    kept = to.set_deactivation_target(ran, "RequeuingLimitExceeded", "m", at(0), 1)
    assert kept.accumulated_past_execution_time_seconds == 5
    cleared = to.set_deactivation_target(ran, "MaximumExecutionTimeExceeded", "m", at(0), 1, clear_past_execution=True)
    assert cleared.accumulated_past_execution_time_seconds is None


def test_checks_keep_their_state_when_the_list_changes() -> None:
    status = WorkloadStatus(admission_checks=(check("b", "Ready"), check("old")))
    new = to.sync_checks(status, ("b", "a"), at(3))
    assert [(one.name, one.state) for one in new.admission_checks] == [("a", "Pending"), ("b", "Ready")]
    assert to.sync_checks(new, ("a", "b"), at(9)) is new
    assert to.sync_checks(new, (), at(9)).admission_checks == ()


@pytest.mark.parametrize(
    ("before", "increment", "after"),
    [
        (None, True, RequeueState(count=1, requeue_at=at(300))),
        (RequeueState(count=2, requeue_at=at(-300)), False, RequeueState(count=2, requeue_at=at(300))),
        (RequeueState(count=3, requeue_at=at(600)), False, RequeueState(count=3, requeue_at=at(600))),
        (RequeueState(count=3, requeue_at=at(600)), True, RequeueState(count=4, requeue_at=at(600))),
    ],
)
def test_one_more_requeue_only_moves_the_time_later(
    before: RequeueState | None, increment: bool, after: RequeueState
) -> None:
    assert to.count_requeue(before, at(300), increment=increment) == after


def test_holding_quota_says_nothing_about_admission() -> None:
    evicted = to.evict(admitted(), "Preempted", "by another", at(60), 3, preempted_reason="InClusterQueue")
    released = to.release(evicted, at(65), 3)
    held = to.hold_quota(released, ADMISSION, at(70), 3)
    assert truth(held) == {
        "QuotaReserved": "T/QuotaReserved",
        "Admitted": "F/NoReservation",
        "Evicted": "F/QuotaReserved",
        "Preempted": "F/QuotaReserved",
        "Requeued": "T/Preempted",
    }
    assert held.admission == ADMISSION
