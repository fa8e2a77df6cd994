"""How many statuses of queues are asked for in a second, all queues together.

The gateway writes no more than its budget for what informs has room for: what is asked for beyond that is replaced there before it is written, and has cost a
command, an outcome and the look at both. Pure: time is an argument.
"""

from __future__ import annotations


class StatusRate:
    """A bucket of tokens: `per_s` of them come back each second, up to `burst`."""

    def __init__(self, per_s: float, burst: int) -> None:
        if per_s <= 0 or burst < 1:
            raise ValueError(f"a rate needs a positive rate and burst, not {per_s} and {burst}")
        self._per_s = per_s
        self._burst = float(burst)
        self._tokens = float(burst)
        self._filled_at: float | None = None

    def take(self, now: float) -> float:
        """0 if a status may be asked for at `now` (seconds), which it then counts as; else when to ask again."""
        if self._filled_at is not None:
            self._tokens = min(self._burst, self._tokens + max(0.0, now - self._filled_at) * self._per_s)
        self._filled_at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return now + (1 - self._tokens) / self._per_s
