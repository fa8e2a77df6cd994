"""Pods of a node that is gone: whose turn it is and when, the three steps, and what keeps them from being done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from services.watcher.failure_recovery import (
    CONDITION,
    GRACE_S,
    REASON,
    UNREACHABLE,
    FailureRecovery,
    Node,
    Pod,
    due,
    failed,
    is_unreachable,
)
from services.watcher.kubernetes_events import EventRecorder
from shared.api import names
from shared.api.meta import format_time
from shared.kube.list_watch import Listed, Timing
from shared.kube.resources import EVENTS, NODES, PODS
from shared.kube.write_budget import WriteBudget
from tests.unit.kube.api_server import ApiServer, Document, client_of, status, until

DELETED = 1_000_000.0
NOW = DELETED + GRACE_S
READY = {"type": "Ready", "status": "False", "reason": "NodeLost"}


def manifest(**changes: Any) -> Document:
    """A pod of `gone` that should have ended at DELETED."""
    metadata = {
        "name": "p",
        "namespace": "team",
        "annotations": {names.SAFE_TO_FORCEFULLY_DELETE: "true"},
        "deletionTimestamp": format_time(datetime.fromtimestamp(DELETED, UTC)),
        **changes.pop("metadata", {}),
    }
    return {
        "metadata": {key: value for key, value in metadata.items() if value is not None},
        "spec": {"nodeName": "gone", **changes.pop("spec", {})},
        "status": {"phase": "Running", "conditions": [READY], **changes},
    }


def pod(**changes: Any) -> Pod:
    document = manifest(**changes)
    document["metadata"] = {"uid": "u", "resourceVersion": "7", **document["metadata"]}
    return msgspec.convert(document, Pod, strict=False)


def node(*taints: str) -> Document:
    return {"metadata": {"name": "gone"}, "spec": {"taints": [{"key": key, "effect": "NoExecute"} for key in taints]}}


@pytest.mark.parametrize(
    ("changes", "at"),
    [
        ({}, NOW),
        ({"metadata": {"annotations": {}}}, None),
        ({"metadata": {"annotations": {names.SAFE_TO_FORCEFULLY_DELETE: "yes"}}}, None),
        ({"metadata": {"deletionTimestamp": None}}, None),
        ({"spec": {"nodeName": ""}}, None),
    ],
)
def test_whose_turn_it_is_and_when(changes: dict[str, Any], at: float | None) -> None:
    assert due(pod(**changes)) == at


@pytest.mark.parametrize(
    ("taints", "lost"), [((), False), (("node.kubernetes.io/not-ready",), False), ((UNREACHABLE,), True)]
)
def test_which_node_is_gone(taints: tuple[str, ...], lost: bool) -> None:
    found = msgspec.convert({**node(*taints), "metadata": {"name": "gone", "uid": "u"}}, Node)
    assert is_unreachable(found) is lost


@pytest.mark.parametrize(
    ("phase", "becomes"), [("Running", "Failed"), ("Pending", "Failed"), ("Failed", None), ("Succeeded", None)]
)
def test_a_terminal_phase_stays_and_other_conditions_too(phase: str, becomes: str | None) -> None:
    patch = failed(pod(phase=phase), "2026-01-01T00:00:00Z")
    assert patch is not None
    assert patch["metadata"] == {"resourceVersion": "7"}
    status_ = patch["status"]
    assert isinstance(status_, dict)
    assert status_.get("phase") == becomes
    assert [c["type"] for c in status_["conditions"]] == ["Ready", CONDITION]
    assert status_["conditions"][0] == READY
    assert status_["conditions"][1]["reason"] == REASON


def test_what_says_it_already_is_not_written_again() -> None:
    told = {"type": CONDITION, "status": "True", "reason": REASON}
    assert failed(pod(phase="Failed", conditions=[told]), "now") is None


@asynccontextmanager
async def recovering(api: ApiServer, *, now: float = NOW, look_s: float = 0.02) -> AsyncIterator[list[float]]:
    """Recovery at work; the clock can be moved."""
    clock = [now]
    async with client_of(api) as client:
        recorder = EventRecorder(client, WriteBudget(rate_per_s=1000, burst=1000), instance="i", now=lambda: clock[0])
        recovery = FailureRecovery(
            client, recorder, lambda: clock[0], look_s=look_s, timing=Timing(first_pause_s=0.01, longest_pause_s=0.05)
        )
        tasks = [asyncio.create_task(recovery.run()), asyncio.create_task(recorder.run())]
        try:
            yield clock
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def writes(api: ApiServer) -> list[tuple[str, str]]:
    return [(method, path) for method, path, _, _ in api.requests if method in ("PATCH", "DELETE")]


PATCHED = ("PATCH", "/api/v1/namespaces/team/pods/p/status")
GONE = ("DELETE", "/api/v1/namespaces/team/pods/p")


async def test_the_steps() -> None:
    api = ApiServer()
    await api.put(NODES, node(UNREACHABLE))
    await api.put(PODS, manifest())
    async with recovering(api):
        await until(lambda: not api.objects[PODS.plural])
        await until(lambda: bool(api.objects.get(EVENTS.plural)))
    assert writes(api) == [PATCHED, GONE]
    (event,) = api.objects[EVENTS.plural].values()
    told = (event["reason"], event["type"], event["action"], event["reportingController"], event["regarding"]["kind"])
    assert told == (REASON, "Warning", "ForcefulTermination", "kueue-pod-termination-controller", "Pod")


async def test_before_its_time_nothing_happens() -> None:
    api = ApiServer()
    await api.put(NODES, node(UNREACHABLE))
    await api.put(PODS, manifest())
    async with recovering(api, now=NOW - 0.2) as clock:
        await until(lambda: api.watches > 0)
        assert [path for _, path, _, _ in api.requests if "nodes" in path] == []
        clock[0] = NOW
        await until(lambda: not api.objects[PODS.plural])
    assert writes(api) == [PATCHED, GONE]


async def test_another_pod_of_the_same_name_has_a_time_of_its_own() -> None:
    api = ApiServer()
    await api.put(NODES, node(UNREACHABLE))
    later = format_time(datetime.fromtimestamp(DELETED + 1000, UTC))
    async with client_of(api) as client:
        recorder = EventRecorder(client, WriteBudget(rate_per_s=1000, burst=1000), instance="i", now=lambda: NOW)
        recovery = FailureRecovery(client, recorder, lambda: NOW)
        recovery._take(Listed((pod(),), 7))
        recovery._take(Listed((pod(metadata={"uid": "another", "deletionTimestamp": later}),), 9))
        assert recovery._due == {"team/p": NOW + 1000}
        recovery._take(Listed((pod(metadata={"uid": "another", "deletionTimestamp": later}, phase="Failed"),), 10))
        assert recovery._due == {"team/p": NOW + 1000}


async def test_a_pod_that_goes_while_its_state_is_written_is_not_kept() -> None:
    api = ApiServer()
    await api.put(NODES, node(UNREACHABLE))
    await api.put(PODS, manifest())
    async with client_of(api) as client:
        recorder = EventRecorder(client, WriteBudget(rate_per_s=1000, burst=1000), instance="i", now=lambda: NOW)
        recovery = FailureRecovery(client, recorder, lambda: NOW)
        stored = msgspec.convert(api.objects[PODS.plural]["team", "p"], Pod, strict=False)
        recovery._take(Listed((stored,), 7))
        patch = client.patch

        async def gone_meanwhile(*args: Any, **more: Any) -> bytes:
            answer = await patch(*args, **more)
            recovery._take(Listed((), 9))
            return answer

        client.patch = gone_meanwhile  # type: ignore[method-assign]
        await recovery._try("team/p")
        assert (recovery._pods, recovery._due) == ({}, {})


async def test_a_pod_that_becomes_safe_later_and_a_node_that_is_lost_later() -> None:
    api = ApiServer()
    await api.put(NODES, node())
    await api.put(PODS, manifest(metadata={"annotations": {}}))
    async with recovering(api) as clock:
        await until(lambda: api.watches > 0)
        await api.put(PODS, manifest())
        await until(lambda: any("nodes" in path for _, path, _, _ in api.requests))
        assert writes(api) == []
        await api.put(NODES, node(UNREACHABLE))
        clock[0] += 1
        await until(lambda: not api.objects[PODS.plural])
    assert writes(api) == [PATCHED, GONE]


async def test_a_node_that_is_deleted_is_not_unreachable() -> None:
    api = ApiServer()
    await api.put(PODS, manifest())
    async with recovering(api) as clock:
        await until(lambda: sum("nodes" in path for _, path, _, _ in api.requests) >= 1)
        clock[0] += 1
        await until(lambda: sum("nodes" in path for _, path, _, _ in api.requests) >= 2)
        assert writes(api) == []


async def test_a_call_that_fails_is_tried_again_from_where_it_was() -> None:
    api = ApiServer()
    await api.put(NODES, node(UNREACHABLE))
    await api.put(PODS, manifest())
    refused: list[str] = []

    async def refuse(request: Any) -> Any:
        if request.method != "DELETE":
            api.faults.append(refuse)
            return None
        refused.append(request.path)
        return status(500, "InternalError")

    api.faults.append(refuse)
    async with recovering(api) as clock:
        await until(lambda: len(refused) == 1)

        def gone_by_and_by() -> bool:
            clock[0] += 1
            return not api.objects[PODS.plural]

        await until(gone_by_and_by)
    # The status was written once; how often it was asked to go, while the watch was behind, is all the same.
    first, *later = writes(api)
    assert first == PATCHED
    assert set(later) == {GONE}
    assert len(later) >= 2


async def test_a_pod_that_cannot_be_read_stops_nobody() -> None:
    api = ApiServer()
    await api.put(NODES, node(UNREACHABLE))
    await api.put(PODS, {"metadata": {"name": "bad", "namespace": "team"}, "status": {"conditions": 5}})
    await api.put(PODS, manifest())
    async with recovering(api):
        await until(lambda: set(api.objects[PODS.plural]) == {("team", "bad")})


async def test_a_node_that_cannot_be_read_stops_nobody() -> None:
    api = ApiServer()
    await api.put(NODES, {"metadata": {"name": "odd"}, "spec": {"taints": 5}})
    await api.put(NODES, node(UNREACHABLE))
    await api.put(PODS, manifest(metadata={"name": "a"}, spec={"nodeName": "odd"}))
    await api.put(PODS, manifest())
    async with recovering(api):
        await until(lambda: set(api.objects[PODS.plural]) == {("team", "a")})


def test_the_default_wait_is_a_minute() -> None:
    assert GRACE_S == 60.0
