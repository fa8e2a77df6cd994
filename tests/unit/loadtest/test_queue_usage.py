"""Usage as the queues' own status tells it."""

from __future__ import annotations

import msgspec
import pytest

from loadtest.queue_usage import QueueUsage, SeenQueue


def queue(name: str, *totals: str) -> SeenQueue:
    resources = [{"name": "cpu", "total": total} for total in totals]
    document = {"metadata": {"name": name}, "status": {"flavorsUsage": [{"name": "rf", "resources": resources}]}}
    return msgspec.convert(document, SeenQueue)


def test_cpu_is_counted_in_milli_over_all_flavors_and_nothing_else() -> None:
    seen = msgspec.json.decode(
        b'{"metadata": {"name": "a"}, "status": {"flavorsUsage": [{"name": "x", "resources": [{"name": "cpu", "total": "1500m"}, '
        b'{"name": "memory", "total": "1Gi"}]}, {"name": "y", "resources": [{"name": "cpu", "total": 2}]}]}}',
        type=SeenQueue,
    )
    assert seen.milli == 3500


def test_each_state_counts_until_the_next() -> None:
    usage = QueueUsage()
    for at, total in ((0.0, "0"), (2.0, "10"), (8.0, "0"), (10.0, "0")):
        usage.saw(queue("a", total), at)
    # 10 CPUs for 6 of 10 seconds.
    assert usage.percent({"a": 10_000}) == pytest.approx(60)


def test_time_runs_from_the_first_event_of_any_queue_to_the_last() -> None:
    usage = QueueUsage()
    for name, at, total in (("a", 0.0, "10"), ("a", 10.0, "0"), ("b", 5.0, "10"), ("b", 20.0, "10")):
        usage.saw(queue(name, total), at)
    # (10 x 10 + 10 x 15) of (10 + 10) x 20 CPU seconds.
    assert usage.percent({"a": 10_000, "b": 10_000}) == pytest.approx(62.5)


def test_without_events_there_is_no_figure() -> None:
    assert QueueUsage().percent({"a": 1000}) is None
    usage = QueueUsage()
    usage.saw(queue("a", "1"), 1.0)
    assert usage.percent({"a": 1000}) is None
