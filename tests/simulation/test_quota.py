"""The ruler that promises about quota are measured with, on trees small enough to do in one's head."""

from __future__ import annotations

from shared.events.objects import ClusterQueue, Cohort, Flavor, FlavorQuota, ResourceGroup
from tests.simulation.quota import Forest

CELL = ("spot", "cpu")


def group(nominal: int, borrowing: int | None = None, lending: int | None = None) -> tuple[ResourceGroup, ...]:
    limits = (None if limit is None else str(limit) for limit in (borrowing, lending))
    return (ResourceGroup(("cpu",), (Flavor("spot", (FlavorQuota("cpu", str(nominal), *limits),)),)),)


def queue(name: str, nominal: int, cohort: str = "", **limits: int) -> ClusterQueue:
    return ClusterQueue(name=name, uid=name, version=1, cohort=cohort, groups=group(nominal, **limits))


def forest(*queues: ClusterQueue, cohorts: tuple[Cohort, ...] = ()) -> Forest:
    return Forest({q.name: q for q in queues}, {c.name: c for c in cohorts})


def excess(found: Forest, name: str, **used: int) -> str:
    return found.excess(name, lambda queue: {CELL: used.get(queue, 0) * 1000}, [CELL])


def test_alone_a_queue_has_its_own_quota() -> None:
    found = forest(queue("a", 4))
    assert not excess(found, "a", a=4)
    assert "queue a uses 5000" in excess(found, "a", a=5)
    assert found.tree_of("a") == ("a",)
    assert found.tree_of("b") == ()


def test_a_cohort_shares_what_its_queues_have() -> None:
    found = forest(queue("a", 4, "north"), queue("b", 2, "north"))
    assert not excess(found, "a", a=6)
    assert "cohort north" in excess(found, "a", a=5, b=2)
    assert set(found.tree_of("a")) == {"a", "b"}


def test_limits_of_borrowing_and_lending() -> None:
    found = forest(queue("a", 4, "north", borrowing=1), queue("b", 4, "north", lending=1))
    assert not excess(found, "a", a=5)
    assert "queue a" in excess(found, "a", a=6)
    assert not excess(found, "b", a=5, b=3)
    assert "cohort north" in excess(found, "a", a=5, b=4)


def test_what_a_queue_keeps_for_itself_it_may_use_whatever_its_cohort_does() -> None:
    found = forest(queue("a", 4, "north", lending=1), queue("b", 0, "north"))
    assert not excess(found, "a", a=3, b=9)
    assert excess(found, "a", a=4, b=9)


def test_cohorts_above_cohorts() -> None:
    cohorts = (
        Cohort(name="north", uid="n", version=1, parent="world", groups=group(2)),
        Cohort(name="world", uid="w", version=1),
    )
    found = forest(queue("a", 1, "north"), queue("b", 3, "south"), cohorts=cohorts)
    assert not excess(found, "a", a=3)
    assert "cohort world" in excess(found, "a", a=4)
