"""How many times requests fit, and which are larger."""

from __future__ import annotations

import pytest

from shared.model.resource_fit import MAX_COUNT, how_many_fit, larger


@pytest.mark.parametrize(
    ("requests", "capacity", "count", "limiting"),
    [
        ({"cpu": 2}, {"cpu": 7}, 3, "cpu"),
        ({"cpu": 2, "memory": 3}, {"cpu": 7, "memory": 3}, 1, "memory"),
        ({"memory": 1, "cpu": 1}, {"cpu": 4, "memory": 4}, 4, "cpu"),
        ({"cpu": 0, "memory": 5}, {"memory": 11}, 2, "memory"),
        ({"gpu": 1}, {"cpu": 4}, 0, "gpu"),
        ({"cpu": 1}, {"cpu": -3}, 0, "cpu"),
        ({}, {"cpu": 1}, MAX_COUNT, ""),
        ({"cpu": 0}, {}, MAX_COUNT, ""),
        ({"cpu": 1}, {"cpu": 1 << 60}, MAX_COUNT, "cpu"),
    ],
)
def test_how_many_fit(requests: dict[str, int], capacity: dict[str, int], count: int, limiting: str) -> None:
    assert how_many_fit(requests, capacity) == (count, limiting)


def test_larger_names_what_both_have() -> None:
    assert larger({"memory": 3, "cpu": 2, "gpu": 9}, {"cpu": 1, "memory": 1, "disk": 0}) == ("cpu", "memory")
    assert larger({"cpu": 1}, {"cpu": 1}) == ()
