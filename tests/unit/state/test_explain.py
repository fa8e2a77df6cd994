"""The explanation of every head that a batch did not admit: what was asked, free, to be borrowed or preempted, and what stopped it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.decide.cycle import CycleSettings, run_batch, run_cycle
from shared.decide.reasons import message
from shared.decide.settings import DEFAULT_SETTINGS
from shared.events import objects as o
from shared.events.commands import FlavorObstacle, PendingExplanation, ReportPending, codec
from shared.model.refusal import FlavorReason, PendingReason, PodSetRefusal, Refusal, Stop
from shared.state import explain
from tests.unit.model.builders import (
    condition,
    flavor,
    group,
    local,
    pod_set,
    queue,
    reserved,
    workload,
    world,
)


def explained(key: str, *objects: o.Object, settings: CycleSettings = DEFAULT_SETTINGS) -> PendingExplanation:
    built = world(*objects)
    batch = run_batch(built, 100, settings=settings)
    entry = next(entry for entry in batch.refused if entry.key == f"ns/{key}")
    assert entry.message == message(entry.refusal)
    return explain.of(entry.refusal)


def one_queue(nominal: str, *workloads: o.Workload, **fields: Any) -> tuple[o.Object, ...]:
    return queue("cq", group(default=f"cpu={nominal}"), **fields), local("lq", "cq"), *workloads


def test_more_than_the_queue_could_ever_have() -> None:
    found = explained("a", *one_queue("2", reserved(workload("old"), "cq", cpu=500), workload("a", cpu="3")))
    assert found == PendingExplanation(
        stopped_by="never_fits",
        flavors=(
            FlavorObstacle(
                pod_set="main",
                flavor="default",
                resource="cpu",
                code="over_max_capacity",
                requested=3000,
                free=1500,
                missing=1500,
                maximum=2000,
            ),
        ),
    )


def test_nobody_can_be_preempted() -> None:
    found = explained("a", *one_queue("2", reserved(workload("old"), "cq", cpu=1500), workload("a", cpu="1")))
    assert found.stopped_by == "no_candidates"
    (one,) = found.flavors
    assert (one.code, one.requested, one.free, one.borrowable, one.missing) == (
        "short_of_unused_quota",
        1000,
        500,
        0,
        500,
    )
    assert (one.preemption, one.preemptable) == ("no_candidates", 0)


def test_what_preemption_gives_is_told_while_it_is_under_way() -> None:
    old = reserved(workload("old", priority=1), "cq", cpu=1500)
    found = explained("a", *one_queue("2", old, workload("a", priority=9), within_cluster_queue="LowerPriority"))
    assert (found.stopped_by, found.count) == ("preempting", 1)
    (one,) = found.flavors
    assert (one.missing, one.preemptable, one.preemption) == (500, 500, "within_cluster_queue")


def pool(borrow: str = "", **fields: Any) -> tuple[o.Object, ...]:
    limit = f",borrow={borrow}" if borrow else ""
    return (
        queue("A", group(default=f"cpu=2{limit}"), cohort="pool", **fields),
        queue("B", group(default="cpu=6"), cohort="pool"),
        local("a", "A"),
        local("b", "B"),
    )


def test_what_is_lent_to_others_can_be_reclaimed() -> None:
    guest = reserved(workload("guest", "b"), "B", cpu=7500)
    found = explained("x", *pool(reclaim_within_cohort="Any"), guest, workload("x", "a", cpu="1"))
    (one,) = found.flavors
    assert (one.free, one.borrowable, one.missing) == (500, 0, 500)
    assert (one.preemption, one.preemptable) == ("reclaim", 500)
    assert one.maximum == 8000


def test_what_could_be_borrowed_is_a_part_of_what_is_free() -> None:
    own = reserved(workload("own", "a"), "A", cpu=1500)
    other = reserved(workload("other", "b"), "B", cpu=3000)
    found = explained("x", *pool(), own, other, workload("x", "a", cpu="4"))
    (one,) = found.flavors
    assert (found.stopped_by, one.free, one.borrowable, one.missing) == ("no_quota", 3500, 3000, 500)
    assert (one.preemption, one.preemptable, one.limit) == ("", 0, "")


def test_the_limit_for_borrowing_is_named() -> None:
    own = reserved(workload("own", "a"), "A", cpu=2500)
    short = explained("x", *pool("1"), own, workload("x", "a", cpu="1"))
    assert [(one.free, one.borrowable, one.limit) for one in short.flavors] == [(500, 500, "borrowing_limit")]
    never = explained("x", *pool("1"), workload("x", "a", cpu="4"))
    assert [(one.code, one.maximum, one.limit) for one in never.flavors] == [
        ("over_max_capacity", 3000, "borrowing_limit")
    ]
    free = explained("x", *pool("9"), workload("x", "a", cpu="9"))
    assert [(one.maximum, one.limit) for one in free.flavors] == [(8000, "")]


def test_each_flavor_and_resource_is_told_apart() -> None:
    tainted = flavor("spot", node_taints=(o.Taint("spot", "yes", "NoSchedule"),))
    zoned = flavor("zoned", node_labels={"zone": "a"})
    both = pod_set(requests={"cpu": "3", "memory": "1Gi"}, node_selector={"zone": "b"})
    found = explained(
        "a",
        tainted,
        zoned,
        queue(
            "cq",
            group(
                spot=("cpu=9", "memory=9Gi"),
                zoned=("cpu=9", "memory=9Gi"),
                default=("cpu=2", "memory=9Gi"),
            ),
        ),
        local("lq", "cq"),
        workload("a", pod_sets=(pod_set("first", requests={"cpu": "1"}), both)),
    )
    assert found.stopped_by == "never_fits"
    assert [(one.pod_set, one.flavor, one.resource, one.code, one.detail) for one in found.flavors] == [
        ("main", "spot", "", "untolerated_taint", "spot=yes:NoSchedule"),
        ("main", "zoned", "", "affinity_mismatch", ""),
        ("main", "default", "cpu", "over_max_capacity", ""),
    ]


def test_earlier_pod_sets_of_the_same_workload_count() -> None:
    pods = (pod_set("one", requests={"cpu": "1500m"}), pod_set("two", requests={"cpu": "1"}))
    found = explained("a", *one_queue("2", workload("a", pod_sets=pods)))
    assert [(one.pod_set, one.earlier, one.requested, one.missing) for one in found.flavors] == [
        ("two", 1500, 1000, 500)
    ]


def test_a_resource_without_a_group() -> None:
    found = explained("a", *one_queue("2", workload("a", pod_sets=(pod_set(requests={"gpu": "1"}),))))
    assert found.stopped_by == "no_matching_flavor"
    assert [(one.code, one.resource) for one in found.flavors] == [("resource_not_in_cluster_queue", "gpu")]


def test_gates_checks_namespaces_and_refused_requests_stop_the_workload_as_a_whole() -> None:
    old = reserved(workload("old", priority=1), "cq", cpu=2000)
    gated = workload("a", priority=9, preemption_gates=(o.PreemptionGate("g"),))
    found = explained(
        "a",
        *one_queue("2", old, gated, within_cluster_queue="LowerPriority"),
        settings=CycleSettings(preemption_gates=True),
    )
    assert found.stopped_by == "preemption_gated"
    failed = workload("a", checks=(o.CheckState(name="c", state="Retry"),))
    assert explained("a", *one_queue("2", failed)) == PendingExplanation(stopped_by="checks_not_passed", names=("c",))
    elsewhere = explained("a", *one_queue("2", workload("a"), namespace_selector=o.Selector({"team": "x"})))
    assert (elsewhere.stopped_by, elsewhere.names) == ("namespace_mismatch", ("ns", "cq"))
    above = pod_set(requests={"cpu": "2"}, limits={"cpu": "1"})
    refused = explained("a", *one_queue("2", workload("a", pod_sets=(above,))))
    assert refused.stopped_by == "requests_refused"
    assert refused.detail


def test_pods_that_are_not_ready_hold_others_back() -> None:
    running = reserved(workload("old", conditions=(condition("Admitted", True),)), "cq", cpu=1000)
    found = explained("a", *one_queue("9", running, workload("a")), settings=CycleSettings(block_admission=True))
    assert found == PendingExplanation(stopped_by="pods_not_ready")


def test_losing_to_others_of_the_cycle() -> None:
    borrower = workload("p", "a", cpu="6", created=1)
    owner = workload("q", "b", cpu="6", created=2)
    outcome = run_cycle(world(*pool(), borrower, owner), 100)
    assert [admit.key for admit in outcome.admits] == ["ns/q"]
    assert [(entry.key, explain.of(entry.refusal)) for entry in outcome.refused] == [
        ("ns/p", PendingExplanation(stopped_by="quota_taken"))
    ]


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (PendingReason.EXCEEDS_MAX_QUOTA, "never_fits"),
        (PendingReason.NO_MATCHING_FLAVOR, "no_matching_flavor"),
        (PendingReason.TOPOLOGY_PLACEMENT_FAILED, "no_placement"),
        (PendingReason.WAITING_FOR_QUOTA, "no_quota"),
    ],
)
def test_without_a_fact_about_the_whole_the_reason_tells(reason: str, code: str) -> None:
    assert explain.of(Refusal(reason)) == PendingExplanation(stopped_by=code)
    assert explain.of(Refusal(reason, stop=Stop("no_candidates"))).stopped_by == "no_candidates"


def test_the_error_of_a_pod_set() -> None:
    refusal = Refusal("NoMatchingFlavor", (PodSetRefusal("main", (), "several_topology_flavors_assigned", ("a", "b")),))
    assert explain.of(refusal).flavors == (
        FlavorObstacle(pod_set="main", code="several_topology_flavors_assigned", detail="a, b"),
    )


@given(nominal=st.integers(1, 50), used=st.integers(0, 50), asked=st.integers(1, 50))
def test_what_is_missing_is_exactly_what_would_help(nominal: int, used: int, asked: int) -> None:
    def look(quota: int) -> dict[str, PendingExplanation]:
        old = reserved(workload("old"), "cq", cpu=used * 1000)
        batch = run_batch(world(*one_queue(str(quota), old, workload("a", cpu=str(asked)))), 100)
        return {entry.key: explain.of(entry.refusal) for entry in batch.refused}

    found = look(nominal).get("ns/a")
    if found is None:
        assert used + asked <= nominal
        return
    (one,) = found.flavors
    assert (one.requested, one.free) == (asked * 1000, max(0, nominal - used) * 1000)
    assert one.free + one.missing == one.requested
    if used <= nominal:
        assert look(nominal + one.missing // 1000) == {}
        if one.missing > 1000:
            assert look(nominal + one.missing // 1000 - 1) != {}


AMOUNTS = st.integers(0, 1 << 40)


@given(
    assumed=AMOUNTS,
    requested=AMOUNTS,
    free=AMOUNTS,
    nominal=AMOUNTS,
    used=AMOUNTS,
    preemption=st.sampled_from(["", "no_candidates", "within_cluster_queue", "reclaim"]),
)
def test_amounts_agree_with_each_other_and_survive_the_bus(
    assumed: int, requested: int, free: int, nominal: int, used: int, preemption: str
) -> None:
    reason = FlavorReason(
        "short_of_unused_quota",
        "f",
        "cpu",
        assumed=assumed,
        requested=requested,
        missing=max(0, assumed + requested - free),
        free=free,
        nominal=nominal,
        used=used,
        preemption=preemption,
    )
    found = explain.of(Refusal("WaitingForQuota", (PodSetRefusal("main", (reason,)),)))
    (one,) = found.flavors
    assert one.earlier + one.requested <= one.free + one.missing
    assert 0 <= one.borrowable <= one.free
    assert one.preemptable in (0, one.missing)
    command = ReportPending(id="1", kind="workload", namespace="ns", name="a", reason="r", message="m", why=found)
    assert codec.decode(codec.encode(command)) == command
    without = msgspec.structs.replace(command, why=None)
    assert b"why" not in codec.encode(without)
