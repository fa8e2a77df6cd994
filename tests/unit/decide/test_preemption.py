"""The classical search for victims: candidate sets, variants, attempts, fill-back, the oracle."""

from __future__ import annotations

from typing import Any

import pytest

from shared.decide.assignment import Grade, GranularMode
from shared.decide.preemption import PreemptionOracle
from shared.events import objects as o
from shared.model.world import World
from tests.unit.decide.preemption_worlds import ask, holder, targets
from tests.unit.model.builders import cohort, flavor, group, info, queue, workload, world

OWN = "InClusterQueue"
RECLAIM = "InCohortReclamation"
BORROW = "InCohortReclaimWhileBorrowing"


def one_queue(*held: o.Workload, policy: str = "LowerPriority", nominal: int = 6) -> World:
    return world(queue("q", group(default=f"cpu={nominal}"), within_cluster_queue=policy), *held)


# --- within the own ClusterQueue -------------------------------------------------------------------------------------


def test_lowest_priority_goes_first_and_only_as_many_as_needed() -> None:
    built = one_queue(holder("low", "q", 2, -1), holder("mid", "q", 2), holder("high", "q", 2, 1))
    assert ask(built, "q", 2, 1) == [("low", OWN)]
    assert ask(built, "q", 3, 1) == [("low", OWN), ("mid", OWN)]
    assert ask(built, "q", 5, 1) == []
    assert ask(built, "q", 6, 2) == [("low", OWN), ("mid", OWN), ("high", OWN)]


@pytest.mark.parametrize(
    ("policy", "priority", "created", "expected"),
    [
        ("Never", 9, 0, []),
        ("LowerPriority", 1, 0, []),
        ("LowerPriority", 2, 0, [("held", OWN)]),
        ("LowerOrNewerEqualPriority", 1, 5, []),
        ("LowerOrNewerEqualPriority", 1, 4, [("held", OWN)]),
        ("LowerOrNewerEqualPriority", 2, 9, [("held", OWN)]),
        ("LowerOrNewerEqualPriority", 0, 0, []),
    ],
)
def test_policy_within_the_queue(policy: str, priority: int, created: int, expected: list[Any]) -> None:
    built = one_queue(holder("held", "q", 6, 1, created=5), policy=policy)
    assert ask(built, "q", 2, priority, created=created) == expected


def test_newest_reservation_then_uid_decides_between_equals() -> None:
    held = [holder("old", "q", 2, at=1), holder("b", "q", 2, at=5, uid="u2"), holder("a", "q", 2, at=5, uid="u1")]
    assert ask(one_queue(*held), "q", 2, 1) == [("a", OWN)]
    assert ask(one_queue(*held[:2]), "q", 4, 1) == [("b", OWN)]


def test_who_is_on_the_way_out_goes_first_whatever_its_priority() -> None:
    built = one_queue(holder("low", "q", 3, -1), holder("leaving", "q", 3, 1, evicted=True))
    assert ask(built, "q", 3, 2) == [("leaving", OWN)]
    built.assume_preempted("ns/low", "ns/x")
    assert ask(built, "q", 3, 2) == [("low", OWN)]


def test_a_workload_that_uses_nothing_that_is_needed_stays() -> None:
    built = world(
        flavor("other"),
        queue("q", group(default="cpu=4", other="cpu=4"), within_cluster_queue="LowerPriority"),
        holder("elsewhere", "q", 4, flavor="other"),
        holder("here", "q", 4, 1),
    )
    assert ask(built, "q", 2, 2) == [("here", OWN)]


def test_excluded_workloads_are_no_candidates() -> None:
    built = one_queue(holder("low", "q", 2, -1), holder("mid", "q", 4))
    built.forest.remove_usage("q", built.charges["ns/low"].vector)
    assert [one.key for one in targets(built, "q", 4, 1, excluded={"ns/low"})] == ["ns/mid"]


def test_fill_back_keeps_those_that_need_not_go() -> None:
    """All four go in order before there is room; then small ones turn out to be unnecessary."""
    built = one_queue(
        holder("s1", "q", 1, -4), holder("s2", "q", 1, -3), holder("s3", "q", 1, -2), holder("big", "q", 3, -1)
    )
    assert ask(built, "q", 3) == [("s1", OWN), ("s2", OWN), ("s3", OWN)]
    assert ask(built, "q", 4) == [("s1", OWN), ("big", OWN)]
    assert ask(built, "q", 5) == [("s1", OWN), ("s2", OWN), ("big", OWN)]


def test_fill_back_puts_the_last_victim_where_one_was_kept() -> None:
    built = one_queue(holder("one", "q", 1, -3), holder("two", "q", 2, -2), holder("three", "q", 3, -1))
    assert ask(built, "q", 5) == [("three", OWN), ("two", OWN)]


# --- the worked example of the specification -------------------------------------------------------------------------


def worked_example() -> World:
    return world(
        queue(
            "A", group(default="cpu=4"), cohort="c", within_cluster_queue="LowerPriority", reclaim_within_cohort="Any"
        ),
        queue("B", group(default="cpu=4"), cohort="c"),
        holder("b1", "B", 3, at=1),
        holder("b2", "B", 3, at=2),
        holder("a1", "A", 2, at=1),
    )


def test_worked_example_takes_back_what_was_lent() -> None:
    assert ask(worked_example(), "A", 2, 1) == [("b2", RECLAIM)]


def test_worked_example_stops_at_the_lender_s_quota() -> None:
    assert ask(worked_example(), "A", 3, 1) == [("b2", RECLAIM), ("a1", OWN)]


def test_the_oracle_of_the_worked_example() -> None:
    built = worked_example()
    index = built.interned.index("default", "cpu")
    oracle = PreemptionOracle(built, info(workload("P", priority=1)), built.cluster_queues["A"])
    assert oracle.simulate(index, 2000, 7) == Grade(GranularMode.RECLAIM, 0)
    assert oracle.simulate(index, 3000, 7) == Grade(GranularMode.PREEMPT, 0)
    assert oracle.simulate(index, 9000, 7) == Grade(GranularMode.NO_PREEMPTION_CANDIDATES, 7)


def test_the_oracle_tells_the_level_after_the_removal() -> None:
    built = world(
        queue("A", group(default="cpu=2"), cohort="c", within_cluster_queue="LowerPriority"),
        queue("B", group(default="cpu=4"), cohort="c"),
        holder("a1", "A", 6),
    )
    index = built.interned.index("default", "cpu")
    oracle = PreemptionOracle(built, info(workload("P", priority=1)), built.cluster_queues["A"])
    assert oracle.simulate(index, 2000, 9) == Grade(GranularMode.PREEMPT, 0)
    assert oracle.simulate(index, 3000, 9) == Grade(GranularMode.PREEMPT, 1)


# --- other ClusterQueues of the cohort -------------------------------------------------------------------------------


def pair(reclaim: str = "Any", *held: o.Workload, **policy: Any) -> World:
    return world(
        queue("A", group(default="cpu=4"), cohort="c", reclaim_within_cohort=reclaim, **policy),
        queue("B", group(default="cpu=4"), cohort="c"),
        *held,
    )


@pytest.mark.parametrize(
    ("reclaim", "priority", "expected"),
    [
        ("Never", 9, []),
        ("LowerPriority", 0, []),
        ("LowerPriority", 1, [("b2", RECLAIM)]),
        ("Any", -9, [("b2", RECLAIM)]),
    ],
)
def test_policy_within_the_cohort(reclaim: str, priority: int, expected: list[Any]) -> None:
    built = pair(reclaim, holder("b1", "B", 4, at=1), holder("b2", "B", 4, at=2))
    assert ask(built, "A", 4, priority) == expected


def test_a_queue_within_its_quota_loses_nothing() -> None:
    built = pair("Any", holder("b1", "B", 4), holder("a1", "A", 4))
    assert ask(built, "A", 4, 9) == []


def test_workloads_of_an_inactive_queue_are_no_candidates() -> None:
    built = world(
        queue("A", group(default="cpu=4"), cohort="c", reclaim_within_cohort="Any"),
        queue("B", group(default="cpu=4"), cohort="c", stop_policy="Hold"),
        holder("b1", "B", 4, at=1),
        holder("b2", "B", 4, at=2),
    )
    assert ask(built, "A", 4, 9) == []


@pytest.mark.parametrize(
    ("borrow", "threshold", "victim_priority", "expected"),
    [
        ("Never", None, 0, []),
        ("LowerPriority", None, 0, [("b1", BORROW)]),
        ("LowerPriority", None, 5, []),
        ("LowerPriority", 0, 0, [("b1", BORROW)]),
        ("LowerPriority", 0, 1, []),
        ("LowerPriority", 3, 1, [("b1", BORROW)]),
    ],
)
def test_preempting_while_borrowing(
    borrow: str, threshold: int | None, victim_priority: int, expected: list[Any]
) -> None:
    """A asks 2 beyond its nominal 4; B uses 6 of its 4."""
    built = world(
        queue(
            "A",
            group(default="cpu=4"),
            cohort="c",
            reclaim_within_cohort="Any",
            borrow_within_cohort=borrow,
            borrow_max_priority=threshold,
        ),
        queue("B", group(default="cpu=4"), cohort="c"),
        queue("C", group(default="cpu=2"), cohort="c"),
        holder("b1", "B", 6, victim_priority),
        holder("a1", "A", 4, 9),
    )
    assert ask(built, "A", 2, 5) == expected


def test_own_victims_are_only_taken_after_those_of_others() -> None:
    built = pair(
        "Any",
        holder("b1", "B", 5, 3),
        holder("a1", "A", 3, -9),
        within_cluster_queue="LowerPriority",
    )
    assert ask(built, "A", 1, 5) == [("b1", RECLAIM)]


# --- trees -----------------------------------------------------------------------------------------------------------


def tree(*held: o.Workload, **policy: Any) -> World:
    """root > left (quota 4) > A, A2; root > right > B. A, A2 and B have no own quota; B has 4 to lend."""
    policy.setdefault("reclaim_within_cohort", "Any")
    return world(
        cohort("root"),
        cohort("left", "root", group(default="cpu=4")),
        cohort("right", "root"),
        queue("A", group(default="cpu=0"), cohort="left", **policy),
        queue("A2", group(default="cpu=0"), cohort="left"),
        queue("B", group(default="cpu=4"), cohort="right"),
        *held,
    )


def test_a_cohort_takes_back_what_it_lent_even_if_the_queue_itself_has_nothing() -> None:
    built = tree(holder("b1", "B", 8))
    assert ask(built, "A", 3) == [("b1", RECLAIM)]


def test_nothing_is_taken_from_outside_beyond_the_cohort_s_quota() -> None:
    """A's side has used its 4, so outsiders that borrow elsewhere are only preempted while A does not borrow: never."""
    built = tree(holder("a1", "A", 4), holder("b1", "B", 4))
    assert ask(built, "A", 1) == []


def test_neighbours_below_the_same_cohort_come_without_advantage() -> None:
    built = tree(holder("n1", "A2", 4), holder("b1", "B", 4), borrow_within_cohort="LowerPriority")
    assert ask(built, "A", 2, 1) == [("n1", BORROW)]
    assert ask(built, "A", 2, 0) == []


def test_a_subtree_within_its_quota_is_not_entered() -> None:
    """In `right`, B borrows from its neighbour, but the cohort as a whole does not borrow."""
    built = world(
        cohort("root", "", group(default="cpu=2")),
        cohort("right", "root"),
        queue("A", group(default="cpu=4"), cohort="root", reclaim_within_cohort="Any"),
        queue("B", group(default="cpu=0"), cohort="right"),
        queue("B2", group(default="cpu=4"), cohort="right"),
        holder("b1", "B", 4),
        holder("a1", "A", 6),
    )
    assert ask(built, "A", 1) == []


def test_a_queue_is_left_alone_once_its_cohort_is_within_quota() -> None:
    """Both queues of `right` exceed their own quota of 0; after one victim the cohort is back within its 4."""
    built = world(
        cohort("root"),
        cohort("right", "root", group(default="cpu=4")),
        queue("A", group(default="cpu=6"), cohort="root", reclaim_within_cohort="Any"),
        queue("B", group(default="cpu=0"), cohort="right"),
        queue("B2", group(default="cpu=0"), cohort="right"),
        holder("b1", "B", 4, at=2),
        holder("b2", "B2", 4, at=1),
        holder("a1", "A", 2),
    )
    assert ask(built, "A", 4) == [("b1", RECLAIM)]
    assert ask(built, "A", 5) == []


def test_a_cycle_of_cohorts_preempts_nobody_across_queues() -> None:
    built = world(
        cohort("one", "two"),
        cohort("two", "one"),
        queue("A", group(default="cpu=4"), cohort="one", reclaim_within_cohort="Any"),
        queue("B", group(default="cpu=4"), cohort="two"),
        holder("b1", "B", 8),
        holder("a1", "A", 4),
    )
    assert ask(built, "A", 2, 9) == []
