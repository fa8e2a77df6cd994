"""Compares the figures of a run with the limits of its shape. A figure that is missing has missed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from loadtest.shape import Threshold


class Check(msgspec.Struct, frozen=True):
    """One limit and what came out; `value` is None if there is no such figure."""

    figure: str
    limit: str
    value: float | None
    met: bool


def check(figures: Mapping[str, float], thresholds: Iterable[Threshold]) -> tuple[Check, ...]:
    """In the order of the thresholds."""
    return tuple(_check(figures.get(threshold.figure), threshold) for threshold in thresholds)


def _check(value: float | None, threshold: Threshold) -> Check:
    low, high = threshold.min, threshold.max
    parts = [f"at least {low:g}"] if low is not None else []
    parts += [f"at most {high:g}"] if high is not None else []
    met = value is not None and (low is None or value >= low) and (high is None or value <= high)
    return Check(threshold.figure, " and ".join(parts), value, met)
