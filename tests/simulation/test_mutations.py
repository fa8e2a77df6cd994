"""The hunt for mutations: every mutation gets its seeds, and none that is caught gets more. What the hunt finds is `make simulate-mutations`."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.invariants import NO_CRASH
from tests.simulation.mutations import LONGEST_ROUND, MUTATIONS, Caught, caught, hunt

MOST = 50


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, MOST + 20), min_size=1))
def test_each_is_hunted_until_it_is_caught_and_not_much_longer(caught_by: dict[str, int]) -> None:
    ran: list[tuple[str, int]] = []

    def run(pairs: list[tuple[str, int]]) -> Iterator[Caught | None]:
        for mutation, seed in pairs:
            ran.append((mutation, seed))
            yield Caught(mutation, "a promise", seed) if seed >= caught_by[mutation] else None

    found = {one.mutation: one.seed for one in hunt(tuple(caught_by), MOST, run) if one is not None}
    assert found == {mutation: seed for mutation, seed in caught_by.items() if seed <= MOST}
    assert len(ran) == len(set(ran))
    for mutation, seed in caught_by.items():
        seeds = [s for m, s in ran if m == mutation]
        assert seeds == list(range(1, len(seeds) + 1))
        assert min(seed, MOST) <= len(seeds) <= min(MOST, seed + LONGEST_ROUND)


def test_a_mutation_is_caught_by_a_promise_with_a_name() -> None:
    found = next(one for seed in range(1, 20) if (one := caught("count no assumption", seed)) is not None)
    assert found.promise != NO_CRASH
    assert len(MUTATIONS) >= 12
