"""Jobs without end until there are enough of them: there is always somebody who waits, and creation keeps pace with what is tried."""

from __future__ import annotations

import asyncio
import random

from shared.kube.client import KubeClient
from shared.kube.errors import AlreadyExists, ApiError, Refused
from tests.chaos.judge import Judge
from tests.integration.stack.manifests import (
    Manifest,
    cluster_queue,
    create_job,
    flavor,
    job,
    local_queue,
    priority_class,
)

WAITING = 30
"""So many jobs wait, if that many may be created."""
RETRY_S = 0.1
LOOK_S = 0.05
RECLAIM = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
QUEUES: list[Manifest] = [
    priority_class("urgent", 100),
    flavor("chaos"),
    cluster_queue("a", "6", flavors=("chaos",), cohortName="both", preemption=RECLAIM),
    cluster_queue("b", "6", flavors=("chaos",), cohortName="both", preemption=RECLAIM, queueingStrategy="StrictFIFO"),
    local_queue("a"),
    local_queue("b"),
]


async def submit(client: KubeClient, manifest: Manifest) -> None:
    """Create a Job, again and again while admission or the API server is down. Raises Refused for what is wrong with the Job itself."""
    while True:
        try:
            await create_job(client, manifest)
        except AlreadyExists:
            # An earlier attempt, whose answer was lost.
            return
        except Refused as error:
            if "webhook" not in error.message:
                raise
        except ApiError:
            pass
        else:
            return
        await asyncio.sleep(RETRY_S)


class Load:
    """`count` Jobs of one pod in two queues that borrow from each other; `may_create` of them for now."""

    def __init__(self, client: KubeClient, judge: Judge, count: int, draw: random.Random) -> None:
        self._client = client
        self._judge = judge
        self.count = count
        self._draw = draw
        self.created = 0
        self.may_create = 0

    @property
    def finished(self) -> int:
        return sum(1 for job_ in self._judge.jobs.values() if job_.complete or job_.failed)

    def has_finished(self) -> bool:
        return self.finished >= self.count

    async def run(self) -> None:
        """Until all are created."""
        while self.created < self.count:
            unseen = self.created - len(self._judge.jobs)
            if self.created < self.may_create and len(self._judge.pauses.waiting) + unseen < WAITING:
                await submit(self._client, self._next())
                self.created += 1
                continue
            await asyncio.sleep(LOOK_S)

    def _next(self) -> Manifest:
        draw = self._draw
        labels = {"kueue.x-k8s.io/priority-class": "urgent"} if draw.random() < 0.15 else None
        cpu = draw.choice(("1", "1", "1", "2"))
        seconds = f"{draw.uniform(0.5, 2):.1f}"
        return job(f"j{self.created:04}", draw.choice("ab"), cpu, labels=labels, run_seconds=seconds)
