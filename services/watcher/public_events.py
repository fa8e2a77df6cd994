"""Public CloudEvents of what happens to workloads, told from what their objects say and not from who wrote it.

Each state of a workload implies a list of moments (created, admitted at ..., evicted at ...). A change of the object publishes the moments that the new
state implies and the old one did not, so a change by anybody, or one found again by a replay, is told once. A moment's id is made of the workload's
uid and the moment itself: a reader drops what it has seen. After a start nothing old is told again but the last minutes, under their same ids.

Nothing here waits: events are queued in the order in which the store changed, which gives each workload one order, and `run` publishes them.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import TypedDict

import msgspec
from opentelemetry import trace

from services.watcher.core_kinds import Job
from services.watcher.store import Change, Store
from services.watcher.workload_state import condition, is_admitted, job_uid
from shared.api import names
from shared.api.meta import format_time
from shared.api.workload import Workload
from shared.bus.interface import GatewayBus
from shared.events import cloudevents
from shared.events.cloudevents import CloudEvent, Data, JobReference
from shared.telemetry.traces import context_of_job, traceparent_of

logger = logging.getLogger(__name__)

_MOST_WAITING = 65536
_MOST_AT_ONCE = 256
_MOST_HINTS = 4096
_PAUSE_S = 1.0
_RECENT_S = 110.0
"""Moments this old are told again after a start: a little less than the stream remembers ids."""
_UID = re.compile(r"\(UID: ([^,)]+)")


class Moment(msgspec.Struct, frozen=True):
    """Something that happened once, at `at`; `what` tells it from every other moment of the same workload."""

    at: datetime
    what: str
    data: Data


class _Base(TypedDict):
    """The fields that every event has."""

    namespace: str
    workload: str
    uid: str
    queue: str
    cluster_queue: str
    job: JobReference | None
    priority: int


def _base(workload: Workload) -> _Base:
    owner, admission = workload.metadata.controller_owner(), workload.status.admission
    return _Base(
        namespace=workload.metadata.namespace,
        workload=workload.metadata.name,
        uid=workload.metadata.uid,
        queue=workload.spec.queue_name,
        cluster_queue="" if admission is None else admission.cluster_queue,
        job=None
        if owner is None
        else JobReference(api_version=owner.api_version, kind=owner.kind, name=owner.name, uid=owner.uid),
        priority=workload.spec.priority or 0,
    )


Preemptors = dict[str, tuple[str, str]]


def moments(workload: Workload, preemptors: Preemptors) -> Iterator[Moment]:
    """What a state of a workload says has happened, in the order in which it does. A finished workload in the store has no pod sets any more."""
    base = _base(workload)
    created = workload.metadata.creation_timestamp or datetime.fromtimestamp(0, UTC)
    pod_sets = {pod_set.name: pod_set.count for pod_set in workload.spec.pod_sets}
    yield Moment(created, "created", cloudevents.Created(**base, pod_sets=pod_sets))
    if workload.spec.queue_name:
        yield Moment(created, "queued", cloudevents.Queued(**base))
    refused = condition(workload, names.QUOTA_RESERVED)
    if refused is not None and refused.status == "False" and refused.reason != names.REASON_PENDING_EVALUATION:
        what = f"pending/{refused.reason}/{_seconds(refused.last_transition_time)}"
        yield Moment(
            refused.last_transition_time,
            what,
            cloudevents.Pending(**base, reason=refused.reason, message=refused.message),
        )
    yield from _admission(workload, base, created)
    yield from _eviction(workload, base, preemptors)
    finished = condition(workload, names.FINISHED)
    if finished is not None and finished.status == "True":
        yield Moment(
            finished.last_transition_time,
            "finished",
            cloudevents.Finished(**base, reason=finished.reason, message=finished.message),
        )


def _admission(workload: Workload, base: _Base, created: datetime) -> Iterator[Moment]:
    admitted, admission = condition(workload, names.ADMITTED), workload.status.admission
    if admitted is None or admitted.status != "True" or admission is None:
        return
    requeued = condition(workload, names.REQUEUED)
    since = created if requeued is None else max(created, requeued.last_transition_time)
    at = admitted.last_transition_time
    yield Moment(
        at,
        f"admitted/{_seconds(at)}",
        cloudevents.Admitted(
            **base,
            flavors={a.name: dict(a.flavors) for a in admission.pod_set_assignments},
            wait_seconds=max((at - since).total_seconds(), 0),
        ),
    )


def _eviction(workload: Workload, base: _Base, preemptors: Preemptors) -> Iterator[Moment]:
    preempted, evicted = condition(workload, names.PREEMPTED), condition(workload, names.EVICTED)
    if preempted is not None and preempted.status == "True":
        at = preempted.last_transition_time
        named = _UID.search(preempted.message)
        preemptor, uid = preemptors.get(workload.metadata.uid, ("", named[1] if named else ""))
        yield Moment(
            at,
            f"preempted/{_seconds(at)}",
            cloudevents.Preempted(**base, reason=preempted.reason, preemptor=preemptor, preemptor_uid=uid),
        )
    if evicted is not None and evicted.status == "True":
        at = evicted.last_transition_time
        yield Moment(
            at,
            f"evicted/{evicted.reason}/{_seconds(at)}",
            cloudevents.Evicted(**base, reason=evicted.reason, message=evicted.message),
        )
    requeued = condition(workload, names.REQUEUED)
    if requeued is not None:
        at = requeued.last_transition_time
        waiting = requeued.status == "True"
        yield Moment(
            at,
            f"requeued/{requeued.reason}/{waiting}/{_seconds(at)}",
            cloudevents.Requeued(**base, reason=requeued.reason, waiting=waiting),
        )


class PublicEvents:
    """See the module. `now` gives seconds since the epoch; `gather_s` is the distance between two batches."""

    def __init__(
        self, bus: GatewayBus, store: Store, *, shard: str, now: Callable[[], float], gather_s: float = 0.0
    ) -> None:
        self._gather_s = gather_s
        self._bus = bus
        self._store = store
        self._source = f"sluice/{shard}"
        self._now = now
        self._queue: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(_MOST_WAITING)
        self._preemptors: Preemptors = {}
        self._live = False
        self.dropped = 0
        """Events that found the queue full."""

    def preemptor_of(self, uid: str, preemptor: str, preemptor_uid: str) -> None:
        """The workload `uid` is about to be evicted for `preemptor` (`namespace/name`)."""
        while len(self._preemptors) >= _MOST_HINTS:
            self._preemptors.pop(next(iter(self._preemptors)))
        self._preemptors[uid] = (preemptor, preemptor_uid)

    def begin(self) -> None:
        """The store is complete: what changes from now on is news, and of what it holds the latest is told again."""
        if self._live:
            return
        self._live = True
        recent = datetime.fromtimestamp(self._now() - _RECENT_S, UTC)
        for stored in self._store.of_kind("workload"):
            if isinstance(stored.object, Workload):
                for moment in moments(stored.object, self._preemptors):
                    if moment.at >= recent and not moment.what.startswith("pending/"):
                        self._tell(stored.object, moment)
        for stored in self._store.of_kind("job"):
            if isinstance(stored.object, Job) and not stored.object.spec.suspend:
                self._started(stored.object, since=recent)

    def changed(self, change: Change) -> None:
        """A change of the store."""
        if not self._live or change.new is None:
            return
        old = None if change.old is None or change.old.uid != change.new.uid else change.old.object
        new = change.new.object
        if isinstance(new, Workload):
            known = {m.what for m in moments(old, self._preemptors)} if isinstance(old, Workload) else set()
            for moment in moments(new, self._preemptors):
                if moment.what not in known:
                    self._tell(new, moment)
        elif isinstance(new, Job) and isinstance(old, Job) and old.spec.suspend and not new.spec.suspend:
            self._started(new)

    async def run(self) -> None:
        """Publish what is queued, in order."""
        while True:
            batch = [await self._queue.get()]
            while len(batch) < _MOST_AT_ONCE and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            while True:
                try:
                    await self._bus.emit(batch)
                    break
                except Exception as error:  # noqa: BLE001 - readers know the ids, so the batch is simply tried again
                    logger.warning("cannot publish events", extra={"count": len(batch), "error": str(error)})
                    await asyncio.sleep(_PAUSE_S)
            await asyncio.sleep(self._gather_s)

    def _started(self, job: Job, since: datetime | None = None) -> None:
        for stored in self._store.owned_by("workload", job.metadata.uid):
            workload = stored.object
            if not isinstance(workload, Workload) or not is_admitted(workload):
                continue
            admitted = condition(workload, names.ADMITTED)
            if admitted is None or (since is not None and admitted.last_transition_time < since):
                continue
            at = datetime.fromtimestamp(self._now(), UTC) if since is None else admitted.last_transition_time
            what = f"started/{_seconds(admitted.last_transition_time)}"
            self._tell(workload, Moment(at, what, cloudevents.Started(**_base(workload))))

    def _tell(self, workload: Workload, moment: Moment) -> None:
        id_ = f"{workload.metadata.uid}/{moment.what}"
        if isinstance(moment.data, cloudevents.Pending):
            # The same reason may come back while the condition stays False; each time is news.
            id_ += f"/{workload.metadata.resource_version}"
        event = CloudEvent(
            id=id_,
            source=self._source,
            type=f"{cloudevents.TYPE_PREFIX}{cloudevents.event_name(moment.data)}.v1",
            subject=workload.metadata.key,
            time=format_time(moment.at),
            traceparent=_traceparent(job_uid(workload)),
            data=moment.data,
        )
        try:
            self._queue.put_nowait((cloudevents.subject_of(moment.data), cloudevents.encode(event)))
        except asyncio.QueueFull:
            self.dropped += 1


def _seconds(when: datetime) -> int:
    return int(when.timestamp())


@lru_cache(maxsize=4096)
def _traceparent(uid: str) -> str:
    """The root of the job's trace, without a span of our own: an event may be told long after."""
    return traceparent_of(trace.get_current_span(context_of_job(uid)))
