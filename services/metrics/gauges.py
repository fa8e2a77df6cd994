"""Gauges, read off the newest objects whenever they are scraped: nothing to keep in step, and series of deleted queues vanish by themselves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.metrics.settings import MetricsSettings
from services.metrics.transitions import find, true
from shared.api.quantity import QuantityError, parse, quota_units
from shared.events.objects import ClusterQueue, Cohort, LocalQueue, Object, QueueUsage, Workload
from shared.model.admission_fair_sharing import AfsSettings, weighted_usage
from shared.telemetry.metrics import PREFIX, ROLE, STATE

T = TypeVar("T", bound=Object)

Objects = Mapping[str, Mapping[str, Object]]
"""Kind token -> key -> newest object."""

_EVALUATED = frozenset(
    ("WaitingForQuota", "NoMatchingFlavor", "ExceedsMaxQuota", "TopologyPlacementFailed", "Misconfigured", "Suspended")
)
"""Reasons of QuotaReserved=False with which a workload is parked until something changes."""


class StateCollector(Collector):
    """Makes the families of STATE from the objects it is given."""

    def __init__(self, objects: Objects, settings: MetricsSettings) -> None:
        self._objects = objects
        self._settings = settings

    def collect(self) -> Iterable[Metric]:
        families = {f.name: GaugeMetricFamily(PREFIX + f.name, f.help, labels=(*f.labels, ROLE)) for f in STATE}
        for name, labels, value in self.samples():
            families[name].add_metric((*labels, self._settings.replica_role), value)
        return families.values()

    def samples(self) -> Iterator[tuple[str, tuple[str, ...], float]]:
        """(family, labels, value) of every gauge now."""
        yield from self._workloads()
        for queue in self._of_kind(ClusterQueue):
            yield from self._cluster_queue(queue)
        for cohort in self._of_kind(Cohort):
            if self._settings.cohorts and cohort.weighted_share is not None:
                yield "cohort_weighted_share", (cohort.name,), float(cohort.weighted_share)
        if self._settings.local_queues:
            for local in self._of_kind(LocalQueue):
                yield from self._local_queue(local)

    def _of_kind(self, type_: type[T]) -> Iterator[T]:
        for item in self._objects.get(type_.__name__.lower(), {}).values():
            if isinstance(item, type_):
                yield item

    def _workloads(self) -> Iterator[tuple[str, tuple[str, ...], float]]:
        queues = {q.key: q.cluster_queue for q in self._of_kind(LocalQueue)}
        counts: Counter[tuple[str, tuple[str, ...]]] = Counter()
        for queue in self._of_kind(ClusterQueue):
            for status in ("active", "inadmissible"):
                counts["pending_workloads", (queue.name, status)] = 0
            for name in ("reserving_active_workloads", "admitted_active_workloads", "finished_workloads"):
                counts[name, (queue.name,)] = 0
        for workload in self._of_kind(Workload):
            local = (workload.queue_name, workload.namespace)
            home = queues.get(f"{workload.namespace}/{workload.queue_name}", "")
            cluster_queue = workload.admission.cluster_queue if workload.admission else home
            if not cluster_queue:
                continue
            for name, labels in _counted(workload, cluster_queue):
                counts[name, (cluster_queue, *labels)] += 1
                if self._settings.local_queues and name != "unadmitted_workloads":
                    counts[f"local_queue_{name}", (*local, *labels)] += 1
        for (name, labels), value in counts.items():
            yield name, labels, value

    def _cluster_queue(self, queue: ClusterQueue) -> Iterator[tuple[str, tuple[str, ...], float]]:
        active = next((c for c in queue.conditions if c.type == "Active"), None)
        current = "terminating" if queue.deleting else "active" if active and active.status else "pending"
        for status in ("pending", "active", "terminating"):
            yield "cluster_queue_status", (queue.name, status), float(status == current)
        yield "cluster_queue_info", (queue.name, queue.cohort, self._root(queue.cohort)), 1.0
        if queue.weighted_share is not None:
            yield "cluster_queue_weighted_share", (queue.name, queue.cohort), float(queue.weighted_share)
        if not self._settings.cluster_queue_resources:
            return
        for group in queue.groups:
            for flavor in group.flavors:
                for quota in flavor.quotas:
                    labels = (queue.cohort, queue.name, flavor.name, quota.resource)
                    yield "cluster_queue_nominal_quota", labels, _limit(quota.resource, quota.nominal)
                    yield "cluster_queue_borrowing_limit", labels, _limit(quota.resource, quota.borrowing_limit)
                    yield "cluster_queue_lending_limit", labels, _limit(quota.resource, quota.lending_limit)
        for name, usage in (
            ("cluster_queue_resource_reservation", queue.status_reservation),
            ("cluster_queue_resource_usage", queue.status_usage),
        ):
            for flavor_name, resource, total in _rows(usage):
                yield name, (queue.cohort, queue.name, flavor_name, resource), total

    def _local_queue(self, queue: LocalQueue) -> Iterator[tuple[str, tuple[str, ...], float]]:
        active = next((c for c in queue.conditions if c.type == "Active"), None)
        current = "Unknown" if active is None else str(active.status)
        for value in ("True", "False", "Unknown"):
            yield "local_queue_status", (queue.name, queue.namespace, value), float(value == current)
        for name, usage in (
            ("local_queue_resource_reservation", queue.status_reservation),
            ("local_queue_resource_usage", queue.status_usage),
        ):
            for flavor, resource, total in _rows(usage):
                yield name, (queue.name, queue.namespace, flavor, resource), total
        if queue.consumed_at is not None:
            labels = (queue.name, queue.namespace, queue.cluster_queue)
            yield "local_queue_admission_fair_sharing_usage", labels, self._past_usage(queue)

    def _past_usage(self, queue: LocalQueue) -> float:
        """The number by which LocalQueues take turns, without penalties of what is being admitted; not a number if it cannot be read."""
        try:
            consumed = {resource: parse(amount).nano for resource, amount in queue.consumed.items()}
            weight = parse(queue.fair_weight).nano / 1e9
        except QuantityError:
            return math.nan
        return weighted_usage(consumed, AfsSettings(weights=self._settings.afs_weights), weight)

    def _root(self, cohort: str) -> str:
        seen: set[str] = set()
        cohorts = self._objects.get("cohort", {})
        while cohort not in seen:
            seen.add(cohort)
            parent = cohorts.get(cohort)
            if not isinstance(parent, Cohort) or not parent.parent:
                break
            cohort = parent.parent
        return cohort


def _counted(workload: Workload, cluster_queue: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Families (without the queue's labels) that count this workload."""
    if workload.finished:
        yield "finished_workloads", ()
        return
    admitted = true(workload, "Admitted")
    if true(workload, "QuotaReserved"):
        yield "reserving_active_workloads", ()
    if admitted:
        yield "admitted_active_workloads", ()
        return
    refused = find(workload, "QuotaReserved")
    if refused is None or not refused.status:
        reason = refused.reason if refused else "PendingEvaluation"
        requeued = find(workload, "Requeued")
        parked = reason in _EVALUATED or (requeued is not None and not requeued.status) or not workload.active
        yield "pending_workloads", ("inadmissible" if parked else "active",)
        yield "unadmitted_workloads", (reason, "")
    else:
        waiting = find(workload, "Admitted")
        yield "unadmitted_workloads", (waiting.reason if waiting else "UnsatisfiedAdmissionChecks", "")


def _base(resource: str, units: int) -> float:
    return units / 1000 if resource == "cpu" else float(units)


def _rows(usage: QueueUsage) -> Iterator[tuple[str, str, float]]:
    for flavor, resource, total, _ in usage.rows:
        yield flavor, resource, _base(resource, total)


def _limit(resource: str, quantity: str | None) -> float:
    """The limit in cores or bytes; infinite without one, not a number if it cannot be read."""
    if quantity is None:
        return math.inf
    try:
        return _base(resource, quota_units(resource, quantity))
    except QuantityError:
        return math.nan
