"""Admission fair sharing: decay, penalties and settling as numbers, and the order that follows from them."""

from __future__ import annotations

from math import inf
from typing import Any

import msgspec
import pytest

from shared.events import objects as o
from shared.model.admission_fair_sharing import (
    AdmissionFairSharing,
    AfsSettings,
    UsageRecord,
    added,
    alpha,
    charged_requests,
    decayed,
    entry_penalty,
    held_resources,
    in_nanos,
    scaled,
    weighted_usage,
)
from shared.model.workload import Admission, PodSetAssignment
from shared.model.world import World
from tests.unit.model.builders import condition, flavor, group, info, local, pod_set, put, queue, reserved, workload

NANO = 10**9
SETTINGS = AfsSettings(half_life_s=600, sampling_s=300)
USAGE_BASED: dict[str, Any] = {"admission_mode": "UsageBasedAdmissionFairSharing"}


# --- arithmetic ----------------------------------------------------------------------------------------------------


def test_alpha() -> None:
    assert alpha(300, 600) == pytest.approx(0.292893, abs=1e-6)
    assert alpha(600, 600) == 0.5
    assert alpha(0, 600) == 0.0
    assert alpha(-5, 600) == 0.0, "a clock that went back ages nothing"
    assert alpha(300, 0) == 0.0


def test_samples_of_the_worked_example() -> None:
    consumed: dict[str, int] = {}
    samples = []
    for _ in range(3):
        consumed = decayed(consumed, {"cpu": 4 * NANO}, 300, 600)
        samples.append(consumed["cpu"] / NANO)
    assert samples == pytest.approx([1.171573, 2.0, 2.585786], abs=1e-6)


def test_penalty_of_the_worked_example() -> None:
    assert entry_penalty({"cpu": 2000}, SETTINGS)["cpu"] / NANO == pytest.approx(0.585786, abs=1e-6)


def test_each_product_is_rounded_down_to_nano_units() -> None:
    assert scaled({"cpu": 3, "memory": 1}, 0.5) == {"cpu": 1}
    assert decayed({"cpu": 3}, {"cpu": 3}, 600, 600) == {"cpu": 2}, "1.5 and 1.5"
    factor = alpha(300, 600)
    assert scaled({"cpu": 10**18}, factor)["cpu"] == int(factor * 2**60) * 10**18 // 2**60


def test_without_a_half_life_there_is_no_history() -> None:
    assert decayed({"cpu": 5 * NANO}, {"cpu": 5 * NANO}, 300, 0) == {}
    assert entry_penalty({"cpu": 5000}, AfsSettings()) == {}


def test_units() -> None:
    assert in_nanos({"cpu": 1500, "memory": 7, "gpu": 2, "none": 0}) == {
        "cpu": 1_500_000_000,
        "memory": 7 * NANO,
        "gpu": 2 * NANO,
    }
    assert added({"a": 1, "b": 2}, {"b": -2, "c": 3}) == {"a": 1, "c": 3}


def test_usage_is_weighted_by_resource_and_queue() -> None:
    settings = AfsSettings(weights={"gpu": 10.0, "memory": 0.0})
    consumed = {"cpu": 2 * NANO, "gpu": NANO, "memory": 5 * NANO}
    assert weighted_usage(consumed, settings, 1.0) == 12.0
    assert weighted_usage(consumed, settings, 4.0) == 3.0
    assert weighted_usage({}, settings, 0.0) == inf
    assert weighted_usage({}, settings, 1.0) == 0.0


def test_a_workload_is_charged_what_its_queue_covers() -> None:
    source = info(
        workload(
            "w", pod_sets=(pod_set("a", 2, requests={"cpu": "1", "x": "1"}), pod_set("b", 3, requests={"cpu": "1"}))
        )
    )
    assert charged_requests(source, {"cpu": 0}) == {"cpu": 5000}
    assert charged_requests(source, {"cpu": 0, "pods": 0}) == {"cpu": 5000, "pods": 5}


def test_what_a_reservation_holds_sums_pod_sets_and_flavors() -> None:
    pods = [
        PodSetAssignment(name=n, count=1, flavors={"cpu": n, "gpu": n}, usage={"cpu": 1000, "gpu": 1})
        for n in ("a", "b")
    ]
    assert held_resources(Admission("cq", tuple(pods))) == {"cpu": 2000, "gpu": 2}


# --- accounts ------------------------------------------------------------------------------------------------------


def test_penalties_count_until_dropped_and_a_repeat_replaces() -> None:
    afs = AdmissionFairSharing(SETTINGS)
    one = entry_penalty({"cpu": 1000}, SETTINGS)["cpu"] / NANO
    afs.penalize("ns/a", "ns/lq", {"cpu": 1000})
    afs.penalize("ns/b", "ns/lq", {"cpu": 1000})
    assert afs.usage("ns/lq") == pytest.approx(2 * one)
    afs.penalize("ns/a", "ns/lq", {"cpu": 3000})
    assert afs.usage("ns/lq") == pytest.approx(4 * one)
    afs.drop("ns/a")
    afs.drop("ns/a")
    assert afs.usage("ns/lq") == pytest.approx(one)
    afs.forget("ns/lq")
    assert afs.usage("ns/lq") == 0.0
    afs.drop("ns/b")
    afs.forget("ns/unknown")


def test_a_record_counts_only_if_it_is_newer() -> None:
    afs = AdmissionFairSharing(SETTINGS)
    afs.take_record("ns/lq", UsageRecord({"cpu": 4 * NANO}, 100))
    afs.take_record("ns/lq", UsageRecord({"cpu": 9 * NANO}, 99))
    afs.take_record("ns/lq", UsageRecord({"cpu": 9 * NANO}, 100))
    assert afs.usage("ns/lq") == 4.0
    afs.take_record("ns/lq", UsageRecord({"cpu": 1 * NANO}, 101))
    assert afs.usage("ns/lq") == 1.0
    afs.set_weight("ns/lq", 2.0)
    assert afs.usage("ns/lq") == 0.5


# --- a World with it -----------------------------------------------------------------------------------------------


def built(*objects: o.Object, settings: AfsSettings = SETTINGS, **fields: Any) -> World:
    made = World(afs=settings)
    made.set_namespace("ns", {})
    made.set_resource_flavor(flavor("default"))
    put(made, queue("cq", group(default="cpu=100"), **(fields or USAGE_BASED)), *objects)
    return made


def consumed_by(made: World, name: str) -> float:
    assert made.afs is not None
    return made.afs.usage(f"ns/{name}")


def past(name: str, cpu: str, at: int = 0, **fields: Any) -> o.LocalQueue:
    return local(name, "cq", consumed={"cpu": cpu}, consumed_at=at, **fields)


def running(source: o.Workload, cpu: int, at: int) -> o.Workload:
    held = reserved(source, "cq", cpu=cpu * 1000)
    return msgspec.structs.replace(held, conditions=(*held.conditions, condition("Admitted", True, "Admitted", at)))


def heads(made: World, count: int) -> list[str]:
    found = [made.pending.pop("cq") for _ in range(count)]
    return [one.key.removeprefix("ns/") for one in found if one is not None]


def admission_of(source: o.Workload) -> Admission:
    held = info(reserved(source, "cq", cpu=1000)).admission
    assert held is not None
    return held


def test_smaller_usage_goes_before_priority_and_age() -> None:
    made = built(
        past("a", "8"),
        past("b", "2"),
        workload("a-first", "a", created=1, priority=100),
        workload("b-second", "b", created=9),
        workload("b-urgent", "b", created=10, priority=1),
    )
    assert heads(made, 3) == ["b-urgent", "b-second", "a-first"]
    assert [item.info.key for item in made.pending.queues["cq"].items()] == ["ns/a-first"]


def test_a_list_of_all_pending_is_in_the_same_order() -> None:
    made = built(
        past("a", "8"), past("b", "2"), workload("a1", "a", created=1, priority=9), workload("b1", "b", created=9)
    )
    assert [item.info.key for item in made.pending.queues["cq"].items()] == ["ns/b1", "ns/a1"]


def test_equal_usage_leaves_the_usual_order() -> None:
    made = built(past("a", "2"), past("b", "2"), workload("a1", "a", created=2), workload("b1", "b", created=1))
    assert heads(made, 2) == ["b1", "a1"]


@pytest.mark.parametrize("mode", ["NoAdmissionFairSharing", ""])
def test_queues_without_the_mode_are_ordered_as_ever(mode: str) -> None:
    made = built(
        past("a", "8"),
        past("b", "2"),
        workload("a1", "a", created=1),
        workload("b1", "b", created=2),
        admission_mode=mode,
    )
    assert heads(made, 2) == ["a1", "b1"]
    assert not made.orders_by_usage("cq")


def test_the_mode_can_be_switched() -> None:
    made = built(past("a", "8"), past("b", "2"), workload("a1", "a", created=1), workload("b1", "b", created=2))
    assert made.orders_by_usage("cq")
    put(made, queue("cq", group(default="cpu=100")))
    assert heads(made, 1) == ["a1"]
    put(made, queue("cq", group(default="cpu=100"), **USAGE_BASED), workload("a0", "a"))
    assert heads(made, 1) == ["b1"]


def test_stickiness_counts_only_among_equal_usage() -> None:
    from shared.model.pending_queue import Preemptor

    made = built(
        past("a", "8"), past("b", "2"), *(workload(n, n[0], created=int(n[1])) for n in ("a1", "a2", "b1", "b2"))
    )
    made.pending.queues["cq"].preemptor = Preemptor("ns/a2", True, 0)
    assert heads(made, 4) == ["b1", "b2", "a2", "a1"]


def test_weight_zero_goes_last_and_a_changed_weight_counts_at_once() -> None:
    made = built(
        past("a", "0", fair_weight="0"), past("b", "9"), workload("a1", "a", created=1), workload("b1", "b", created=2)
    )
    assert [item.info.key for item in made.pending.queues["cq"].items()] == ["ns/b1", "ns/a1"]
    put(made, past("a", "0", fair_weight="1"))
    assert heads(made, 2) == ["a1", "b1"]


def test_a_missing_local_queue_does_not_hinder() -> None:
    made = built(past("a", "8"), workload("a1", "a"))
    made.afs = made.afs or AdmissionFairSharing(SETTINGS)
    made.afs.forget("ns/a")
    assert heads(made, 1) == ["a1"]


def test_each_assumed_admission_moves_its_local_queue_back() -> None:
    made = built(
        past("a", "4"), past("b", "4.1"), *(workload(n, n[0], created=int(n[1])) for n in ("a1", "a2", "b1", "b2"))
    )
    order = []
    while True:
        head = made.pending.pop("cq")
        if head is None:
            break
        made.assume(head.key, admission_of(workload(head.name, head.queue_name)))
        order.append(head.name)
    assert order == ["a1", "b1", "a2", "b2"]


def test_a_rejected_admission_takes_its_penalty_back() -> None:
    source = workload("w", "a")
    made = built(past("a", "4"), source)
    made.assume("ns/w", admission_of(source))
    assert consumed_by(made, "a") > 4.0
    made.assume("ns/w", admission_of(source))
    assert consumed_by(made, "a") == pytest.approx(4.0 + alpha(300, 600)), "told twice, charged once"
    made.settle("ns/w", 1)
    assert consumed_by(made, "a") == 4.0


def gone(made: World, source: o.Workload) -> None:
    made.delete("ns/w")


def finished(made: World, source: o.Workload) -> None:
    put(made, msgspec.structs.replace(source, finished=True))


def moved(made: World, source: o.Workload) -> None:
    put(made, msgspec.structs.replace(source, queue_name="other"))


def deactivated(made: World, source: o.Workload) -> None:
    put(made, msgspec.structs.replace(source, active=False))


@pytest.mark.parametrize("end", [gone, finished, moved, deactivated])
def test_penalties_end_with_their_workload(end: Any) -> None:
    source = workload("w", "a")
    made = built(past("a", "4"), source)
    made.assume("ns/w", admission_of(source))
    end(made, source)
    assert consumed_by(made, "a") == 4.0


def test_a_reservation_that_waits_for_checks_keeps_its_penalty() -> None:
    source = workload("w", "a")
    made = built(past("a", "4"), source)
    made.assume("ns/w", admission_of(source))
    before = consumed_by(made, "a")
    put(made, reserved(source, "cq", cpu=1000))
    made.settle("ns/w", 1)
    assert consumed_by(made, "a") == before


def test_being_admitted_turns_the_penalty_into_consumption() -> None:
    source = workload("w", "a", cpu="2")
    made = built(past("a", "4", at=0), source)
    made.assume("ns/w", admission_of(source))
    put(made, running(source, 2, at=600))
    made.settle("ns/w", 601)
    penalty = 2 * alpha(300, 600)
    assert consumed_by(made, "a") == pytest.approx(4 * 0.5 + 2 * 0.5 + penalty), (
        "decayed with what runs now, then charged"
    )
    assert made.afs is not None
    assert made.afs.next_sample("ns/a") is None, "the status is behind"


def test_who_saw_no_decision_charges_when_the_workload_runs() -> None:
    """The service that writes the status folds objects alone."""
    source = workload("w", "a", cpu="2")
    decider, writer = (built(past("a", "4", at=0), source) for _ in range(2))
    decider.assume("ns/w", admission_of(source))
    for made in (decider, writer):
        put(made, running(source, 2, at=600))
    assert consumed_by(writer, "a") == consumed_by(decider, "a")


def test_what_runs_when_first_seen_is_in_the_record_already() -> None:
    made = built(past("a", "4", at=700), running(workload("w", "a"), 1, at=600))
    assert consumed_by(made, "a") == 4.0
    assert made.afs is not None
    assert made.afs.sampled("ns/a", 1300).consumed == {"cpu": int(2.5 * NANO)}


def test_sampling_changes_nothing_until_the_status_comes_back() -> None:
    made = built(past("a", "4", at=0), running(workload("w", "a"), 4, at=0))
    afs = made.afs
    assert afs is not None
    assert afs.next_sample("ns/a") == 300.0
    record = afs.sampled("ns/a", 600)
    assert record == UsageRecord({"cpu": 4 * NANO}, 600)
    assert afs.next_sample("ns/a") == 300.0
    put(made, past("a", "4", at=600))
    assert afs.next_sample("ns/a") == 900.0


def test_a_queue_never_sampled_is_due_at_once_and_starts_now() -> None:
    made = built(local("a", "cq"), running(workload("w", "a"), 4, at=0))
    assert made.afs is not None
    assert made.afs.next_sample("ns/a") is None
    assert made.afs.next_sample("ns/unknown") is None
    assert made.afs.sampled("ns/a", 50) == UsageRecord({}, 50)


def test_a_clock_behind_the_record_neither_decays_nor_goes_back() -> None:
    made = built(past("a", "4", at=900), running(workload("w", "a"), 4, at=0))
    assert made.afs is not None
    assert made.afs.sampled("ns/a", 600) == UsageRecord({"cpu": 4 * NANO}, 900)


def test_the_written_status_settles_what_was_ahead() -> None:
    source = workload("w", "a", cpu="2")
    made = built(past("a", "4", at=0), source)
    put(made, running(source, 2, at=600))
    afs = made.afs
    assert afs is not None
    record = afs.sampled("ns/a", 600)
    afs.take_record("ns/a", record)
    assert afs.next_sample("ns/a") == 900.0
    assert consumed_by(made, "a") == pytest.approx(record.consumed["cpu"] / NANO)


def test_usage_ends_when_workloads_end() -> None:
    made = built(past("a", "4", at=0), running(workload("w", "a"), 4, at=0))
    made.delete("ns/w")
    assert made.afs is not None
    assert made.afs.sampled("ns/a", 600).consumed == {"cpu": 2 * NANO}


def test_a_deleted_local_queue_loses_its_history_but_not_what_runs() -> None:
    made = built(past("a", "4", at=0), running(workload("w", "a"), 4, at=0))
    made.remove_local_queue("ns/a")
    assert consumed_by(made, "a") == 0.0
    put(made, past("a", "1", at=10))
    assert made.afs is not None
    assert made.afs.sampled("ns/a", 610).consumed == {"cpu": int(2.5 * NANO)}


def test_resources_the_queue_does_not_cover_are_not_charged() -> None:
    source = workload("w", "a", pod_sets=(pod_set(requests={"cpu": "1", "gpu": "1"}),))
    made = built(past("a", "0"), source)
    made.assume("ns/w", admission_of(source))
    assert consumed_by(made, "a") == pytest.approx(alpha(300, 600))


def test_a_decision_folded_before_its_workload_charges_when_that_is_known() -> None:
    source = workload("w", "a")
    made = built(past("a", "4"))
    made.assume("ns/w", admission_of(source))
    assert consumed_by(made, "a") == 4.0
    put(made, source)
    assert consumed_by(made, "a") == pytest.approx(4.0 + alpha(300, 600))


def test_a_workload_that_changes_its_local_queue_changes_its_lane() -> None:
    made = built(past("a", "8"), past("b", "2"), past("c", "5"), workload("w", "a"), workload("x", "c"))
    put(made, workload("w", "b"))
    assert heads(made, 3) == ["w", "x"]
