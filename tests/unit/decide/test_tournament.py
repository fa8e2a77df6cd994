"""The tournament of heads: smaller share first on every level of the tree, played again after each entry."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.decide.fair_share import FairShares, path_of
from shared.decide.order import HeadOrder
from shared.decide.tournament import Tournament
from shared.model.world import World
from tests.unit.model.builders import cohort, condition, group, info, queue, workload, world

ORDER = HeadOrder()


def cpu(built: World, amount: int) -> dict[int, int]:
    return {built.interned.index("default", "cpu"): amount}


def use(built: World, **amounts: int) -> None:
    for name, amount in amounts.items():
        built.forest.add_usage(name, cpu(built, amount * 1000))


class Heads:
    """A tournament of heads named after their ClusterQueues."""

    def __init__(self, built: World, order: HeadOrder = ORDER) -> None:
        self.world = built
        self.tournament: Tournament[str] = Tournament(built, order)
        self.asks: dict[str, int] = {}

    def head(self, name: str, asks: int, *, preemptor: bool = False, **fields: Any) -> Heads:
        self.asks[name] = asks
        source = workload(f"w-{name}", **fields)
        self.tournament.add(name, info(source), name, cpu(self.world, asks * 1000), preemptor=preemptor)
        return self

    def order(self, *, admit: bool = True) -> list[str]:
        """Pop all; `admit`: each adds its usage before the next is asked for."""
        names = []
        while (name := self.tournament.pop()) is not None:
            names.append(name)
            if admit:
                use(self.world, **{name: self.asks[name]})
        return names


def flat(**queues: str) -> World:
    """`name="cpu weight"` in one cohort."""
    made = []
    for name, text in queues.items():
        nominal, _, weight = text.partition(" ")
        made.append(queue(name, group(default=f"cpu={nominal}"), cohort="root", fair_weight=weight or "1"))
    return world(*made)


@pytest.mark.parametrize("priority", [0, 100])
def test_the_worked_example(priority: int) -> None:
    built = flat(a="10", b="10 2", c="10")
    use(built, a=12, b=16, c=2)
    heads = Heads(built).head("a", 4, priority=priority).head("b", 4).head("c", 3)
    assert heads.order(admit=False) == ["c", "b", "a"], "share precedes priority"


def test_equal_shares_go_by_priority_then_age_then_uid() -> None:
    built = flat(a="10", b="10", c="10", d="10")
    heads = Heads(built)
    heads.head("a", 1, created=5).head("b", 1, created=4).head("c", 1, priority=1, created=9).head("d", 1, created=5)
    assert heads.order() == ["c", "b", "a", "d"]


def test_priority_counts_for_nothing_without_its_gate() -> None:
    built = flat(a="10", b="10")
    heads = (
        Heads(built, HeadOrder(priority_within_cohort=False))
        .head("a", 1, created=1)
        .head("b", 1, priority=9, created=2)
    )
    assert heads.order() == ["a", "b"]


def test_age_is_the_queue_timestamp() -> None:
    built = flat(a="10", b="10")
    timed_out = (condition("Evicted", True, "PodsReadyTimeout", 50),)
    heads = Heads(built).head("a", 1, created=1, conditions=timed_out).head("b", 1, created=2)
    assert heads.order() == ["b", "a"]


def test_a_preemptor_goes_first_only_with_its_gate() -> None:
    def order(gate: bool) -> list[str]:
        built = flat(a="0", b="0", lender="10")
        heads = Heads(built, HeadOrder(prioritize_preemptors=gate))
        return heads.head("a", 3, preemptor=True).head("b", 1).order()

    assert order(True) == ["a", "b"]
    assert order(False) == ["b", "a"]


def both_resources() -> World:
    """`a` borrows gpu; `b` has a smaller share than `a` if it asks for cpu."""
    built = world(
        queue("a", group(default=("cpu=4", "gpu=0")), cohort="root"),
        queue("b", group(default=("cpu=0", "gpu=0")), cohort="root"),
        queue("lender", group(default=("cpu=100", "gpu=10")), cohort="root"),
    )
    built.forest.add_usage("a", {built.interned.index("default", "gpu"): 4})
    return built


def test_who_does_not_borrow_what_it_asks_for_goes_first() -> None:
    assert Heads(both_resources()).head("a", 1).head("b", 1).order() == ["a", "b"]
    plain = Heads(both_resources(), HeadOrder(prioritize_non_borrowing=False))
    assert plain.head("a", 1).head("b", 1).order() == ["b", "a"]


def test_an_admission_changes_who_is_next() -> None:
    built = flat(a="0", b="0", lender="30")
    first = Heads(built).head("a", 2).head("b", 3)
    assert first.order() == ["a", "b"]
    again = Heads(built).head("a", 2).head("b", 2)
    assert again.order() == ["a", "b"], "4 against 5"
    use(built, a=4)
    assert Heads(built).head("a", 2).head("b", 2).order() == ["b", "a"]


def tree() -> World:
    """root > (left > l1, l2), (right > r1); quota is the root's."""
    return world(
        cohort("root", "", group(default="cpu=100")),
        cohort("left", "root"),
        cohort("right", "root"),
        *(
            queue(name, group(default="cpu=0"), cohort=parent)
            for name, parent in (("l1", "left"), ("l2", "left"), ("r1", "right"))
        ),
    )


def test_cohorts_are_compared_before_queues() -> None:
    built = tree()
    use(built, l1=10, r1=8)
    assert Heads(built).head("l2", 1).head("r1", 1).order() == ["r1", "l2"], (
        "left would have 11, right 9, though l2 has 1"
    )


def test_within_a_cohort_its_queues_are_compared() -> None:
    built = tree()
    use(built, l1=5, l2=3, r1=50)
    assert Heads(built).head("l1", 1).head("l2", 1).head("r1", 1).order() == ["l2", "l1", "r1"]


def test_the_winner_of_a_cohort_is_judged_anew_after_its_sibling_was_admitted() -> None:
    built = tree()
    use(built, r1=4)
    heads = Heads(built).head("l1", 3).head("l2", 3).head("r1", 1)
    assert heads.order() == ["l1", "r1", "l2"], "left: 3, then 6 against 5"
    built = tree()
    use(built, r1=4)
    heads = Heads(built).head("l1", 3).head("l2", 3).head("r1", 1)
    assert heads.order(admit=False) == ["l1", "l2", "r1"]


def test_a_cohorts_weight_counts_for_all_below() -> None:
    built = tree()
    heavy = msgspec.structs.replace(cohort("left", "root"), fair_weight="10")
    built.set_cohort(heavy)
    use(built, l1=10, r1=2)
    assert Heads(built).head("l2", 1).head("r1", 1).order() == ["l2", "r1"]


def test_queues_and_cohorts_of_one_parent_compete() -> None:
    built = tree()
    built.set_cluster_queue(queue("direct", group(default="cpu=0"), cohort="root"))
    use(built, l1=5, direct=3)
    assert Heads(built).head("l1", 1).head("direct", 1).head("r1", 9).order() == ["direct", "l1", "r1"]


def test_a_queue_without_a_cohort_and_other_trees_take_turns_by_priority_and_age() -> None:
    built = world(
        queue("alone", group(default="cpu=1")),
        queue("a1", group(default="cpu=5"), cohort="a"),
        queue("a2", group(default="cpu=5"), cohort="a"),
        queue("b1", group(default="cpu=5"), cohort="b"),
    )
    heads = Heads(built)
    heads.head("alone", 1, created=3).head("a1", 1, created=4).head("a2", 1, created=2).head(
        "b1", 1, priority=1, created=9
    )
    assert heads.order() == ["b1", "a2", "alone", "a1"]


def test_a_queue_has_one_contender() -> None:
    built = flat(a="10")
    heads: Tournament[str] = Tournament(built, ORDER)
    assert heads.add("first", info(workload("x")), "a", {}) is None
    assert heads.add("second", info(workload("y")), "a", {}) == "first"
    assert (heads.pop(), heads.pop()) == ("second", None)


def test_what_was_not_popped_remains() -> None:
    built = flat(a="10", b="10", c="10")
    heads = Heads(built).head("a", 1).head("b", 1).head("c", 1)
    assert heads.tournament.pop() == "a"
    assert heads.tournament.remaining() == ["b", "c"]


def test_usage_changed_elsewhere_must_be_told_and_then_counts() -> None:
    built = flat(a="0", b="0", c="0", lender="30")
    heads = Heads(built).head("a", 1).head("b", 2).head("c", 3)
    assert heads.tournament.pop() == "a"
    use(built, b=5)
    heads.tournament.usage_changed("b")
    assert heads.tournament.pop() == "c"
    built.remove_cluster_queue("b")
    heads.tournament.usage_changed("lender")
    heads.tournament.usage_changed("unheard of")


def naive(built: World, asks: dict[str, int], infos: dict[str, tuple[int, int]]) -> str:
    """The winner by core 8.2, word by word: shares of every entry on every level, then bottom up."""
    shares = FairShares(built)
    stored: dict[tuple[str, str], tuple[bool, tuple[bool, float]]] = {}
    for name, asked in asks.items():
        mark = built.forest.mark()
        built.forest.add_usage(name, cpu(built, asked * 1000))
        for node in path_of(built.forest.queue_node(name))[:-1]:
            assert node.parent is not None
            borrows = shares.borrows_on(node, cpu(built, asked * 1000))
            stored[(node.parent.name, name)] = (borrows, shares.of(node).key)
        built.forest.undo_to(mark)

    def winner(cohort_name: str) -> str | None:
        best: tuple[Any, str] | None = None
        for child in built.forest.cohort_node(cohort_name).children.values():
            name = winner(child.name) if child.is_cohort else (child.name if child.name in asks else None)
            if name is not None:
                priority, created = infos[name]
                key = (*stored[(cohort_name, name)], -priority, created, name)
                if best is None or key < best[0]:
                    best = (key, name)
        return best[1] if best is not None else None

    found = winner("root")
    assert found is not None
    return found


def test_it_agrees_with_playing_everything_again_each_round() -> None:
    names = [f"q{n}" for n in range(12)]
    parents = ["root", "left", "right", "deep"]
    built = world(
        cohort("root", "", group(default="cpu=40")),
        cohort("left", "root", group(default="cpu=3,lend=2")),
        msgspec.structs.replace(cohort("right", "root"), fair_weight="2"),
        cohort("deep", "left"),
        *(
            queue(name, group(default=f"cpu={n % 3},lend=1"), cohort=parents[n % 4], fair_weight=str(n % 3))
            for n, name in enumerate(names)
        ),
    )
    use(built, **{name: (n * 7) % 5 for n, name in enumerate(names)})
    asks = {name: 1 + n * 5 % 4 for n, name in enumerate(names)}
    infos = {name: (n % 2, 100 - n) for n, name in enumerate(names)}
    heads = Heads(built)
    for name in names:
        heads.head(name, asks[name], priority=infos[name][0], created=infos[name][1])
    left = dict(asks)
    while left:
        expected = naive(built, left, infos)
        assert heads.tournament.pop() == expected
        if len(left) % 3:
            use(built, **{expected: asks[expected]})
        del left[expected]
    assert heads.tournament.pop() is None


def test_the_order_does_not_depend_on_the_order_of_entering() -> None:
    def run(names: list[str]) -> list[str]:
        built = flat(a="2", b="1", c="0 2", d="0", lender="30")
        heads = Heads(built)
        for name in names:
            heads.head(name, {"a": 4, "b": 2, "c": 5, "d": 1}[name], created=3)
        return heads.order()

    assert run(["a", "b", "c", "d"]) == run(["d", "b", "c", "a"]) == run(["c", "a", "d", "b"])


def test_objects_are_untouched() -> None:
    built = tree()
    use(built, l1=10, r1=8)
    before = built.forest.dump()
    Heads(built).head("l2", 1).head("r1", 1).order(admit=False)
    assert built.forest.dump() == before
