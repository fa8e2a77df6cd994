"""Plays the job behind a Workload that was made without one: finishes it after its run time, and gives quota back after an eviction.

The rules are those of Kueue's performance suite: the run time counts from the moment the admission was seen, and starts anew after each
re-admission. Every write is bound to the state it was planned on: the watched one, and one that is read only after a conflict.

One heap of what is due and a few writers: a run has tens of thousands of admissions, and shares the machine with what it measures.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import Counter
from collections.abc import Callable
from itertools import count

import msgspec

from loadtest.changes import Purpose, SeenCondition
from loadtest.observation import Seen, seen_decoder
from loadtest.timeline import Timeline
from shared.api import names
from shared.kube.client import KubeClient
from shared.kube.errors import ApiError, Conflict
from shared.kube.resources import WORKLOADS

MANAGER = "load-runner"
WRITERS = 16
"""Writes in flight."""
ATTEMPTS = 50
PAUSE_S = 0.05

JsonObject = dict[str, object]
Plan = Callable[[Seen], "JsonObject | None"]


class _Due(msgspec.Struct, frozen=True):
    timeline: Timeline
    turn: int
    """Which of the item's admissions and evictions this is for; an older one is void."""
    seen: Seen
    plan: Plan
    purpose: Purpose


class Execution:
    """Tell it `admitted` and `evicted`; it writes while `run` runs. `problems` says which writes were given up, `written` how many landed, by purpose."""

    def __init__(self, client: KubeClient, *, clock: Callable[[], float] = time.time) -> None:
        self._client = client
        self._clock = clock
        self._turns: dict[str, int] = {}
        self._heap: list[tuple[float, int, _Due]] = []
        self._order = count()
        self._ready: asyncio.Queue[_Due] = asyncio.Queue()
        self._sooner = asyncio.Event()
        self.problems: list[str] = []
        self.written: Counter[Purpose] = Counter()

    def admitted(self, timeline: Timeline, seen: Seen) -> None:
        """Its admission began: it runs from now on."""
        due = timeline.current + timeline.item.runtime_s
        heapq.heappush(self._heap, (due, next(self._order), self._next(timeline, seen, self._finish, "finish")))
        if self._heap[0][0] == due:
            self._sooner.set()

    def evicted(self, timeline: Timeline, seen: Seen) -> None:
        """Its eviction began: it stops at once."""
        self._ready.put_nowait(self._next(timeline, seen, self._release, "release"))

    def _next(self, timeline: Timeline, seen: Seen, plan: Plan, purpose: Purpose) -> _Due:
        key = timeline.item.key
        turn = self._turns[key] = self._turns.get(key, 0) + 1
        return _Due(timeline, turn, seen, plan, purpose)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_time())
            for _ in range(WRITERS):
                group.create_task(self._write_ready())

    async def _keep_time(self) -> None:
        while True:
            now = self._clock()
            while self._heap and self._heap[0][0] <= now:
                self._ready.put_nowait(heapq.heappop(self._heap)[2])
            self._sooner.clear()
            wait = self._heap[0][0] - now if self._heap else None
            try:
                async with asyncio.timeout(wait):
                    await self._sooner.wait()
            except TimeoutError:
                continue

    async def _write_ready(self) -> None:
        while True:
            await self._write(await self._ready.get())

    def _finish(self, seen: Seen) -> JsonObject | None:
        if not seen.is_true(names.ADMITTED) or seen.is_true(names.EVICTED) or seen.is_true(names.FINISHED):
            return None
        return {"conditions": self._with(seen, names.FINISHED, "True", "ByTest", "By test runner")}

    def _release(self, seen: Seen) -> JsonObject | None:
        if not seen.is_true(names.EVICTED) or not seen.is_true(names.QUOTA_RESERVED):
            return None
        conditions = self._with(seen, names.QUOTA_RESERVED, "False", "Pending", "Evicted by the test runner")
        if seen.is_true(names.ADMITTED):
            # Who gives a reservation back takes the admission with it, as all of Kueue's own code does in one write.
            gone = self._condition(seen, names.ADMITTED, "False", "NoReservation", "The workload has no reservation")
            conditions = [gone if c.type == names.ADMITTED else c for c in conditions]
        return {"conditions": conditions, "admission": None}

    def _with(self, seen: Seen, type_: str, status: str, reason: str, message: str) -> list[SeenCondition]:
        new = self._condition(seen, type_, status, reason, message)
        return [*(c for c in seen.status.conditions if c.type != type_), new]

    def _condition(self, seen: Seen, type_: str, status: str, reason: str, message: str) -> SeenCondition:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))
        return SeenCondition(type_, status, reason, message, now, seen.metadata.generation)

    async def _write(self, due: _Due) -> None:
        item = due.timeline.item
        seen, why = due.seen, ""
        for _ in range(ATTEMPTS):
            if self._turns[item.key] != due.turn:
                return
            try:
                status = due.plan(seen)
                if status is None:
                    return
                body = {"metadata": {"resourceVersion": seen.metadata.resource_version}, "status": status}
                await self._client.patch(
                    WORKLOADS,
                    item.namespace,
                    item.name,
                    msgspec.json.encode(body),
                    subresource="status",
                    field_manager=MANAGER,
                )
                self.written[due.purpose] += 1
                return
            except Conflict:
                pass
            except ApiError as error:
                why = str(error)
                await asyncio.sleep(PAUSE_S)
            try:
                seen = seen_decoder.decode(await self._client.get(WORKLOADS, item.namespace, item.name))
            except ApiError as error:
                why = str(error)
                await asyncio.sleep(PAUSE_S)
        self.problems.append(f"{item.key}: {why or 'it changes faster than it can be written'}")
