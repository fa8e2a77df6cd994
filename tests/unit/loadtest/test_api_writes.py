"""Writes by purpose."""

from __future__ import annotations

import pytest

from loadtest.api_writes import api_writes
from loadtest.changes import Purpose
from loadtest.writes import WriteCount

WATCHER, OTHER = "watcher", "load-runner"


def write(resource: str, count: int, *, verb: str = "patch", user: str = WATCHER, failed: int = 0) -> WriteCount:
    return WriteCount(user, verb, resource, count, failed, 0.0)


def figures(
    writes: list[WriteCount], purposes: dict[Purpose, int], foreign: dict[Purpose, int] | None = None
) -> dict[str, float]:
    return api_writes(writes, purposes, users=(WATCHER,), items=10, wall_s=10.0, foreign=foreign or {})


def test_one_write_per_admission_and_one_per_eviction() -> None:
    found = figures([write("workloads/status", 15)], {"creation": 10, "admission": 12, "eviction": 3, "finish": 10})
    assert found["api_writes.per_admission"] == pytest.approx(1)
    assert found["api_writes.per_eviction"] == pytest.approx(1)
    assert found["api_writes_per_workload"] == pytest.approx(1.5)


def test_pending_text_is_information_and_not_on_the_path() -> None:
    found = figures([write("workloads/status", 30)], {"admission": 10, "pending": 20})
    assert found["api_writes.per_admission"] == pytest.approx(1)
    assert found["api_writes.pending_per_s"] == pytest.approx(2)


def test_queue_status_and_events_are_information() -> None:
    writes = [write("clusterqueues/status", 20), write("localqueues/status", 20), write("events", 10, verb="create")]
    found = figures(writes, {})
    assert found["api_writes.queue_status_per_s"] == pytest.approx(4)
    assert found["api_writes.events_per_s"] == pytest.approx(1)
    assert found["api_writes.informational_per_s"] == pytest.approx(5)
    assert found["api_writes.per_admission"] == 0


def test_refused_writes_and_writes_for_nothing_are_on_the_account_of_admissions() -> None:
    found = figures([write("workloads/status", 14, failed=4)], {"admission": 10})
    assert found["api_writes.per_admission"] == pytest.approx(1.4)
    assert found["api_writes.failed"] == 4


def test_what_follows_an_eviction_belongs_to_it() -> None:
    found = figures([write("workloads/status", 10)], {"admission": 4, "eviction": 3, "requeue": 3})
    assert found["api_writes.per_eviction"] == pytest.approx(2)
    assert found["api_writes.per_admission"] == pytest.approx(1)


def test_jobs_are_on_the_path_with_all_that_it_takes_to_start_them() -> None:
    writes = [write("workloads", 10, verb="create"), write("workloads/status", 10), write("jobs", 10)]
    assert figures(writes, {"admission": 10})["api_writes.per_admission"] == pytest.approx(3)


def test_what_others_wrote_is_not_the_controllers() -> None:
    writes = [write("workloads/status", 10), write("workloads/status", 99, user=OTHER)]
    found = figures(writes, {"admission": 10, "pending": 5, "finish": 10}, {"pending": 5, "finish": 10})
    assert found["api_writes.per_admission"] == pytest.approx(1)
    assert found["api_writes.pending_per_s"] == 0
