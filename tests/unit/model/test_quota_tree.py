"""The quota forest: the worked example of the quota model, trials, structure changes, cycles."""

from __future__ import annotations

import pytest

from shared.model.amounts import UNLIMITED
from shared.model.quota_cells import Quota
from shared.model.quota_tree import QuotaForest

FR = 0


def example() -> QuotaForest:
    """Tree `org` (10) with `teamA` (0, lends at most 12) holding a1, a2, and with b1."""
    forest = QuotaForest()
    forest.set_cluster_queue("a1", "teamA", {FR: Quota(20, borrowing_limit=10, lending_limit=5)})
    forest.set_cluster_queue("a2", "teamA", {FR: Quota(10)})
    forest.set_cluster_queue("b1", "org", {FR: Quota(8)})
    forest.set_cohort("teamA", "org", {FR: Quota(0, lending_limit=12)})
    forest.set_cohort("org", None, {FR: Quota(10)})
    forest.add_usage("a1", {FR: 18})
    forest.add_usage("a2", {FR: 12})
    forest.add_usage("b1", {FR: 4})
    return forest


@pytest.mark.parametrize(
    ("queue", "subtree", "local", "local_available", "available", "potential"),
    [("a1", 20, 15, 0, 12, 30), ("a2", 10, 0, 0, 14, 33), ("b1", 8, 0, 0, 14, 30)],
)
def test_worked_example_of_queues(
    queue: str, subtree: int, local: int, local_available: int, available: int, potential: int
) -> None:
    cell = example().cell(queue, FR)
    assert (cell.subtree, cell.local, cell.local_available()) == (subtree, local, local_available)
    assert (cell.available(), cell.potential) == (available, potential)


def test_worked_example_of_cohorts() -> None:
    forest = example()
    team, org = forest.cohort_cell("teamA", FR), forest.cohort_cell("org", FR)
    assert (team.usage, team.local, team.subtree, team.raw_available(), team.potential) == (15, 3, 15, 14, 33)
    assert (org.usage, org.subtree, org.raw_available(), org.potential) == (16, 30, 14, 30)
    assert [forest.cohort_node(name).height for name in ("teamA", "org")] == [1, 2]


@pytest.mark.parametrize(
    ("queue", "amount", "level", "may_reclaim"),
    [("a1", 2, 0, True), ("a1", 3, 2, False), ("a2", 5, 2, False), ("b1", 4, 0, True), ("b1", 6, 2, False)],
)
def test_level_at_which_a_request_is_satisfied(queue: str, amount: int, level: int, may_reclaim: bool) -> None:
    assert example().find_height(queue, FR, amount) == (level, may_reclaim)


def test_a_middle_cohort_with_room_may_reclaim() -> None:
    forest = QuotaForest()
    forest.set_cohort("top", None, {FR: Quota(5)})
    forest.set_cohort("mid", "top", {FR: Quota(10)})
    forest.set_cluster_queue("q", "mid", {FR: Quota(1)})
    assert forest.find_height("q", FR, 8) == (1, True)
    assert forest.find_height("q", FR, 13) == (2, False)
    assert forest.find_height("q", FR, 99) == (2, False)


def test_usage_bubbles_up_only_beyond_what_is_local() -> None:
    forest = example()
    forest.add_usage("a1", {FR: 3})
    assert [forest.cohort_cell(name, FR).usage for name in ("teamA", "org")] == [18, 19]
    forest.remove_usage("a1", {FR: 6})
    assert forest.cell("a1", FR).usage == 15
    assert [forest.cohort_cell(name, FR).usage for name in ("teamA", "org")] == [12, 13]


def test_trials_nest_and_undo() -> None:
    forest = example()
    before = forest.dump()
    outer = forest.mark()
    forest.add_usage("a1", {FR: 7})
    between = forest.dump()
    inner = forest.mark()
    forest.remove_usage("b1", {FR: 4})
    forest.add_usage("a2", {FR: 1, 5: 3})
    assert forest.dump() != between
    forest.undo_to(inner)
    assert forest.dump() == between
    forest.undo_to(outer)
    assert forest.dump() == before


def test_a_kept_trial_stays_but_an_outer_one_can_still_undo_it() -> None:
    forest = example()
    before = forest.dump()
    outer = forest.mark()
    inner = forest.mark()
    forest.add_usage("b1", {FR: 1})
    forest.keep(inner)
    assert forest.cell("b1", FR).usage == 5
    forest.undo_to(outer)
    assert forest.dump() == before
    mark = forest.mark()
    forest.add_usage("b1", {FR: 1})
    forest.keep(mark)
    assert forest.cell("b1", FR).usage == 5


def test_structure_cannot_change_inside_a_trial() -> None:
    forest = example()
    forest.mark()
    with pytest.raises(RuntimeError, match="trial"):
        forest.set_cluster_queue("a1", None, {})
    with pytest.raises(RuntimeError, match="trial"):
        forest.set_active("a1", False)


def test_usage_put_before_the_structure_is_known_counts_afterwards() -> None:
    forest = QuotaForest()
    forest.set_cluster_queue("q", "pool", {FR: Quota(3)})
    forest.add_usage("q", {FR: 5, 7: 1})
    forest.set_cohort("pool", "top", {})
    forest.set_cohort("top", None, {FR: Quota(10)})
    assert forest.cohort_cell("top", FR).usage == 5
    assert forest.cohort_cell("top", 7).usage == 1
    assert forest.available("q", FR) == 8
    assert forest.available("q", 7) == 0


def test_a_queue_that_moves_takes_quota_and_usage_along() -> None:
    forest = example()
    forest.set_cluster_queue("b1", "teamA", {FR: Quota(8)})
    assert forest.cohort_cell("teamA", FR).subtree == 23
    assert forest.cohort_cell("teamA", FR).usage == 19
    assert forest.path("b1") == ("org", "teamA", "b1")
    forest.set_cluster_queue("b1", None, {FR: Quota(8)})
    assert forest.path("b1") == ("b1",)
    assert forest.cohort_cell("org", FR).subtree == 22
    assert not forest.has_parent("b1")


def test_implicit_cohorts_come_and_go() -> None:
    forest = QuotaForest()
    forest.set_cluster_queue("q", "pool", {FR: Quota(1)})
    assert list(forest.cohorts()) == ["pool"]
    forest.set_cohort("pool", "top", {FR: Quota(4)})
    assert forest.available("q", FR) == 5
    forest.remove_cohort("pool")
    assert list(forest.cohorts()) == ["pool"]
    assert forest.available("q", FR) == 1
    forest.remove_cluster_queue("q")
    assert list(forest.cohorts()) == []
    assert list(forest.cluster_queues()) == []
    forest.remove_cluster_queue("q")
    forest.remove_cohort("pool")


def test_a_cycle_is_noticed_and_repaired() -> None:
    forest = QuotaForest()
    forest.set_cohort("one", "two", {FR: Quota(1)})
    forest.set_cohort("two", "three", {FR: Quota(1)})
    forest.set_cohort("three", "one", {FR: Quota(1)})
    forest.set_cluster_queue("q", "two", {FR: Quota(2)})
    forest.add_usage("q", {FR: 1})
    assert forest.in_cycle("q")
    assert forest.tree_of("q") == ("q",)
    assert forest.members_of_cohort_tree("one") == ()
    assert forest.path("q") == ("q",)
    forest.set_cohort("three", None, {FR: Quota(1)})
    assert not forest.in_cycle("q")
    assert forest.path("q") == ("three", "two", "q")
    assert forest.available("q", FR) == 4
    assert forest.members_of_cohort_tree("one") == ("q",)
    forest.set_cohort("three", "three", {})
    assert forest.in_cycle("q")


def test_a_cohort_and_a_queue_may_share_a_name() -> None:
    forest = QuotaForest()
    forest.set_cluster_queue("same", "same", {FR: Quota(2)})
    assert forest.path("same") == ("same", "same")
    assert forest.tree_id("same") == (True, "same")


def test_an_inactive_queue_counts_with_quota_but_not_for_the_height() -> None:
    forest = QuotaForest()
    forest.set_cluster_queue("stopped", "pool", {FR: Quota(6)}, active=False)
    assert forest.cohort_node("pool").height == 0
    forest.set_cluster_queue("open", "pool", {FR: Quota(2)})
    assert forest.cohort_node("pool").height == 1
    assert forest.available("open", FR) == 8


def test_unlimited_quota_is_never_used_up() -> None:
    forest = QuotaForest()
    forest.set_cluster_queue("whole", "pool", {FR: Quota(UNLIMITED)})
    forest.set_cluster_queue("small", "pool", {FR: Quota(1)})
    forest.add_usage("small", {FR: 2**62})
    assert forest.available("small", FR) == UNLIMITED
    assert forest.available("whole", FR) == UNLIMITED
    assert forest.find_height("small", FR, 10) == (1, False)


def test_over_admission_is_negative_inside_and_zero_outside() -> None:
    forest = QuotaForest()
    forest.set_cluster_queue("q", None, {FR: Quota(3)})
    forest.add_usage("q", {FR: 5})
    assert forest.cell("q", FR).raw_available() == -2
    assert forest.available("q", FR) == 0


def test_generation_moves_with_structure_and_freed_usage() -> None:
    forest = example()
    before = forest.queue_node("a1").generation
    forest.set_cohort("org", None, {FR: Quota(11)})
    assert forest.queue_node("a1").generation == before + 1
    forest.bump_generation("a1")
    assert forest.queue_node("a1").generation == before + 2


def test_a_deep_chain_of_cohorts_is_no_problem() -> None:
    forest = QuotaForest()
    for depth in range(3000):
        forest.set_cohort(f"c{depth}", f"c{depth + 1}", {FR: Quota(1)})
    forest.set_cluster_queue("q", "c0", {FR: Quota(1)})
    assert forest.available("q", FR) == 3001
    assert forest.available("q", 9) == 0
    assert forest.tree_id("q") == (True, "c3000")
