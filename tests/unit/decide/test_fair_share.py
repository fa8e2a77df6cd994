"""Dominant resource shares: what counts as borrowed, of what, divided by which weight."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.decide.fair_share import NO_SHARE, FairShares, Share, path_of
from shared.events import objects as o
from shared.model.amounts import INT64_MAX
from shared.model.world import World
from tests.unit.model.builders import cohort, flavor, group, put, queue, world

FLAVOR = "default"


def weighted(name: str, weight: str, parent: str = "", *groups: o.ResourceGroup) -> o.Cohort:
    return msgspec.structs.replace(cohort(name, parent, *groups), fair_weight=weight)


def use(built: World, name: str, flavor_name: str = FLAVOR, **amounts: int) -> None:
    """Put usage on a ClusterQueue: cpu in milli, others in pieces."""
    built.forest.add_usage(name, {built.interned.index(flavor_name, r): amount for r, amount in amounts.items()})


def extra(built: World, flavor_name: str = FLAVOR, **amounts: int) -> dict[int, int]:
    return {built.interned.index(flavor_name, r): amount for r, amount in amounts.items()}


def flat(*queues: tuple[str, str, str]) -> World:
    """ClusterQueues (name, cpu, weight) of one cohort."""
    return world(*(queue(n, group(default=f"cpu={cpu}"), cohort="root", fair_weight=w) for n, cpu, w in queues))


def org() -> World:
    """The tree of the quota model's worked example (core 5.6), in whole pieces of gpu."""
    return world(
        cohort("org", "", group(default="gpu=10")),
        cohort("teamA", "org", group(default="gpu=0,lend=12")),
        queue("a1", group(default="gpu=20,lend=5,borrow=10"), cohort="teamA"),
        queue("a2", group(default="gpu=10"), cohort="teamA"),
        queue("b1", group(default="gpu=8"), cohort="org"),
    )


def test_shares_of_the_worked_example() -> None:
    built = org()
    for name, gpus in (("a1", 18), ("a2", 12), ("b1", 4)):
        use(built, name, gpu=gpus)
    shares = FairShares(built)
    assert shares.of_queue("a2") == Share(False, 2 * 1000 / 33, "gpu", True)
    assert shares.of_queue("a2").rounded() == 61
    for share in (shares.of_queue("a1"), shares.of_queue("b1"), shares.of_cohort("teamA"), shares.of_cohort("org")):
        assert share == NO_SHARE


def test_shares_before_the_tournament_of_the_worked_example() -> None:
    built = flat(("a", "10", "1"), ("b", "10", "2"), ("c", "10", "1"))
    use(built, "a", cpu=12_000)
    use(built, "b", cpu=16_000)
    use(built, "c", cpu=2_000)
    shares = FairShares(built)
    assert shares.of_queue("a", extra(built, cpu=4_000)).value == 200.0
    assert shares.of_queue("b", extra(built, cpu=4_000)).value == pytest.approx(166.67, abs=0.01)
    assert shares.of_queue("b", extra(built, cpu=4_000)).rounded() == 167
    assert not shares.of_queue("c", extra(built, cpu=3_000)).borrowing


def test_without_a_parent_there_is_no_share() -> None:
    built = world(queue("alone", group(default="cpu=1")), queue("in", group(default="cpu=1"), cohort="root"))
    use(built, "alone", cpu=5_000)
    use(built, "in", cpu=5_000)
    shares = FairShares(built)
    assert shares.of_queue("alone") == NO_SHARE
    assert shares.of_cohort("root") == NO_SHARE
    assert shares.of_queue("in").borrowing
    assert not shares.borrows_on(built.forest.queue_node("alone"), extra(built, cpu=1))


def test_a_cycle_of_cohorts_has_no_shares_and_ends() -> None:
    built = world(cohort("x", "y"), cohort("y", "x"), queue("q", group(default="cpu=1"), cohort="x"))
    use(built, "q", cpu=5_000)
    assert FairShares(built).of_queue("q") == NO_SHARE
    assert FairShares(built).of_cohort("x") == NO_SHARE
    assert [node.name for node in path_of(built.forest.queue_node("q"))] == ["q"]


@pytest.mark.parametrize(
    ("weight", "expected", "rounded"),
    [("1", 200.0, 200), ("2", 100.0, 100), ("500m", 400.0, 400), ("3", 200 / 3, 67), ("0.0000001", 2e9, 2_000_000_000)],
)
def test_the_weight_divides(weight: str, expected: float, rounded: int) -> None:
    built = flat(("a", "0", weight), ("lender", "10", "1"))
    use(built, "a", cpu=2_000)
    share = FairShares(built).of_queue("a")
    assert share.value == pytest.approx(expected)
    assert share.rounded() == rounded


def test_weight_zero_is_infinite_only_when_it_borrows() -> None:
    built = flat(("zero", "2", "0"), ("other", "2", "0"), ("lender", "16", "1"))
    shares = FairShares(built)
    use(built, "zero", cpu=2_000)
    assert shares.of_queue("zero").key == (False, 0.0)
    assert shares.of_queue("zero").rounded() == 0
    use(built, "zero", cpu=1_000)
    use(built, "other", cpu=2_000)
    share = shares.of_queue("zero")
    assert (share.infinite, share.value, share.rounded()) == (True, 50.0, INT64_MAX)
    assert shares.of_queue("other", extra(built, cpu=2_000)).key > share.key, "two infinite ones: by unweighted ratio"
    assert share.key > (False, 1e300)


def test_a_resource_sums_its_flavors_on_both_sides() -> None:
    built = world(
        flavor("spot"),
        queue("q", group(default="cpu=20", spot="cpu=80"), cohort="root"),
        queue("lender", group(default="cpu=100"), cohort="root"),
    )
    use(built, "q", cpu=25_000)
    use(built, "q", "spot", cpu=5_000)
    assert FairShares(built).of_queue("q") == Share(False, 25.0, "cpu", True)
    use(built, "q", "spot", cpu=79_000)
    assert FairShares(built).of_queue("q").value == (5_000 + 4_000) * 1000 / 200_000


def test_the_dominant_resource_is_the_largest_and_ties_go_by_name() -> None:
    def built(cpu: int, gpu: int) -> Share:
        made = world(
            queue("q", group(default=("gpu=0", "cpu=0")), cohort="root"),
            queue("lender", group(default=("gpu=10", "cpu=10")), cohort="root"),
        )
        use(made, "q", cpu=cpu, gpu=gpu)
        return FairShares(made).of_queue("q")

    assert (built(1_000, 2).resource, built(1_000, 2).value) == ("gpu", 200.0)
    assert (built(3_000, 2).resource, built(3_000, 2).value) == ("cpu", 300.0)
    assert built(2_000, 2).resource == "cpu"
    assert built(0, 0) == NO_SHARE


def test_what_nobody_can_lend_makes_it_borrow_but_not_share() -> None:
    built = world(
        queue("q", group(default="gpu=1,lend=0"), cohort="root"),
        queue("other", group(default="gpu=9,lend=0"), cohort="root"),
    )
    use(built, "q", gpu=3)
    assert FairShares(built).of_queue("q") == Share(False, 0.0, "", True)


def test_lendable_is_what_the_parent_could_use_not_the_root() -> None:
    built = world(
        cohort("root", "", group(default="gpu=40")),
        cohort("team", "root", group(default="gpu=10,borrow=5")),
        queue("q", group(default="gpu=0"), cohort="team"),
    )
    use(built, "q", gpu=3)
    assert FairShares(built).of_queue("q").value == 3 * 1000 / 15


def test_a_cohort_shares_what_it_uses_beyond_its_own_subtree() -> None:
    built = world(
        weighted("team", "2", "root"),
        cohort("root", "", group(default="gpu=45")),
        queue("q", group(default="gpu=5"), cohort="team"),
    )
    use(built, "q", gpu=10)
    shares = FairShares(built)
    assert shares.of_queue("q").value == 100.0
    assert shares.of_cohort("team").value == 50.0


def test_guaranteed_quota_never_raises_a_cohorts_share() -> None:
    built = world(
        cohort("team", "root"),
        cohort("root", "", group(default="gpu=10")),
        queue("q", group(default="gpu=10,lend=0"), cohort="team"),
    )
    use(built, "q", gpu=10)
    assert FairShares(built).of_cohort("team") == NO_SHARE
    use(built, "q", gpu=2)
    assert FairShares(built).of_cohort("team").value == 200.0


def test_usage_of_a_flavor_that_quota_was_taken_from_counts_for_nobody() -> None:
    built = flat(("q", "2", "1"), ("lender", "2", "1"))
    use(built, "q", "gone", cpu=9_000)
    assert FairShares(built).of_queue("q") == NO_SHARE


def test_borrows_on_looks_only_at_what_is_requested() -> None:
    built = world(
        queue("q", group(default=("cpu=2", "gpu=5")), cohort="root"),
        queue("lender", group(default=("cpu=8", "gpu=5")), cohort="root"),
    )
    use(built, "q", cpu=1_000, gpu=7)
    shares, node = FairShares(built), built.forest.queue_node("q")
    assert shares.borrows_on(node, extra(built, gpu=1))
    assert not shares.borrows_on(node, extra(built, cpu=1_000))
    assert not shares.borrows_on(node, extra(built, gpu=0))
    assert shares.borrows_on(node, extra(built, cpu=1), extra(built, cpu=1_001))


def changes(built: World) -> None:
    put(built, queue("lender", group(default="cpu=20"), cohort="root"))


def reweighs(built: World) -> None:
    put(built, queue("a", group(default="cpu=0"), cohort="root", fair_weight="4"))


def leaves(built: World) -> None:
    built.remove_cluster_queue("lender")


@pytest.mark.parametrize(("change", "expected"), [(changes, 100.0), (reweighs, 50.0), (leaves, 0.0)])
def test_shares_follow_changes_of_quota_and_weight(change: Any, expected: float) -> None:
    built = flat(("a", "0", "1"), ("lender", "10", "1"))
    shares = FairShares(built)
    use(built, "a", cpu=2_000)
    assert shares.of_queue("a").value == 200.0
    change(built)
    assert shares.of_queue("a").value == expected


def test_a_cohorts_weight_is_followed() -> None:
    built = world(
        cohort("team", "root"),
        cohort("root", "", group(default="gpu=10")),
        queue("q", group(default="gpu=0"), cohort="team"),
    )
    use(built, "q", gpu=1)
    assert FairShares(built).of_cohort("team").value == 100.0
    put(built, weighted("team", "5", "root"))
    assert FairShares(built).of_cohort("team").value == 20.0
    built.remove_cohort("team")
    put(built, cohort("root", "", group(default="gpu=10")))
    assert FairShares(built).of_cohort("team") == NO_SHARE, "implicit and without a parent now"


def test_spilled_is_what_an_addition_adds_above() -> None:
    built = org()
    use(built, "a1", gpu=12)
    use(built, "a2", gpu=1)
    shares, node = FairShares(built), built.forest.queue_node("a1")
    cell = built.forest.cohort_cell("teamA", built.interned.index(FLAVOR, "gpu"))
    for amount in (0, 2, 3, 4, 9):
        before = cell.usage
        foreseen = shares.spilled(node, extra(built, gpu=amount)).get(built.interned.index(FLAVOR, "gpu"), 0)
        use(built, "a1", gpu=amount)
        assert cell.usage - before == foreseen
        built.forest.remove_usage("a1", extra(built, gpu=amount))


def test_released_is_what_a_removal_takes_off_above() -> None:
    built = org()
    use(built, "a1", gpu=18)
    index = built.interned.index(FLAVOR, "gpu")
    shares, node = FairShares(built), built.forest.queue_node("a1")
    cell = built.forest.cohort_cell("teamA", index)
    for amount in (1, 3, 4, 18):
        before = cell.usage
        foreseen = shares.released(node, {index: -amount}).get(index, 0)
        built.forest.remove_usage("a1", {index: amount})
        assert cell.usage - before == foreseen
        use(built, "a1", gpu=amount)
