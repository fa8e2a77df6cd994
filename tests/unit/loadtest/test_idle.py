"""Idle quota beside waiting items, on cases that can be reckoned by hand."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.generator import Queue
from loadtest.idle import Idle
from loadtest.idle import idle as idle_of
from loadtest.timeline import Timeline
from tests.unit.loadtest.items import item

Spans = list[tuple[float, float]]
START = 100.0
"""When runs begin: at 0 a time means "not yet"."""


def idle(queues: list[Queue], timelines: list[Timeline], began: float, ended: float) -> Idle:
    return idle_of(queues, timelines, START + began, START + ended)


def queue(name: str, *, nominal: int = 10, most: int = 1 << 40, cohort: str = "c") -> Queue:
    return Queue(name, "cq", nominal * 1000, (), cohort, most * 1000)


def timeline(queue_: str, cpus: int, answered: float, spans: Spans, *, finished: bool = True) -> Timeline:
    made = msgspec.structs.replace(item(f"{queue_}{answered}{cpus}"), namespace=queue_, milli=cpus * 1000)
    shifted = [(START + begin, START + end) for begin, end in spans]
    return Timeline(
        made, answered=START + answered, spans=shifted, finished=shifted[-1][1] if shifted and finished else 0.0
    )


def test_nothing_waits_nothing_is_idle() -> None:
    found = idle([queue("a")], [timeline("a", 5, 0.0, [(0.0, 10.0)])], 0.0, 10.0)
    assert (found.quota, found.queue_time) == (0, 0)


def test_the_time_until_an_admission_counts_as_far_as_the_item_fills_the_quota() -> None:
    # 4 of 10 CPUs for 5 of 10 seconds.
    found = idle([queue("a")], [timeline("a", 4, 0.0, [(5.0, 10.0)])], 0.0, 10.0)
    assert found.quota == pytest.approx(20)
    assert found.queue_time == pytest.approx(50)


def test_an_item_that_does_not_fit_beside_what_runs_is_not_waited_for() -> None:
    runs = timeline("a", 8, 0.0, [(0.0, 10.0)])
    assert idle([queue("a")], [runs, timeline("a", 4, 0.0, [])], 0.0, 10.0).queue_time == 0
    # Something smaller beside it fits.
    assert idle([queue("a")], [runs, timeline("a", 1, 0.0, [])], 0.0, 10.0).quota == pytest.approx(10)


def test_the_quota_of_the_cohort_can_be_borrowed_up_to_the_limit() -> None:
    waits = [timeline("a", 15, 0.0, [])]
    assert idle([queue("a", most=20), queue("b")], waits, 0.0, 10.0).quota == pytest.approx(75)
    assert idle([queue("a", most=12), queue("b")], waits, 0.0, 10.0).quota == 0
    assert idle([queue("a", most=20), queue("b", cohort="other")], waits, 0.0, 10.0).quota == 0


def test_idle_quota_counts_once_however_many_wait_for_it() -> None:
    waits = [timeline(name, 10, 0.0, []) for name in ("a", "b", "b")]
    found = idle([queue("a"), queue("b")], waits, 0.0, 10.0)
    assert found.quota == pytest.approx(100)
    assert found.queue_time == pytest.approx(100)


def test_who_is_evicted_waits_again() -> None:
    again = timeline("a", 10, 0.0, [(0.0, 4.0), (6.0, 10.0)])
    assert idle([queue("a")], [again], 0.0, 10.0).quota == pytest.approx(20)
    for_ever = timeline("a", 10, 0.0, [(0.0, 4.0)], finished=False)
    assert idle([queue("a")], [for_ever], 0.0, 10.0).quota == pytest.approx(60)


def test_an_admission_that_lasts_to_the_end_holds_quota() -> None:
    runs = timeline("a", 10, 0.0, [])
    runs.current = START + 2.0
    found = idle([queue("a")], [runs, timeline("a", 5, 1.0, [])], 0.0, 10.0)
    # Nothing held until 2: the first waits from 0 (and 10 CPUs are all there are).
    assert found.quota == pytest.approx(20)


def test_items_that_were_never_made_and_runs_without_length_count_nothing() -> None:
    assert idle([queue("a")], [Timeline(msgspec.structs.replace(item(), namespace="a"))], 0.0, 10.0).queue_time == 0
    assert idle([queue("a")], [], 5.0, 5.0).quota == 0


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(1, 12), st.floats(0, 8), st.floats(0, 2), st.floats(0, 2)),
        max_size=12,
    )
)
def test_both_figures_are_percentages_and_queues_idle_at_least_as_long_as_quota(
    made: list[tuple[str, int, float, float, float]],
) -> None:
    timelines = [timeline(q, cpus, at, [(at + wait, at + wait + run)]) for q, cpus, at, wait, run in made]
    found = idle([queue("a"), queue("b")], timelines, 0.0, 12.0)
    assert 0 <= found.quota <= 100 + 1e-6
    assert 0 <= found.queue_time <= 100 + 1e-6
    assert (found.quota > 0) == (found.queue_time > 0)
