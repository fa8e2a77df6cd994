"""The life of a workload outside the cycle: first matching step, who does it, and when to look again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.api.names import RESOURCE_IN_USE
from shared.decide.lifecycle import LifecycleView, next_step, why_not_tried
from shared.decide.lifecycle_limits import PodsReadyLimits
from shared.decide.lifecycle_steps import (
    Evict,
    Finish,
    MarkRequeued,
    ReleaseFinalizer,
    ReportPending,
    SetActive,
    SetDeactivationTarget,
    SetRequeueAt,
    Step,
    SyncAdmitted,
    SyncChecks,
    Unreserve,
    Verdict,
)
from shared.events import objects as o
from shared.model.activity import READY, Activity
from shared.model.cluster_queue import CheckRule, ClusterQueue, FlavorOption, LocalQueue, ResourceGroup
from tests.unit.model.builders import condition, reserved, workload

NOW = 1000
QUEUE = ClusterQueue(name="cq", groups=(ResourceGroup(("cpu",), (FlavorOption("default", {"cpu": 0}),)),))
LOCAL = LocalQueue("ns/lq", "cq")
HELD = condition("QuotaReserved", True, "QuotaReserved")
ADMITTED = condition("Admitted", True, "Admitted")
NO_RESERVATION = condition("Admitted", False, "NoReservation")


def view(source: o.Workload, **fields: Any) -> LifecycleView:
    given = {"local_queue": LOCAL, "cluster_queue": QUEUE, "activity": READY, **fields}
    return LifecycleView(workload=source, **given)


def step(source: o.Workload, **fields: Any) -> Step | None:
    return next_step(view(source, **fields), NOW).step


def stop(policy: str) -> ClusterQueue:
    return msgspec.structs.replace(QUEUE, stop_policy=policy)


def waiting(reason: str, *more: o.Condition, **fields: Any) -> o.Workload:
    conditions = (condition("QuotaReserved", False, reason), NO_RESERVATION, *more)
    return workload("a", conditions=conditions, **fields)


def running(*more: o.Condition, **fields: Any) -> o.Workload:
    return reserved(workload("a", conditions=(ADMITTED, *more), **fields), "cq", cpu=1000)


def holding(*more: o.Condition, **fields: Any) -> o.Workload:
    """Reserved but not admitted, waiting for a check."""
    fields.setdefault("checks", (o.CheckState(name="c"),))
    unsatisfied = condition("Admitted", False, "UnsatisfiedAdmissionChecks")
    return reserved(workload("a", conditions=(unsatisfied, *more), **fields), "cq", cpu=1000)


CHECKED = msgspec.structs.replace(QUEUE, checks=(CheckRule("c", frozenset()),))


def requeued(reason: str) -> o.Condition:
    return condition("Requeued", False, reason)


@pytest.mark.parametrize(
    "source",
    [
        workload("a"),
        running(),
        waiting("WaitingForQuota"),
        waiting("PendingEvaluation"),
        waiting("OnHold"),
        workload("a", finished=True, active=False),
        workload("a", active=False, conditions=(condition("Finished", True),)),
        running(condition("Evicted", True, "Preempted")),
    ],
)
def test_nothing_to_do(source: o.Workload) -> None:
    assert next_step(view(source), NOW) == Verdict()


def retry(changed: int, after: int | None) -> o.CheckState:
    return o.CheckState(name="c", state="Retry", changed=changed, requeue_after_s=after)


def test_a_check_that_asks_for_a_later_retry_sets_requeue_at() -> None:
    delayed = holding(checks=(retry(950, 100), msgspec.structs.replace(retry(990, 300), name="d")))
    assert step(delayed, cluster_queue=CHECKED) == SetRequeueAt(1290)
    # Who does not take this step looks again when it is none any more: nothing else may happen until then.
    assert next_step(view(delayed, cluster_queue=CHECKED), NOW).again_at == 1290
    known = msgspec.structs.replace(delayed, requeue_at=1290)
    verdict = next_step(view(known), NOW)
    assert (type(verdict.step), verdict.again_at) == (Evict, 1290)
    # Once it is on its way out, and once it has no quota any more, only the time is left.
    leaving = msgspec.structs.replace(
        known, conditions=(*known.conditions, condition("Evicted", True, "AdmissionCheck"))
    )
    assert next_step(view(leaving), NOW) == Verdict(again_at=1290)
    waits = msgspec.structs.replace(waiting("PendingEvaluation"), checks=known.checks, requeue_at=1290)
    assert next_step(view(waits), NOW) == Verdict(again_at=1290)
    past = holding(checks=(retry(100, 100),))
    assert isinstance(step(past, cluster_queue=CHECKED), Evict)


def test_a_deactivation_of_what_is_on_its_way_out_already_leaves_nothing_behind() -> None:
    target = condition("DeactivationTarget", True, "MaximumExecutionTimeExceeded", message="too long")
    evicted = condition("Evicted", True, "Preempted")
    order = step(running(target, evicted, active=False))
    assert isinstance(order, Evict)
    assert (order.cause, order.clear_deactivation_target) == ("MaximumExecutionTimeExceeded", True)
    assert step(running(evicted, active=False)) is None


def test_deactivation_is_ordered_then_done_then_evicted() -> None:
    target = condition("DeactivationTarget", True, "AdmissionCheck", message="rejected by c")
    assert step(running(target)) == SetActive(False)
    evict = step(running(target, active=False))
    assert isinstance(evict, Evict)
    assert (evict.reason, evict.cause, evict.clear_requeue_state, evict.clear_deactivation_target) == (
        "Deactivated",
        "AdmissionCheck",
        True,
        True,
    )
    assert "rejected by c" in evict.message
    by_user = step(running(active=False))
    assert isinstance(by_user, Evict)
    assert (by_user.reason, by_user.cause) == ("Deactivated", "")


def test_an_evicted_inactive_workload_loses_its_requeue_state_and_says_why_it_waits() -> None:
    evicted = condition("Evicted", True, "Deactivated")
    source = waiting("PendingEvaluation", evicted, active=False, has_requeue_state=True)
    assert step(source) == SetRequeueAt(None, clear_state=True)
    told = step(msgspec.structs.replace(source, has_requeue_state=False))
    assert isinstance(told, ReportPending)
    assert told.reason == "Deactivated"


def test_a_running_backoff_waits_and_an_ended_one_is_cleared() -> None:
    source = waiting("PendingEvaluation", requeued("PodsReadyTimeout"), requeue_at=1300)
    assert next_step(view(source), NOW) == Verdict(again_at=1300)
    ended = msgspec.structs.replace(source, requeue_at=1000)
    done = step(ended)
    assert isinstance(done, MarkRequeued)
    assert (done.reason, done.clear_requeue_at) == ("BackoffFinished", True)
    assert step(waiting("PendingEvaluation", requeue_at=900)) == SetRequeueAt(None)


@pytest.mark.parametrize(
    ("reason", "becomes"),
    [
        ("Deactivated", "Reactivated"),
        ("PodsReadyTimeout", "BackoffFinished"),
        ("AdmissionCheck", "BackoffFinished"),
        ("LocalQueueStopped", "LocalQueueRestarted"),
        ("ClusterQueueStopped", "ClusterQueueRestarted"),
        ("DeactivatedDueToAdmissionCheck", "Reactivated"),
        ("DeactivatedDueToRequeuingLimitExceeded", "Reactivated"),
        ("FlavorMigration", None),
    ],
)
def test_what_ends_requeued_false(reason: str, becomes: str | None) -> None:
    found = step(waiting("PendingEvaluation", requeued(reason)))
    assert (found.reason if isinstance(found, MarkRequeued) else None) == becomes


@pytest.mark.parametrize(
    ("reason", "fields"),
    [
        ("LocalQueueStopped", {"local_queue": msgspec.structs.replace(LOCAL, stop_policy="Hold")}),
        ("ClusterQueueStopped", {"cluster_queue": stop("Hold")}),
        ("ClusterQueueStopped", {"cluster_queue": None}),
        ("LocalQueueStopped", {"local_queue": None}),
    ],
)
def test_a_queue_that_is_still_stopped_or_gone_restarts_nothing(reason: str, fields: dict[str, Any]) -> None:
    assert not isinstance(step(waiting("Suspended", requeued(reason)), **fields), MarkRequeued)


def test_admission_gates_close_and_open() -> None:
    gate = {"kueue.x-k8s.io/admission-gated-by": "a.b/c"}
    closed = step(workload("a", annotations=gate))
    assert isinstance(closed, Unreserve)
    assert (closed.reason, closed.event) == ("AdmissionGated", "AdmissionGated")
    assert "a.b/c" in closed.message
    assert step(waiting("AdmissionGated", annotations=gate)) is None
    opened = step(waiting("AdmissionGated"))
    assert isinstance(opened, Unreserve)
    assert (opened.reason, opened.event) == ("PendingEvaluation", "AdmissionGateCleared")


def test_what_the_scheduler_says_of_closed_preemption_gates_is_left_alone() -> None:
    blocked = condition("BlockedOnPreemptionGates", True, "PreemptionGated")
    assert step(waiting("AdmissionGated", blocked)) is None
    over = condition("BlockedOnPreemptionGates", False, "QuotaReserved")
    assert isinstance(step(waiting("AdmissionGated", over)), Unreserve)


ON_B = msgspec.structs.replace(
    QUEUE,
    groups=(ResourceGroup(("cpu",), (FlavorOption("default", {"cpu": 0}), FlavorOption("b", {"cpu": 1}))),),
    checks=(
        CheckRule("z", frozenset()),
        CheckRule("b", frozenset({"b"})),
        CheckRule("d", frozenset({"default"})),
        CheckRule("all", frozenset({"default", "b"})),
    ),
)


@pytest.mark.parametrize(
    ("source", "wanted"),
    [(workload("a"), ("all", "z")), (holding(checks=()), ("all", "d", "z"))],
)
def test_the_list_of_checks_follows_the_assigned_flavors(source: o.Workload, wanted: tuple[str, ...]) -> None:
    assert step(source, cluster_queue=ON_B) == SyncChecks(wanted)
    listed = msgspec.structs.replace(source, checks=tuple(o.CheckState(name=name) for name in wanted))
    assert not isinstance(step(listed, cluster_queue=ON_B), SyncChecks)
    assert step(listed, cluster_queue=QUEUE) == SyncChecks(())


def test_with_old_words_only_queues_are_blamed() -> None:
    missing = {"local_queue": None, "legacy_reasons": True}
    told = step(workload("a"), **missing)
    assert isinstance(told, ReportPending)
    assert (told.reason, told.message) == ("Inadmissible", "LocalQueue lq does not exist")
    said = workload("a", conditions=(o.Condition("QuotaReserved", False, told.reason, told.message, 1),))
    assert step(said, **missing) is None
    # Another queue is another text, and its coming back is nobody's business but the scheduler's.
    again = step(said, cluster_queue=None, legacy_reasons=True)
    assert isinstance(again, ReportPending)
    assert again.message == "ClusterQueue cq does not exist"
    assert isinstance(step(said, in_cycle=True, legacy_reasons=True), ReportPending)
    assert step(said, legacy_reasons=True) is None
    assert step(workload("a"), invalid="too large", legacy_reasons=True) is None
    assert step(workload("a"), namespace_matches=False, legacy_reasons=True) is None


def test_with_old_words_admitted_is_told_when_it_becomes_true() -> None:
    pending = reserved(workload("a", checks=(o.CheckState(name="c"),)), "cq", cpu=1000)
    assert step(pending, cluster_queue=CHECKED, legacy_reasons=True) is None
    assert step(pending, cluster_queue=CHECKED) == SyncAdmitted()
    ready = reserved(workload("a", checks=(o.CheckState(name="c", state="Ready"),)), "cq", cpu=1000)
    assert step(ready, cluster_queue=CHECKED, legacy_reasons=True) == SyncAdmitted()
    # What stops it is still seen behind that.
    retry = reserved(workload("a", checks=(o.CheckState(name="c", state="Retry"),)), "cq", cpu=1000)
    assert isinstance(step(retry, cluster_queue=CHECKED, legacy_reasons=True), Evict)
    assert step(waiting("Inadmissible", condition("Admitted", False, "NoReservation")), legacy_reasons=True) is None


def test_a_parent_of_variants_has_no_checks() -> None:
    assert step(workload("a"), cluster_queue=CHECKED, has_variants=True) is None
    listed = workload("a", checks=(o.CheckState(name="c"),))
    assert step(listed, cluster_queue=CHECKED, has_variants=True) == SyncChecks(())
    assert step(holding(checks=()), cluster_queue=CHECKED, has_variants=True) == SyncAdmitted()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"local_queue": None}, "Misconfigured"),
        ({"local_queue": msgspec.structs.replace(LOCAL, stop_policy="Hold")}, "Suspended"),
        ({"cluster_queue": None}, "Misconfigured"),
        ({"activity": Activity(False, "FlavorNotFound", "no flavor")}, "Suspended"),
        ({"in_cycle": True}, "Suspended"),
        ({"namespace_matches": False}, "Misconfigured"),
        ({"invalid": "too much"}, "Misconfigured"),
    ],
)
def test_why_a_workload_cannot_even_be_tried(fields: dict[str, Any], reason: str) -> None:
    for source in (workload("a"), waiting("WaitingForQuota")):
        found = step(source, **fields)
        assert isinstance(found, ReportPending)
        assert found.reason == reason
    assert step(waiting(reason), **fields) is None


def test_what_keeps_a_workload_from_being_tried_is_known_whatever_its_condition_says() -> None:
    held = LifecycleView(workload=waiting("Suspended"), local_queue=LOCAL, cluster_queue=QUEUE, in_cycle=True)
    found = why_not_tried(held)
    assert found is not None
    assert found[0] == "Suspended"
    for reason in ("WaitingForQuota", "PendingEvaluation", "Suspended"):
        assert why_not_tried(view(waiting(reason))) is None
    told = condition("QuotaReserved", False, "OnHold", message="scaled to 0")
    assert why_not_tried(view(workload("a", conditions=(told,)))) == ("OnHold", "scaled to 0")


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        ("LocalQueue lq does not exist", True),
        ("ClusterQueue cq does not exist", True),
        ("no template", False),
        ("couldn't assign flavors: no template", False),
    ],
)
def test_a_queue_that_is_there_by_now_is_not_blamed_any_more(shown: str, told: bool) -> None:
    said = msgspec.structs.replace(condition("QuotaReserved", False, "Misconfigured"), message=shown)
    source = workload("a", conditions=(said, NO_RESERVATION))
    expected = ReportPending("Misconfigured", "no template") if told else None
    assert step(source, invalid="no template") == expected


def test_after_the_obstacle_is_gone_it_waits_for_evaluation() -> None:
    found = step(waiting("Suspended"))
    assert isinstance(found, ReportPending)
    assert found.reason == "PendingEvaluation"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "PendingEvaluation"),
        ({"local_queue": None}, "Misconfigured"),
        ({"cluster_queue": stop("Hold"), "activity": Activity(False, "Stopped", "no")}, "Suspended"),
    ],
)
def test_with_explicit_status_a_new_workload_says_no_at_once(fields: dict[str, Any], reason: str) -> None:
    found = step(workload("a"), explicit_status=True, **fields)
    assert isinstance(found, ReportPending)
    assert found.reason == reason
    assert step(waiting(reason), explicit_status=True, **fields) is None
    held = running()
    assert step(held, explicit_status=True) is None


def test_admitted_follows_reservation_and_checks() -> None:
    ready = (o.CheckState(name="c", state="Ready"),)
    assert step(holding(checks=ready), cluster_queue=CHECKED) == SyncAdmitted()
    assert step(holding(), cluster_queue=CHECKED) is None
    untold = workload("a", conditions=(condition("QuotaReserved", False, "WaitingForQuota"),))
    assert step(untold) == SyncAdmitted()
    unknown = msgspec.structs.replace(holding(), conditions=(HELD,))
    assert step(unknown, cluster_queue=CHECKED) == SyncAdmitted()
    placing = msgspec.structs.replace(
        holding(checks=ready), conditions=(HELD, condition("Admitted", False, "PendingDelayedTopologyRequests"))
    )
    assert step(placing, cluster_queue=CHECKED) is None


def test_rejected_checks_deactivate_and_win_over_retries() -> None:
    rejected = o.CheckState(name="c", state="Rejected", message="no such nodes")
    both = holding(checks=(rejected, o.CheckState(name="d", state="Retry")))
    two = msgspec.structs.replace(QUEUE, checks=(CheckRule("c", frozenset()), CheckRule("d", frozenset())))
    found = step(both, cluster_queue=two)
    assert isinstance(found, SetDeactivationTarget)
    assert (found.reason, found.event) == ("AdmissionCheck", "AdmissionCheckRejected")
    assert found.message.endswith(': "c" (no such nodes)')


def test_each_failed_check_is_named_with_what_it_says() -> None:
    checks = (o.CheckState(name="d", state="Retry", message="later"), o.CheckState(name="c", state="Retry"))
    two = msgspec.structs.replace(QUEUE, checks=(CheckRule("c", frozenset()), CheckRule("d", frozenset())))
    found = step(holding(checks=tuple(sorted(checks, key=lambda check: check.name))), cluster_queue=two)
    assert isinstance(found, Evict)
    assert found.message.endswith(': "c", "d" (later)')


ORPHAN: dict[str, Any] = {"owners": (), "job_uid": "u"}


@pytest.mark.parametrize(
    ("fields", "gate", "expected"),
    [
        (ORPHAN, True, Finish("OwnerNotFound", "The owner is gone")),
        (ORPHAN, False, None),
        ({"owners": ()}, True, None),
        ({**ORPHAN, "owners": (o.Owner("batch/v1", "Job", "j", "u"),)}, True, None),
        ({**ORPHAN, "finished": True}, True, None),
        ({**ORPHAN, "conditions": (condition("Finished", True),)}, True, None),
        ({**ORPHAN, "deleting": True, "finalizers": (RESOURCE_IN_USE,)}, True, ReleaseFinalizer()),
        ({"owners": (), "deleting": True, "finalizers": (RESOURCE_IN_USE,)}, False, ReleaseFinalizer()),
        ({"owners": (), "deleting": True, "finalizers": ("other",)}, False, None),
        ({"finished": True, "deleting": True, "finalizers": (RESOURCE_IN_USE,)}, False, ReleaseFinalizer()),
        (
            {
                "owners": (o.Owner("batch/v1", "Job", "j", "u"),),
                "deleting": True,
                "finalizers": (RESOURCE_IN_USE,),
            },
            True,
            None,
        ),
    ],
)
def test_workloads_that_nobody_looks_after(fields: dict[str, Any], gate: bool, expected: Step | None) -> None:
    assert step(workload("a", **fields), finish_orphans=gate) == expected


def test_an_orphan_is_finished_before_anything_else() -> None:
    source = running(condition("DeactivationTarget", True, "AdmissionCheck"), **ORPHAN)
    assert isinstance(step(source, finish_orphans=True), Finish)
    assert step(source) == SetActive(False)


def test_limits_of_time_come_last() -> None:
    limits = PodsReadyLimits(timeout_s=10)
    late = running(max_execution_s=1)
    drained = step(late, cluster_queue=stop("HoldAndDrain"), pods_ready=limits)
    assert isinstance(drained, Evict)
    assert drained.reason == "ClusterQueueStopped"
    timed_out = step(late, pods_ready=limits)
    assert isinstance(timed_out, Evict)
    assert timed_out.reason == "PodsReadyTimeout"
    exceeded = step(late)
    assert isinstance(exceeded, SetDeactivationTarget)
    assert exceeded.reason == "MaximumExecutionTimeExceeded"


def test_retry_evicts_once() -> None:
    checks = (o.CheckState(name="c", state="Retry"),)
    found = step(holding(checks=checks), cluster_queue=CHECKED)
    assert isinstance(found, Evict)
    assert found.reason == "AdmissionCheck"
    assert step(holding(condition("Evicted", True, "AdmissionCheck"), checks=checks), cluster_queue=CHECKED) is None
    assert step(running(checks=checks), cluster_queue=CHECKED) == found


@pytest.mark.parametrize(
    ("fields", "admitted", "expected"),
    [
        (
            {"local_queue": msgspec.structs.replace(LOCAL, stop_policy="HoldAndDrain")},
            True,
            (Evict, "LocalQueueStopped"),
        ),
        ({"local_queue": msgspec.structs.replace(LOCAL, stop_policy="Hold")}, True, None),
        ({"local_queue": None}, True, None),
        ({"local_queue": None}, False, (Unreserve, "Misconfigured")),
        ({"local_queue": msgspec.structs.replace(LOCAL, deleting=True)}, False, (Unreserve, "Misconfigured")),
        ({"local_queue": msgspec.structs.replace(LOCAL, stop_policy="Hold")}, False, (Unreserve, "Suspended")),
        ({"cluster_queue": stop("HoldAndDrain")}, True, (Evict, "ClusterQueueStopped")),
        ({"cluster_queue": stop("Hold")}, True, None),
        ({"cluster_queue": None}, True, None),
        ({"cluster_queue": None}, False, (Unreserve, "Misconfigured")),
        ({"cluster_queue": msgspec.structs.replace(CHECKED, deleting=True)}, False, (Unreserve, "Misconfigured")),
        (
            {"cluster_queue": msgspec.structs.replace(CHECKED, stop_policy="HoldAndDrain")},
            False,
            (Unreserve, "Suspended"),
        ),
    ],
)
def test_stopped_and_missing_queues(
    fields: dict[str, Any], admitted: bool, expected: tuple[type[Step], str] | None
) -> None:
    given = {"cluster_queue": QUEUE if admitted else CHECKED, **fields}
    found = step(running() if admitted else holding(), **given)
    if expected is None:
        assert found is None
        return
    assert isinstance(found, expected[0])
    assert isinstance(found, Evict | Unreserve)
    assert found.reason == expected[1]
    if admitted:
        assert step(running(condition("Evicted", True, expected[1])), **given) is None


def test_each_step_names_its_service() -> None:
    assert {one.service for one in (Evict, SetActive, SetDeactivationTarget)} == {"preemptor"}
    others = (ReleaseFinalizer, Finish, SetRequeueAt, MarkRequeued, Unreserve, SyncChecks, SyncAdmitted, ReportPending)
    assert {one.service for one in others} == {"queue_manager"}
