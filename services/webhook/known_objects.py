"""What the webhook looks up: the newest queues, checks, priority classes and namespaces from OBJECTS; on a miss, one live read.

A user may apply a LocalQueue and a Job together: the Job's review can come before the queue's message, so a miss is not yet a no.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from shared.api import names
from shared.bus.interface import CaughtUp, FeedItem, ObjectChanged, Reset
from shared.config.configuration import NAMESPACE_NAME_LABEL
from shared.events.objects import AdmissionCheck, ClusterQueue, LocalQueue, Namespace, Object, Tombstone
from shared.kube.errors import ApiError
from shared.kube.resources import LOCAL_QUEUES, WORKLOAD_PRIORITY_CLASSES, Resource

KINDS = ("localqueue", "clusterqueue", "admissioncheck", "workloadpriorityclass", "namespace", "epoch")
_LIVE: dict[str, Resource] = {"localqueue": LOCAL_QUEUES, "workloadpriorityclass": WORKLOAD_PRIORITY_CLASSES}


class Reader(Protocol):
    """The part of KubeClient that is used here."""

    async def get(self, resource: Resource, namespace: str, name: str) -> bytes:
        """The object, or NotFound."""
        ...


class KnownObjects:
    """Folded from the feed."""

    def __init__(self, client: Reader) -> None:
        self._client = client
        self._objects: dict[tuple[str, str], Object] = {}
        self._replayed: dict[tuple[str, str], Object] | None = None
        """What a replay brought so far; until it is complete, what was known before is good enough."""

    def apply(self, item: FeedItem) -> None:
        """Fold one item."""
        if isinstance(item, Reset):
            self._replayed = {}
        elif isinstance(item, CaughtUp):
            if self._replayed is not None:
                self._objects, self._replayed = self._replayed, None
        elif isinstance(item, ObjectChanged):
            key = (item.name.kind, item.name.key)
            for objects in (self._objects, self._replayed):
                if objects is None:
                    continue
                if isinstance(item.object, Tombstone):
                    objects.pop(key, None)
                else:
                    objects[key] = item.object

    def knows(self, kind: str, namespace: str, name: str) -> bool:
        """Whether OBJECTS has shown such an object."""
        return (kind, f"{namespace}/{name}" if namespace else name) in self._objects

    def dispatched(self, namespace: str, queue: str) -> bool:
        """Whether jobs of this LocalQueue are sent to other clusters: a check of its ClusterQueue is MultiKueue's. An unknown queue: no."""
        local = self._objects.get(("localqueue", f"{namespace}/{queue}"))
        cluster = self._objects.get(("clusterqueue", local.cluster_queue)) if isinstance(local, LocalQueue) else None
        rules = cluster.checks if isinstance(cluster, ClusterQueue) else ()
        checks = (self._objects.get(("admissioncheck", rule.name)) for rule in rules)
        return any(isinstance(c, AdmissionCheck) and c.controller == names.MULTIKUEUE_CONTROLLER for c in checks)

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Labels of a namespace; of one that is not known yet the label that every namespace has."""
        found = self._objects.get(("namespace", name))
        return found.labels if isinstance(found, Namespace) else {NAMESPACE_NAME_LABEL: name}

    async def exists(self, kind: str, namespace: str, name: str) -> bool:
        """Whether there is such an object. An API server that does not answer counts as no."""
        if self.knows(kind, namespace, name):
            return True
        try:
            await self._client.get(_LIVE[kind], namespace, name)
        except ApiError:
            return False
        return True
