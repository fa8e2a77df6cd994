"""A queue full of running Jobs, as many urgent ones arrive, and services are killed at random all the while.

Every Job finishes, quota holds in every moment, and no victim is evicted twice for one preemption.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal

import pytest

from cli.observe import observing
from devcluster.options import ClusterOptions
from devcluster.stack import Stack
from shared.api.workload import Workload
from shared.kube.client import KubeClient
from shared.kube.errors import ApiError
from tests.integration.stack.histories import Histories, workload_of
from tests.integration.stack.manifests import (
    as_list,
    cluster_queue,
    create_job,
    flavor,
    job,
    local_queue,
    priority_class,
)

JOBS = int(os.environ.get("SLUICE_STORM_JOBS", "40"))
"""Of each priority; `make chaos` takes 200."""
PATIENCE_S = 60 + JOBS
LOW_S = max(30, JOBS // 2)
"""How long the less urgent ones run: until the urgent ones have come."""
pytestmark = [pytest.mark.integration, pytest.mark.timeout(4 * PATIENCE_S)]

SEED = int(os.environ.get("SLUICE_STORM_SEED", "4"))
"""Of who is killed when; set the variable to try another order."""
KILLS = JOBS // 5
KILLED = ("scheduler", "watcher", "queue_manager", "preemptor")
QUEUE = [
    priority_class("storm", 100),
    flavor("storm"),
    cluster_queue("storm", f"{JOBS}00m", preemption={"withinClusterQueue": "LowerPriority"}),
    local_queue("storm"),
]
PREEMPTOR = re.compile(r"\(UID: ([^,]+),")


async def submit(client: KubeClient, name: str, **kwargs: object) -> str:
    """Create a Job, again and again while admission is down."""
    labels = {"kueue.x-k8s.io/priority-class": "storm"} if name.startswith("high") else None
    while True:
        try:
            return await create_job(client, job(name, "storm", "100m", labels=labels, **kwargs))  # type: ignore[arg-type]
        except ApiError as error:
            if "webhook" not in error.message:
                raise
            await asyncio.sleep(0.1)


async def kill_at_random(stack: Stack, draw: random.Random) -> None:
    """One after the other; sometimes the next one falls before the one before is back."""
    for _ in range(KILLS):
        await asyncio.sleep(draw.uniform(0.2, 1.0))
        await stack.restart(draw.choice(KILLED), signal.SIGKILL)
        if draw.random() < 0.7:
            await stack.wait_ready()


async def test_a_preemption_storm_while_services_are_killed() -> None:
    draw = random.Random(SEED)
    async with Stack(ClusterOptions(default_pod_seconds=0.5)) as stack:
        await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*QUEUE))
        async with observing(stack.cluster.kubeconfig) as (client, seen):
            history = Histories.of(seen)
            low = [await submit(client, f"low{n:03}", run_seconds=str(LOW_S)) for n in range(JOBS)]
            assert await seen.until(lambda: sum(not j.suspended for j in seen.jobs.values()) == JOBS, PATIENCE_S)
            killing = asyncio.create_task(kill_at_random(stack, draw))
            high = [await submit(client, f"high{n:03}", run_seconds="1") for n in range(JOBS)]

            def served() -> bool:
                return all(uid in history.jobs and history.jobs[uid].complete for uid in high)

            assert await seen.until(served, PATIENCE_S), story(history, [*high, *low])
            await killing
            await stack.wait_ready()

            def done() -> bool:
                return all(uid in history.jobs and history.jobs[uid].complete for uid in (*high, *low))

            assert await seen.until(done, 2 * PATIENCE_S), story(history, [*high, *low])
            evictions = {uid: messages for uid, messages in history.evictions.items() if messages}
            counted = {uid: evictions_of(workload_of(seen, uid)) for uid in low}
        restarts = {name: service.starts - 1 for name, service in stack.services.items()}
        assert sum(restarts[name] for name in KILLED) == KILLS, restarts

    history.finish(expected=[*high, *low])
    assert history.problems == []
    assert max(history.peak.values()) == JOBS * 100
    assert set(evictions) <= set(low), "an urgent one was evicted"
    victims_of = {uid: [PREEMPTOR.findall(message)[0] for message in messages] for uid, messages in evictions.items()}
    assert all(len(set(whom)) == len(whom) for whom in victims_of.values()), victims_of
    assert {uid: counted[uid] for uid in evictions} == {uid: len(whom) for uid, whom in victims_of.items()}
    taken = sum(len(whom) for whom in victims_of.values())
    assert JOBS // 8 <= taken <= JOBS, (
        "each urgent one takes the place of one other, unless that one has ended by itself"
    )


def evictions_of(workload: Workload) -> int:
    stats = workload.status.scheduling_stats
    return sum(entry.count for entry in stats.evictions) if stats is not None else 0


def story(history: Histories, uids: list[str]) -> list[str]:
    """Of those that did not finish, the last states."""
    return [
        f"{history.jobs[uid].key if uid in history.jobs else uid}: {history.seen[uid][-3:]}"
        for uid in uids
        if uid not in history.jobs or not history.jobs[uid].complete
    ]
