"""The quota forest under any order of changes: sums, undo, and incremental equals rebuilt."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.model.amounts import UNLIMITED
from shared.model.quota_cells import Quota
from shared.model.quota_tree import QuotaForest

QUEUES = [f"q{n}" for n in range(4)]
COHORTS = [f"c{n}" for n in range(4)]
FRS = (0, 1)

amounts = st.one_of(st.integers(0, 30), st.just(UNLIMITED))
limits = st.one_of(st.none(), st.integers(0, 30))
quotas = st.dictionaries(st.sampled_from(FRS), st.builds(Quota, amounts, limits, limits))
vectors = st.dictionaries(st.sampled_from(FRS), st.integers(1, 20), min_size=1)
parents = st.one_of(st.none(), st.sampled_from(COHORTS))

structure = st.one_of(
    st.tuples(st.just("set_cluster_queue"), st.sampled_from(QUEUES), parents, quotas),
    st.tuples(st.just("set_cohort"), st.sampled_from(COHORTS), parents, quotas),
    st.tuples(st.just("remove_cohort"), st.sampled_from(COHORTS)),
)
usage = st.tuples(st.sampled_from(QUEUES), vectors)


class Model:
    """A forest with the list of what is held, so that it can be built anew."""

    def __init__(self) -> None:
        self.forest = QuotaForest()
        self.queues: dict[str, tuple[Any, ...]] = {}
        self.cohorts: dict[str, tuple[Any, ...]] = {}
        self.held: list[tuple[str, dict[int, int]]] = []
        for name in QUEUES:
            self.change(("set_cluster_queue", name, "c0", {}))

    def change(self, step: tuple[Any, ...]) -> None:
        method, name, *rest = step
        getattr(self.forest, method)(name, *rest)
        if method == "remove_cohort":
            self.cohorts.pop(name, None)
        else:
            (self.queues if method == "set_cluster_queue" else self.cohorts)[name] = tuple(rest)

    def hold(self, queue: str, vector: dict[int, int]) -> None:
        self.forest.add_usage(queue, vector)
        self.held.append((queue, vector))

    def release(self, position: int) -> None:
        if self.held:
            queue, vector = self.held.pop(position % len(self.held))
            self.forest.remove_usage(queue, vector)

    def rebuilt(self) -> QuotaForest:
        forest = QuotaForest()
        for name, rest in sorted(self.cohorts.items(), reverse=True):
            forest.set_cohort(name, *rest)
        for name, rest in sorted(self.queues.items(), reverse=True):
            forest.set_cluster_queue(name, *rest)
        for queue, vector in reversed(self.held):
            forest.add_usage(queue, vector)
        return forest


steps = st.lists(
    st.one_of(
        structure.map(lambda step: ("structure", step)),
        usage.map(lambda step: ("hold", step)),
        st.integers(0, 50).map(lambda position: ("release", position)),
        st.just(("look", None)),
    ),
    max_size=30,
)


def run(model: Model, script: list[tuple[str, Any]]) -> None:
    for kind, step in script:
        if kind == "structure":
            model.change(step)
        elif kind == "hold":
            model.hold(*step)
        elif kind == "release":
            model.release(step)
        else:
            model.forest.refresh()


@given(steps)
@settings(max_examples=150, deadline=None)
def test_incremental_equals_rebuilt(script: list[tuple[str, Any]]) -> None:
    model = Model()
    run(model, script)
    assert model.forest.dump() == model.rebuilt().dump()


def trees(forest: QuotaForest) -> list[object]:
    """What is kept about trees: whoever asks between two changes must not be told of the tree of before."""
    queues = [(forest.tree_of(name), forest.tree_id(name)) for name in QUEUES]
    return [*queues, *(forest.members_of_cohort_tree(name) for name in COHORTS)]


@given(steps)
@settings(max_examples=150, deadline=None)
def test_trees_are_those_of_now_whenever_they_were_asked_for(script: list[tuple[str, Any]]) -> None:
    model = Model()
    for step in script:
        run(model, [step])
        trees(model.forest)
    assert trees(model.forest) == trees(model.rebuilt())


@given(steps)
@settings(max_examples=150, deadline=None)
def test_cohort_sums_equal_the_sums_of_members(script: list[tuple[str, Any]]) -> None:
    model = Model()
    run(model, script)
    forest = model.forest
    for name in forest.cohorts():
        node = forest.cohort_node(name)
        if node.cyclic:
            continue
        for index in FRS:
            cells = [child.cells[index] for child in node.children.values() if index in child.cells]
            mine = node.cells.get(index)
            used = sum(max(0, cell.usage - cell.local) for cell in cells)
            assert (mine.usage if mine is not None else 0) == used
            if mine is not None and all(cell.subtree < UNLIMITED for cell in (*cells, mine)):
                assert mine.subtree == mine.nominal + sum(cell.subtree - cell.local for cell in cells)


@given(steps, st.lists(st.one_of(usage, st.integers(0, 50)), max_size=12))
@settings(max_examples=150, deadline=None)
def test_undo_restores_everything(script: list[tuple[str, Any]], trial: list[Any]) -> None:
    model = Model()
    run(model, script)
    forest = model.forest
    before = forest.dump()
    outer = forest.mark()
    for position, step in enumerate(trial):
        inner = forest.mark()
        if isinstance(step, int):
            if model.held:
                queue, vector = model.held[step % len(model.held)]
                forest.remove_usage(queue, vector)
        else:
            forest.add_usage(*step)
        if position % 2:
            forest.undo_to(inner)
        else:
            forest.keep(inner)
    forest.undo_to(outer)
    assert forest.dump() == before
    assert forest.dump() == model.rebuilt().dump()


@given(steps, usage)
@settings(max_examples=150, deadline=None)
def test_a_request_within_available_never_drives_an_ancestor_over_its_quota(
    script: list[tuple[str, Any]], request: tuple[str, dict[int, int]]
) -> None:
    model = Model()
    run(model, script)
    forest = model.forest
    queue, vector = request
    if any(amount > forest.available(queue, index) for index, amount in vector.items()):
        return
    root_before = {index: _root(forest, queue, index) for index in vector}
    forest.add_usage(queue, vector)
    for index in vector:
        subtree, used = _root(forest, queue, index)
        before = root_before[index][1]
        assert used <= max(subtree, before)
        assert forest.cell(queue, index).raw_available() >= 0


def _root(forest: QuotaForest, queue: str, index: int) -> tuple[int, int]:
    cell = forest.cell(queue, index)
    while cell.parent is not None:
        cell = cell.parent
    return cell.subtree, cell.usage


@given(steps, st.sampled_from(QUEUES), st.sampled_from(FRS))
@settings(max_examples=150, deadline=None)
def test_available_never_exceeds_potential_and_level_zero_means_own_quota(
    script: list[tuple[str, Any]], queue: str, index: int
) -> None:
    model = Model()
    run(model, script)
    cell = model.forest.cell(queue, index)
    assert cell.raw_available() <= cell.potential
    level, _ = model.forest.find_height(queue, index, 1)
    if cell.parent is not None:
        assert (level == 0) == (cell.usage + 1 <= cell.nominal)
