"""The live table shows queues, what waits and why, and what happened."""

from __future__ import annotations

import io
from collections import deque
from typing import Any

import pytest
from rich.console import Console

from cli import live_table
from shared.api.cluster_queue import ClusterQueue
from shared.api.decoding import convert
from shared.api.workload import Workload

TIME = "2026-01-01T00:00:00Z"


def condition(type_: str, status: str, reason: str, message: str = "") -> dict[str, str]:
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": TIME}


def workload(name: str, *conditions: dict[str, str], **spec: Any) -> Workload:
    return convert(
        Workload,
        {
            "metadata": {"name": name, "namespace": "n", "creationTimestamp": TIME},
            "spec": {"podSets": [], "queueName": "q", **spec},
            "status": {"conditions": list(conditions)},
        },
    )


QUEUE = convert(
    ClusterQueue,
    {
        "metadata": {"name": "research"},
        "spec": {
            "cohortName": "lab",
            "resourceGroups": [
                {
                    "coveredResources": ["cpu"],
                    "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 4}]}],
                }
            ],
        },
        "status": {
            "conditions": [condition("Active", "False", "FlavorNotFound")],
            "pendingWorkloads": 2,
            "admittedWorkloads": 3,
            "flavorsUsage": [{"name": "f", "resources": [{"name": "cpu", "total": "6", "borrowed": "2"}]}],
        },
    },
)


def shown(*workloads: Workload, width: int = 140) -> str:
    console = Console(width=width, file=io.StringIO(), record=True, force_terminal=False)
    seen = {w.metadata.key: w for w in workloads}
    console.print(live_table.render({"research": QUEUE}, seen, deque(["an event"])))
    return console.export_text()


@pytest.mark.parametrize("width", [60, 80, 140])
def test_long_names_leave_room_for_the_reason(width: int) -> None:
    name = "job-experiment-with-a-very-long-name-abcdef-12345"
    text = shown(workload(name, condition("QuotaReserved", "False", "WaitingForQuota", "needs 2 cpu")), width=width)
    assert max(map(len, text.splitlines())) == width
    assert "WaitingForQuota: needs" in text
    # All of the name is there, over several lines if need be.
    column = [line.split("│")[1].strip() for line in text.splitlines() if line.startswith("│") and line.count("│") == 4]
    assert "".join(column) == f"n/{name}"


def test_queues_waiting_events_and_totals() -> None:
    text = shown(
        workload("low", condition("QuotaReserved", "False", "WaitingForQuota", "needs 2 cpu")),
        workload("high", priority=5),
        workload(
            "running", condition("QuotaReserved", "True", "QuotaReserved"), condition("Admitted", "True", "Admitted")
        ),
        workload("done", condition("Finished", "True", "Succeeded")),
    )
    assert "no: FlavorNotFound" in text
    assert "cpu 6/4 (2)" in text
    assert text.index("n/high") < text.index("n/low"), "the one with the higher priority first"
    assert "WaitingForQuota: needs 2 cpu" in text
    assert "waiting to be looked at" in text
    assert "an event" in text
    assert "2 waiting, 1 running, 1 finished" in text


def test_a_workload_that_waits_for_checks_names_them() -> None:
    held = convert(
        Workload,
        {
            "metadata": {"name": "w", "namespace": "n"},
            "spec": {"podSets": []},
            "status": {
                "conditions": [condition("QuotaReserved", "True", "QuotaReserved")],
                "admissionChecks": [
                    {"name": "ready", "state": "Ready", "message": "", "lastTransitionTime": TIME},
                    {"name": "capacity", "state": "Pending", "message": "", "lastTransitionTime": TIME},
                ],
            },
        },
    )
    assert live_table.why(held) == "quota reserved, waiting for checks: capacity"
