"""The rate of statuses: bursts, refills, and times that are one's own."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.queue_manager.status_rate import StatusRate


def test_a_burst_goes_through_and_each_of_the_others_gets_a_time_of_its_own() -> None:
    rate = StatusRate(10.0, 3)
    times = [rate.turn(f"q{n}", 100.0) for n in range(6)]
    assert times == [0.0, 0.0, 0.0, pytest.approx(100.1), pytest.approx(100.2), pytest.approx(100.3)]


def test_a_time_stays_however_often_it_is_asked_for_and_is_used_once() -> None:
    rate = StatusRate(10.0, 1)
    rate.turn("a", 100.0)
    first = rate.turn("b", 100.0)
    assert [rate.turn("b", 100.0 + n / 100) for n in range(5)] == [first] * 5
    assert rate.turn("b", first) == 0.0
    assert rate.turn("b", first) == pytest.approx(first + 0.1)


def test_a_time_that_was_given_up_is_not_kept_for_the_next_wish() -> None:
    rate = StatusRate(10.0, 1)
    rate.turn("a", 100.0)
    rate.turn("b", 100.0)
    rate.give_up("b")
    assert rate.turn("b", 100.15) == pytest.approx(100.2)
    rate.give_up("nobody")


def test_silence_saves_up_no_more_than_the_burst() -> None:
    rate = StatusRate(10.0, 3)
    rate.turn("a", 0.0)
    assert [rate.turn(f"q{n}", 1e6) > 0 for n in range(4)] == [False, False, False, True]


@pytest.mark.parametrize(("per_s", "burst"), [(0.0, 1), (-1.0, 1), (1.0, 0)])
def test_a_rate_is_positive(per_s: float, burst: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        StatusRate(per_s, burst)


@given(st.lists(st.floats(0, 2), min_size=1, max_size=60), st.floats(0.5, 50), st.integers(1, 10))
def test_never_more_than_the_burst_and_the_rate_together(gaps: list[float], per_s: float, burst: int) -> None:
    rate, now, taken, names = StatusRate(per_s, burst), 0.0, 0, count()
    waiting: dict[str, float] = {}
    for gap in gaps:
        now += gap
        for key in [*(k for k, at in waiting.items() if at <= now), f"q{next(names)}"]:
            waiting.pop(key, None)
            later = rate.turn(key, now)
            if later:
                assert later > now
                waiting[key] = later
            else:
                taken += 1
        assert taken <= burst + now * per_s + 1e-6
