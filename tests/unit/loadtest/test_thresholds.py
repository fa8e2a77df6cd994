"""Limits met and missed."""

from __future__ import annotations

import pytest

from loadtest.shape import Threshold
from loadtest.thresholds import check


@pytest.mark.parametrize(
    ("value", "low", "high", "met"),
    [
        (5.0, None, 5.0, True),
        (5.1, None, 5.0, False),
        (5.0, 5.0, None, True),
        (4.9, 5.0, None, False),
        (5.0, 4.0, 6.0, True),
        (7.0, 4.0, 6.0, False),
        (0.0, None, 0.0, True),
    ],
)
def test_limits_include_their_value(value: float, low: float | None, high: float | None, met: bool) -> None:
    (found,) = check({"x": value}, [Threshold(figure="x", min=low, max=high)])
    assert (found.met, found.value) == (met, value)


def test_a_figure_that_is_missing_has_missed() -> None:
    (found,) = check({}, [Threshold(figure="x", max=1)])
    assert (found.met, found.value) == (False, None)


def test_limits_are_told_in_words_and_in_order() -> None:
    found = check({}, [Threshold(figure="b", min=1, max=2.5), Threshold(figure="a", max=0)])
    assert [(c.figure, c.limit) for c in found] == [("b", "at least 1 and at most 2.5"), ("a", "at most 0")]
