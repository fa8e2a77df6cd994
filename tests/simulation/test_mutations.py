"""The hunt for mutations: every mutation gets its seeds, and none that is caught gets more. What the hunt finds is `make simulate-mutations`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.invariants import NO_CRASH
from tests.simulation.mutations import LONGEST_ROUND, MUTATIONS, Run, hunt, table, tried

MOST = 50


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, MOST + 20), min_size=1))
def test_each_is_hunted_until_it_is_caught_and_not_much_longer(caught_by: dict[str, int]) -> None:
    def run(pairs: list[tuple[str, int]]) -> Iterator[Run]:
        for mutation, seed in pairs:
            yield Run(mutation, seed, 1, "a promise" if seed >= caught_by[mutation] else "")

    runs = list(hunt(tuple(caught_by), MOST, run))
    ran = [(one.mutation, one.seed) for one in runs]
    assert len(ran) == len(set(ran))
    for mutation, seed in caught_by.items():
        seeds = [s for m, s in ran if m == mutation]
        assert seeds == list(range(1, len(seeds) + 1))
        assert min(seed, MOST) <= len(seeds) <= min(MOST, seed + LONGEST_ROUND)
    lines, caught = table(tuple(caught_by), runs)
    assert caught == sum(seed <= MOST for seed in caught_by.values())
    for (mutation, seed), line in zip(caught_by.items(), lines, strict=False):
        assert line.startswith(mutation)
        assert (f"seed {seed:3}: a promise" in line) == (seed <= MOST)
    assert lines[-1] == f"{caught} of {len(caught_by)} caught by a named promise"


def test_what_is_not_caught_says_how_much_was_tried() -> None:
    lines, caught = table(("a",), [Run("a", 1, 3), Run("a", 2, 4)])
    assert caught == 0
    assert "NOT in 2 seeds (altered 7 times)" in lines[0]


@pytest.mark.parametrize("mutation", ["count no assumption", "drop the precondition"])
def test_a_mutation_is_caught_by_a_promise_with_a_name(mutation: str) -> None:
    found = next(one for seed in range(1, 20) if (one := tried(mutation, seed)).promise)
    assert found.promise != NO_CRASH
    assert found.altered > 0


def test_there_are_as_many_as_were_asked_for() -> None:
    assert len(MUTATIONS) >= 12
