"""What happened to a workload, in order, from what the API keeps."""

from __future__ import annotations

from typing import Any

from cli.ctl.story import story

WORKLOAD: dict[str, Any] = {
    "metadata": {"name": "w", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {"queueName": "main"},
    "status": {
        "conditions": [
            {"type": "Admitted", "status": "True", "reason": "Admitted", "message": "yes", "lastTransitionTime": "2026-01-01T00:00:09Z"},
            {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "", "lastTransitionTime": "2026-01-01T00:00:05Z"},
        ],
        "admissionChecks": [{"name": "prov", "state": "Ready", "lastTransitionTime": "2026-01-01T00:00:07Z"}],
        "requeueState": {"count": 2, "requeueAt": "2026-01-01T00:00:04Z"},
    },
}  # fmt: skip
EVENTS: list[dict[str, Any]] = [
    {
        "involvedObject": {"kind": "Workload"},
        "eventTime": "2026-01-01T00:00:06.123456Z",
        "reason": "QuotaReserved",
        "message": "in cq",
        "metadata": {},
    },
    {
        "involvedObject": {"kind": "Job"},
        "lastTimestamp": "2026-01-01T00:00:10Z",
        "count": 3,
        "reason": "Started",
        "metadata": {},
    },
]


def test_within_one_second_the_order_is_that_of_the_object() -> None:
    at = {"status": "True", "reason": "", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    conditions = [{**at, "type": name} for name in ("QuotaReserved", "Admitted", "Finished")]
    found = story({**WORKLOAD, "status": {"conditions": conditions}}, ())
    assert [c.what for c in found] == ["created", "QuotaReserved=True", "Admitted=True", "Finished=True"]


def test_the_order_is_that_of_time() -> None:
    assert [(c.at[17:19], c.subject, c.what) for c in story(WORKLOAD, EVENTS)] == [
        ("00", "workload", "created"),
        ("04", "workload", "may queue again"),
        ("05", "workload", "QuotaReserved=True"),
        ("06", "workload event", "QuotaReserved"),
        ("07", "check", "prov=Ready"),
        ("09", "workload", "Admitted=True"),
        ("10", "job event", "Started (x3)"),
    ]


def test_reasons_are_told_with_their_words() -> None:
    told = {c.what: c.detail for c in story(WORKLOAD, ())}
    assert told["Admitted=True"] == "Admitted: yes"
    assert told["QuotaReserved=True"] == "QuotaReserved"
    assert told["created"] == "in queue main"
