"""The newest objects as series see them: which queues and cohorts have series, what is above what, and the values of custom labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from services.metrics.settings import MetricsSettings
from shared.api.selectors import LabelSelector, matches
from shared.config.custom_labels import NO_MARKS, CustomLabels, Marks
from shared.events.objects import ClusterQueue, Cohort, LocalQueue, Object, Workload
from shared.telemetry.metrics import Family, SourceKind

T = TypeVar("T", bound=Object)

Objects = Mapping[str, Mapping[str, Object]]
"""Kind token -> key -> newest object."""


class View:
    """Live: asks the objects it was given each time. `selector`: LocalQueues with series; None takes all."""

    def __init__(
        self,
        objects: Objects,
        settings: MetricsSettings,
        custom: CustomLabels | None = None,
        selector: LabelSelector | None = None,
    ) -> None:
        self._objects = objects
        self.settings = settings
        self.custom = custom or CustomLabels()
        self._selector = selector

    def get(self, type_: type[T], key: str) -> T | None:
        """The object of that key."""
        found = self._objects.get(type_.__name__.lower(), {}).get(key)
        return found if isinstance(found, type_) else None

    def all(self, type_: type[T]) -> Iterator[T]:
        """Each object of a kind."""
        for item in self._objects.get(type_.__name__.lower(), {}).values():
            if isinstance(item, type_):
                yield item

    def shown_local_queue(self, key: str) -> LocalQueue | None:
        """The LocalQueue, if it exists and has series."""
        queue = self.get(LocalQueue, key)
        if queue is None or not self.settings.local_queues:
            return None
        if self._selector is not None and not matches(self._selector, queue.labels):
            return None
        return queue

    def shown_local_queues(self) -> Iterator[LocalQueue]:
        """Each LocalQueue that has series."""
        for queue in self.all(LocalQueue):
            if self.shown_local_queue(queue.key) is not None:
                yield queue

    def cohorts(self) -> set[str]:
        """All cohorts: with an object, or only named by a member."""
        found = {queue.cohort for queue in self.all(ClusterQueue)}
        for cohort in self.all(Cohort):
            found |= {cohort.name, cohort.parent}
        return found - {""}

    def parent(self, cohort: str) -> str:
        """The cohort above; empty for a root."""
        found = self.get(Cohort, cohort)
        return found.parent if found is not None else ""

    def above(self, cohort: str) -> tuple[str, ...]:
        """The cohort and those above it, the root last; in a cycle each once. Empty for no cohort."""
        found: dict[str, None] = {}
        while cohort and cohort not in found:
            found[cohort] = None
            cohort = self.parent(cohort)
        return tuple(found)

    def root(self, cohort: str) -> str:
        """The root of a cohort's tree; empty for no cohort."""
        return next(reversed(self.above(cohort)), "")

    def exists(self, labels: Mapping[str, str]) -> bool:
        """Whether the queue or cohort that these labels of a series name has series."""
        if "namespace" in labels:
            return self.shown_local_queue(f"{labels['namespace']}/{labels['name']}") is not None
        queue = labels.get("cluster_queue", labels.get("preempting_cluster_queue"))
        if queue is not None:
            return self.get(ClusterQueue, queue) is not None
        return self.settings.cohorts

    def custom_values(
        self, family: Family, labels: tuple[str, ...], workload: Workload | None = None
    ) -> tuple[str, ...]:
        """Values of the family's custom labels, for the series with these labels of its own."""
        if not self.custom.names(family.custom):
            return ()
        named = dict(zip(family.labels, labels, strict=True))

        def marks_of(kind: SourceKind) -> Marks:
            found: Workload | ClusterQueue | LocalQueue | Cohort | None
            if kind == "Workload":
                found = workload
            elif kind == "LocalQueue":
                found = self.get(LocalQueue, f"{named['namespace']}/{named['name']}")
            elif kind == "Cohort":
                found = self.get(Cohort, named["cohort"])
            else:
                found = self.get(ClusterQueue, named.get("cluster_queue", named.get("preempting_cluster_queue", "")))
            return Marks(found.labels, found.annotations) if found is not None else NO_MARKS

        return self.custom.values(family.custom, marks_of)
