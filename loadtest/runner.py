"""Puts a plan on an API server and watches what becomes of it.

1. Make flavor, queues and namespaces; wait until the ClusterQueues are active.
2. Open the watches, then create each item when it is due.
3. Without jobs behind the Workloads, play them.
4. With faults: do each while admissions go on, and wait until they do again. Then the run is over.
5. End when every item has finished, or at the time-out.

It speaks only to the API server, as a user would.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from loadtest.changes import Purpose
from loadtest.execution import Execution
from loadtest.generator import JsonObject, Plan
from loadtest.observation import Observation, ignored, seen_decoder
from loadtest.shape import Ending
from loadtest.timeline import Timeline
from shared.kube import resources
from shared.kube.client import KubeClient
from shared.kube.errors import AlreadyExists, ApiError
from shared.kube.resources import Resource

QUEUES_ACTIVE_S = 60.0
LOOK_S = 0.1
FLOWING = 20
"""So many admissions after a fault say that they go on."""
SETTLE_S = 10.0
"""Before the first fault and after each: what is admitted then shows whether a recovery lasts."""
TELL_S = 0.2
"""Progress is told no oftener: drawing it costs what is to be measured."""

KINDS: dict[str, Resource] = {
    resource.kind: resource
    for resource in (
        resources.NAMESPACES,
        resources.RESOURCE_FLAVORS,
        resources.CLUSTER_QUEUES,
        resources.LOCAL_QUEUES,
        resources.WORKLOAD_PRIORITY_CLASSES,
    )
}

OnProgress = Callable[[int, int, int], None]
"""(created, started, finished) so far."""


class Fault(msgspec.Struct, frozen=True):
    """What was done to the target at a time, when that was over (0: not known), and until when admissions were waited for (wall clock seconds)."""

    name: str
    began: float
    recovered: float
    done: float = 0.0


class Outcome(msgspec.Struct, frozen=True):
    """What a run gave: one timeline per item, from the first creation to the last end in wall clock seconds."""

    timelines: tuple[Timeline, ...]
    began: float
    ended: float
    problems: tuple[str, ...]
    faults: tuple[Fault, ...] = ()
    purposes: Mapping[Purpose, int] = {}
    """Changes of the items' Workloads by what they were for, the runner's own included."""
    played: Mapping[Purpose, int] = {}
    """Those that the runner made itself."""
    usage_by_status: float | None = None
    """Percent of the nominal quota that the ClusterQueues' status said was used; None if no queue was seen."""


class Runner:
    """One run of one plan. `prepare`, then `run`."""

    def __init__(
        self,
        client: KubeClient,
        plan: Plan,
        *,
        mimic: bool,
        timeout_s: float,
        progress: OnProgress = lambda *_: None,
        faults: Mapping[str, Callable[[], Awaitable[None]]] | None = None,
        clients: int = 64,
        ends: Ending = "finished",
    ) -> None:
        """`clients`: creations under way at once; `ends`: what is waited for."""
        self._client = client
        self._plan = plan
        self._mimic = mimic
        self._timeout_s = timeout_s
        self._progress = progress
        self._to_do = dict(faults or {})
        self._faults: list[Fault] = []
        self._created = 0
        self._ends = ends
        self._told_at = 0.0
        self._room = asyncio.Semaphore(clients)

    async def prepare(self) -> None:
        """Make what the items need. Raises ApiError, and TimeoutError when a ClusterQueue does not become active."""
        for document in self._plan.shared:
            await self._create(document)
        async with asyncio.TaskGroup() as group:
            for queue in self._plan.queues:
                group.create_task(self._create_queue(queue.objects))
        for queue in self._plan.queues:
            await self._active(queue.name)

    async def run(self) -> Outcome:
        """Create, watch, wait. Ends at the time-out at the latest, and says so among the problems."""
        timelines = tuple(Timeline(item) for item in self._plan.items)
        problems: list[str] = []
        execution = Execution(self._client)
        observation = Observation(
            self._client,
            timelines,
            with_jobs=not self._mimic,
            on_admitted=execution.admitted if self._mimic else ignored,
            on_evicted=execution.evicted if self._mimic else ignored,
        )
        ready = asyncio.Event()
        beside = [asyncio.create_task(observation.run(ready)), asyncio.create_task(execution.run())]
        try:
            await ready.wait()
            began = time.time()
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._load(observation, timelines, began)
            except TimeoutError:
                problems.append(f"not done after {self._timeout_s:g} s")
        finally:
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)
        for task in beside:
            if not task.cancelled():
                # It ended by itself: what was measured since then is worth nothing.
                task.result()
        self._tell(observation, last=True)
        problems += [f"{t.item.key}: not created: {t.error}" for t in timelines if t.error]
        problems += [f"{t.item.key}: failed" for t in timelines if t.finished and not t.succeeded]
        problems += [*execution.problems, *observation.malformed]
        last = max((max(t.finished, t.started, t.admitted) for t in timelines), default=0.0)
        return Outcome(
            timelines,
            began,
            last or time.time(),
            tuple(problems),
            tuple(self._faults),
            observation.purposes,
            execution.written,
            observation.queues.percent({queue.name: queue.nominal_milli for queue in self._plan.queues}),
        )

    async def _load(self, observation: Observation, timelines: tuple[Timeline, ...], began: float) -> None:
        async with asyncio.TaskGroup() as creating:
            for timeline in timelines:
                await asyncio.sleep(max(0.0, began + timeline.item.due_s - time.time()))
                await self._room.acquire()
                creating.create_task(self._create_item(timeline))
                self._tell(observation)
        if self._to_do:
            await self._disturb(observation)
            return
        expected = sum(1 for t in timelines if not t.error)
        while (observation.finished if self._ends == "finished" else observation.started) < expected:
            observation.changed.clear()
            self._tell(observation)
            await observation.changed.wait()

    async def _disturb(self, observation: Observation) -> None:
        await asyncio.sleep(SETTLE_S)
        for name, do in self._to_do.items():
            began = time.time()
            await do()
            done = time.time()
            enough = observation.started + FLOWING
            while observation.started < enough:
                observation.changed.clear()
                self._tell(observation)
                await observation.changed.wait()
            await asyncio.sleep(SETTLE_S)
            self._faults.append(Fault(name, began, time.time(), done))

    async def _create_item(self, timeline: Timeline) -> None:
        try:
            timeline.asked = time.time()
            await self._client.create(self._resource(), timeline.item.namespace, timeline.item.body)
            timeline.answered = time.time()
            self._created += 1
        except ApiError as error:
            timeline.error = str(error)
        finally:
            self._room.release()

    def _resource(self) -> Resource:
        return resources.WORKLOADS if self._mimic else resources.JOBS

    def _tell(self, observation: Observation, *, last: bool = False) -> None:
        now = time.monotonic()
        if not last and now < self._told_at + TELL_S:
            return
        self._told_at = now
        self._progress(self._created, observation.started, observation.finished)

    async def _create_queue(self, objects: tuple[JsonObject, ...]) -> None:
        for document in objects:
            await self._create(document)

    async def _create(self, document: JsonObject) -> None:
        metadata = document["metadata"]
        namespace = str(metadata.get("namespace", "")) if isinstance(metadata, dict) else ""
        with contextlib.suppress(AlreadyExists):
            await self._client.create(KINDS[str(document["kind"])], namespace, msgspec.json.encode(document))

    async def _active(self, queue: str) -> None:
        async with asyncio.timeout(QUEUES_ACTIVE_S):
            while True:
                seen = seen_decoder.decode(await self._client.get(resources.CLUSTER_QUEUES, "", queue))
                if seen.is_true("Active"):
                    return
                await asyncio.sleep(LOOK_S)
