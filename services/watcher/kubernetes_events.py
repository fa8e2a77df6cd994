"""Kubernetes Events (events.k8s.io/v1) as users of the queueing API know them: the same reasons, types and machine-readable notes.

They inform and decide nothing: they wait for the write budget, are dropped when too many wait or after a minute in line, and a note that was just sent is
not sent again.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal
from uuid import uuid4

import msgspec

from services.watcher.informing import Budget
from shared.api import names
from shared.api.conditions import MAX_NOTE_BYTES, cut
from shared.api.meta import ObjectMeta
from shared.jobs.manifest import JsonObject
from shared.kube import resources
from shared.kube.client import KubeClient
from shared.kube.errors import ApiError, Unavailable
from shared.kube.resources import Resource

logger = logging.getLogger(__name__)

ADMISSION_CONTROLLER = "kueue-admission"
WORKLOAD_CONTROLLER = "kueue-workload-controller"
PROVISIONING_CONTROLLER = "kueue-provisioning-request-controller"
CONCURRENT_ADMISSION_CONTROLLER = "concurrent-admission-controller"
POD_TERMINATION_CONTROLLER = "kueue-pod-termination-controller"
JOB_CONTROLLER_SUFFIX = "-kueue-controller"

EventType = Literal["Normal", "Warning"]

_MOST_WAITING = 1024
_LONGEST_WAIT_S = 60.0
"""Later than this an Event tells of what is over, and keeps newer ones from being told."""
_WINDOW_S = 10.0
_MOST_REMEMBERED = 8192
_ATTEMPTS = 3
_PAUSE_S = 1.0
_MAX_NAME = 253
_MAX_LABEL = 128


class Regarding(msgspec.Struct, frozen=True):
    """The object that an Event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    def manifest(self) -> JsonObject:
        """As an ObjectReference."""
        reference: JsonObject = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
        }
        if self.namespace:
            reference["namespace"] = self.namespace
        return reference


def regarding(resource: Resource, metadata: ObjectMeta) -> Regarding:
    """The reference to an object of `resource`."""
    return Regarding(resource.api_version, resource.kind, metadata.namespace, metadata.name, metadata.uid)


def about_workload(metadata: ObjectMeta) -> Regarding:
    """The reference to a Workload."""
    return Regarding(names.GROUP_VERSION, names.WORKLOAD, metadata.namespace, metadata.name, metadata.uid)


class _Waiting(msgspec.Struct, frozen=True):
    about: Regarding
    type: EventType
    reason: str
    note: str
    controller: str
    action: str
    at: float
    related: Regarding | None


class EventRecorder:
    """`emit` never waits; `run` writes until cancelled. `now` gives seconds since the epoch."""

    def __init__(self, client: KubeClient, budget: Budget, *, instance: str, now: Callable[[], float]) -> None:
        self._client = client
        self._budget = budget
        self._instance = instance
        self._now = now
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue(_MOST_WAITING)
        self._sent: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self.dropped = 0
        """Events that found the queue full, or waited too long in it."""

    def emit(
        self,
        about: Regarding,
        type_: EventType,
        reason: str,
        note: str,
        *,
        controller: str,
        action: str = "",
        related: Regarding | None = None,
        window_s: float = _WINDOW_S,
    ) -> None:
        """Write an Event, unless the same one was emitted within `window_s` seconds."""
        now = self._now()
        key = (about.uid or f"{about.kind}/{about.namespace}/{about.name}", reason, note)
        last = self._sent.get(key)
        if last is not None and now - last < window_s:
            return
        self._sent[key] = now
        self._sent.move_to_end(key)
        while len(self._sent) > _MOST_REMEMBERED:
            self._sent.popitem(last=False)
        event = _Waiting(about, type_, reason, cut(note, MAX_NOTE_BYTES), controller, action or reason, now, related)
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self.dropped += 1

    async def run(self) -> None:
        """Write what is emitted, in order."""
        while True:
            event = await self._queue.get()
            if self._now() - event.at > _LONGEST_WAIT_S:
                self.dropped += 1
                continue
            async with self._budget.spend():
                await self._write(event)

    async def _write(self, event: _Waiting) -> None:
        namespace = event.about.namespace or "default"
        body = msgspec.json.encode(_manifest(event, namespace, self._instance))
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await self._client.create(resources.EVENTS, namespace, body)
            except Unavailable as error:
                if attempt == _ATTEMPTS:
                    logger.info("an Event was lost", extra={"reason": event.reason, "error": str(error)})
                    return
                await asyncio.sleep(_PAUSE_S)
            except ApiError as error:
                # A namespace that is going away takes no Events; that is nobody's fault.
                logger.info("an Event was refused", extra={"reason": event.reason, "error": str(error)})
                return
            else:
                return


def _manifest(event: _Waiting, namespace: str, instance: str) -> JsonObject:
    suffix = f".{uuid4().hex[:16]}"
    manifest: JsonObject = {
        "apiVersion": resources.EVENTS.api_version,
        "kind": resources.EVENTS.kind,
        "metadata": {"namespace": namespace, "name": event.about.name[: _MAX_NAME - len(suffix)] + suffix},
        "eventTime": datetime.fromtimestamp(event.at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": event.type,
        "reason": event.reason[:_MAX_LABEL],
        "note": event.note,
        "action": event.action[:_MAX_LABEL],
        "reportingController": event.controller,
        "reportingInstance": (instance or event.controller)[:_MAX_LABEL],
        "regarding": event.about.manifest(),
    }
    if event.related is not None:
        manifest["related"] = event.related.manifest()
    return manifest
