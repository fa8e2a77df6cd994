"""What changes of a workload mean, pods that are reclaimed, and nomination of clusters."""

from __future__ import annotations

from typing import Any

import pytest

from shared.decide.dispatch import skips_nomination
from shared.decide.reclaim import capped
from shared.decide.workload_changes import EvictionEnd, eviction_end, execution_s, priority_changed
from shared.events.objects import Admission, Condition, Workload


def workload(*conditions: Condition, queue: str | None = None, **fields: Any) -> Workload:
    admission = Admission(queue) if queue is not None else None
    return Workload(namespace="ns", name="w", version=1, conditions=conditions, admission=admission, **fields)


def condition(type_: str, status: bool = True, changed: int = 100, reason: str = "R") -> Condition:
    return Condition(type=type_, status=status, reason=reason, message="", changed=changed)


EVICTED = condition("Evicted", reason="Preempted")
RESERVED, ADMITTED = condition("QuotaReserved"), condition("Admitted")
GIVEN_BACK = condition("QuotaReserved", False, 107)


@pytest.mark.parametrize(
    ("old", "new", "queue"),
    [
        (workload(RESERVED, EVICTED, queue="cq"), workload(GIVEN_BACK, EVICTED), "cq"),
        (workload(ADMITTED, EVICTED, queue="cq"), workload(EVICTED), "cq"),
        # Between two clusters' queues it is the old one that waited.
        (workload(RESERVED, EVICTED, queue="a"), workload(GIVEN_BACK, EVICTED, queue="b"), "a"),
        (None, workload(EVICTED), None),
        (workload(EVICTED), workload(EVICTED), None),
        (workload(EVICTED, queue="cq"), workload(EVICTED), None),
        (workload(RESERVED, EVICTED, queue=""), workload(EVICTED), None),
        (workload(RESERVED, EVICTED, queue="cq"), workload(RESERVED, EVICTED, queue="cq"), None),
        (workload(RESERVED, queue="cq"), workload(GIVEN_BACK), None),
        (workload(RESERVED, queue="cq"), workload(GIVEN_BACK, condition("Evicted", False)), None),
    ],
)
def test_the_end_of_an_eviction(old: Workload | None, new: Workload, queue: str | None) -> None:
    expected = EvictionEnd(queue, "Preempted", 100) if queue is not None else None
    assert eviction_end(old, new) == expected


@pytest.mark.parametrize(
    ("admitted", "finished", "past", "expected"),
    [
        (ADMITTED, condition("Finished", changed=110), 0, 10),
        (ADMITTED, condition("Finished", changed=105), 30, 35),
        # Clocks of two writers may differ.
        (ADMITTED, condition("Finished", changed=99), 30, 30),
        (ADMITTED, None, 30, None),
        (None, condition("Finished"), 30, None),
        (condition("Admitted", False), condition("Finished"), 0, None),
        (ADMITTED, condition("Finished", False), 0, None),
    ],
)
def test_how_long_it_ran(
    admitted: Condition | None, finished: Condition | None, past: int, expected: int | None
) -> None:
    assert execution_s(admitted, finished, past) == expected


def of_class(name: str, priority: int = 1, kind: str = "WorkloadPriorityClass") -> Workload:
    return workload(priority=priority, priority_class=name, priority_class_source=kind)


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        (of_class("a"), of_class("a"), False),
        (of_class("a"), of_class("b"), True),
        (of_class("a"), of_class("a", 2), True),
        (workload(), of_class("a", 0), True),
        (of_class("a"), workload(), False),
        (workload(priority=1), workload(priority=2), False),
        (of_class("a", kind="PriorityClass"), of_class("b", 2, "PriorityClass"), False),
    ],
)
def test_another_priority(old: Workload, new: Workload, changed: bool) -> None:
    assert priority_changed(old, new) is changed


def test_reclaimable_pods_are_at_most_all() -> None:
    assert capped({"a": 4, "b": 1, "c": 9}, {"a": 3, "b": 5}) == {"a": 3, "b": 1, "c": 9}
    assert capped({}, {"a": 3}) == {}


@pytest.mark.parametrize(
    ("state", "evicted", "placed", "elastic", "skips"),
    [
        ("Pending", False, False, False, False),
        ("Retry", False, False, False, True),
        ("Ready", False, False, True, True),
        ("Rejected", False, False, False, True),
        ("Pending", True, False, False, True),
        ("Pending", False, True, False, True),
        ("Pending", False, True, True, False),
    ],
)
def test_clusters_are_nominated_for_what_waits(
    state: str, evicted: bool, placed: bool, elastic: bool, skips: bool
) -> None:
    assert skips_nomination(state, evicted=evicted, placed=placed, elastic=elastic) is skips
