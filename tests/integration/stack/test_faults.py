"""100 Jobs while every service is killed once, then NATS, then NATS with its disk: nothing is lost, nothing happens twice, quota holds.

The judge only watches the Kubernetes API (cli.verifier).
"""

from __future__ import annotations

import asyncio
import signal

import pytest

from cli.observe import observing
from devcluster.options import ClusterOptions
from devcluster.stack import SERVICES, Stack
from shared.kube.client import KubeClient
from shared.kube.errors import ApiError
from tests.integration.stack.manifests import as_list, cluster_queue, create_job, flavor, job, local_queue

pytestmark = [pytest.mark.integration, pytest.mark.timeout(420)]

JOBS = 100
QUEUES = [
    flavor("f"),
    cluster_queue("a", "4", flavors=("f",), cohortName="both"),
    cluster_queue("b", "4", flavors=("f",), cohortName="both", queueingStrategy="StrictFIFO"),
    local_queue("a"),
    local_queue("b"),
]


async def submit(client: KubeClient, name: str, queue: str) -> str:
    """Create a Job, again and again while admission is down: the webhook is among those that are killed."""
    while True:
        try:
            return await create_job(client, job(name, queue, "1", run_seconds="1"))
        except ApiError as error:
            if "webhook" not in error.message:
                raise
            await asyncio.sleep(0.1)


async def submit_all(client: KubeClient) -> list[str]:
    uids = []
    for number in range(JOBS):
        uids.append(await submit(client, f"j{number:03}", "ab"[number % 2]))
        await asyncio.sleep(0.15)
    return uids


async def break_everything(stack: Stack) -> list[str]:
    """One fault after the other, each begun when the one before is repaired."""
    done = []
    for name in SERVICES:
        await stack.restart(name, signal.SIGKILL)
        await stack.wait_ready()
        done.append(name)
    await stack.nats.kill(signal.SIGKILL)
    await stack.nats.start()
    await stack.wait_ready()
    done.append("nats")
    await stack.nats.wipe()
    await stack.wait_ready()
    done.append("nats wiped")
    return done


async def test_100_jobs_survive_the_loss_of_every_part() -> None:
    async with Stack(ClusterOptions(default_pod_seconds=0.5)) as stack:
        await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*QUEUES))
        async with observing(stack.cluster.kubeconfig) as (client, seen):
            assert await seen.until(lambda: len(seen.cluster_queues) == 2, 10)
            submitting = asyncio.create_task(submit_all(client))
            broken = await break_everything(stack)
            assert sum(1 for j in seen.jobs.values() if j.complete) < JOBS, "the faults came too late to matter"
            uids = await submitting

            def all_done() -> bool:
                return sum(1 for j in seen.jobs.values() if j.complete or j.failed) == JOBS

            assert await seen.until(all_done, 120), sorted(
                f"{key} suspended={j.suspended}" for key, j in seen.jobs.items() if not j.complete
            )
        assert len(broken) == len(SERVICES) + 2
        assert all(service.starts == 2 for service in stack.services.values())
        verifier = seen.verifier
        verifier.finish(expected=uids)
        assert verifier.problems == []
        assert all(verifier.starts[uid] == 1 for uid in uids)
        assert not seen.malformed
        assert max(verifier.peak.values()) >= 4000, "the queues were never full: nothing was tried"
