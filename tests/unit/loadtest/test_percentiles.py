"""Percentiles by nearest rank."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.percentiles import Distribution, distribution, nearest_rank


@pytest.mark.parametrize(
    ("percent", "wanted"), [(1, 1), (50, 50), (50.1, 51), (90, 90), (99, 99), (99.1, 100), (100, 100)]
)
def test_of_a_hundred(percent: float, wanted: float) -> None:
    assert nearest_rank([float(n) for n in range(1, 101)], percent) == wanted


def test_of_few_values_the_high_ones_are_the_highest() -> None:
    found = distribution([3.0, 1.0, 2.0])
    assert found == Distribution(count=3, mean=2.0, p50=2.0, p90=3.0, p95=3.0, p99=3.0, max=3.0)


def test_of_nothing() -> None:
    assert distribution([]).count == 0
    with pytest.raises(ValueError, match="no values"):
        nearest_rank([], 50)


@pytest.mark.parametrize("percent", [0, -1, 100.5])
def test_percent_out_of_range(percent: float) -> None:
    with pytest.raises(ValueError, match="not above 0"):
        nearest_rank([1.0], percent)


@given(st.lists(st.floats(0, 1e9), min_size=1), st.floats(0.1, 100))
def test_enough_values_do_not_exceed_it_and_no_smaller_value_would_do(values: list[float], percent: float) -> None:
    ordered = sorted(values)
    found = nearest_rank(ordered, percent)
    assert found in values
    assert 100 * sum(v <= found for v in values) >= percent * len(values) * (1 - 1e-9)
    smaller = [v for v in values if v < found]
    assert 100 * len(smaller) < percent * len(values) * (1 + 1e-9)


@given(st.lists(st.floats(0, 1e9), min_size=1), st.randoms())
def test_order_does_not_matter(values: list[float], rng: random.Random) -> None:
    shuffled = list(values)
    rng.shuffle(shuffled)
    ours, theirs = distribution(values), distribution(shuffled)
    assert (ours.p50, ours.p99, ours.max) == (theirs.p50, theirs.p99, theirs.max)
