"""The shape `pod-groups`: what is told of its order and of what it costs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster.audit import AuditEvent, Reference, ResponseStatus, User
from loadtest.pod_groups import GATEWAY, SIZE, THRESHOLDS, Seen, costs, out_of_order, pod
from services.webhook.validate_pod import pod_errors
from shared.config.feature_gates import DEFAULT_GATES
from shared.jobs.pod import PlainPod
from shared.jobs.protocol import Circumstances


def at(second: int) -> str:
    return f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"


def seen(made: int, admitted: int | None) -> Seen:
    conditions = [{"type": "Finished", "status": "False", "lastTransitionTime": at(0)}]
    if admitted is not None:
        conditions.append({"type": "Admitted", "status": "True", "lastTransitionTime": at(admitted)})
    document = {"metadata": {"name": "w", "creationTimestamp": at(made)}, "status": {"conditions": conditions}}
    return msgspec.convert(document, Seen)


@pytest.mark.parametrize(
    ("groups", "late"),
    [
        ([], 0),
        ([(0, 5), (1, 6), (2, 7)], 0),
        ([(0, 7), (1, 6)], 0),
        ([(0, 8), (1, 6)], 1),
        ([(0, 90), (0, 6)], 0),
        ([(0, 9), (1, 9), (2, 5)], 2),
        ([(0, None), (1, 6)], 0),
    ],
)
def test_what_is_out_of_order(groups: list[tuple[int, int | None]], late: int) -> None:
    assert out_of_order(seen(*group) for group in groups) == late
    assert out_of_order(seen(*group) for group in reversed(groups)) == late


@given(st.lists(st.integers(0, 99)), st.integers(0, 30))
def test_first_come_first_served_is_in_order(made: list[int], wait: int) -> None:
    assert out_of_order(seen(m, m + wait) for m in made) == 0


def test_what_is_not_true_has_no_time() -> None:
    assert (seen(1, 5).since("Admitted"), seen(1, 5).since("Finished")) == (at(5), "")


def event(resource: str, name: str, *, user: str = GATEWAY, sub: str = "", code: int = 200) -> AuditEvent:
    reference = Reference(resource=resource, subresource=sub, namespace="default", name=name)
    return AuditEvent("patch", User(user), reference, ResponseStatus(code))


def test_the_gateways_writes_are_counted_by_pod_and_group() -> None:
    events = [
        event("pods", "p0"),
        event("pods", "p0", sub="status", code=409),
        event("pods", "p1"),
        event("pods", "p1", user="somebody"),
        event("workloads", "g", sub="status"),
        event("workloads", "g"),
        event("events", "p0"),
        event("localqueues", "lq", sub="status"),
    ]
    assert costs(events, 2, 1) == {
        "api_writes_per_pod": 1.5,
        "api_writes_per_pod.max": 2.0,
        "api_writes_per_group": 2.0,
        "api_writes_per_group.max": 2.0,
        "api_writes.failed": 1.0,
    }
    assert set(costs([], 1, 1).values()) == {0.0}


def test_its_pods_are_such_as_are_let_in() -> None:
    made: dict[str, Any] = pod(3, 7, SIZE)
    assert made["metadata"]["name"] == "group-003-07"
    assert not list(pod_errors(made, None, DEFAULT_GATES))
    assert not list(PlainPod().errors(made, None, Circumstances(gates=DEFAULT_GATES)))


def test_its_limits() -> None:
    limits = {one.figure: one.max for one in THRESHOLDS}
    assert (limits["api_writes_per_pod"], limits["api_writes_per_group"]) == (2, 6)
    assert limits["peak_mib.watcher"] is not None
    assert limits["peak_mib.watcher"] * 2**20 <= 400e6
