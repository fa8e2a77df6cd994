"""Go's notation of durations."""

from __future__ import annotations

import pytest

from shared.config.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("0s", 0),
        ("30s", 30),
        ("5m", 300),
        ("1h30m", 5400),
        ("1.5h", 5400),
        (".5s", 0.5),
        ("250ms", 0.25),
        ("10us", 1e-5),
        ("10µs", 1e-5),
        ("3ns", 3e-9),
        ("-2s", -2),
        ("+2s", 2),
        ("720h", 2_592_000),
    ],
)
def test_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "s", "5x", "5m ", "5 m", "1h30", "--1s", "1d", "5mm", "ms5"])
def test_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)
