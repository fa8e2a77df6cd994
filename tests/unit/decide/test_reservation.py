"""Capacity set aside for a head that waits."""

from __future__ import annotations

import pytest

from shared.decide.reservation import set_aside
from shared.model.quota_cells import Quota
from shared.model.quota_tree import QuotaForest


@pytest.mark.parametrize(
    ("level", "borrowing", "used", "asked", "expected"),
    [
        (0, None, 1, 3, 3),
        (0, None, 2, 9, 2),
        (0, None, 7, 9, 0),
        (1, None, 7, 9, 9),
        (1, 3, 1, 9, 6),
        (1, 3, 1, 2, 2),
    ],
)
def test_amount_set_aside(level: int, borrowing: int | None, used: int, asked: int, expected: int) -> None:
    forest = QuotaForest()
    forest.set_cluster_queue("q", "pool", {0: Quota(4, borrowing_limit=borrowing)})
    forest.add_usage("q", {0: used})
    assert set_aside(forest, "q", level, {0: asked}) == {0: expected}
