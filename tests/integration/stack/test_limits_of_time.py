"""Limits of time on the whole stack: pods that never become ready, pods that are lost and do not come back, run time that is over, and what is kept only for a
while. The timelines are those of the core specification, appendix A.12."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import pytest
import pytest_asyncio

from cli.observe import Observer, observing
from devcluster.stack import Stack
from shared.kube.client import KubeClient
from tests.eventually import eventually
from tests.integration.stack.configured import configured_stack
from tests.integration.stack.histories import Conditions, Histories, events_about, workload_of
from tests.integration.stack.manifests import as_list, create_job, job, queue

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

Watched = tuple[KubeClient, Observer, Histories]
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
waitForPodsReady:
  timeout: 3s
  recoveryTimeout: 3s
  requeuingStrategy: {backoffLimitCount: 1, backoffBaseSeconds: 1, backoffMaxSeconds: 1}
objectRetentionPolicies:
  workloads: {afterFinished: 2s, afterDeactivatedByKueue: 2s}
"""
WAIT_S = 40.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def limited(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    async with configured_stack(tmp_path_factory.mktemp("configuration"), CONFIGURATION) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def watched(limited: Stack) -> AsyncIterator[Watched]:
    async with observing(limited.cluster.kubeconfig) as (client, seen):
        yield client, seen, Histories.of(seen)


async def queued(stack: Stack, name: str) -> None:
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*queue(name)))


def follows(states: Iterable[Conditions], *wanted: Conditions) -> bool:
    """Whether states that have these conditions came one after the other, whatever was between them."""
    left = list(wanted)
    for state in states:
        if left and left[0].items() <= state.items():
            left.pop(0)
    return not left


RUNS: Conditions = {"QuotaReserved": "True QuotaReserved", "Admitted": "True Admitted"}
FREE: Conditions = {"QuotaReserved": "False PendingEvaluation", "Admitted": "False NoReservation"}


async def is_gone(stack: Stack, kind: str, name: str) -> bool:
    return not await stack.cluster.kubectl("get", kind, name, "--ignore-not-found", "-o", "name")


async def test_pods_that_are_never_ready(limited: Stack, watched: Watched) -> None:
    client, seen, histories = watched
    await queued(limited, "unready")
    uid = await create_job(client, job("unready-job", "unready", ready_seconds="never"))
    too_often = "True DeactivatedDueToRequeuingLimitExceeded"
    assert await seen.until(lambda: histories.now(uid, "Evicted") == too_often, WAIT_S), histories.seen[uid]
    counted = workload_of(seen, uid)
    assert counted.status.scheduling_stats is not None
    stats = {(e.reason, e.underlying_cause): e.count for e in counted.status.scheduling_stats.evictions}
    assert stats == {("PodsReadyTimeout", "WaitForStart"): 1, ("Deactivated", "RequeuingLimitExceeded"): 1}
    assert counted.status.requeue_state is None
    assert follows(
        histories.seen[uid],
        RUNS,
        {**RUNS, "Evicted": "True PodsReadyTimeout"},
        {**FREE, "Requeued": "False PodsReadyTimeout"},
        {"Requeued": "True BackoffFinished"},
        {**RUNS, "Evicted": "False QuotaReserved"},
        {**RUNS, "DeactivationTarget": "True RequeuingLimitExceeded"},
        {**RUNS, "Evicted": too_often},
    ), histories.seen[uid]
    name = counted.metadata.name
    # Its job is kept for two seconds more.
    assert await eventually(lambda: is_gone(limited, "job", "unready-job"), WAIT_S)
    reasons = [reason for reason, _ in await events_about(limited, name)]
    assert "EvictedDueToPodsReadyTimeout" in reasons
    assert "EvictedDueToDeactivatedDueToRequeuingLimitExceeded" in reasons
    assert "Deleted" in [reason for reason, _ in await events_about(limited, "unready-job")]


async def test_pods_that_are_lost_and_do_not_come_back(limited: Stack, watched: Watched) -> None:
    client, seen, histories = watched
    await queued(limited, "lost")
    uid = await create_job(client, job("lost-job", "lost", run_seconds="forever"))

    def pods_ready() -> str:
        found = [w for w in seen.workloads.values() if w.metadata.labels.get("kueue.x-k8s.io/job-uid") == uid]
        conditions = found[0].status.conditions if found else ()
        return next((f"{c.status} {c.reason}" for c in conditions if c.type == "PodsReady"), "")

    # Both are needed to tell it from pods that never came: they were ready, and were lost.
    assert await seen.until(lambda: pods_ready() == "True Started", WAIT_S)
    nodes = (await limited.cluster.kubectl("get", "nodes", "-o", "name")).split()
    await limited.cluster.kubectl("cordon", *nodes)
    try:
        await limited.cluster.kubectl("delete", "pod", "-l", "job-name=lost-job", "--force", "--grace-period=0")
        assert await seen.until(lambda: pods_ready() == "False WaitForRecovery", WAIT_S)
        assert await seen.until(lambda: histories.now(uid, "Evicted") == "True PodsReadyTimeout", WAIT_S)
        stats = workload_of(seen, uid).status.scheduling_stats
        assert stats is not None
        assert {(e.reason, e.underlying_cause) for e in stats.evictions} == {("PodsReadyTimeout", "WaitForRecovery")}
    finally:
        await limited.cluster.kubectl("uncordon", *nodes)
        await limited.cluster.kubectl("delete", "job", "lost-job", "--ignore-not-found")


async def test_run_time_that_is_over(limited: Stack, watched: Watched) -> None:
    client, seen, histories = watched
    await queued(limited, "timed")
    limit = {"kueue.x-k8s.io/max-exec-time-seconds": "3"}
    uid = await create_job(client, job("timed-job", "timed", labels=limit, run_seconds="forever"))
    over = "True DeactivatedDueToMaximumExecutionTimeExceeded"
    assert await seen.until(lambda: histories.now(uid, "Evicted") == over, WAIT_S), histories.seen[uid]
    assert follows(
        histories.seen[uid],
        RUNS,
        {**RUNS, "DeactivationTarget": "True MaximumExecutionTimeExceeded"},
        {**RUNS, "Evicted": over},
    ), histories.seen[uid]
    found = workload_of(seen, uid)
    assert not found.spec.active
    assert "DeactivationTarget" not in {c.type for c in found.status.conditions}
    assert await eventually(lambda: is_gone(limited, "job", "timed-job"), WAIT_S)
    reasons = [reason for reason, _ in await events_about(limited, found.metadata.name)]
    assert "MaximumExecutionTimeExceeded" in reasons


async def test_finished_workloads_are_kept_for_a_while_and_their_jobs_for_good(
    limited: Stack, watched: Watched
) -> None:
    client, seen, _ = watched
    await queued(limited, "kept")
    await create_job(client, job("kept-job", "kept"))
    assert await seen.until(lambda: "default/kept-job" in seen.jobs and seen.jobs["default/kept-job"].complete, WAIT_S)

    def workloads() -> list[str]:
        return [key for key, w in seen.workloads.items() if w.spec.queue_name == "kept"]

    assert await seen.until(lambda: not workloads(), WAIT_S)
    assert not await is_gone(limited, "job", "kept-job")
