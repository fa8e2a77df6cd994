"""Plays the job behind a Workload that was made without one: finishes it after its run time, and gives quota back after an eviction.

The rules are those of Kueue's performance suite: the run time counts from the moment the admission was seen, and starts anew after each
re-admission. Every write is bound to the state it was planned on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine

import msgspec

from loadtest.timeline import Timeline
from shared.api import names
from shared.api.meta import ObjectMeta
from shared.kube.client import KubeClient
from shared.kube.errors import ApiError, Conflict
from shared.kube.resources import WORKLOADS

MANAGER = "load-runner"
ATTEMPTS = 50
PAUSE_S = 0.05

JsonObject = dict[str, object]


class _Condition(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    type: str
    status: str
    reason: str
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...] = ()


class _Workload(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    status: _Status = _Status()

    def is_true(self, type_: str) -> bool:
        return any(c.type == type_ and c.status == "True" for c in self.status.conditions)


_workload = msgspec.json.Decoder(_Workload)


class Execution:
    """Tell it `admitted` and `evicted`; it writes from within `tasks`. `problems` says which writes were given up."""

    def __init__(self, client: KubeClient, tasks: asyncio.TaskGroup, *, clock: Callable[[], float] = time.time) -> None:
        self._client = client
        self._tasks = tasks
        self._clock = clock
        self._running: dict[str, asyncio.Task[None]] = {}
        self.problems: list[str] = []

    def admitted(self, timeline: Timeline) -> None:
        """Its admission began: it runs from now on."""
        self._replace(timeline, self._finish(timeline))

    def evicted(self, timeline: Timeline) -> None:
        """Its eviction began: it stops at once."""
        self._replace(timeline, self._release(timeline))

    def stop(self) -> None:
        """End everything that still runs."""
        for task in self._running.values():
            task.cancel()

    def _replace(self, timeline: Timeline, work: Coroutine[None, None, None]) -> None:
        old = self._running.pop(timeline.item.key, None)
        if old is not None:
            old.cancel()
        self._running[timeline.item.key] = self._tasks.create_task(work)

    async def _finish(self, timeline: Timeline) -> None:
        await asyncio.sleep(max(0.0, timeline.current + timeline.item.runtime_s - self._clock()))

        def plan(seen: _Workload) -> JsonObject | None:
            if not seen.is_true(names.ADMITTED) or seen.is_true(names.EVICTED) or seen.is_true(names.FINISHED):
                return None
            return {"conditions": self._with(seen, names.FINISHED, "True", "ByTest", "By test runner")}

        await self._write(timeline, plan)

    async def _release(self, timeline: Timeline) -> None:
        def plan(seen: _Workload) -> JsonObject | None:
            if not seen.is_true(names.EVICTED) or not seen.is_true(names.QUOTA_RESERVED):
                return None
            conditions = self._with(seen, names.QUOTA_RESERVED, "False", "Pending", "Evicted by the test runner")
            return {"conditions": conditions, "admission": None}

        await self._write(timeline, plan)

    def _with(self, seen: _Workload, type_: str, status: str, reason: str, message: str) -> list[_Condition]:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))
        new = _Condition(type_, status, reason, message, now, seen.metadata.generation)
        return [*(c for c in seen.status.conditions if c.type != type_), new]

    async def _write(self, timeline: Timeline, plan: Callable[[_Workload], JsonObject | None]) -> None:
        namespace, name = timeline.item.namespace, timeline.item.name
        why = ""
        for _ in range(ATTEMPTS):
            try:
                seen = _workload.decode(await self._client.get(WORKLOADS, namespace, name))
                status = plan(seen)
                if status is None:
                    return
                body = {"metadata": {"resourceVersion": seen.metadata.resource_version}, "status": status}
                await self._client.patch(
                    WORKLOADS, namespace, name, msgspec.json.encode(body), subresource="status", field_manager=MANAGER
                )
            except Conflict:
                continue
            except ApiError as error:
                why = str(error)
                await asyncio.sleep(PAUSE_S)
            else:
                return
        self.problems.append(f"{timeline.item.key}: {why or 'it changes faster than it can be written'}")
