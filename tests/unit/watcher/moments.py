"""The present of tests, and a clock that stands there until it is moved."""

from datetime import UTC, datetime

NOW = datetime(2026, 1, 2, 4, 0, 0, tzinfo=UTC)
NOW_TEXT = "2026-01-02T04:00:00Z"


class Clock:
    """Callable like `ctx.now`: seconds since the epoch."""

    def __init__(self, start: datetime = NOW) -> None:
        self.at = start.timestamp()

    def __call__(self) -> float:
        return self.at

    def pass_(self, seconds: float) -> None:
        self.at += seconds
