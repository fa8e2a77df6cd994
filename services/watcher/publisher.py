"""From the watch copy to OBJECTS: every change as a projection, every deletion as a tombstone, in batches.

1. `refill` reads what OBJECTS holds, compares it with the watch copy and writes the difference; from then on changes are published.
2. A change only marks its object; a batch takes the newest state of what is marked, so a busy object costs one write a batch. Batches keep a small
   distance from each other.
3. Once a batch is acknowledged, `acknowledged` is told per object: the floor up to which decisions may be dropped waits for that.

Between `pause` and the next `refill` nothing is written. An object that cannot be projected is reported and left as it was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import lru_cache

import msgspec
from opentelemetry import trace

from services.watcher.kinds import Stored
from services.watcher.projections import project
from services.watcher.store import Change, Store
from shared.api import names
from shared.bus.interface import GatewayBus, ObjectWrite, StreamsLost
from shared.config.custom_labels import MarkKeys, Marks
from shared.events import subjects
from shared.events.objects import ClusterQueue, Cohort, Epoch, LocalQueue, Object, Tombstone, Workload
from shared.events.subjects import ObjectName
from shared.telemetry.metrics import SourceKind
from shared.telemetry.traces import context_of_job, traceparent_of

log = logging.getLogger("sluice.watcher.publisher")

BATCH = 500

Acknowledged = Callable[[str, str, str, int], None]
"""(kind, namespace, name, version): OBJECTS holds this state, or the tombstone of that version."""
Unprojectable = Callable[[Stored, str], None]


class Refilled(msgspec.Struct, frozen=True):
    """OBJECTS holds all of the watch copy at `position`. `epoch`: the highest one announced there. `ahead`: why the API must have gone back in
    time, if OBJECTS held states newer than the lists; empty otherwise."""

    position: int
    epoch: int
    ahead: str = ""


class Publisher:
    """Writes OBJECTS; `changed` is to be subscribed to the store."""

    def __init__(
        self,
        bus: GatewayBus,
        store: Store,
        *,
        acknowledged: Acknowledged,
        unprojectable: Unprojectable,
        lost: Callable[[str], None],
        marks: Mapping[SourceKind, MarkKeys] | None = None,
        gather_s: float = 0.0,
    ) -> None:
        """`marks`: labels and annotations that are wanted of objects besides, by kind. `gather_s`: distance between two batches."""
        self._gather_s = gather_s
        self._bus = bus
        self._store = store
        self._on_acknowledged = acknowledged
        self._on_unprojectable = unprojectable
        self._on_lost = lost
        self._marks = {kind.lower(): keys for kind, keys in (marks or {}).items()}
        self._marked: dict[ObjectName, Tombstone | None] = {}
        """What has changed; a Tombstone to write if the store holds no such object."""
        self._in_flight: set[ObjectName] = set()
        self._published: dict[ObjectName, int] = {}
        self._listening = False
        self._running = asyncio.Event()
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()
        self.position = 0
        """Highest sequence of OBJECTS that is known to hold something of ours."""

    def changed(self, change: Change) -> None:
        """Note one change of the store."""
        if not self._listening or not self._store.watched[change.kind].on_bus:
            return
        about = change.subject
        gone = None
        if change.new is None:
            gone = Tombstone(namespace=about.namespace, name=about.name, uid=about.uid, version=change.version)
        self._marked[ObjectName(change.kind, about.namespace, about.name)] = gone
        self._wake.set()

    def published(self, kind: str, namespace: str, name: str, version: int) -> bool:
        """OBJECTS holds the object at this version or a later one, or it is gone and that is acknowledged too."""
        key = ObjectName(kind, namespace, name)
        if self._published.get(key, 0) >= version:
            return True
        if not self._running.is_set() or key in self._marked or key in self._in_flight:
            return False
        return self._store.get(kind, namespace, name) is None and self._store.version_of(kind) >= version

    async def run(self) -> None:
        """Publish while not paused, until cancelled."""
        while True:
            await self._wake.wait()
            await self._running.wait()
            self._wake.clear()
            async with self._writing:
                if self._running.is_set():
                    try:
                        await self._write_marked()
                    except StreamsLost as error:
                        self._running.clear()
                        self._on_lost(str(error))
            await asyncio.sleep(self._gather_s)

    async def pause(self) -> None:
        """Stop writing; returns when the batch in flight is done."""
        self._running.clear()
        async with self._writing:
            self._listening = False
            self._marked.clear()

    async def refill(self) -> Refilled:
        """Make OBJECTS hold what the store holds, then go on with changes. The store must have been listed since OBJECTS was last written by
        anybody else."""
        async with self._writing:
            self._running.clear()
            self._marked.clear()
            self._published.clear()
            self._listening = True
            held = await self._bus.load_objects()
            position, epoch, ahead = await self._compare(held)
            if not ahead:
                position = max(position, await self._write_marked())
                self._running.set()
            self.position = position
        return Refilled(position, epoch, ahead)

    async def _compare(self, held: dict[str, tuple[int, Object]]) -> tuple[int, int, str]:
        """Mark what differs. (highest position seen, highest epoch, why the API is behind OBJECTS)"""
        position, epoch, ahead = 0, 0, ""
        known: dict[ObjectName, Object] = {}
        for count, (subject, (sequence, found)) in enumerate(held.items()):
            if count % BATCH == 0:
                await asyncio.sleep(0)
            position = max(position, sequence)
            if isinstance(found, Epoch):
                epoch = max(epoch, found.version)
                continue
            try:
                name = subjects.parse_objects(subject)
            except ValueError:
                log.error("foreign subject in OBJECTS", extra={"subject": subject})
                continue
            if name.kind not in self._store.watched:
                continue
            known[name] = found
            stored = self._store.get(name.kind, name.namespace, name.name)
            unreadable = self._store.is_unreadable(name.kind, name.namespace, name.name)
            if stored is None and not unreadable and not isinstance(found, Tombstone):
                self._marked.setdefault(name, self._tombstone(name, found))
            listed = self._store.version_of(name.kind)
            if found.version > max(listed, stored.version if stored else 0) and listed and not ahead:
                ahead = (
                    f"{name.kind} {name.key} is at {found.version} in OBJECTS, but the API server lists up to {listed}"
                )
        for kind in self._store.watched.values():
            if kind.on_bus:
                for count, stored in enumerate(self._store.of_kind(kind.token)):
                    if count % BATCH == 0:
                        # Much to do, and the Lease has to be renewed meanwhile. What changes now is marked by `changed`.
                        await asyncio.sleep(0)
                    name = ObjectName(kind.token, stored.namespace, stored.name)
                    if (projection := self._project(stored)) is not None and known.get(name) == projection:
                        self._acknowledge(name, stored.version)
                    elif projection is not None:
                        self._marked.setdefault(name, None)
        return position, epoch, ahead

    def _tombstone(self, name: ObjectName, found: Object) -> Tombstone:
        """A kind that is not served any more was never listed: its objects are gone as of their last state."""
        version = max(self._store.version_of(name.kind), found.version)
        return Tombstone(namespace=name.namespace, name=name.name, uid=found.uid, version=version)

    async def _write_marked(self) -> int:
        """Write all that is marked. The highest position that holds one of them."""
        position = 0
        while self._marked:
            names_ = [name for name, _ in zip(self._marked, range(BATCH), strict=False)]
            writes = [write for name in names_ if (write := self._write_of(name, self._marked.pop(name))) is not None]
            if writes:
                self._in_flight = {write.name for write in writes}
                try:
                    position = max(position, await self._bus.put_objects(writes))
                    self.position = max(self.position, position)
                except BaseException:
                    for write in writes:
                        gone = write.object if isinstance(write.object, Tombstone) else None
                        self._marked.setdefault(write.name, gone)
                    self._wake.set()
                    raise
                finally:
                    self._in_flight = set()
                for write in writes:
                    self._acknowledge(write.name, write.object.version, gone=isinstance(write.object, Tombstone))
            await asyncio.sleep(0)
        return position

    def _write_of(self, name: ObjectName, gone: Tombstone | None) -> ObjectWrite | None:
        stored = self._store.get(name.kind, name.namespace, name.name)
        if stored is None:
            return ObjectWrite(name, gone) if gone is not None else None
        projection = self._project(stored)
        return ObjectWrite(name, projection, _trace_of(stored)) if projection is not None else None

    def _project(self, stored: Stored) -> Object | None:
        try:
            return self._with_marks(project(stored), stored)
        except ValueError as error:
            self._on_unprojectable(stored, str(error))
            # Nobody can wait for a state that will never be published.
            self._acknowledge(ObjectName(stored.kind, stored.namespace, stored.name), stored.version)
            return None

    def _with_marks(self, projection: Object | None, stored: Stored) -> Object | None:
        keys = self._marks.get(stored.kind)
        if keys is None or not isinstance(projection, Workload | ClusterQueue | LocalQueue | Cohort):
            return projection
        metadata = stored.object.metadata
        marks = keys.of(Marks(metadata.labels, metadata.annotations))
        return msgspec.structs.replace(
            projection, labels=marks.labels, annotations={**projection.annotations, **marks.annotations}
        )

    def _acknowledge(self, name: ObjectName, version: int, *, gone: bool = False) -> None:
        if gone:
            self._published.pop(name, None)
        else:
            self._published[name] = version
        self._on_acknowledged(name.kind, name.namespace, name.name, version)


def _trace_of(stored: Stored) -> str:
    """The trace of the job behind a workload; other objects belong to no job."""
    if stored.kind != "workload":
        return ""
    return _traceparent(stored.object.metadata.labels.get(names.JOB_UID_LABEL) or stored.uid)


@lru_cache(maxsize=4096)
def _traceparent(job_uid: str) -> str:
    return traceparent_of(trace.get_current_span(context_of_job(job_uid)))
