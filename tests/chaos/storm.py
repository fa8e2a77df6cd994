"""A preemption storm: a queue full of running Jobs, as many urgent ones arrive, and services are killed at random all the while.

Every Job finishes, quota holds in every moment, and no victim is evicted twice for one preemption.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time

from rich.console import Console

from cli.observe import Observer
from devcluster.stack import Stack
from shared.api.workload import Workload
from shared.kube.client import KubeClient
from tests.chaos.faults import LEADERS
from tests.chaos.judge import PREEMPTOR, Judge
from tests.chaos.load import submit
from tests.chaos.report import Report
from tests.chaos.run import Options, Stalled, judged
from tests.integration.stack.histories import workload_of
from tests.integration.stack.manifests import as_list, cluster_queue, flavor, job, local_queue, priority_class


class Storm:
    """`count` Jobs of each priority; `seed` says who is killed when."""

    def __init__(
        self, stack: Stack, client: KubeClient, seen: Observer, judge: Judge, count: int, seed: int, console: Console
    ) -> None:
        self._stack = stack
        self._client = client
        self._seen = seen
        self._judge = judge
        self._count = count
        self._draw = random.Random(seed)
        self._console = console
        self.kills: list[tuple[float, str]] = []
        """When, and who."""
        self.patience_s = 60.0 + count
        self.preemptions = 0

    async def run(self) -> list[str]:
        """What was broken, empty if nothing was. Raises Stalled, with the story of those that wait."""
        queue = [
            priority_class("storm", 100),
            flavor("storm"),
            cluster_queue("storm", f"{self._count}00m", preemption={"withinClusterQueue": "LowerPriority"}),
            local_queue("storm"),
        ]
        await self._stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*queue))
        # Until the urgent ones have come.
        await self._submit("low", max(30, self._count * 3 // 10))
        await self._until("the queue is full", lambda: self._running() == self._count)
        killing = asyncio.create_task(self._kill_at_random())
        await self._submit("high", 1)
        await self._until("the urgent ones are done", lambda: self._done("high") == self._count)
        await killing
        await self._stack.wait_ready()
        await self._until("all are done", lambda: self._done("") == 2 * self._count, self._count)
        return self._verdict()

    async def _submit(self, kind: str, seconds: int) -> None:
        labels = {"kueue.x-k8s.io/priority-class": "storm"} if kind == "high" else None
        for number in range(self._count):
            manifest = job(f"{kind}{number:03}", "storm", "100m", labels=labels, run_seconds=str(seconds))
            await submit(self._client, manifest)

    async def _kill_at_random(self) -> None:
        """One after the other; sometimes the next one falls before the one before is back."""
        for _ in range(self._count // 5):
            await asyncio.sleep(self._draw.uniform(0.2, 1.0))
            name = self._draw.choice(LEADERS)
            self.kills.append((time.monotonic(), name))
            await self._stack.restart(name, signal.SIGKILL)
            if self._draw.random() < 0.7:
                await self._stack.wait_ready()

    async def _until(self, what: str, condition: object, more_s: float = 0.0) -> None:
        assert callable(condition)
        began = time.monotonic()
        if not await self._seen.until(condition, self.patience_s + more_s):
            raise Stalled(f"storm: not true after {self.patience_s + more_s:.0f} s: {what}: {self._judge.stories()}")
        self._console.print(f"storm: {what} ({time.monotonic() - began:.0f} s, {len(self.kills)} kills so far)")

    def _running(self) -> int:
        return sum(not job.suspended for job in self._judge.jobs.values())

    def _done(self, kind: str) -> int:
        return sum(job.complete for job in self._judge.jobs.values() if job.key.startswith(f"default/{kind}"))

    def _verdict(self) -> list[str]:
        judge = self._judge
        judge.finish(expected=list(judge.jobs))
        problems = list(judge.problems)
        if len(judge.jobs) != 2 * self._count:
            problems.append(f"lost: {len(judge.jobs)} of {2 * self._count} Jobs were seen")
        if (peak := max(judge.peak.values())) != self._count * 100:
            problems.append(f"the queue was never full: {peak} of {self._count * 100}")
        evicted = {uid: messages for uid, messages in judge.evictions.items() if messages}
        problems += [
            f"an urgent one was evicted: {judge.jobs[uid].key}"
            for uid in evicted
            if not judge.jobs[uid].key.startswith("default/low")
        ]
        for uid, messages in evicted.items():
            counted = evictions_of(workload_of(self._seen, uid))
            if counted != len(messages):
                problems.append(f"counted: {judge.jobs[uid].key} says {counted} evictions, {len(messages)} were seen")
        self.preemptions = sum(len(PREEMPTOR.findall(message)) for seen in evicted.values() for message in seen)
        # Each urgent one takes the place of one other, unless that one has ended by itself.
        if not self._count // 8 <= self.preemptions <= self._count:
            problems.append(f"no storm: {self.preemptions} preemptions for {self._count} urgent Jobs")
        return problems


def evictions_of(workload: Workload) -> int:
    """As its status counts them."""
    stats = workload.status.scheduling_stats
    return sum(entry.count for entry in stats.evictions) if stats is not None else 0


async def run_storm(options: Options, console: Console, report: Report) -> None:
    """The storm as a part of chaos."""
    try:
        async with judged(options, console, "storm") as (stack, client, seen, judge):
            storm = Storm(stack, client, seen, judge, options.storm_jobs, options.seed, console)
            report.problems += await storm.run()
            ends = [at for at, _ in storm.kills[1:]] + [time.monotonic()]
            for (at, name), end in zip(storm.kills, ends, strict=True):
                # Until the next one at the latest: it brings pauses of its own.
                report.fault(f"storm: kill {name}", judge.pauses.longest(at, end))
            report.notes.append(f"storm: {storm.preemptions} preemptions, {len(storm.kills)} kills")
    except (Stalled, TimeoutError) as error:
        report.problems.append(str(error))
