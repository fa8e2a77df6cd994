"""What a long run says of itself where there is no terminal."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from tests.simulation.progress import LINE_EVERY_S, line, shown


def test_a_line_says_how_far_it_is_and_how_long_it_takes_still() -> None:
    assert line(50, 200, "seeds", 1, 30.0) == "50 of 200 seeds, 1 broken, 100 a minute, 1:30 min left, 0:30 min so far"


def test_results_pass_and_lines_come_seldom() -> None:
    written = StringIO()
    times = iter(LINE_EVERY_S * i / 2 for i in range(5))
    results = shown(
        range(4), 4, "seeds", lambda n: n == 0, console=Console(file=written, width=200), clock=lambda: next(times)
    )
    assert list(results) == [0, 1, 2, 3]
    assert written.getvalue().splitlines() == [
        "2 of 4 seeds, 1 broken, 4 a minute, 0:30 min left, 0:30 min so far",
        "4 of 4 seeds, 1 broken, 4 a minute, 0:00 min left, 1:00 min so far",
    ]
