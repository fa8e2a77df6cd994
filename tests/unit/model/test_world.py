"""World: what each change of an object does to usage, waiting lines and retries."""

from __future__ import annotations

import msgspec
import pytest

from shared.events import objects as o
from shared.model.pending import RequeueReason
from shared.model.workload import Admission, PodSetAssignment
from shared.model.world import World
from tests.unit.model.builders import cohort, condition, flavor, group, info, local, queue, reserved, workload, world

CPU = group(default="cpu=4")


def used(built: World, name: str = "cq") -> int:
    return built.forest.cell(name, built.interned.index("default", "cpu")).usage


def basic(*objects: o.Object) -> World:
    return world(queue("cq", CPU), local("lq", "cq"), *objects)


def park(built: World, name: str) -> None:
    one = built.workloads[f"ns/{name}"]
    built.flush_retries(0)
    queue_name = built.pending.place_of(one.key)
    assert queue_name is not None
    assert built.pending.pop_key(queue_name, one.key) == one
    built.pending.requeue(one, RequeueReason.NO_FIT, 0)
    assert one.key in built.pending.queues[queue_name].inadmissible


def waits(built: World, name: str, queue_name: str = "cq") -> bool:
    return f"ns/{name}" in built.pending.queues[queue_name].heap


ADMISSION = Admission("cq", (PodSetAssignment(name="main", count=1, flavors={"cpu": "default"}, usage={"cpu": 1000}),))


def test_a_reserved_workload_counts_and_does_not_wait() -> None:
    built = basic(reserved(workload("a"), "cq", cpu=1000))
    assert used(built) == 1000
    assert built.pending.pending_count("cq") == 0
    assert list(built.members["cq"]) == ["ns/a"]


def test_admission_without_a_true_condition_does_not_count() -> None:
    one = reserved(workload("a"), "cq", cpu=1000)
    built = basic(msgspec.structs.replace(one, conditions=(condition("QuotaReserved", False, "PendingEvaluation"),)))
    assert used(built) == 0
    assert waits(built, "a")


@pytest.mark.parametrize("how", ["delete", "finish", "release"])
def test_freed_quota_wakes_the_whole_tree(how: str) -> None:
    built = world(
        queue("cq", CPU, cohort="pool"),
        queue("other", CPU, cohort="pool"),
        local("lq", "cq"),
        local("second", "other"),
        workload("parked", "second"),
        reserved(workload("a"), "cq", cpu=1000),
    )
    park(built, "parked")
    if how == "delete":
        built.delete("ns/a")
    elif how == "finish":
        built.upsert(info(msgspec.structs.replace(reserved(workload("a"), "cq", cpu=1000), finished=True)), 0)
    else:
        built.upsert(info(workload("a")), 0)
    assert used(built) == 0
    assert built.flush_retries(0) == 1
    assert waits(built, "parked", "other")
    assert waits(built, "a") is (how == "release")


def test_a_smaller_reservation_frees_the_difference() -> None:
    built = basic(reserved(workload("a"), "cq", cpu=3000), workload("parked"))
    park(built, "parked")
    built.upsert(info(reserved(workload("a"), "cq", cpu=1000)), 0)
    assert used(built) == 1000
    assert built.flush_retries(0) == 1


def test_an_unchanged_reservation_wakes_nobody() -> None:
    built = basic(reserved(workload("a"), "cq", cpu=3000), workload("parked"))
    park(built, "parked")
    built.upsert(info(reserved(workload("a", generation=4), "cq", cpu=3000)), 0)
    assert built.flush_retries(0) == 0


def test_an_assumption_counts_until_it_is_settled() -> None:
    built = basic(workload("a"))
    built.assume("ns/a", ADMISSION)
    assert (used(built), built.pending.pending_count("cq")) == (1000, 0)
    built.upsert(info(workload("a", generation=2)), 0)
    assert (used(built), built.pending.pending_count("cq")) == (1000, 0)
    built.upsert(info(reserved(workload("a"), "cq", cpu=1000)), 0)
    built.settle("ns/a", 0)
    assert (used(built), built.assumed) == (1000, {})
    built.settle("ns/a", 0)
    assert used(built) == 1000


def test_a_rejected_assumption_returns_quota_and_workload() -> None:
    built = basic(workload("a"), workload("parked"))
    park(built, "parked")
    built.assume("ns/a", ADMISSION)
    built.settle("ns/a", 0)
    assert used(built) == 0
    # The twin's shape was hopeless; the freed quota clears that.
    assert built.flush_retries(0) >= 1
    assert waits(built, "a")
    assert waits(built, "parked")


def test_an_assumption_may_come_before_its_object_and_die_with_it() -> None:
    built = basic()
    built.assume("ns/a", ADMISSION)
    assert used(built) == 1000
    built.upsert(info(workload("a")), 0)
    assert not waits(built, "a")
    built.delete("ns/a")
    assert (used(built), built.assumed) == (0, {})
    built.assume("ns/b", ADMISSION)
    built.settle("ns/b", 0)
    assert used(built) == 0


def test_a_new_object_of_the_same_name_is_another_workload() -> None:
    built = basic(workload("a"))
    built.assume("ns/a", ADMISSION)
    built.upsert(info(workload("a", uid="second")), 0)
    assert used(built) == 0
    assert waits(built, "a")


def test_usage_of_a_queue_that_comes_later() -> None:
    built = world(reserved(workload("a"), "cq", cpu=1000), local("lq", "cq"), workload("b"))
    built.set_cluster_queue(queue("cq", CPU))
    assert used(built) == 1000
    assert waits(built, "b")
    built.remove_cluster_queue("cq")
    built.remove_cluster_queue("cq")
    assert built.activity("cq").reason == "NotFound"
    built.set_cluster_queue(queue("cq", CPU))
    assert used(built) == 1000
    assert waits(built, "b")


def test_stopping_a_local_queue_empties_its_line_and_opening_fills_it() -> None:
    built = basic(workload("a", requeue_at=99))
    built.set_local_queue(local("lq", "cq", stop_policy="Hold"))
    assert built.pending.pending_count("cq") == 0
    built.set_local_queue(local("lq", "cq"))
    assert waits(built, "a")
    built.remove_local_queue("ns/lq")
    assert built.pending.pending_count("cq") == 0


def test_stopping_a_cluster_queue_keeps_the_line_but_takes_no_heads() -> None:
    built = basic(workload("a"))
    built.set_cluster_queue(queue("cq", CPU, stop_policy="Hold"))
    assert built.pending.pending_count("cq") == 1
    assert built.pending.ready() == []
    built.set_cluster_queue(queue("cq", CPU))
    assert built.pending.ready() == ["cq"]


@pytest.mark.parametrize(
    "change",
    [
        queue("cq", group(default="cpu=8")),
        flavor("default", node_labels={"a": "b"}),
        cohort("pool", "", group(default="cpu=9")),
        o.Namespace(name="ns", version=2, labels={"team": "a"}),
    ],
)
def test_changes_that_could_help_wake_parked_workloads(change: o.Object) -> None:
    selector = o.Selector({"team": "a"}) if isinstance(change, o.Namespace) else o.Selector()
    built = world(queue("cq", CPU, cohort="pool", namespace_selector=selector), local("lq", "cq"), workload("parked"))
    park(built, "parked")
    match change:
        case o.ClusterQueue():
            built.set_cluster_queue(change)
        case o.ResourceFlavor():
            built.set_resource_flavor(change)
        case o.Cohort():
            built.set_cohort(change)
        case o.Namespace():
            built.set_namespace(change.name, change.labels)
    assert built.flush_retries(0) == 1


def test_repeated_objects_change_nothing() -> None:
    built = world(queue("cq", CPU, cohort="pool"), cohort("pool"), local("lq", "cq"), workload("parked"))
    park(built, "parked")
    for _ in range(2):
        built.set_cluster_queue(queue("cq", CPU, cohort="pool"))
        built.set_cohort(cohort("pool"))
        built.set_resource_flavor(flavor("default"))
        built.set_namespace("ns", {})
    assert built.flush_retries(0) == 0


def test_a_tree_with_a_cycle_is_not_retried_until_it_is_fixed() -> None:
    built = world(queue("cq", CPU, cohort="one"), local("lq", "cq"), workload("parked"), cohort("one", "two"))
    park(built, "parked")
    built.set_cohort(cohort("two", "one"))
    built.request_retry("cq")
    assert built.flush_retries(0) == 0
    assert not built.in_snapshot("cq")
    built.remove_cohort("two")
    built.request_retry("cq")
    assert built.flush_retries(0) == 1
    assert built.in_snapshot("cq")
    built.remove_cohort("two")


def test_namespaces_that_do_not_exist_match_nothing() -> None:
    built = world(queue("cq", CPU), queue("none", CPU, namespace_selector=None))
    assert built.namespace_matches("cq", "ns")
    assert not built.namespace_matches("none", "ns")
    assert not built.namespace_matches("cq", "ghost")
    built.remove_namespace("ns")
    assert not built.namespace_matches("cq", "ns")
    odd = queue("odd", CPU, namespace_selector=o.Selector({}, (o.Requirement("a", "Odd"),)))
    built.set_namespace("ns", {})
    built.set_cluster_queue(odd)
    assert not built.namespace_matches("odd", "ns")


def test_an_answer_about_a_namespace_is_kept_no_longer_than_it_is_true() -> None:
    picky = queue("picky", CPU, namespace_selector=o.Selector({"team": "a"}))
    built = world(queue("cq", CPU), picky)
    asked = [("cq", "ns"), ("picky", "ns"), ("picky", "new")]

    def answers() -> list[bool]:
        return [built.namespace_matches(*pair) for pair in asked]

    assert answers() == [True, False, False]
    built.set_namespace("ns", {"team": "a"})
    built.set_namespace("new", {"team": "a"})
    assert answers() == [True, True, True]
    built.set_cluster_queue(queue("picky", CPU, namespace_selector=o.Selector({"team": "b"})))
    assert answers() == [True, False, False]
    built.set_namespace("new", {"team": "b"})
    assert answers() == [True, False, True]
    built.remove_cluster_queue("cq")
    built.remove_namespace("new")
    assert answers() == [False, False, False]


def test_a_changed_priority_of_a_running_workload_is_a_reason_to_look_again() -> None:
    built = basic(reserved(workload("a"), "cq", cpu=1000), workload("parked"))
    park(built, "parked")
    built.upsert(info(reserved(workload("a", priority=4), "cq", cpu=1000)), 0)
    assert built.flush_retries(0) == 1
