"""How many statuses of queues are asked for in a second, all queues together.

The gateway writes no more than its budget for what informs has room for: what is asked for beyond that is replaced there before it is written, and has cost a
command, an outcome and the look at both. Who comes too early is given a time of its own, so that nobody looks again in vain. Pure: time is an argument.
"""

from __future__ import annotations


class StatusRate:
    """`per_s` turns a second, up to `burst` at once after silence (the generic cell rate algorithm). One turn at a time for each key."""

    def __init__(self, per_s: float, burst: int) -> None:
        if per_s <= 0 or burst < 1:
            raise ValueError(f"a rate needs a positive rate and burst, not {per_s} and {burst}")
        self._gap_s = 1 / per_s
        self._ahead_s = (burst - 1) / per_s
        self._next = 0.0
        """When the next turn would be due if turns came evenly."""
        self._given: dict[str, float] = {}

    def turn(self, key: str, now: float) -> float:
        """0 if `key` may be asked for at `now` (seconds), which takes its turn; else when it may, which is its own until it comes or is given up."""
        at = self._given.pop(key, None)
        if at is None:
            due = max(self._next, now)
            self._next = due + self._gap_s
            at = due - self._ahead_s
        if at <= now:
            return 0.0
        self._given[key] = at
        return at

    def give_up(self, key: str) -> None:
        """There is nothing to ask for any more."""
        self._given.pop(key, None)
