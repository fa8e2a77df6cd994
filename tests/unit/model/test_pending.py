"""Placement, return, parking and waking of pending workloads."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.model.pending import OrderPolicy, PendingQueues, RequeueReason, ScanProgress
from shared.model.workload import WorkloadInfo, queue_timestamp
from tests.unit.model.builders import condition, info, workload

NOW = 1000.0


def waiting(name: str, **fields: Any) -> WorkloadInfo:
    return info(workload(name, **fields))


def lines(*, strict: bool = False, policy: OrderPolicy | None = None) -> PendingQueues:
    pending = PendingQueues(policy)
    pending.set_cluster_queue("cq", strict=strict, active=True)
    pending.set_local_queue("ns/lq", "cq")
    return pending


def drained(pending: PendingQueues, queue: str = "cq") -> list[str]:
    found = []
    while (head := pending.pop(queue)) is not None:
        found.append(head.name)
    return found


def parked(pending: PendingQueues) -> set[str]:
    return set(pending.queues["cq"].inadmissible)


def test_order_is_priority_then_time_then_uid() -> None:
    pending = lines()
    for one in (
        waiting("late", created=9),
        waiting("twin-b", created=5, uid="b"),
        waiting("twin-a", created=5, uid="a"),
        waiting("important", created=50, priority=3),
    ):
        assert pending.push(one, NOW)
    assert drained(pending) == ["important", "twin-a", "twin-b", "late"]


def test_an_update_moves_a_workload_within_the_heap() -> None:
    pending = lines()
    pending.push(waiting("a", created=1), NOW)
    pending.push(waiting("b", created=2), NOW)
    pending.push(waiting("b", created=2, priority=1), NOW)
    pending.push(waiting("a", created=1), NOW)
    assert pending.pending_count("cq") == 2
    assert drained(pending) == ["b", "a"]


def test_many_updates_do_not_grow_the_heap_without_bound() -> None:
    pending = lines()
    for priority in range(1000):
        pending.push(waiting("a", priority=priority), NOW)
    assert pending.queues["cq"].stored() < 100
    assert drained(pending) == ["a"]


@pytest.mark.parametrize(
    ("by_eviction", "reason", "expected"),
    [
        (True, "PodsReadyTimeout", 70),
        (False, "PodsReadyTimeout", 5),
        (False, "AdmissionCheck", 70),
        (True, "Preempted", 5),
    ],
)
def test_queue_timestamp_of_evicted_workloads(by_eviction: bool, reason: str, expected: float) -> None:
    one = waiting("a", created=5, conditions=(condition("Evicted", True, reason, 70),))
    assert queue_timestamp(one, by_eviction=by_eviction) == expected


def test_queue_timestamp_without_priority_sorting_goes_just_behind_the_preemptor() -> None:
    one = waiting("a", created=5, conditions=(condition("Preempted", True, "InCohortReclaimWhileBorrowing", 70),))
    assert queue_timestamp(one, priority_within_cohort=False) == pytest.approx(70.001)
    assert queue_timestamp(one) == 5


@pytest.mark.parametrize(
    "hopeless",
    [
        {"active": False},
        {"conditions": (condition("Finished", True),)},
        {"conditions": (condition("QuotaReserved", False, "OnHold"),)},
        {"conditions": (condition("WaitingForReplacementPods", True),)},
        {"annotations": {"kueue.x-k8s.io/admission-gated-by": "a.b/c"}},
        {"local_queue": "unknown"},
    ],
)
def test_what_cannot_be_queued_leaves_the_queue(hopeless: dict[str, Any]) -> None:
    pending = lines()
    pending.push(waiting("a"), NOW)
    assert not pending.push(waiting("a", **hopeless), NOW)
    assert pending.pending_count("cq") == 0
    assert pending.assigned == {}


@pytest.mark.parametrize(
    ("fields", "at_once"),
    [
        ({"requeue_at": 1001}, False),
        ({"requeue_at": 1000}, True),
        ({"conditions": (condition("Requeued", False, "AdmissionCheck"),)}, False),
        ({"conditions": (condition("Requeued", True, "BackoffFinished"),)}, True),
    ],
)
def test_backoff_parks_on_arrival(fields: dict[str, Any], at_once: bool) -> None:
    pending = lines()
    assert pending.push(waiting("a", **fields), NOW)
    assert (parked(pending) == set()) is at_once
    assert pending.pending_count("cq") == 1


@pytest.mark.parametrize(
    ("change", "moves"),
    [
        ({}, False),
        ({"version": 9}, False),
        ({"generation": 5}, True),
        ({"reclaimable": (("main", 1),)}, True),
        ({"priority": 7}, True),
    ],
)
def test_only_decisive_updates_bring_a_parked_workload_back(change: dict[str, Any], moves: bool) -> None:
    pending = lines()
    one = waiting("a")
    pending.push(one, NOW)
    pending.pop("cq")
    pending.requeue(one, RequeueReason.NO_FIT, NOW)
    assert parked(pending) == {"ns/a"}
    # Without its shape: the workload may move although its twins are known to be hopeless.
    changed = msgspec.structs.replace(one, shape="", **change)
    pending.push(changed, NOW)
    assert (parked(pending) == set()) is moves
    assert pending.find("ns/a") == changed


@pytest.mark.parametrize(
    ("reason", "strict_parks", "best_effort_parks"),
    [
        (RequeueReason.GENERIC, False, True),
        (RequeueReason.NAMESPACE_MISMATCH, True, True),
        (RequeueReason.NO_FIT, False, True),
        (RequeueReason.PREEMPTION_NO_CANDIDATES, False, True),
        (RequeueReason.PREEMPTION_GATED, False, True),
        (RequeueReason.PENDING_PREEMPTION, False, False),
        (RequeueReason.PREEMPTION_FAILED, False, False),
        (RequeueReason.PENDING_MIGRATION, False, False),
        (RequeueReason.FAILED_AFTER_NOMINATION, False, False),
    ],
)
def test_requeue_decisions(reason: RequeueReason, strict_parks: bool, best_effort_parks: bool) -> None:
    for strict, parks in ((True, strict_parks), (False, best_effort_parks)):
        pending = lines(strict=strict)
        one = waiting("a")
        pending.push(one, NOW)
        pending.pop("cq")
        assert pending.requeue(one, reason, NOW)
        assert bool(parked(pending)) is parks
        waits = reason in (RequeueReason.PENDING_PREEMPTION, RequeueReason.PENDING_MIGRATION)
        assert pending.queues["cq"].sticky_key() == ("ns/a" if waits and not strict else None)


def test_untried_flavors_bring_a_head_back_at_once() -> None:
    pending = lines()
    one = waiting("a")
    pending.push(one, NOW)
    pending.pop("cq")
    pending.progress["ns/a"] = ScanProgress(((("cpu", 0),),))
    pending.requeue(one, RequeueReason.NO_FIT, NOW)
    assert parked(pending) == set()


def test_a_running_backoff_parks_whatever_the_reason() -> None:
    pending = lines(strict=True)
    one = waiting("a", requeue_at=2000)
    pending.requeue(one, RequeueReason.FAILED_AFTER_NOMINATION, NOW)
    assert parked(pending) == {"ns/a"}
    assert pending.retry(["cq"], NOW) == 0
    assert pending.retry(["cq"], 2000) == 1


def test_a_retry_while_in_flight_brings_it_back_to_the_heap() -> None:
    pending = lines()
    one = waiting("a")
    pending.push(one, NOW)
    pending.pop("cq")
    pending.retry(["cq"], NOW)
    pending.requeue(one, RequeueReason.NO_FIT, NOW)
    assert parked(pending) == set()
    pending.pop("cq")
    pending.requeue(one, RequeueReason.NO_FIT, NOW)
    assert parked(pending) == {"ns/a"}


def test_retry_moves_only_matching_namespaces() -> None:
    pending = PendingQueues(matches=lambda queue, namespace: namespace == "ns")
    pending.set_cluster_queue("cq", strict=False, active=True)
    for namespace in ("ns", "other"):
        pending.set_local_queue(f"{namespace}/lq", "cq")
        pending.requeue(waiting("a", namespace=namespace), RequeueReason.GENERIC, NOW)
    assert pending.retry(["cq", "unknown"], NOW) == 1
    assert parked(pending) == {"other/a"}


def test_the_sticky_preemptor_goes_first_until_it_leaves() -> None:
    pending = lines()
    one = waiting("small", created=5)
    pending.push(one, NOW)
    pending.pop("cq")
    pending.requeue(one, RequeueReason.PENDING_PREEMPTION, NOW)
    pending.push(waiting("big", created=1, priority=9), NOW)
    assert [item.info.name for item in pending.queues["cq"].items()] == ["small", "big"]
    assert pending.pop("cq") == one
    pending.requeue(one, RequeueReason.PENDING_PREEMPTION, NOW)
    pending.remove("ns/small")
    assert pending.queues["cq"].preemptor is None
    assert drained(pending) == ["big"]


def test_workloads_of_a_hopeless_shape_are_parked_together_and_on_arrival() -> None:
    pending = lines()
    first, twin, other = waiting("first", created=1), waiting("twin", created=2), waiting("other", cpu="2", created=3)
    for one in (first, twin, other):
        pending.push(one, NOW)
    pending.pop("cq")
    pending.requeue(first, RequeueReason.NO_FIT, NOW, refusal="WaitingForQuota")
    assert parked(pending) == {"ns/first", "ns/twin"}
    assert pending.queues["cq"].hash_reasons == {first.shape: "WaitingForQuota"}
    pending.push(waiting("newcomer"), NOW)
    assert "ns/newcomer" in parked(pending)
    assert pending.retry(["cq"], NOW) == 3
    assert pending.queues["cq"].hash_reasons == {}


@pytest.mark.parametrize("reason", [RequeueReason.GENERIC, RequeueReason.PREEMPTION_GATED])
def test_other_reasons_say_nothing_about_the_shape(reason: RequeueReason) -> None:
    pending = lines()
    pending.push(waiting("twin"), NOW)
    pending.requeue(waiting("first"), reason, NOW)
    assert parked(pending) == {"ns/first"}


def test_equivalence_can_be_switched_off() -> None:
    pending = lines(policy=OrderPolicy(equivalence_hashing=False))
    pending.push(waiting("twin"), NOW)
    pending.requeue(waiting("first"), RequeueReason.NO_FIT, NOW)
    assert parked(pending) == {"ns/first"}


def test_counts_of_queues() -> None:
    pending = lines()
    for name in ("a", "b", "c"):
        pending.push(waiting(name), NOW)
    head = pending.pop("cq")
    assert head is not None
    assert pending.pending_count("cq") == 3
    assert pending.local_pending_count("ns/lq") == 2
    pending.requeue(head, RequeueReason.NO_FIT, NOW)
    assert pending.local_pending_count("ns/lq") == 3
    assert pending.pending_count("unknown") == 0
    assert pending.local_pending_count("unknown") == 0


def test_a_workload_in_flight_ignores_updates_and_can_be_removed() -> None:
    pending = lines()
    pending.push(waiting("a"), NOW)
    pending.pop("cq")
    assert pending.push(waiting("a", priority=5), NOW)
    assert pending.queues["cq"].heap == {}
    assert pending.remove("ns/a")
    assert not pending.remove("ns/a")
    assert pending.pending_count("cq") == 0


def test_requeue_of_what_is_already_there_or_has_no_queue_is_refused() -> None:
    pending = lines()
    one = waiting("a")
    pending.push(one, NOW)
    assert not pending.requeue(one, RequeueReason.NO_FIT, NOW)
    pending.remove("ns/a")
    assert pending.requeue(one, RequeueReason.NO_FIT, NOW)
    assert not pending.requeue(one, RequeueReason.NO_FIT, NOW)
    assert pending.requeue(one, RequeueReason.NO_FIT, NOW, immediate=True)
    assert not pending.requeue(waiting("b", local_queue="unknown"), RequeueReason.NO_FIT, NOW)


def test_moving_to_another_queue_leaves_the_first() -> None:
    pending = lines()
    pending.set_cluster_queue("other", strict=False, active=True)
    pending.set_local_queue("ns/second", "other")
    pending.push(waiting("a"), NOW)
    pending.push(waiting("a", local_queue="second"), NOW)
    assert (pending.pending_count("cq"), pending.pending_count("other")) == (0, 1)
    assert pending.local_pending_count("ns/lq") == 0
    pending.set_local_queue("ns/second", "cq")
    assert pending.pending_count("other") == 0


def test_closing_queues() -> None:
    pending = lines()
    pending.push(waiting("a"), NOW)
    pending.remove_local_queue("ns/lq")
    pending.remove_local_queue("ns/lq")
    assert pending.pending_count("cq") == 0
    pending.set_local_queue("ns/lq", "cq")
    pending.adopt(waiting("a", requeue_at=99999))
    pending.adopt(waiting("b", active=False))
    assert [one.name for one in pending.remove_cluster_queue("cq")] == ["a"]
    assert pending.remove_cluster_queue("cq") == []
    assert not pending.push(waiting("a"), NOW)
    assert pending.assigned == {"ns/a": "ns/lq"}


def test_only_active_queues_with_a_head_are_ready() -> None:
    pending = lines()
    assert pending.ready() == []
    pending.push(waiting("a"), NOW)
    assert pending.ready() == ["cq"]
    pending.set_cluster_queue("cq", strict=False, active=False)
    assert pending.ready() == []
    assert pending.pop_key("cq", "ns/a") is None
    pending.set_cluster_queue("cq", strict=False, active=True)
    assert pending.pop_key("cq", "ns/b") is None
    head = pending.pop_key("cq", "ns/a")
    assert head is not None
    assert pending.ready() == []
    pending.give_back("cq", head)
    assert pending.ready() == ["cq"]
    assert pending.queues["cq"].inflight is None


def test_alike_tells_of_each_workload_once_whatever_its_state() -> None:
    pending = lines()
    names = ["a", "b", "c", "d"]
    for name in names:
        pending.push(waiting(name), NOW)
    head = pending.pop("cq")
    assert head is not None
    pending.requeue(head, RequeueReason.NO_FIT, NOW)
    assert pending.pop("cq") is not None or parked(pending)
    queue = pending.queues["cq"]
    told = list(queue.alike())
    assert sum(number for _, _, number in told) == len(queue) == len(names)
    assert sum(number for _, is_parked, number in told if is_parked) == len(queue.inadmissible)
