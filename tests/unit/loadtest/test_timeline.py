"""The states of an item as they are seen."""

from __future__ import annotations

from loadtest.timeline import Timeline
from tests.unit.loadtest.items import item


def test_the_first_time_counts() -> None:
    timeline = Timeline(item())
    timeline.is_suspended(1.0, True)
    timeline.is_suspended(2.0, False)
    timeline.is_suspended(3.0, True)
    timeline.is_suspended(4.0, False)
    assert (timeline.held, timeline.started) == (True, 2.0)
    timeline.reserves(5.0)
    timeline.reserves(6.0)
    assert timeline.reserved == 5.0


def test_a_job_that_ran_at_once_was_not_held() -> None:
    timeline = Timeline(item())
    timeline.is_suspended(1.0, False)
    assert (timeline.held, timeline.started) == (False, 1.0)


def test_each_admission_begins_once_and_adds_to_the_time_occupied() -> None:
    timeline = Timeline(item())
    begins = [
        timeline.is_admitted(at, admitted) for at, admitted in ((1, True), (2, True), (4, False), (5, False), (7, True))
    ]
    assert begins == [True, False, False, False, True]
    assert (timeline.admitted, timeline.current, timeline.occupied_s) == (1, 7, 3)
    assert timeline.ends(9.0, True)
    assert timeline.occupied_s == 5


def test_each_eviction_counts_once() -> None:
    timeline = Timeline(item())
    assert [timeline.is_evicted(e) for e in (False, True, True, False, True)] == [False, True, False, False, True]
    assert timeline.evictions == 2


def test_the_end_is_the_first_one() -> None:
    timeline = Timeline(item())
    assert timeline.ends(1.0, False)
    assert not timeline.ends(2.0, True)
    assert (timeline.finished, timeline.succeeded) == (1.0, False)
