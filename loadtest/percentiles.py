"""Percentiles of measured durations, by nearest rank: each is a value that really occurred, never an interpolation."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec


class Distribution(msgspec.Struct, frozen=True, gc=False):
    """Of `count` values, in their unit; all zero without any."""

    count: int = 0
    mean: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    max: float = 0.0


def distribution(values: Iterable[float]) -> Distribution:
    ordered = sorted(values)
    if not ordered:
        return Distribution()
    p50, p90, p95, p99 = (nearest_rank(ordered, percent) for percent in (50, 90, 95, 99))
    return Distribution(len(ordered), sum(ordered) / len(ordered), p50, p90, p95, p99, ordered[-1])


def nearest_rank(ordered: list[float], percent: float) -> float:
    """The smallest of these ascending values that at least `percent` % of them do not exceed. Raises ValueError without values."""
    if not ordered:
        raise ValueError("no values")
    if not 0 < percent <= 100:
        raise ValueError(f"{percent} % is not above 0 and up to 100")
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]
