"""Counting API writes: by user, per item, on the path."""

from __future__ import annotations

from loadtest.timeline import Timeline
from loadtest.writes import count_writes, own_writes, path_writes, received, stamps
from tests.unit.loadtest.items import CLIENT, WATCHER, event, item, started

USERS = (WATCHER,)


def test_the_time_of_receipt_keeps_its_microseconds() -> None:
    assert abs(received(event(1700000000.123456, "create", "jobs", "a")) - 1700000000.123456) < 1e-6


def test_counts_are_by_user_verb_and_resource_with_failures_apart() -> None:
    events = [
        event(1, "patch", "workloads/status", "w"),
        event(2, "patch", "workloads/status", "w", code=409),
        event(3, "patch", "workloads", "w"),
        event(4, "create", "jobs", "a", user=CLIENT),
    ]
    found = count_writes(events, items=2)
    assert [(c.user, c.verb, c.resource, c.count, c.failed, c.per_item) for c in found] == [
        (WATCHER, "patch", "workloads/status", 2, 1, 1.0),
        (CLIENT, "create", "jobs", 1, 0, 0.5),
        (WATCHER, "patch", "workloads", 1, 0, 0.5),
    ]


def test_own_writes_are_those_of_the_controller_events_apart() -> None:
    events = [
        event(1, "create", "events", "a.1"),
        event(2, "create", "workloads", "w"),
        event(3, "create", "events", "a.2", user=CLIENT),
        event(4, "update", "jobs/status", "a", user="job-controller"),
    ]
    assert own_writes(count_writes(events, 1), USERS) == (1, 1)


def test_the_path_ends_when_the_client_saw_the_start() -> None:
    events = [
        event(100.0, "create", "jobs", "a", user=CLIENT),
        event(100.1, "create", "workloads", "job-a"),
        event(100.2, "patch", "workloads/status", "job-a", code=409),
        event(100.3, "patch", "workloads/status", "job-a"),
        event(100.4, "patch", "jobs", "a"),
        event(100.4, "create", "pods", "a-0", user="job-controller"),
        event(100.6, "patch", "workloads/status", "job-a"),
        event(100.2, "patch", "localqueues/status", "q"),
        event(100.2, "create", "workloads", "job-other"),
    ]
    found = path_writes(events, [started("a")], USERS)
    assert found.per_item == (4,)
    assert found.by_type == {"patch workloads/status": 2, "create workloads": 1, "patch jobs": 1}


def test_events_about_the_item_or_its_workload_are_counted_beside_the_path() -> None:
    events = [
        event(100.1, "create", "events", "a.18af"),
        event(100.2, "create", "events", "job-a.18b0"),
        event(100.7, "create", "events", "a.18b1"),
        event(100.1, "create", "events", "stranger.18b2"),
    ]
    found = path_writes(events, [started("a")], USERS)
    assert (found.events, found.per_item, found.by_type) == (2, (0,), {})


def test_an_item_that_never_got_through_has_no_path() -> None:
    stuck = Timeline(item("a"), asked=100.0, workload="ns/job-a")
    found = path_writes([event(100.1, "create", "workloads", "job-a")], [stuck], USERS)
    assert found.per_item == ()
    assert stamps([event(100.1, "create", "workloads", "job-a")], [stuck], USERS) == {}


def test_stamps_are_the_writes_that_moved_it_on() -> None:
    events = [
        event(100.0, "create", "jobs", "a", user=CLIENT),
        event(100.1, "create", "workloads", "job-a"),
        event(100.15, "patch", "workloads/status", "job-a", code=409),
        event(100.2, "patch", "workloads/status", "job-a"),
        event(100.3, "update", "jobs", "a", user="somebody"),
        event(100.4, "patch", "jobs", "a"),
        event(100.9, "patch", "jobs", "a"),
    ]
    found = stamps(events, [started("a")], USERS)["ns/a"]
    assert [round(at, 2) for at in (found.created, found.workload_created, found.admitted, found.started)] == [
        100.0, 100.1, 100.2, 100.4,
    ]  # fmt: skip


def test_a_workload_without_a_job_gets_through_when_admitted() -> None:
    alone = Timeline(item("w"), asked=100.0, admitted=100.5, workload="ns/w")
    events = [
        event(100.0, "create", "workloads", "w", user=CLIENT),
        event(100.2, "patch", "workloads/status", "w"),
        event(100.8, "patch", "workloads/status", "w", user=CLIENT),
    ]
    assert path_writes(events, [alone], USERS).per_item == (1,)
    found = stamps(events, [alone], USERS)["ns/w"]
    assert [round(at, 2) for at in (found.created, found.admitted)] == [100.0, 100.2]
