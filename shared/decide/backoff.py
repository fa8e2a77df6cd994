"""Exponential backoff of requeues and of check controllers (core rules 2.7, 2.9).

Why it exists: several services delay by the same formula. Jitter is added by the caller, as decisions know no randomness.
"""

from __future__ import annotations


def delay(attempt: int, base_s: int, max_s: int) -> int:
    """Seconds before the n-th attempt (counted from 1): base, 2*base, 4*base, ... at most `max_s`."""
    # The exponent is bounded so that a hostile count cannot make a huge number.
    return min(base_s << min(max(attempt, 1) - 1, 62), max_s)


def exceeds_limit(count: int, limit: int | None) -> bool:
    """Would one more requeue after `count` exceed `backoffLimitCount`? None = no limit."""
    return limit is not None and count + 1 > limit
