"""The client's own watches of Jobs, Workloads and ClusterQueues, folded into timelines. Writes nothing, and knows no controller.

Every state of a watch is seen once and in order, so a time here is that of the first state that showed the thing.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime

import msgspec

from loadtest.changes import Flags, Purpose, SeenCondition, flags_of, purpose_of
from loadtest.queue_usage import QueueUsage, SeenQueue
from loadtest.timeline import Timeline
from shared.api import names
from shared.api.meta import OwnerReference
from shared.kube.client import KubeClient
from shared.kube.list_watch import Changed, Listed, ListWatch, ObjectReference
from shared.kube.resources import CLUSTER_QUEUES, JOBS, WORKLOADS, Resource


class SeenMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The part of an object's metadata that timelines need; times stay text, most are never read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"
    generation: int = 0
    creation_timestamp: str = ""
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class SeenSpec(msgspec.Struct, frozen=True, gc=False):
    suspend: bool = False


class SeenStatus(msgspec.Struct, frozen=True):
    conditions: tuple[SeenCondition, ...] = ()


class Seen(msgspec.Struct, frozen=True):
    """The part of a Job or Workload that timelines need."""

    metadata: SeenMeta
    spec: SeenSpec = SeenSpec()
    status: SeenStatus = SeenStatus()

    def find(self, type_: str) -> SeenCondition | None:
        return next((c for c in self.status.conditions if c.type == type_), None)

    def is_true(self, type_: str) -> bool:
        return any(c.type == type_ and c.status == "True" for c in self.status.conditions)


seen_decoder = msgspec.json.Decoder(Seen)
_queue_decoder = msgspec.json.Decoder(SeenQueue)

OnWorkload = Callable[[Timeline, Seen], None]


def ignored(_: Timeline, __: Seen) -> None:
    """Nobody has to be told."""


class Observation:
    """`timelines` by key of the created object. Callbacks are told of admissions and evictions as they begin, with the state that shows them."""

    def __init__(
        self,
        client: KubeClient,
        timelines: Iterable[Timeline],
        *,
        with_jobs: bool,
        on_admitted: OnWorkload = ignored,
        on_evicted: OnWorkload = ignored,
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
        self._flags: dict[str, Flags] = {}
        self.purposes: Counter[Purpose] = Counter()
        """Changes of the items' Workloads, whoever made them."""
        self.queues = QueueUsage()
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
            group.create_task(self._follow_queues())
            for resource in resources:
                group.create_task(self._follow(resource, listed, len(resources), ready))

    async def _follow(self, resource: Resource, listed: set[str], all_: int, ready: asyncio.Event) -> None:
        def malformed(reference: ObjectReference, why: str) -> None:
            self.malformed.append(f"{resource.plural} {reference.namespace}/{reference.name}: {why}")

        take = self.job if resource is JOBS else self.workload
        watch = ListWatch(
            self._client,
            resource,
            seen_decoder.decode,
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

    async def _follow_queues(self) -> None:
        watch = ListWatch(
            self._client,
            CLUSTER_QUEUES,
            _queue_decoder.decode,
            lambda seen: int(seen.metadata.resource_version),
            on_malformed=lambda reference, why: self.malformed.append(f"clusterqueues {reference.name}: {why}"),
        )
        async for items in watch.run():
            now = self._clock()
            for item in items:
                match item:
                    case Changed(item=seen):
                        self.queues.saw(seen, now)
                    case Listed(items=all_seen):
                        for seen in all_seen:
                            self.queues.saw(seen, now)
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
        key = timeline.workload = seen.metadata.key
        flags = flags_of(seen.status.conditions)
        self.purposes[purpose_of(self._flags.get(key), flags)] += 1
        self._flags[key] = flags
        if flags.reserved:
            timeline.reserves(now)
        if flags.finished:
            if not self._with_jobs:
                self._end(timeline, now, True)
            timeline.is_admitted(now, False)
            return
        # Without its reservation an admission is over, whoever still has to write that down.
        if timeline.is_admitted(now, bool(flags.admitted and flags.reserved is not False)):
            if timeline.waited_s is None:
                timeline.waited_s = waited_s(seen)
            if not self._with_jobs:
                self.started += 1 if timeline.admitted == now else 0
                self.changed.set()
            self._on_admitted(timeline, seen)
        if timeline.is_evicted(bool(flags.evicted)):
            self._on_evicted(timeline, seen)

    def _owner_of(self, seen: Seen) -> Timeline | None:
        if not self._with_jobs:
            return self.timelines.get(seen.metadata.key)
        owner = next((o for o in seen.metadata.owner_references if o.controller), None)
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


def waited_s(seen: Seen) -> float | None:
    """Seconds from creation to admission by the object's own times, both of whole seconds; None if it does not say."""
    admitted = seen.find(names.ADMITTED)
    created = seen.metadata.creation_timestamp
    if admitted is None or not admitted.last_transition_time or not created:
        return None
    since = datetime.fromisoformat(created)
    return (datetime.fromisoformat(admitted.last_transition_time) - since).total_seconds()
