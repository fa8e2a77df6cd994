"""Fair sharing switched on: a contended cohort is divided by weight, and LocalQueues of one ClusterQueue take turns by past usage."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from cli.observe import Observer, observing
from devcluster.options import ClusterOptions
from devcluster.stack import Stack
from shared.api.cohort import Cohort
from shared.api.decoding import decode
from shared.kube.client import KubeClient
from shared.kube.resources import COHORTS
from tests.eventually import eventually
from tests.integration.stack.histories import Histories
from tests.integration.stack.manifests import as_list, cluster_queue, cohort, create_job, flavor, job, local_queue

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

FAIR = {"FAIR_SHARING": "true", "AFS": "true", "AFS_HALF_LIFE_S": "3600", "AFS_SAMPLING_S": "1"}
SETTINGS = {f"SLUICE_{who}_{name}": value for who in ("SCHEDULER", "QUEUE_MANAGER") for name, value in FAIR.items()}
Watched = tuple[KubeClient, Observer]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fair() -> AsyncIterator[Stack]:
    async with Stack(ClusterOptions(default_pod_seconds=0.5), settings=SETTINGS) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def watched(fair: Stack) -> AsyncIterator[Watched]:
    async with observing(fair.cluster.kubeconfig) as pair:
        yield pair


async def test_a_contended_cohort_converges_to_its_weights(fair: Stack, watched: Watched) -> None:
    client, seen = watched
    history = Histories.of(seen)
    members = [
        cluster_queue(
            name,
            "0",
            flavors=("pool",),
            cohortName="pool",
            fairSharing={"weight": weight},
            preemption={"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
        )
        for name, weight in (("sixty", "3"), ("forty", "2"))
    ]
    lender = cluster_queue("lender", "10", flavors=("pool",), cohortName="pool")
    await fair.cluster.kubectl(
        "apply",
        "-f",
        "-",
        stdin=as_list(flavor("pool"), cohort("pool"), lender, *members, local_queue("sixty"), local_queue("forty")),
    )

    def running() -> tuple[int, int]:
        counts = [
            sum(1 for j in seen.jobs.values() if f"/{n}-" in j.key and not j.suspended) for n in ("sixty", "forty")
        ]
        return counts[0], counts[1]

    first = [await create_job(client, job(f"sixty-{n}", "sixty", run_seconds="forever")) for n in range(14)]
    assert await seen.until(lambda: running() == (10, 0), 20), running()
    for number in range(14):
        await create_job(client, job(f"forty-{number}", "forty", run_seconds="forever"))
    assert await seen.until(lambda: running() == (6, 4), 40), running()

    def shares() -> list[int | None]:
        found = (seen.cluster_queues[name].status.fair_sharing for name in ("sixty", "forty", "lender"))
        return [share.weighted_share if share else None for share in found]

    # (used beyond nominal) per mille of what the cohort lends, by weight: 600 / 3 and 400 / 2.
    assert await seen.until(lambda: shares() == [200, 200, 0], 10), shares()

    async def share_of_cohort() -> int | None:
        status = decode(Cohort, await client.get(COHORTS, "", "pool")).status
        return status.fair_sharing.weighted_share if status.fair_sharing else None

    assert await eventually(share_of_cohort, 10, lambda share: share == 0) == 0
    taken = [uid for uid in first if history.evictions[uid]]
    assert len(taken) == 4
    assert all(any(s.get("Preempted") == "True InCohortFairSharing" for s in history.seen[uid]) for uid in taken)
    assert all("Fair Sharing within the cohort" in history.evictions[uid][0] for uid in taken)
    # It stays so: who would gain by another preemption, when each has what it is due?
    assert not await seen.until(lambda: running() != (6, 4), 1.5), running()
    assert sum(len(messages) for messages in history.evictions.values()) == 4
    assert history.problems == []
    await fair.cluster.kubectl("delete", "job", "--all", "--wait=false")


async def test_local_queues_take_turns_by_past_usage(fair: Stack, watched: Watched) -> None:
    client, seen = watched
    turns = cluster_queue("turns", "4", admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"})
    names = ("greedy", "modest")
    await fair.cluster.kubectl(
        "apply", "-f", "-", stdin=as_list(flavor("turns"), turns, *(local_queue(n, queue="turns") for n in names))
    )
    await create_job(client, job("greedy-first", "greedy", "4", run_seconds="forever"))

    def consumed(name: str) -> bool:
        status = seen.local_queues[f"default/{name}"].status.fair_sharing
        usage = status.admission_fair_sharing_status if status else None
        return usage is not None and usage.consumed_resources.get("cpu", "0") != "0"

    assert await seen.until(lambda: "default/greedy" in seen.local_queues and consumed("greedy"), 20)
    assert not consumed("modest")
    # The greedy one asks first, and is last all the same.
    await create_job(client, job("greedy-second", "greedy", "4", run_seconds="forever"))
    await create_job(client, job("modest-first", "modest", "4", run_seconds="forever"))
    assert await seen.until(lambda: seen.cluster_queues["turns"].status.pending_workloads == 2, 15)
    await fair.cluster.kubectl("delete", "job", "greedy-first")
    assert await seen.until(lambda: not seen.jobs["default/modest-first"].suspended, 15)
    assert seen.jobs["default/greedy-second"].suspended
    await fair.cluster.kubectl("delete", "job", "--all", "--wait=false")
