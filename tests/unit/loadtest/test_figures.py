"""Figures from timelines."""

from __future__ import annotations

import pytest

from loadtest.figures import counts, durations, flat, pauses, steps
from loadtest.generator import Plan, Queue
from loadtest.percentiles import distribution
from loadtest.runner import Fault
from loadtest.timeline import Timeline
from loadtest.writes import Stamps
from tests.unit.loadtest.items import item, started

PLAN = Plan((), (Queue("ns", "cq", 10_000, ()),), ())


def test_durations_count_from_the_request() -> None:
    a, b = started("a", asked=100.0, at=100.05), started("b", asked=200.0, at=200.25)
    found = durations([a, b])
    assert found["start_ms"].count == 2
    assert found["start_ms"].p50 == pytest.approx(50)
    assert found["start_ms"].max == pytest.approx(250)
    assert "finish_ms" not in found


def test_classes_stand_apart_if_there_are_several() -> None:
    small = Timeline(item("a", class_name="small"), asked=1.0, admitted=2.0)
    large = Timeline(item("b", class_name="large"), asked=1.0, admitted=4.0)
    found = durations([small, large])
    assert found["class.small.admit_ms"].max == pytest.approx(1000)
    assert found["class.large.admit_ms"].max == pytest.approx(3000)
    assert not any(name.startswith("class.") for name in durations([small]))


def test_steps_add_up_to_the_whole() -> None:
    timeline = started("a", asked=100.0, at=100.5)
    stamps = {"ns/a": Stamps(created=100.01, workload_created=100.05, admitted=100.15, started=100.4)}
    found = steps([timeline], stamps)
    assert len(found) == 5
    assert sum(d.mean for d in found.values()) == pytest.approx(500)
    assert found["admission received -> start received"].mean == pytest.approx(250)


def test_steps_of_a_workload_without_a_job() -> None:
    timeline = Timeline(item("a"), asked=100.0, admitted=100.3)
    found = steps([timeline], {"ns/a": Stamps(created=100.1, admitted=100.2)})
    assert [d.mean for d in found.values()] == [pytest.approx(100)] * 3


def test_an_item_with_a_step_that_nobody_saw_is_left_out() -> None:
    assert steps([started("a")], {"ns/a": Stamps(created=100.01, admitted=100.2, started=100.3)}) == {}
    assert steps([started("a")], {}) == {}


def admitted_at(*times: float) -> list[Timeline]:
    return [Timeline(item(f"w{at}"), asked=1.0, admitted=at) for at in times]


def test_a_pause_is_the_longest_time_without_an_admission_around_a_fault() -> None:
    timelines = [*admitted_at(9.0, 9.9, 10.1, 14.0, 14.5, 30.0), Timeline(item("never"))]
    # What was under way at the fault comes a moment after it; the pause is what follows.
    assert pauses(timelines, [Fault("kill", 10.0, 15.0)]) == {"pause_s.kill": pytest.approx(3.9)}


def test_how_long_a_fault_itself_took_is_told_if_it_is_known() -> None:
    assert pauses([], [Fault("restart", 10.0, 15.0, done=12.5)])["fault_s.restart"] == pytest.approx(2.5)


def test_a_pause_begins_with_the_last_admission_and_lasts_while_nothing_comes() -> None:
    found = pauses(admitted_at(9.0), [Fault("kill", 10.0, 15.0), Fault("wipe", 20.0, 21.0)])
    assert found == {"pause_s.kill": pytest.approx(6.0), "pause_s.wipe": pytest.approx(12.0)}


def test_counts() -> None:
    done = Timeline(item("a"), asked=10.0, answered=10.1, started=10.5, finished=12.0, succeeded=True, evictions=2)
    failed = Timeline(item("b"), asked=10.0, answered=10.1, finished=14.0)
    lost = Timeline(item("c"))
    found = counts(PLAN, [done, failed, lost], began=10.0, ended=20.0)
    assert (found["created"], found["finished"], found["unfinished"], found["failed"]) == (2, 2, 1, 1)
    assert found["evictions"] == 2
    assert found["started_unheld"] == 1
    assert found["items_per_s"] == pytest.approx(0.2)


def test_usage_is_what_admissions_occupied_of_the_quota() -> None:
    half = Timeline(item("a", milli=5_000), spans=[(0.0, 4.0), (4.0, 10.0)])
    elsewhere = Timeline(item("b", queue_class="other", milli=5_000), spans=[(0.0, 4.0), (4.0, 10.0)])
    assert counts(PLAN, [half, elsewhere], began=0.0, ended=10.0)["usage.cq"] == pytest.approx(50)


def test_a_run_without_length_divides_by_nothing() -> None:
    found = counts(PLAN, [], began=5.0, ended=5.0)
    assert (found["items_per_s"], found["usage.cq"]) == (0.0, 0.0)


def test_flat_names_every_number() -> None:
    found = flat({"start_ms": distribution([1.0, 3.0])})
    assert found == {
        f"start_ms.{n}": v
        for n, v in (("mean", 2.0), ("p50", 1.0), ("p90", 3.0), ("p95", 3.0), ("p99", 3.0), ("max", 3.0))
    }


def test_waits_are_means_by_class() -> None:
    waits = [("a", "small", 10.0), ("b", "small", 20.0), ("c", "large", 1.0), ("d", "large", None)]
    all_ = [Timeline(item(name, class_name=class_), waited_s=waited) for name, class_, waited in waits]
    found = counts(PLAN, all_, began=0.0, ended=1.0)
    assert (found["wait_s.small"], found["wait_s.large"]) == (15.0, 1.0)


def test_all_have_started_when_the_last_one_has() -> None:
    found = counts(
        PLAN, [Timeline(item("a"), started=12.0), Timeline(item("b"), admitted=15.5)], began=10.0, ended=20.0
    )
    assert (found["all_started_s"], found["unstarted"]) == (5.5, 0)
    assert counts(PLAN, [Timeline(item("a"))], began=10.0, ended=20.0)["unstarted"] == 1
