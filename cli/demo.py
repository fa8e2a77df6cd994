"""`sluice demo`: what `sluice up` shows, unattended, and checked from outside.

1. Start everything, apply the sample queues.
2. Submit Jobs faster than quota allows.
3. A verifier that only watches the Kubernetes API sees every state: each Job waited before it ran, usage never exceeded quota, every Job completes.
4. End with 0 if so, else with 1 and what was wrong.
"""

from __future__ import annotations

import asyncio
from collections import deque

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cli import sample_jobs
from cli.local_run import LocalRun
from cli.observe import Observer, observing
from cli.up import follow_events
from devcluster.options import ClusterOptions
from shared.api.conditions import is_true
from shared.api.workload import Workload
from shared.kube.client import KubeClient
from shared.kube.errors import Conflict
from shared.kube.resources import JOBS, WORKLOADS

JOBS_COUNT = 24
PAUSE_S = 0.1
LONGEST_S = 240.0
BREAKS = ("", "quota", "complete")


async def demo(broken: str) -> int:
    """Exit code. `broken` names the promise to break: `quota` admits a waiting workload by hand, `complete` deletes a Job's pods for good."""
    console = Console()
    if broken not in BREAKS:
        console.print(f"[red]DEMO_BREAK={broken}: use one of {', '.join(b for b in BREAKS if b)}[/]")
        return 2
    async with LocalRun(ClusterOptions(default_pod_seconds=2), console) as running:
        await running.cluster.kubectl("apply", "--server-side", "-f", str(sample_jobs.EXAMPLES / "queues.yaml"))
        events: deque[str] = deque(maxlen=100_000)
        async with observing(running.cluster.kubeconfig) as (client, seen):
            listening = asyncio.create_task(follow_events(running.reader_url, events.append))
            uids = await _flow(client, seen, console, broken)
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
    seen.verifier.finish(expected=uids)
    return _report(seen, uids, events, console)


async def _flow(client: KubeClient, seen: Observer, console: Console, broken: str) -> list[str]:
    await seen.until(lambda: len(seen.cluster_queues) > 1, 10)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        submitted = progress.add_task("submitted", total=JOBS_COUNT)
        finished = progress.add_task("finished", total=JOBS_COUNT)
        uids = await sample_jobs.submit(client, JOBS_COUNT, PAUSE_S)
        progress.update(submitted, completed=len(uids))
        if broken:
            await _break(client, seen, broken)

        def done() -> bool:
            count = sum(1 for j in seen.jobs.values() if j.complete or j.failed)
            progress.update(finished, completed=count)
            return count >= JOBS_COUNT

        await seen.until(done, LONGEST_S)
    return uids


async def _break(client: KubeClient, seen: Observer, broken: str) -> None:
    waiting = await _waiting(seen)
    if broken == "quota":
        await _admit_by_hand(client, waiting)
    else:
        owner = waiting.metadata.controller_owner()
        name = owner.name if owner else waiting.metadata.name
        body = b'{"spec":{"activeDeadlineSeconds":1}}'
        await client.patch(JOBS, waiting.metadata.namespace, name, body)


async def _waiting(seen: Observer) -> Workload:
    found: list[Workload] = []

    def look() -> bool:
        found[:] = [w for w in seen.workloads.values() if not is_true(w.status.conditions, "QuotaReserved")]
        return bool(found)

    if not await seen.until(look, 30):
        raise TimeoutError("no workload ever waited: nothing to break")
    return found[-1]


async def _admit_by_hand(client: KubeClient, workload: Workload) -> None:
    """Write an admission as no scheduler would: more than everybody's quota."""
    now = "2026-01-01T00:00:00Z"
    conditions = [
        {"type": t, "status": "True", "reason": "ByHand", "message": "DEMO_BREAK", "lastTransitionTime": now}
        for t in ("QuotaReserved", "Admitted")
    ]
    assignments = [
        {"name": p.name, "count": p.count, "flavors": {"cpu": "standard"}, "resourceUsage": {"cpu": str(100 * p.count)}}
        for p in workload.spec.pod_sets
    ]
    admission = {"clusterQueue": "research", "podSetAssignments": assignments}
    body = msgspec.json.encode({"status": {"conditions": conditions, "admission": admission}})
    for _ in range(5):
        try:
            await client.patch(
                WORKLOADS, workload.metadata.namespace, workload.metadata.name, body, subresource="status"
            )
            return
        except Conflict:
            continue


def _report(seen: Observer, uids: list[str], events: deque[str], console: Console) -> int:
    verifier = seen.verifier
    complete = sum(1 for uid in uids if uid in verifier.jobs and verifier.jobs[uid].complete)
    waited = sum(1 for uid in uids if uid in verifier.waited)
    console.print(f"Jobs: {len(uids)} submitted, {waited} queued before they started, {complete} complete")
    for (queue, (flavor, resource)), peak in sorted(verifier.peak.items()):
        shown = f"{peak / 1000:g}" if resource == "cpu" else f"{peak / 2**30:g}Gi"
        console.print(f"Peak usage of {queue}: {shown} {resource} ({flavor})")
    console.print(f"Public events received: {len(events)}")
    for problem in verifier.problems:
        console.print(f"[red]✗ {problem}[/]", soft_wrap=True)
    if not verifier.problems:
        console.print("[green]✓ every Job complete, each queued before it started, quota never exceeded[/]")
    return 1 if verifier.problems else 0
