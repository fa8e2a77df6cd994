"""Gauges, read off the newest objects whenever they are scraped: nothing to keep in step, and series of deleted queues vanish by themselves."""

from __future__ import annotations

import math
import platform
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.metrics.cohorts import cohort_samples, limit, rows
from services.metrics.transitions import find, true
from services.metrics.view import View
from shared.api.quantity import QuantityError, parse
from shared.events.objects import ClusterQueue, LocalQueue, Workload
from shared.model.admission_fair_sharing import AfsSettings, weighted_usage
from shared.telemetry.metrics import BUILD_INFO, FAMILIES, PREFIX, STATE, Role, labels_of

Sample = tuple[str, tuple[str, ...], float]
"""Family, the labels of its own, value."""

_EVALUATED = frozenset(
    ("WaitingForQuota", "NoMatchingFlavor", "ExceedsMaxQuota", "TopologyPlacementFailed", "Misconfigured", "Suspended")
)
"""Reasons of QuotaReserved=False with which a workload is parked until something changes."""


class _Count(Protocol):
    def __call__(self, name: str, labels: tuple[str, ...], number: int, /) -> None: ...


class StateCollector(Collector):
    """Makes the families of STATE from the objects in view."""

    def __init__(self, view: View, role: Role) -> None:
        self._view = view
        self._role = role

    def collect(self) -> Iterable[Metric]:
        view, role = self._view, self._role()
        families = {
            row.name: GaugeMetricFamily(PREFIX + row.name, row.help, labels=labels_of(row, view.custom.names))
            for row in STATE
        }
        for (name, labels, custom), number in self._workloads().items():
            families[name].add_metric((*labels, *custom, role), float(number))
        for name, labels, value in self.samples():
            custom = view.custom_values(FAMILIES[name], labels)
            families[name].add_metric((*labels, *custom, role), value)
        return families.values()

    def samples(self) -> Iterator[Sample]:
        """Every gauge that is not a number of workloads."""
        for queue in self._view.all(ClusterQueue):
            yield from self._cluster_queue(queue)
        if self._view.settings.cohorts:
            yield from cohort_samples(self._view)
        for local in self._view.shown_local_queues():
            yield from self._local_queue(local)

    def _workloads(self) -> Counter[tuple[str, tuple[str, ...], tuple[str, ...]]]:
        """Numbers of workloads by family, labels and custom values; each queue has its zeros."""
        view = self._view
        counts: Counter[tuple[str, tuple[str, ...], tuple[str, ...]]] = Counter()

        def count(name: str, labels: tuple[str, ...], number: int, workload: Workload | None = None) -> None:
            counts[name, labels, view.custom_values(FAMILIES[name], labels, workload)] += number

        for queue in view.all(ClusterQueue):
            _zeros(count, "", (queue.name,))
        for local in view.shown_local_queues():
            _zeros(count, "local_queue_", (local.name, local.namespace))
        for workload in view.all(Workload):
            key = f"{workload.namespace}/{workload.queue_name}"
            home = view.get(LocalQueue, key)
            cluster_queue = (
                workload.admission.cluster_queue if workload.admission else home.cluster_queue if home else ""
            )
            in_cluster_queue = view.get(ClusterQueue, cluster_queue) is not None
            local_queue = view.shown_local_queue(key)
            for name, labels in _counted(workload):
                if name == "unadmitted_workloads" and not view.settings.unadmitted:
                    continue
                if in_cluster_queue:
                    count(name, (cluster_queue, *labels), 1, workload)
                if local_queue is not None:
                    between = (cluster_queue,) if name == "unadmitted_workloads" else ()
                    of_queue = (local_queue.name, local_queue.namespace, *between, *labels)
                    count(f"local_queue_{name}", of_queue, 1, workload)
                if name == "admitted_active_workloads" and in_cluster_queue and view.settings.cohorts:
                    for cohort in view.above(_cohort(view, cluster_queue)):
                        count("cohort_subtree_admitted_active_workloads", (cohort,), 1, workload)
        return counts

    def _cluster_queue(self, queue: ClusterQueue) -> Iterator[Sample]:
        active = next((c for c in queue.conditions if c.type == "Active"), None)
        current = "terminating" if queue.deleting else "active" if active and active.status else "pending"
        for status in ("pending", "active", "terminating"):
            yield "cluster_queue_status", (queue.name, status), float(status == current)
        yield "cluster_queue_info", (queue.name, queue.cohort, self._view.root(queue.cohort)), 1.0
        if queue.weighted_share is not None:
            yield "cluster_queue_weighted_share", (queue.name, queue.cohort), float(queue.weighted_share)
        if not self._view.settings.cluster_queue_resources:
            return
        for group in queue.groups:
            for flavor in group.flavors:
                for quota in flavor.quotas:
                    labels = (queue.cohort, queue.name, flavor.name, quota.resource)
                    yield "cluster_queue_nominal_quota", labels, limit(quota.resource, quota.nominal)
                    yield "cluster_queue_borrowing_limit", labels, limit(quota.resource, quota.borrowing_limit)
                    yield "cluster_queue_lending_limit", labels, limit(quota.resource, quota.lending_limit)
        for name, usage in (
            ("cluster_queue_resource_reservation", queue.status_reservation),
            ("cluster_queue_resource_usage", queue.status_usage),
        ):
            for flavor_name, resource, total in rows(usage):
                yield name, (queue.cohort, queue.name, flavor_name, resource), total

    def _local_queue(self, queue: LocalQueue) -> Iterator[Sample]:
        active = next((c for c in queue.conditions if c.type == "Active"), None)
        current = "Unknown" if active is None else str(active.status)
        for value in ("True", "False", "Unknown"):
            yield "local_queue_status", (queue.name, queue.namespace, value), float(value == current)
        for name, usage in (
            ("local_queue_resource_reservation", queue.status_reservation),
            ("local_queue_resource_usage", queue.status_usage),
        ):
            for flavor, resource, total in rows(usage):
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
        return weighted_usage(consumed, AfsSettings(weights=self._view.settings.afs_weights), weight)


class BuildInfo(Collector):
    """What runs here. Version, commit and date as the image says."""

    def __init__(self, version: str, commit: str, date: str) -> None:
        self._labels = (
            version,
            commit,
            date,
            f"python{platform.python_version()}",
            platform.python_implementation(),
            f"{platform.system().lower()}/{platform.machine()}",
        )

    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(PREFIX + BUILD_INFO.name, BUILD_INFO.help, labels=BUILD_INFO.labels)
        family.add_metric(self._labels, 1.0)
        return (family,)


def _zeros(count: _Count, prefix: str, queue: tuple[str, ...]) -> None:
    for status in ("active", "inadmissible"):
        count(f"{prefix}pending_workloads", (*queue, status), 0)
    for name in ("reserving_active_workloads", "admitted_active_workloads", "finished_workloads"):
        count(prefix + name, queue, 0)


def _cohort(view: View, cluster_queue: str) -> str:
    queue = view.get(ClusterQueue, cluster_queue)
    return queue.cohort if queue is not None else ""


def _counted(workload: Workload) -> Iterator[tuple[str, tuple[str, ...]]]:
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
