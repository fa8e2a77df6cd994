"""Amount arithmetic of the quota model: int64 amounts with an Unlimited sentinel.

Why it exists: quota may be "as much as there is", and sums of quota must saturate instead of wrapping. Every value of
the quota tree goes through these functions. cpu is counted in milli-units, every other resource in whole units.
It does not parse quantities; `shared.api` does that.
"""

from __future__ import annotations

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
UNLIMITED = INT64_MAX
"""Sentinel for a quota that does not fit int64. Equal to itself and above every bounded amount."""


def clamp(value: int) -> int:
    """`value` cut to the int64 range (request side: a clamped request is not Unlimited, merely very large)."""
    if value > INT64_MAX:
        return INT64_MAX
    if value < INT64_MIN:
        return INT64_MIN
    return value


def add(left: int, right: int) -> int:
    """Saturating sum; Unlimited plus anything is Unlimited."""
    if left >= UNLIMITED or right >= UNLIMITED:
        return UNLIMITED
    total = left + right
    return total if INT64_MIN <= total <= INT64_MAX else clamp(total)


def sub(left: int, right: int) -> int:
    """Saturating difference; Unlimited - Unlimited = 0, Unlimited - bounded = Unlimited, bounded - Unlimited = min."""
    if left >= UNLIMITED:
        return 0 if right >= UNLIMITED else UNLIMITED
    if right >= UNLIMITED:
        return INT64_MIN
    total = left - right
    return total if INT64_MIN <= total <= INT64_MAX else clamp(total)


def mul(amount: int, factor: int) -> int:
    """Saturating product of a bounded amount and a count."""
    return clamp(amount * factor)
