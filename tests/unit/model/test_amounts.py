"""Amount arithmetic of the quota model."""

from __future__ import annotations

import pytest

from shared.model.amounts import INT64_MAX, INT64_MIN, UNLIMITED, add, clamp, mul, sub


@pytest.mark.parametrize(
    ("left", "right", "total"),
    [
        (1, 2, 3),
        (UNLIMITED, 5, UNLIMITED),
        (5, UNLIMITED, UNLIMITED),
        (UNLIMITED, -5, UNLIMITED),
        (INT64_MAX - 1, 2, INT64_MAX),
        (INT64_MIN, -1, INT64_MIN),
    ],
)
def test_add(left: int, right: int, total: int) -> None:
    assert add(left, right) == total


@pytest.mark.parametrize(
    ("left", "right", "rest"),
    [
        (5, 2, 3),
        (UNLIMITED, 5, UNLIMITED),
        (5, UNLIMITED, INT64_MIN),
        (UNLIMITED, UNLIMITED, 0),
        (INT64_MIN, 1, INT64_MIN),
        (INT64_MAX - 1, -2, INT64_MAX),
    ],
)
def test_sub(left: int, right: int, rest: int) -> None:
    assert sub(left, right) == rest


def test_product_and_clamp_stay_in_range() -> None:
    assert mul(3, 4) == 12
    assert mul(INT64_MAX // 2, 3) == INT64_MAX
    assert clamp(-(2**70)) == INT64_MIN
    assert clamp(7) == 7
