"""The client's own watches of Jobs and Workloads, folded into timelines. Writes nothing, and knows no controller.

Every state of a watch is seen once and in order, so a time here is that of the first state that showed the thing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

import msgspec

from loadtest.timeline import Timeline
from shared.api import names
from shared.api.decoding import decode
from shared.api.meta import ObjectMeta
from shared.kube.client import KubeClient
from shared.kube.list_watch import Changed, Listed, ListWatch, ObjectReference
from shared.kube.resources import JOBS, WORKLOADS, Resource


class SeenCondition(msgspec.Struct, frozen=True, gc=False):
    type: str
    status: str
    reason: str = ""


class SeenSpec(msgspec.Struct, frozen=True, gc=False):
    suspend: bool = False


class SeenStatus(msgspec.Struct, frozen=True):
    conditions: tuple[SeenCondition, ...] = ()


class Seen(msgspec.Struct, frozen=True):
    """The part of a Job or Workload that timelines need."""

    metadata: ObjectMeta
    spec: SeenSpec = SeenSpec()
    status: SeenStatus = SeenStatus()

    def is_true(self, type_: str) -> bool:
        return any(c.type == type_ and c.status == "True" for c in self.status.conditions)


OnWorkload = Callable[[Timeline], None]


class Observation:
    """`timelines` by key of the created object. Callbacks are told of admissions and evictions as they begin."""

    def __init__(
        self,
        client: KubeClient,
        timelines: Iterable[Timeline],
        *,
        with_jobs: bool,
        on_admitted: OnWorkload = lambda _: None,
        on_evicted: OnWorkload = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._with_jobs = with_jobs
        self._on_admitted = on_admitted
        self._on_evicted = on_evicted
        self._clock = clock
        self.timelines = {t.item.key: t for t in timelines}
        self._of_uid: dict[str, Timeline] = {}
        self._early: dict[str, Seen] = {}
        """Workloads whose job was not seen yet, by its UID."""
        self.finished = 0
        self.started = 0
        self.changed = asyncio.Event()
        """Set when an item starts or finishes; whoever waits clears it."""
        self.malformed: list[str] = []

    async def run(self, ready: asyncio.Event) -> None:
        """Follow until cancelled; `ready` is set once everything has been listed."""
        resources = (JOBS, WORKLOADS) if self._with_jobs else (WORKLOADS,)
        listed: set[str] = set()
        async with asyncio.TaskGroup() as group:
            for resource in resources:
                group.create_task(self._follow(resource, listed, len(resources), ready))

    async def _follow(self, resource: Resource, listed: set[str], all_: int, ready: asyncio.Event) -> None:
        def malformed(reference: ObjectReference, why: str) -> None:
            self.malformed.append(f"{resource.plural} {reference.namespace}/{reference.name}: {why}")

        take = self.job if resource is JOBS else self.workload
        watch = ListWatch(
            self._client,
            resource,
            lambda raw: decode(Seen, raw),
            lambda seen: int(seen.metadata.resource_version),
            on_malformed=malformed,
        )
        async for items in watch.run():
            for item in items:
                match item:
                    case Changed(item=seen):
                        take(seen)
                    case Listed(items=all_seen):
                        for seen in all_seen:
                            take(seen)
                        listed.add(resource.plural)
                        if len(listed) == all_:
                            ready.set()
                    case _:
                        pass

    def job(self, seen: Seen) -> None:
        """A state of a Job."""
        timeline = self.timelines.get(seen.metadata.key)
        if timeline is None:
            return
        now, uid = self._clock(), seen.metadata.uid
        if uid not in self._of_uid:
            self._of_uid[uid] = timeline
            early = self._early.pop(uid, None)
            if early is not None:
                self.workload(early)
        had_started = bool(timeline.started)
        timeline.is_suspended(now, seen.spec.suspend)
        if timeline.started and not had_started:
            self.started += 1
            self.changed.set()
        if seen.is_true("Complete") or seen.is_true("Failed"):
            self._end(timeline, now, seen.is_true("Complete"))

    def workload(self, seen: Seen) -> None:
        """A state of a Workload."""
        timeline = self._owner_of(seen)
        if timeline is None:
            return
        now = self._clock()
        timeline.workload = seen.metadata.key
        if seen.is_true(names.QUOTA_RESERVED):
            timeline.reserves(now)
        if seen.is_true(names.FINISHED):
            if not self._with_jobs:
                self._end(timeline, now, True)
            timeline.is_admitted(now, False)
            return
        if timeline.is_admitted(now, seen.is_true(names.ADMITTED)):
            if not self._with_jobs:
                self.started += 1 if timeline.admitted == now else 0
                self.changed.set()
            self._on_admitted(timeline)
        if timeline.is_evicted(seen.is_true(names.EVICTED)):
            self._on_evicted(timeline)

    def _owner_of(self, seen: Seen) -> Timeline | None:
        if not self._with_jobs:
            return self.timelines.get(seen.metadata.key)
        owner = seen.metadata.controller_owner()
        if owner is None:
            return None
        timeline = self._of_uid.get(owner.uid)
        if timeline is None:
            self._early[owner.uid] = seen
        return timeline

    def _end(self, timeline: Timeline, now: float, succeeded: bool) -> None:
        if timeline.ends(now, succeeded):
            self.finished += 1
            self.changed.set()
