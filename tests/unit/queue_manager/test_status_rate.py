"""The rate of statuses: bursts, refills, and when to ask again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.queue_manager.status_rate import StatusRate


def test_a_burst_goes_through_and_the_next_is_told_when() -> None:
    rate = StatusRate(10.0, 3)
    assert [rate.take(100.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    again = rate.take(100.0)
    assert again == pytest.approx(100.1)
    assert rate.take(100.05) == pytest.approx(100.1)
    assert rate.take(again + 0.001) == 0.0
    assert rate.take(again + 0.001) > again


def test_silence_saves_up_no_more_than_the_burst() -> None:
    rate = StatusRate(10.0, 3)
    rate.take(0.0)
    assert [rate.take(1e6) > 0 for _ in range(4)] == [False, False, False, True]


def test_a_clock_that_goes_back_gives_nothing() -> None:
    rate = StatusRate(10.0, 1)
    assert rate.take(100.0) == 0.0
    assert rate.take(50.0) > 50.0


@pytest.mark.parametrize(("per_s", "burst"), [(0.0, 1), (-1.0, 1), (1.0, 0)])
def test_a_rate_is_positive(per_s: float, burst: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        StatusRate(per_s, burst)


@given(st.lists(st.floats(0, 2), min_size=1, max_size=60), st.floats(0.5, 50), st.integers(1, 10))
def test_never_more_than_the_burst_and_the_rate_together(gaps: list[float], per_s: float, burst: int) -> None:
    rate, now, taken = StatusRate(per_s, burst), 0.0, 0
    for gap in gaps:
        now += gap
        again = rate.take(now)
        taken += again == 0.0
        assert again == 0.0 or again > now
        assert taken <= burst + now * per_s + 1e-6
