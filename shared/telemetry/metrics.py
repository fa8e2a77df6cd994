"""The table of Kueue's metrics that Sluice publishes, with Kueue's names, labels and buckets; one row makes one family.

Counters and histograms count what happened while the publishing process ran; gauges are what is now. Every family but build_info has the label
`replica_role` besides its own. Source: Kueue's metrics reference.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram

PREFIX = "kueue_"
ROLE = "replica_role"


def exponential(count: int) -> tuple[float, ...]:
    """1, 2.5, 5, 10, 20, 40 ... doubling: `count` bounds in seconds."""
    return (1.0, 2.5, *(5.0 * 2**k for k in range(count - 2)))


class Family(msgspec.Struct, frozen=True):
    """A row: name without prefix, what it is, its labels, and for a histogram its bounds."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()


_CQ = ("cluster_queue",)
_CQ_CLASS = ("cluster_queue", "priority_class")
_LQ = ("name", "namespace")
_LQ_CLASS = ("name", "namespace", "priority_class")
_CQ_EVICTION = ("cluster_queue", "reason", "underlying_cause", "priority_class")
_QUOTA = ("cohort", "cluster_queue", "flavor", "resource")

EVENTS: tuple[Family, ...] = (
    Family("quota_reserved_workloads_total", "counter", _CQ_CLASS, "Workloads that got quota reserved."),
    Family("admitted_workloads_total", "counter", _CQ_CLASS, "Workloads that were admitted."),
    Family("finished_workloads_total", "counter", _CQ_CLASS, "Workloads that finished."),
    Family("evicted_workloads_total", "counter", _CQ_EVICTION, "Evictions."),
    Family("evicted_workloads_once_total", "counter", _CQ_EVICTION, "Workloads evicted, each counted once per reason."),
    Family("preempted_workloads_total", "counter", ("preempting_cluster_queue", "reason"), "Workloads preempted."),
    Family(
        "quota_reserved_wait_time_seconds",
        "histogram",
        _CQ_CLASS,
        "From creation or requeue to quota reserved.",
        exponential(14),
    ),
    Family(
        "admission_wait_time_seconds", "histogram", _CQ_CLASS, "From creation or requeue to admission.", exponential(16)
    ),
    Family(
        "admission_checks_wait_time_seconds",
        "histogram",
        _CQ_CLASS,
        "From quota reserved to admission.",
        exponential(14),
    ),
    Family("execution_time_seconds", "histogram", _CQ_CLASS, "From admission to the end.", exponential(16)),
    Family(
        "workload_eviction_latency_seconds",
        "histogram",
        ("cluster_queue", "reason"),
        "From eviction to quota released.",
        exponential(14),
    ),
    Family("local_queue_quota_reserved_workloads_total", "counter", _LQ_CLASS, "Workloads that got quota reserved."),
    Family("local_queue_admitted_workloads_total", "counter", _LQ_CLASS, "Workloads that were admitted."),
    Family("local_queue_finished_workloads_total", "counter", _LQ_CLASS, "Workloads that finished."),
    Family(
        "local_queue_evicted_workloads_total",
        "counter",
        (*_LQ, "reason", "underlying_cause", "priority_class"),
        "Evictions.",
    ),
    Family(
        "local_queue_quota_reserved_wait_time_seconds",
        "histogram",
        _LQ_CLASS,
        "From creation or requeue to quota reserved.",
        exponential(14),
    ),
    Family(
        "local_queue_admission_wait_time_seconds",
        "histogram",
        _LQ_CLASS,
        "From creation or requeue to admission.",
        exponential(16),
    ),
    Family(
        "local_queue_admission_checks_wait_time_seconds",
        "histogram",
        _LQ_CLASS,
        "From quota reserved to admission.",
        exponential(14),
    ),
    Family("local_queue_execution_time_seconds", "histogram", _LQ_CLASS, "From admission to the end.", exponential(16)),
)
"""What happens: counters and histograms."""

STATE: tuple[Family, ...] = (
    Family("pending_workloads", "gauge", (*_CQ, "status"), "Pending workloads: active or inadmissible."),
    Family("reserving_active_workloads", "gauge", _CQ, "Workloads that hold quota and have not finished."),
    Family("admitted_active_workloads", "gauge", _CQ, "Admitted workloads that have not finished."),
    Family("finished_workloads", "gauge", _CQ, "Finished workloads that still exist."),
    Family(
        "unadmitted_workloads", "gauge", (*_CQ, "reason", "underlying_cause"), "Workloads without admission, by reason."
    ),
    Family(
        "cluster_queue_status", "gauge", (*_CQ, "status"), "1 for the present status: pending, active, terminating."
    ),
    Family("cluster_queue_info", "gauge", (*_CQ, "parent_cohort", "root_cohort"), "1 for each ClusterQueue."),
    Family("cluster_queue_resource_reservation", "gauge", _QUOTA, "Quota reserved."),
    Family("cluster_queue_resource_usage", "gauge", _QUOTA, "Quota used by admitted workloads."),
    Family("cluster_queue_nominal_quota", "gauge", _QUOTA, "Nominal quota."),
    Family("cluster_queue_borrowing_limit", "gauge", _QUOTA, "Borrowing limit, +Inf without one."),
    Family("cluster_queue_lending_limit", "gauge", _QUOTA, "Lending limit, +Inf without one."),
    Family(
        "cluster_queue_weighted_share", "gauge", ("cluster_queue", "cohort"), "Fair sharing: the share in its status."
    ),
    Family("cohort_weighted_share", "gauge", ("cohort",), "Fair sharing: the share in its status."),
    Family(
        "local_queue_admission_fair_sharing_usage",
        "gauge",
        (*_LQ, "cluster_queue"),
        "Admission fair sharing: weighted past usage, smaller goes first.",
    ),
    Family("local_queue_pending_workloads", "gauge", (*_LQ, "status"), "Pending workloads: active or inadmissible."),
    Family("local_queue_reserving_active_workloads", "gauge", _LQ, "Workloads that hold quota and have not finished."),
    Family("local_queue_admitted_active_workloads", "gauge", _LQ, "Admitted workloads that have not finished."),
    Family("local_queue_finished_workloads", "gauge", _LQ, "Finished workloads that still exist."),
    Family("local_queue_status", "gauge", (*_LQ, "active"), "1 for the present value of Active."),
    Family("local_queue_resource_reservation", "gauge", (*_LQ, "flavor", "resource"), "Quota reserved."),
    Family("local_queue_resource_usage", "gauge", (*_LQ, "flavor", "resource"), "Quota used by admitted workloads."),
)
"""What is: gauges, read off the state when they are asked for."""


class Recorder:
    """Counters and histograms of EVENTS, created on a registry; labels are given without `replica_role`."""

    def __init__(self, registry: CollectorRegistry, role: str) -> None:
        self._role = role
        self._families: dict[str, Counter | Histogram] = {}
        for family in EVENTS:
            labels = (*family.labels, ROLE)
            name = PREFIX + family.name
            self._families[family.name] = (
                Counter(name, family.help, labels, registry=registry)
                if family.kind == "counter"
                else Histogram(name, family.help, labels, registry=registry, buckets=family.buckets)
            )

    def record(self, name: str, labels: tuple[str, ...], value: float = 1.0) -> None:
        """Count one (counter) or observe `value` (histogram)."""
        family = self._families[name]
        child = family.labels(*labels, self._role)
        if isinstance(child, Counter):
            child.inc(value)
        else:
            child.observe(value)

    def forget(self, labels: dict[str, str]) -> None:
        """Drop the series that carry all of these labels: their object is gone."""
        for row in EVENTS:
            if labels.keys() <= set(row.labels):
                self._families[row.name].remove_by_labels(labels)
