"""The value of a WorkloadPriorityClass follows into its workloads."""

from __future__ import annotations

from typing import Any

import pytest

from services.queue_manager.priorities import priority_change
from shared.events.objects import WorkloadPriorityClass
from tests.unit.queue_manager.objects import reserved, workload

HIGH = WorkloadPriorityClass(name="high", version=1, value=100)
NAMED = {"priority_class": "high", "priority_class_source": "WorkloadPriorityClass"}


@pytest.mark.parametrize(
    "wl", [workload(**NAMED), workload(**NAMED, priority=99), reserved(workload(**NAMED), admitted=True)]
)
def test_the_value_is_taken_over_also_while_running(wl: Any) -> None:
    change = priority_change(wl, HIGH)
    assert change is not None
    assert (change.priority, change.key, change.uid) == (100, "ns/wl", "wl-uid")


@pytest.mark.parametrize(
    ("changes", "class_"),
    [
        ({**NAMED, "priority": 100}, HIGH),
        (NAMED, None),
        ({**NAMED, "finished": True}, HIGH),
        ({**NAMED, "deleting": True}, HIGH),
        ({"priority_class": "high", "priority_class_source": "PriorityClass"}, HIGH),
        ({}, HIGH),
    ],
)
def test_nothing_to_take_over(changes: dict[str, Any], class_: WorkloadPriorityClass | None) -> None:
    assert priority_change(workload(**changes), class_) is None
