"""What is left of a scenario is what it takes to break it, whatever that is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.scenario import Scenario, Step
from tests.simulation.shortest import shortest


def scenario(faults: int, load: int) -> Scenario:
    def steps(what: str, count: int) -> tuple[Step, ...]:
        return tuple(Step(float(i), what, (i,)) for i in range(count))

    return Scenario(seed=1, name="", setup=(), load=steps("do", load), faults=steps("fault", faults))


def numbers(steps: tuple[Step, ...]) -> set[int]:
    return {step.args[0] for step in steps}


@given(st.sets(st.integers(0, 29), max_size=4), st.sets(st.integers(0, 29), max_size=4))
def test_only_what_breaks_it_is_left(faults: set[int], load: set[int]) -> None:
    def breaks(tried: Scenario) -> bool:
        return faults <= numbers(tried.faults) and load <= numbers(tried.load)

    found = shortest(scenario(30, 30), breaks, most_runs=10_000)
    assert numbers(found.faults) == faults
    assert numbers(found.load) == load


@given(st.integers(0, 12))
def test_after_so_many_runs_it_stops_with_something_that_breaks(most_runs: int) -> None:
    tried: list[Scenario] = []

    def breaks(one: Scenario) -> bool:
        tried.append(one)
        return {3, 17} <= numbers(one.faults)

    found = shortest(scenario(30, 30), breaks, most_runs)
    assert len(tried) <= most_runs
    assert {3, 17} <= numbers(found.faults)
