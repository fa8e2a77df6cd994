"""Cuts a scenario that breaks a promise down to the steps that it takes, so that its story is short.

Halves of the steps are left out, then quarters, and so on (delta debugging), as long as what is left still breaks the promise. It is no proof that none
of the rest could go: it stops after so many runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from tests.simulation.scenario import Scenario, Step

MOST_RUNS = 40


def shortest(scenario: Scenario, breaks: Callable[[Scenario], bool], most_runs: int = MOST_RUNS) -> Scenario:
    """The scenario with as few faults, then as few users' steps, as were found to break it. `breaks` runs one."""
    budget = _Budget(breaks, most_runs)

    def with_faults(faults: Sequence[Step]) -> Scenario:
        return msgspec.structs.replace(scenario, faults=tuple(faults))

    scenario = with_faults(_fewest(scenario.faults, lambda faults: budget.breaks(with_faults(faults))))

    def with_load(load: Sequence[Step]) -> Scenario:
        return msgspec.structs.replace(scenario, load=tuple(load))

    return with_load(_fewest(scenario.load, lambda load: budget.breaks(with_load(load))))


class _Budget:
    def __init__(self, breaks: Callable[[Scenario], bool], left: int) -> None:
        self._breaks = breaks
        self._left = left

    def breaks(self, scenario: Scenario) -> bool:
        """False too when there is no run left."""
        self._left -= 1
        return self._left >= 0 and self._breaks(scenario)


def _fewest(steps: Sequence[Step], enough: Callable[[Sequence[Step]], bool]) -> Sequence[Step]:
    """`steps` without those pieces that are not needed."""
    piece = len(steps)
    while piece:
        start = 0
        while start < len(steps):
            fewer = [*steps[:start], *steps[start + piece :]]
            if enough(fewer):
                steps = fewer
            else:
                start += piece
        piece //= 2
    return steps
