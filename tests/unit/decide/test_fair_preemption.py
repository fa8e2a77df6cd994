"""Fair-sharing preemption: whose workload goes, by which strategy, and when nobody may."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.decide.preemption import find_targets
from shared.decide.preemption_request import PreemptionRequest, Target
from shared.decide.settings import FairSharing
from shared.events import objects as o
from shared.model.world import World
from tests.unit.model.builders import cohort, group, info, queue, reserved, workload, world

BOTH = FairSharing()
FINAL = FairSharing(strategies=("LessThanOrEqualToFinalShare",))
INITIAL = FairSharing(strategies=("LessThanInitialShare",))
ANY: dict[str, Any] = {"reclaim_within_cohort": "Any"}
LOWER: dict[str, Any] = {"within_cluster_queue": "LowerPriority", "reclaim_within_cohort": "Any"}


def running(name: str, cluster_queue: str, cpu: int, *, priority: int = 0, at: int = 0, **fields: Any) -> o.Workload:
    """A workload that holds `cpu` cores since `at`."""
    source = reserved(workload(name, cpu=str(cpu), priority=priority, **fields), cluster_queue, cpu=cpu * 1000)
    reservation = o.Condition("QuotaReserved", True, "QuotaReserved", "", at)
    return msgspec.structs.replace(source, conditions=(*fields.get("conditions", ()), reservation))


def victims(
    built: World, cluster_queue: str, cpu: int, fair: FairSharing = BOTH, *, priority: int = 0, **fields: Any
) -> list[tuple[str, str]]:
    """(name, reason) of the targets of a workload that asks for `cpu` cores, sorted; checks what must hold in any case."""
    index = built.interned.index("default", "cpu")
    request = PreemptionRequest(
        preemptor=info(workload("new", cpu=str(cpu), priority=priority)),
        queue=built.cluster_queues[cluster_queue],
        need=frozenset((index,)),
        demand={index: cpu * 1000},
        **fields,
    )
    before = built.forest.dump()
    targets = find_targets(built, request, fair)
    assert built.forest.dump() == before
    if targets:
        assert_useful(built, request, targets)
    return sorted((target.key.removeprefix("ns/"), target.reason) for target in targets)


def assert_useful(built: World, request: PreemptionRequest, targets: tuple[Target, ...]) -> None:
    """The preemptor fits without the targets, and not if any one of them stays."""
    (index,) = request.demand
    mark = built.forest.mark()
    for target in targets:
        built.forest.remove_usage(target.cluster_queue, target.vector)
    assert built.forest.available(request.queue.name, index) >= request.demand[index]
    for target in targets[:-1]:
        built.forest.add_usage(target.cluster_queue, target.vector)
        assert built.forest.available(request.queue.name, index) < request.demand[index]
        built.forest.remove_usage(target.cluster_queue, target.vector)
    built.forest.undo_to(mark)


def contended(a: int, b: int, size: int = 2, fair: FairSharing = BOTH) -> list[tuple[str, str]]:
    """A pool of 12 owned by the cohort; A and B use so much, in workloads of one size; B asks for one more."""
    built = world(
        cohort("pool", "", group(default="cpu=12")),
        queue("a", group(default="cpu=0"), cohort="pool", **ANY),
        queue("b", group(default="cpu=0"), cohort="pool", **ANY),
        *(running(f"a{n}", "a", size, priority=n, at=n) for n in range(a // size)),
        *(running(f"b{n}", "b", size) for n in range(b // size)),
    )
    return victims(built, "b", size, fair)


@pytest.mark.parametrize(
    ("a", "b", "preempts"), [(12, 0, True), (10, 2, True), (8, 4, True), (6, 6, False), (4, 8, False)]
)
def test_the_worked_example_splits_evenly(a: int, b: int, preempts: bool) -> None:
    assert contended(a, b) == ([("a0", "InCohortFairSharing")] if preempts else [])


@pytest.mark.parametrize(
    ("fair", "a", "b", "preempts"),
    [(FINAL, 8, 4, True), (FINAL, 6, 6, False), (INITIAL, 8, 4, True), (INITIAL, 6, 6, False)],
)
def test_each_strategy_alone(fair: FairSharing, a: int, b: int, preempts: bool) -> None:
    assert bool(contended(a, b, fair=fair)) is preempts


def test_the_second_strategy_takes_a_workload_too_large_for_the_first() -> None:
    def found(fair: FairSharing) -> list[tuple[str, str]]:
        built = world(
            cohort("pool", "", group(default="cpu=10")),
            queue("a", group(default="cpu=0"), cohort="pool"),
            queue("b", group(default="cpu=0"), cohort="pool", **ANY),
            running("a-large", "a", 10),
        )
        return victims(built, "b", 4, fair)

    assert found(FINAL) == [], "400 against 0 afterwards"
    assert found(INITIAL) == [("a-large", "InCohortFairSharing")], "400 against 1000 before"
    assert found(BOTH) == found(INITIAL)
    assert found(FairSharing(strategies=())) == found(BOTH)


def test_the_second_pass_takes_at_most_one_from_each_queue() -> None:
    built = world(
        cohort("pool", "", group(default="cpu=20")),
        queue("a", group(default="cpu=0"), cohort="pool"),
        queue("b", group(default="cpu=0"), cohort="pool", **ANY),
        running("a1", "a", 10, at=1),
        running("a2", "a", 10, at=2),
    )
    assert victims(built, "b", 11) == [], "one of them is not enough, and two are not taken"
    assert victims(built, "b", 10) == [("a2", "InCohortFairSharing")]


def test_targets_of_the_first_pass_are_kept_in_the_second() -> None:
    built = world(
        cohort("pool", "", group(default="cpu=20")),
        queue("a", group(default="cpu=0"), cohort="pool"),
        queue("c", group(default="cpu=0"), cohort="pool"),
        queue("b", group(default="cpu=0"), cohort="pool", **ANY),
        *(running(f"a{n}", "a", 1, at=n) for n in range(10)),
        running("c-large", "c", 10),
    )
    found = dict(victims(built, "b", 9))
    assert found == {"c-large": "InCohortFairSharing"}, "small ones went first and came back by fill-back"


def test_within_its_nominal_quota_no_shares_are_compared() -> None:
    def found(fair: FairSharing) -> list[tuple[str, str]]:
        built = world(
            queue("a", group(default="cpu=0"), cohort="pool", fair_weight="1000000"),
            queue("b", group(default="cpu=9"), cohort="pool", fair_weight="0", **ANY),
            running("a1", "a", 4),
            running("a2", "a", 4, at=1),
        )
        return victims(built, "b", 5, fair)

    assert found(BOTH) == [("a2", "InCohortReclamation")]
    assert found(FairSharing(preempt_within_nominal=False)) == [("a2", "InCohortFairSharing")], (
        "it borrows nothing: share 0"
    )


def test_only_borrowing_queues_lose() -> None:
    built = world(
        queue("a", group(default="cpu=6"), cohort="pool"),
        queue("c", group(default="cpu=0"), cohort="pool"),
        queue("b", group(default="cpu=6"), cohort="pool", **ANY),
        running("a1", "a", 6),
        running("c1", "c", 3),
        running("c2", "c", 3, at=1),
    )
    assert victims(built, "b", 3) == [("c2", "InCohortReclamation")]
    assert victims(built, "b", 6) == [("c1", "InCohortReclamation"), ("c2", "InCohortReclamation")]
    assert victims(built, "b", 7) == [], "the last one is within the nominal quota of a"


def test_a_queue_is_left_alone_as_soon_as_it_borrows_nothing() -> None:
    built = world(
        queue("a", group(default="cpu=4"), cohort="pool"),
        queue("b", group(default="cpu=6"), cohort="pool", **ANY),
        running("a1", "a", 4),
        running("a2", "a", 4),
    )
    assert victims(built, "b", 6) == [("a1", "InCohortReclamation")]
    assert victims(built, "b", 7) == []


def test_own_workloads_go_unconditionally() -> None:
    built = world(
        queue("b", group(default="cpu=4"), cohort="pool", **LOWER),
        queue("a", group(default="cpu=0"), cohort="pool"),
        running("mine", "b", 4),
    )
    assert victims(built, "b", 2, priority=1) == [("mine", "InClusterQueue")]
    assert victims(built, "b", 2, priority=0) == []


def test_without_a_cohort_only_the_own_line_is_searched() -> None:
    built = world(
        queue("b", group(default="cpu=4"), **LOWER),
        running("old", "b", 2, at=1),
        running("young", "b", 2, at=2),
    )
    assert victims(built, "b", 2, priority=1) == [("young", "InClusterQueue")]
    assert victims(built, "b", 5, priority=1) == []


def test_never_reclaiming_means_the_own_line_only() -> None:
    built = world(
        queue("b", group(default="cpu=4"), cohort="pool", within_cluster_queue="LowerPriority"),
        queue("a", group(default="cpu=0"), cohort="pool"),
        running("theirs", "a", 2),
        running("mine", "b", 2),
    )
    assert victims(built, "b", 2, priority=1) == [("mine", "InClusterQueue")]
    assert victims(built, "b", 4, priority=1) == []


def test_reclaiming_from_lower_priority_only() -> None:
    built = world(
        queue("b", group(default="cpu=4"), cohort="pool", reclaim_within_cohort="LowerPriority"),
        queue("a", group(default="cpu=0"), cohort="pool"),
        running("high", "a", 2, priority=5),
        running("low", "a", 2, priority=1),
    )
    assert victims(built, "b", 2, priority=3) == [("low", "InCohortReclamation")]
    assert victims(built, "b", 4, priority=3) == []


def test_the_queue_with_the_highest_share_loses_first() -> None:
    built = world(
        cohort("pool", "", group(default="cpu=12")),
        queue("a", group(default="cpu=0"), cohort="pool"),
        queue("c", group(default="cpu=0"), cohort="pool", fair_weight="10"),
        queue("b", group(default="cpu=0"), cohort="pool", **ANY),
        *(running(f"a{n}", "a", 2, at=n, priority=9) for n in range(2)),
        *(running(f"c{n}", "c", 2, at=n) for n in range(4)),
    )
    assert victims(built, "b", 2) == [("a1", "InCohortFairSharing")], "a has 333, c 67"


def test_equal_shares_go_by_the_order_of_candidates() -> None:
    def found(**a: Any) -> list[tuple[str, str]]:
        built = world(
            cohort("pool", "", group(default="cpu=8")),
            queue("a", group(default="cpu=0"), cohort="pool"),
            queue("c", group(default="cpu=0"), cohort="pool"),
            queue("b", group(default="cpu=0"), cohort="pool", **ANY),
            running("a1", "a", 4, **a),
            running("c1", "c", 4, at=5, priority=3),
        )
        return victims(built, "b", 2)

    assert found(at=9, priority=4) == [("c1", "InCohortFairSharing")], "lower priority"
    assert found(at=9, priority=3) == [("a1", "InCohortFairSharing")], "later reservation"
    assert found(at=5, priority=3) == [("a1", "InCohortFairSharing")], "smaller uid"
    evicted = (o.Condition("Evicted", True, "Preempted", "", 1),)
    assert found(at=1, priority=9, conditions=evicted) == [("a1", "InCohortFairSharing")], "already on its way out"


def test_an_infinite_share_takes_nothing_from_a_finite_one() -> None:
    built = world(
        cohort("pool", "", group(default="cpu=8")),
        queue("a", group(default="cpu=0"), cohort="pool", fair_weight="0.001"),
        queue("b", group(default="cpu=0"), cohort="pool", fair_weight="0", **ANY),
        running("a1", "a", 4),
        running("a2", "a", 4),
    )
    assert victims(built, "b", 2) == []
    other = world(
        cohort("pool", "", group(default="cpu=8")),
        queue("a", group(default="cpu=0"), cohort="pool", fair_weight="0"),
        queue("b", group(default="cpu=0"), cohort="pool", fair_weight="0", **ANY),
        running("a1", "a", 4),
        running("a2", "a", 4, at=3),
    )
    assert victims(other, "b", 2) == [("a2", "InCohortFairSharing")], "two infinite ones: by unweighted ratio"


def hierarchy(*extra: o.Object, left: str = "0", weight: str = "1") -> World:
    return world(
        cohort("root", "", group(default="cpu=12")),
        cohort("left", "root", *([group(default=f"cpu={left}")] if left != "0" else [])),
        o.Cohort(name="right", version=1, parent="root", fair_weight=weight),
        *(
            queue(name, group(default="cpu=0"), cohort=parent, **ANY)
            for name, parent in (("l1", "left"), ("l2", "left"), ("r1", "right"), ("r2", "right"))
        ),
        *extra,
    )


def test_shares_of_the_children_of_the_common_ancestor_are_compared() -> None:
    built = hierarchy(
        *(running(f"l1-{n}", "l1", 2, at=n) for n in range(3)), *(running(f"r1-{n}", "r1", 2) for n in range(3))
    )
    assert victims(built, "r2", 2) == [("r1-0", "InCohortFairSharing")], (
        "right would exceed left: only from its own cohort"
    )
    favoured = hierarchy(
        *(running(f"l1-{n}", "l1", 2, at=n) for n in range(3)),
        *(running(f"r1-{n}", "r1", 2) for n in range(3)),
        weight="9",
    )
    assert victims(favoured, "r2", 2) == [("l1-2", "InCohortFairSharing")]


def test_a_cohort_that_borrows_nothing_is_not_entered() -> None:
    built = hierarchy(*(running(f"l1-{n}", "l1", 2) for n in range(6)), left="12")
    assert victims(built, "r1", 14) == []
    over = hierarchy(*(running(f"l1-{n}", "l1", 2, at=n) for n in range(12)), left="12")
    assert victims(over, "r1", 2) == [("l1-11", "InCohortFairSharing")]


def test_inactive_queues_lose_nothing() -> None:
    built = world(
        cohort("pool", "", group(default="cpu=4")),
        queue("a", group(default="cpu=0"), cohort="pool", stop_policy="Hold"),
        queue("b", group(default="cpu=0"), cohort="pool", **ANY),
        running("a1", "a", 4),
    )
    assert victims(built, "b", 2) == []


def test_a_borrowing_limit_on_a_cohort_can_make_it_impossible() -> None:
    built = world(
        cohort("root", "", group(default="cpu=12")),
        cohort("tight", "root", group(default="cpu=0,borrow=1")),
        queue("a", group(default="cpu=0"), cohort="root"),
        queue("b", group(default="cpu=0"), cohort="tight", **ANY),
        running("a1", "a", 12),
    )
    assert victims(built, "b", 2) == []
    assert victims(built, "b", 1) == [("a1", "InCohortFairSharing")]


def test_victims_of_earlier_entries_are_out_of_reach() -> None:
    built = world(
        cohort("pool", "", group(default="cpu=4")),
        queue("a", group(default="cpu=0"), cohort="pool"),
        queue("b", group(default="cpu=0"), cohort="pool", **ANY),
        running("a1", "a", 2, at=2),
        running("a2", "a", 2, at=1),
    )
    assert victims(built, "b", 2) == [("a1", "InCohortFairSharing")]
    assert victims(built, "b", 2, excluded=frozenset({"ns/a1"})) == [("a2", "InCohortFairSharing")]


def test_larger_users_of_a_usage_ordered_queue_lose_first() -> None:
    built = world(
        cohort("pool", "", group(default="cpu=4")),
        queue("a", group(default="cpu=0"), cohort="pool", admission_mode="UsageBasedAdmissionFairSharing"),
        queue("b", group(default="cpu=0"), cohort="pool", **ANY),
        running("a1", "a", 2, at=9, local_queue="small"),
        running("a2", "a", 2, at=1, priority=9, local_queue="large"),
    )
    usage = {"ns/small": 1.0, "ns/large": 2.0}
    assert victims(built, "b", 2) == [("a1", "InCohortFairSharing")]
    assert victims(built, "b", 2, usage_of=usage.__getitem__) == [("a2", "InCohortFairSharing")]
