"""Who gets quota when there is not enough: preemption by priority, reclaim, borrowing through a tree, and the two queueing strategies."""

from __future__ import annotations

import json
import time

import pytest

from cli.observe import Observer
from devcluster.stack import Stack
from shared.kube.client import KubeClient
from tests.eventually import eventually
from tests.integration.stack.histories import Histories, events_about, workload_of
from tests.integration.stack.manifests import (
    Manifest,
    as_list,
    cluster_queue,
    cohort,
    create_job,
    flavor,
    job,
    local_queue,
    priority_class,
    queue,
)

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

Watched = tuple[KubeClient, Observer]
URGENT = {"kueue.x-k8s.io/priority-class": "urgent"}


def runs(seen: Observer, name: str) -> bool:
    found = seen.jobs.get(f"default/{name}")
    return found is not None and not found.suspended


async def template_of(stack: Stack, name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(await stack.cluster.kubectl("get", "job", name, "-o", "json"))
    spec = found["spec"]
    assert isinstance(spec, dict)
    template: dict[str, object] = spec["template"]
    return template


async def test_priority_within_a_queue_from_both_sides(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    history = Histories.of(seen)
    on_spot = flavor("contested", **{"node-type": "spot"})
    contested = cluster_queue("contested", "1", preemption={"withinClusterQueue": "LowerPriority"}, stopPolicy="Hold")
    await stack.cluster.kubectl(
        "apply", "-f", "-", stdin=as_list(priority_class("urgent", 100), on_spot, contested, local_queue("contested"))
    )
    low = await create_job(client, job("contested-low", "contested", run_seconds="forever"))
    assert await seen.until(lambda: history.now(low, "QuotaReserved") == "False Suspended", 15)
    before = await template_of(stack, "contested-low")
    await stack.cluster.kubectl("patch", "cq", "contested", "--type=merge", "-p", '{"spec":{"stopPolicy":"None"}}')
    assert await seen.until(lambda: runs(seen, "contested-low"), 15)
    assert await template_of(stack, "contested-low") != before

    high = await create_job(client, job("contested-high", "contested", labels=URGENT, run_seconds="forever"))
    assert await seen.until(lambda: runs(seen, "contested-high"), 20), history.seen
    assert seen.jobs["default/contested-low"].suspended
    assert await template_of(stack, "contested-low") == before, "restored exactly"
    victim, preemptor = workload_of(seen, low), workload_of(seen, high)
    stats = victim.status.scheduling_stats
    assert stats is not None
    assert [(e.reason, e.underlying_cause, e.count) for e in stats.evictions] == [("Preempted", "", 1)]

    await stack.cluster.kubectl("delete", "job", "contested-high")
    assert await seen.until(lambda: runs(seen, "contested-low"), 20), history.seen[low]
    assert (history.starts[low], history.admissions[low]) == (2, 2)

    states = history.seen[low]
    first = next(at for at, state in enumerate(states) if state.get("Evicted") == "True Preempted")
    assert states[first] == states[first - 1] | {"Evicted": "True Preempted", "Preempted": "True InClusterQueue"}
    assert states[first + 1] == states[first] | {
        "QuotaReserved": "False PendingEvaluation",
        "Admitted": "False NoReservation",
        "Requeued": "True Preempted",
    }
    assert states[-1] == {
        "QuotaReserved": "True QuotaReserved",
        "Admitted": "True Admitted",
        "Evicted": "False QuotaReserved",
        "Preempted": "False QuotaReserved",
        "Requeued": "True Preempted",
    }
    waits = [state["QuotaReserved"] for state in history.seen[high] if "QuotaReserved" in state]
    assert list(dict.fromkeys(waits)) == ["False WaitingForPreemptedWorkloads", "True QuotaReserved"]

    told = await eventually(
        lambda: events_about(stack, victim.metadata.name),
        10,
        lambda e: "EvictedDueToPreempted" in [r for r, _ in e],
    )
    notes = dict(told)
    priorities = (
        "preemptor effective priority: 100 (base: 100, boost: 0); preemptee effective priority: 0 (base: 0, boost: 0)"
    )
    message = (
        f"Preempted for another workload (UID: {preemptor.metadata.uid}, JobUID: {high}) due to prioritization in the ClusterQueue; "
        "preemptor path: /contested; preemptee path: /contested"
    )
    assert notes["Preempted"] == f"{message}; {priorities}"
    assert notes["EvictedDueToPreempted"] == message
    assert history.evictions[low] == [message]
    others = await eventually(
        lambda: events_about(stack, preemptor.metadata.name), 10, lambda e: "Admitted" in [r for r, _ in e]
    )
    assert {r for r, _ in others} == {"WaitingForPreemptedWorkloads", "PreemptedWorkload", "QuotaReserved", "Admitted"}
    assert dict(others)["PreemptedWorkload"] == (
        f"Preempted workload {victim.metadata.key} (UID: {victim.metadata.uid}) in ClusterQueue contested; {priorities}"
    )
    assert "Stopped" in [r for r, _ in await events_about(stack, "contested-low")]
    assert history.problems_of("contested") == []
    await stack.cluster.kubectl("delete", "job", "contested-low")


async def test_reclaim_between_two_members_of_a_cohort(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    history = Histories.of(seen)
    spec: Manifest = {"flavors": ("pair",), "cohortName": "pair", "preemption": {"reclaimWithinCohort": "Any"}}
    await stack.cluster.kubectl(
        "apply",
        "-f",
        "-",
        stdin=as_list(
            flavor("pair"),
            cluster_queue("pair-a", "1", **spec),
            cluster_queue("pair-b", "1", **spec),
            local_queue("pair-a"),
            local_queue("pair-b"),
        ),
    )
    uids = [await create_job(client, job(f"pair-a{n}", "pair-a", run_seconds="forever")) for n in range(2)]
    assert await seen.until(lambda: runs(seen, "pair-a0") and runs(seen, "pair-a1"), 15)
    await create_job(client, job("pair-b0", "pair-b", run_seconds="forever"))
    assert await seen.until(lambda: runs(seen, "pair-b0"), 20), history.seen
    stopped = [uid for uid in uids if history.evictions[uid]]
    assert len(stopped) == 1
    assert any(state.get("Preempted") == "True InCohortReclamation" for state in history.seen[stopped[0]])
    (message,) = history.evictions[stopped[0]]
    assert "preemptor path: /pair/pair-b; preemptee path: /pair/pair-a" in message
    assert await seen.until(lambda: history.now(stopped[0], "QuotaReserved") == "False WaitingForQuota", 15)
    assert history.problems_of("pair") == []
    await stack.cluster.kubectl("delete", "job", "pair-a0", "pair-a1", "pair-b0", "--wait=false")


async def test_borrowing_through_a_tree_and_the_lender_takes_it_back(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    history = Histories.of(seen)
    reclaim = {"reclaimWithinCohort": "Any"}
    await stack.cluster.kubectl(
        "apply",
        "-f",
        "-",
        stdin=as_list(
            flavor("tree"),
            cohort("tree-root"),
            cohort("tree-left", "tree-root"),
            cohort("tree-right", "tree-root"),
            cluster_queue("tree-l", "1", flavors=("tree",), cohortName="tree-left", preemption=reclaim),
            cluster_queue("tree-r", "2", flavors=("tree",), cohortName="tree-right", preemption=reclaim),
            local_queue("tree-l"),
            local_queue("tree-r"),
        ),
    )
    big = await create_job(client, job("tree-big", "tree-l", "3", run_seconds="forever"))
    assert await seen.until(lambda: runs(seen, "tree-big"), 15), history.seen[big]

    def borrowed() -> str:
        found = seen.cluster_queues["tree-l"].status.flavors_usage
        return str(found[0].resources[0].borrowed) if found else ""

    assert await seen.until(lambda: borrowed() == "2", 10)
    await create_job(client, job("tree-owner", "tree-r", "1", run_seconds="forever"))
    assert await seen.until(lambda: runs(seen, "tree-owner"), 20), history.seen
    assert seen.jobs["default/tree-big"].suspended
    (message,) = history.evictions[big]
    assert "preemptor path: /tree-root/tree-right/tree-r; preemptee path: /tree-root/tree-left/tree-l" in message
    await stack.cluster.kubectl("delete", "job", "tree-big", "tree-owner", "--wait=false")


async def a_second_later() -> None:
    """Creation times have whole seconds, and among equals the UID decides who goes first: wait for the next one."""
    before = int(time.time())

    async def now() -> int:
        return int(time.time())

    assert await eventually(now, 3, lambda second: second > before) > before


async def test_strict_fifo_blocks_and_best_effort_passes(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    history = Histories.of(seen)
    strict = queue("strict", "2", queueingStrategy="StrictFIFO")
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*strict, *queue("loose", "2")))
    for name in ("strict", "loose"):
        await create_job(client, job(f"{name}-first", name, "1", run_seconds="forever"))
    assert await seen.until(lambda: runs(seen, "strict-first") and runs(seen, "loose-first"), 15)
    heads = [await create_job(client, job(f"{name}-head", name, "2")) for name in ("strict", "loose")]
    assert await seen.until(lambda: all(history.now(h, "QuotaReserved") == "False WaitingForQuota" for h in heads), 15)
    await a_second_later()
    behind = await create_job(client, job("strict-small", "strict", "1"))
    assert await seen.until(lambda: seen.cluster_queues["strict"].status.pending_workloads == 2, 15)
    # By the time this one, which came later, has run, the scheduler has looked at the strict queue too.
    await create_job(client, job("loose-small", "loose", "1"))
    assert await seen.until(
        lambda: "default/loose-small" in seen.jobs and seen.jobs["default/loose-small"].complete, 20
    )
    assert (history.starts[behind], history.admissions[behind]) == (0, 0)
    await stack.cluster.kubectl("delete", "job", "strict-first", "loose-first", "--wait=false")
    for name in ("strict-head", "strict-small", "loose-head"):
        key = f"default/{name}"
        assert await seen.until(lambda key=key: key in seen.jobs and seen.jobs[key].complete, 20)  # type: ignore[misc]
    assert history.problems_of("strict") == []
