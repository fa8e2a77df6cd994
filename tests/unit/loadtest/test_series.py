"""A run over time."""

from __future__ import annotations

import pytest

from loadtest.processes import Sample
from loadtest.series import series
from loadtest.timeline import Timeline
from tests.unit.loadtest.items import item


def test_counts_add_up_second_by_second() -> None:
    timelines = [
        Timeline(item("a"), answered=100.2, admitted=101.5, spans=[(101.5, 103.0)], finished=103.0),
        Timeline(item("b"), answered=101.9, admitted=103.1, current=103.1),
        Timeline(item("never made")),
    ]
    found = series(timelines, {}, nominal_milli=1000, began=100.0, ended=104.0)
    assert found.created == [1, 2, 2, 2, 2]
    assert found.admitted == [0, 1, 1, 2, 2]
    assert found.finished == [0, 0, 0, 1, 1]
    assert found.waiting == [1, 1, 1, 0, 0]
    assert found.usage_percent == pytest.approx([0, 50, 100, 90, 0])


def test_who_is_evicted_waits_again() -> None:
    evicted = Timeline(item("a"), answered=100.0, admitted=100.0, spans=[(100.0, 101.2)])
    assert series([evicted], {}, nominal_milli=1, began=100.0, ended=102.0).waiting == [0, 1, 1]


def test_processes_are_told_by_second() -> None:
    samples = {"p": [Sample(100.0, 0.0, 10.0), Sample(101.0, 0.5, 20.0), Sample(102.0, 0.5, 15.0)]}
    found = series([], samples, nominal_milli=1, began=100.0, ended=101.5)
    assert found.cpu["p"] == pytest.approx([50, 0])
    assert found.mib["p"] == [10, 20]


def test_a_process_that_was_never_seen_used_nothing() -> None:
    found = series([], {"p": []}, nominal_milli=0, began=0.0, ended=0.0)
    assert (found.cpu["p"], found.mib["p"], found.usage_percent) == ([0], [0], [0])
