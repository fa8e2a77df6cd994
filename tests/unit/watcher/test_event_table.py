"""Events on workloads: reason, type, and the parts of their notes that programs read, row by row of kueue_events.yaml.

Those on jobs are in test_reconcile_job and its neighbours; that nothing else is emitted is watched in all of them (conftest).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.events import commands as c
from tests.unit.watcher.event_table import TABLE, fault
from tests.unit.watcher.manifests import workload
from tests.unit.watcher.world import World, queued_job, running

WHO: dict[str, Any] = {"id": "", "kind": "workload", "namespace": "team", "name": "w", "uid": "uid-w", "version": 1}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running() as made:
        made.load("workload", workload(priority=1))
        await made.settled()
        yield made


def test_the_table_names_each_reason_once() -> None:
    for rows in TABLE.values():
        reasons = [row["reason"] for row in rows]
        assert len(reasons) == len(set(reasons))


@pytest.mark.parametrize(
    ("kind", "reason", "type_", "expected"),
    [
        ("Workload", "Admitted", "Normal", ""),
        ("Workload", "EvictedDueToPreempted", "Normal", ""),
        ("Workload", "Admitted", "Warning", "is N, not Warning"),
        ("Workload", "Unheard", "Normal", "Kueue has no Event"),
        ("Job", "Admitted", "Normal", "Kueue has no Event"),
        ("Pod", "PodTerminatedByKueue", "Normal", "is said to wait for"),
    ],
)
def test_what_the_watch_over_all_tests_would_find(kind: str, reason: str, type_: str, expected: str) -> None:
    found = fault(kind, reason, type_)
    assert found == "" if not expected else expected in found


async def test_reservation_and_admission(world: World) -> None:
    decision = world.admit(queued_since=int(world.clock()) - 7, considered="main: default(Fit)")
    await world.decide(decision)
    assert world.events("w") == [
        (
            "QuotaReserved",
            "Quota reserved in ClusterQueue cq, wait time since queued was 7s; Flavors considered: main: default(Fit)",
        ),
        ("Admitted", "Admitted by ClusterQueue cq, wait time since reservation was 0s"),
    ]


async def test_preemption_tells_both_of_base_and_boost(world: World) -> None:
    world.load("workload", workload("p", priority=3))
    await world.decide(world.admit())
    await world.decide(world.preempt(priority=1, preemptor_priority=5))
    suffix = (
        "; preemptor effective priority: 5 (base: 3, boost: 2); preemptee effective priority: 1 (base: 1, boost: 0)"
    )
    assert ("Preempted", f"Preempted to accommodate a workload (UID: uid-p, JobUID: j){suffix}") in world.events("w")
    assert "EvictedDueToPreempted" in world.reasons("w")
    assert world.events("p") == [
        ("PreemptedWorkload", f"Preempted workload team/w (UID: uid-w) in ClusterQueue cq{suffix}")
    ]


async def test_pending(world: World) -> None:
    await world.command(c.ReportPending(**WHO, reason="WaitingForQuota", message="no room"))
    assert world.events("w") == [("WaitingForQuota", "no room")]


@pytest.mark.parametrize("reason", ["AdmissionCheckRejected", "MaximumExecutionTimeExceeded"])
async def test_deactivation(world: World, reason: str) -> None:
    await world.command(c.SetDeactivationTarget(**WHO, reason="X", message="why", event=reason))
    assert world.events("w") == [(reason, "why")]


@pytest.mark.parametrize("reason", ["AdmissionGated", "AdmissionGateCleared"])
async def test_gates(world: World, reason: str) -> None:
    await world.command(c.Unreserve(**WHO, reason="AdmissionGated", message="gated by a/b", event=reason))
    assert world.events("w") == [(reason, "gated by a/b")]


async def test_a_check_of_ours_tells_of_changes_of_its_state_only(world: World) -> None:
    await world.decide(world.admit(checks=("a",)))
    await world.command(c.SetCheckState(**WHO, check="a", state="Pending", message="in an hour"))
    await world.command(c.SetCheckState(**WHO, check="a", state="Ready", message="there"))
    await world.command(c.SetCheckState(**WHO, check="a", state="Retry"))
    assert [note for reason, note in world.events("w") if reason == "AdmissionCheckUpdated"] == [
        "Admission check a updated state from Pending to Ready with message: there",
        "Admission check a updated state from Ready to Retry",
    ]


async def test_a_job_below_too_many_owners() -> None:
    async with running() as world:
        for depth in range(12):
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"j{depth + 1}", "uid": f"uid-j{depth + 1}"}
            world.load("job", queued_job(f"j{depth}", ownerReferences=[{**owner, "controller": True}]))
        # It is tried again and again, so that the gateway does not come to rest.
        await world.until(lambda: "JobNestingTooDeep" in world.reasons("j0"))
