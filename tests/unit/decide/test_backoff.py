"""Backoff delays and limits."""

from __future__ import annotations

import pytest

from shared.decide.backoff import delay, exceeds_limit


def test_delays_double_up_to_the_maximum() -> None:
    assert [delay(n, 60, 3600) for n in range(1, 9)] == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert delay(10**9, 60, 3600) == 3600
    assert delay(0, 60, 3600) == 60


@pytest.mark.parametrize(
    ("count", "limit", "exceeds"), [(0, 2, False), (1, 2, False), (2, 2, True), (0, 0, True), (99, None, False)]
)
def test_limit_allows_exactly_that_many(count: int, limit: int | None, exceeds: bool) -> None:
    assert exceeds_limit(count, limit) is exceeds
