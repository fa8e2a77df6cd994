"""Durations as Kueue's configuration writes them: Go's notation (`1h30m`, `250ms`), or 0."""

from __future__ import annotations

import re
from decimal import Decimal

_UNITS = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "µs": Decimal("1e-6"),
    "μs": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")


class Duration(float):
    """A span of time in seconds."""


def parse_duration(text: str) -> Duration:
    """Raises ValueError with a reason for people."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return Duration(0)
    total, end = Decimal(0), 0
    for match in _PART.finditer(rest):
        if match.start() != end:
            break
        total += Decimal(match[1]) * _UNITS[match[2]]
        end = match.end()
    if not rest or end != len(rest):
        raise ValueError(f"not a duration: {text!r} (for example 30s, 5m, 1h30m)")
    return Duration(sign * total)
