"""The table of Kueue's metrics that Sluice publishes, with Kueue's names, labels and buckets; one row makes one family.

Counters and histograms count what happened while the publishing process ran; gauges are what is now. Every family but build_info has the label
`replica_role` besides its own, and those with `custom` the labels that `metrics.customLabels` adds. Source: Kueue's metrics reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

# Else each counter and histogram has a series more, of a name that nobody knows.
disable_created_metrics()  # type: ignore[no-untyped-call]

PREFIX = "kueue_"
ROLE = "replica_role"

LEADER = "leader"
FOLLOWER = "follower"
STANDALONE = "standalone"
"""The values of `replica_role`: standalone where nobody is elected."""

Role = Callable[[], str]

SourceKind = Literal["ClusterQueue", "LocalQueue", "Cohort", "Workload"]
"""The objects that a custom label may take its value from."""


def exponential(count: int) -> tuple[float, ...]:
    """1, 2.5, 5, 10, 20, 40 ... doubling: `count` bounds in seconds."""
    return (1.0, 2.5, *(5.0 * 2**k for k in range(count - 2)))


DEFAULT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Those of Prometheus' own libraries for Go; the one for Python has others."""
CREATION_BUCKETS = tuple(0.01 * 2**k for k in range(11))


class Family(msgspec.Struct, frozen=True):
    """A row: name without prefix, what it is, its labels, for a histogram its bounds, and which objects' custom labels it takes."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()
    custom: tuple[SourceKind, ...] = ()


_CQ = ("cluster_queue",)
_CQ_CLASS = ("cluster_queue", "priority_class")
_LQ = ("name", "namespace")
_LQ_CLASS = ("name", "namespace", "priority_class")
_EVICTION = ("reason", "underlying_cause", "priority_class")
_QUOTA = ("cohort", "cluster_queue", "flavor", "resource")
_SUBTREE = ("cohort", "flavor", "resource")
_C: tuple[SourceKind, ...] = ("ClusterQueue",)
_L: tuple[SourceKind, ...] = ("LocalQueue",)
_H: tuple[SourceKind, ...] = ("Cohort",)
_CW: tuple[SourceKind, ...] = ("ClusterQueue", "Workload")
_LW: tuple[SourceKind, ...] = ("LocalQueue", "Workload")


def _counter(name: str, labels: tuple[str, ...], help_: str, custom: tuple[SourceKind, ...] = ()) -> Family:
    return Family(name, "counter", labels, help_, (), custom)


def _gauge(name: str, labels: tuple[str, ...], help_: str, custom: tuple[SourceKind, ...] = ()) -> Family:
    return Family(name, "gauge", labels, help_, (), custom)


def _waits(
    name: str, count: int, help_: str, labels: tuple[str, ...] = _CQ_CLASS, custom: tuple[SourceKind, ...] = _C
) -> Family:
    return Family(name, "histogram", labels, help_, exponential(count), custom)


CYCLES: tuple[Family, ...] = (
    _counter("admission_attempts_total", ("result",), "Batches of cycles, by result."),
    Family(
        "admission_attempt_duration_seconds",
        "histogram",
        ("result",),
        "Time a batch of cycles took, without its append.",
        DEFAULT_BUCKETS,
    ),
    _gauge(
        "admission_cycle_preemption_skips",
        _CQ,
        "Heads of the last batch that could preempt but lost victims or quota to others of their cycle.",
    ),
    _counter(
        "preemption_target_recomputations_total",
        ("cluster_queue", "result"),
        "Searches for victims that were repeated since other heads of the cycle took the same ones, by result.",
    ),
    _gauge("pending_scheduling_hashes", (*_CQ, "status"), "Different shapes among pending workloads.", _C),
    _gauge("cluster_queue_resource_pending", (*_CQ, "resource"), "What pending workloads ask for.", _C),
)
"""What the scheduler publishes."""

GATEWAY: tuple[Family, ...] = (
    Family(
        "workload_creation_latency_seconds",
        "histogram",
        ("job_kind",),
        "From the creation of a job to that of its Workload.",
        CREATION_BUCKETS,
        _L,
    ),
    Family(
        "pod_scheduling_gate_removal_seconds",
        "histogram",
        ("name", "cluster_queue", "is_group"),
        "From admission until a pod's scheduling gate was taken away.",
        DEFAULT_BUCKETS,
    ),
)
"""What the gateway publishes."""

EVENTS: tuple[Family, ...] = (
    _counter("quota_reserved_workloads_total", _CQ_CLASS, "Workloads that got quota reserved.", _C),
    _counter("admitted_workloads_total", _CQ_CLASS, "Workloads that were admitted.", _C),
    _counter("finished_workloads_total", _CQ_CLASS, "Workloads that finished.", _C),
    _counter("evicted_workloads_total", (*_CQ, *_EVICTION), "Evictions.", _C),
    _counter(
        "evicted_workloads_once_total", (*_CQ, *_EVICTION), "Workloads evicted, each counted once per reason.", _C
    ),
    _counter("preempted_workloads_total", ("preempting_cluster_queue", "reason"), "Workloads preempted.", _C),
    _counter("replaced_workload_slices_total", _CQ, "Slices of elastic jobs that newer ones took the place of.", _C),
    _waits("quota_reserved_wait_time_seconds", 14, "From creation or requeue to quota reserved."),
    _waits("admission_wait_time_seconds", 16, "From creation or requeue to admission."),
    _waits("admission_checks_wait_time_seconds", 14, "From quota reserved to admission."),
    _waits("ready_wait_time_seconds", 14, "From creation or requeue to pods ready."),
    _waits("admitted_until_ready_wait_time_seconds", 14, "From admission to pods ready."),
    _waits("execution_time_seconds", 16, "How long it was admitted in all."),
    _waits(
        "pods_ready_to_evicted_time_seconds", 14, "From pods ready to eviction.", (*_CQ, "reason", "underlying_cause")
    ),
    _waits("workload_eviction_latency_seconds", 14, "From eviction to quota released.", (*_CQ, "reason")),
    _counter("local_queue_quota_reserved_workloads_total", _LQ_CLASS, "Workloads that got quota reserved.", _L),
    _counter("local_queue_admitted_workloads_total", _LQ_CLASS, "Workloads that were admitted.", _LW),
    _counter("local_queue_finished_workloads_total", _LQ_CLASS, "Workloads that finished.", _L),
    _counter("local_queue_evicted_workloads_total", (*_LQ, *_EVICTION), "Evictions.", _L),
    _waits(
        "local_queue_quota_reserved_wait_time_seconds",
        14,
        "From creation or requeue to quota reserved.",
        _LQ_CLASS,
        _L,
    ),
    _waits("local_queue_admission_wait_time_seconds", 14, "From creation or requeue to admission.", _LQ_CLASS, _LW),
    _waits("local_queue_admission_checks_wait_time_seconds", 14, "From quota reserved to admission.", _LQ_CLASS, _L),
    _waits("local_queue_ready_wait_time_seconds", 14, "From creation or requeue to pods ready.", _LQ_CLASS, _L),
    _waits("local_queue_admitted_until_ready_wait_time_seconds", 14, "From admission to pods ready.", _LQ_CLASS, _L),
    _waits("local_queue_execution_time_seconds", 16, "How long it was admitted in all.", _LQ_CLASS, _L),
    _counter(
        "cohort_subtree_admitted_workloads_total",
        ("cohort", "priority_class"),
        "Workloads that were admitted anywhere below the cohort.",
        _H,
    ),
)
"""What happens: counters and histograms of the metrics service."""

STATE: tuple[Family, ...] = (
    _gauge("pending_workloads", (*_CQ, "status"), "Pending workloads: active or inadmissible.", _CW),
    _gauge("reserving_active_workloads", _CQ, "Workloads that hold quota and have not finished.", _C),
    _gauge("admitted_active_workloads", _CQ, "Admitted workloads that have not finished.", _CW),
    _gauge("finished_workloads", _CQ, "Finished workloads that still exist.", _C),
    _gauge("unadmitted_workloads", (*_CQ, "reason", "underlying_cause"), "Workloads without admission, by reason.", _C),
    _gauge("cluster_queue_status", (*_CQ, "status"), "1 for the present status: pending, active, terminating.", _C),
    _gauge("cluster_queue_info", (*_CQ, "parent_cohort", "root_cohort"), "1 for each ClusterQueue.", _C),
    _gauge("cluster_queue_resource_reservation", _QUOTA, "Quota reserved.", _C),
    _gauge("cluster_queue_resource_usage", _QUOTA, "Quota used by admitted workloads.", _C),
    _gauge("cluster_queue_nominal_quota", _QUOTA, "Nominal quota.", _C),
    _gauge("cluster_queue_borrowing_limit", _QUOTA, "Borrowing limit, +Inf without one.", _C),
    _gauge("cluster_queue_lending_limit", _QUOTA, "Lending limit, +Inf without one.", _C),
    _gauge("cluster_queue_weighted_share", ("cluster_queue", "cohort"), "Fair sharing: the share in its status.", _C),
    _gauge("cohort_weighted_share", ("cohort",), "Fair sharing: the share in its status.", _H),
    _gauge("cohort_subtree_quota", _SUBTREE, "Nominal quota of the cohort and what its members lend it.", _H),
    _gauge("cohort_subtree_resource_reservations", _SUBTREE, "Quota reserved below the cohort.", _H),
    _gauge("cohort_subtree_admitted_active_workloads", ("cohort",), "Admitted workloads below the cohort.", _H),
    _gauge("cohort_info", ("cohort", "parent_cohort", "root_cohort"), "1 for each cohort.", _H),
    _gauge("local_queue_pending_workloads", (*_LQ, "status"), "Pending workloads: active or inadmissible.", _L),
    _gauge("local_queue_reserving_active_workloads", _LQ, "Workloads that hold quota and have not finished.", _L),
    _gauge("local_queue_admitted_active_workloads", _LQ, "Admitted workloads that have not finished.", _LW),
    _gauge("local_queue_finished_workloads", _LQ, "Finished workloads that still exist.", _L),
    _gauge(
        "local_queue_unadmitted_workloads",
        (*_LQ, "cluster_queue", "reason", "underlying_cause"),
        "Workloads without admission, by reason.",
        _L,
    ),
    _gauge("local_queue_status", (*_LQ, "active"), "1 for the present value of Active.", _L),
    _gauge("local_queue_resource_reservation", (*_LQ, "flavor", "resource"), "Quota reserved.", _L),
    _gauge("local_queue_resource_usage", (*_LQ, "flavor", "resource"), "Quota used by admitted workloads.", _L),
    _gauge(
        "local_queue_admission_fair_sharing_usage",
        (*_LQ, "cluster_queue"),
        "Admission fair sharing: weighted past usage, smaller goes first.",
        _L,
    ),
)
"""What is: gauges of the metrics service, read off the state when they are asked for."""

BUILD_INFO = _gauge(
    "build_info",
    ("git_version", "git_commit", "build_date", "go_version", "compiler", "platform"),
    "1; what is running. `go_version` is that of Python.",
)

FAMILIES: dict[str, Family] = {family.name: family for family in (*CYCLES, *GATEWAY, *EVENTS, *STATE, BUILD_INFO)}

CustomNames = Callable[[tuple[SourceKind, ...]], tuple[str, ...]]
"""The custom labels that a family with these sources has."""


def no_custom_labels(_: tuple[SourceKind, ...]) -> tuple[str, ...]:
    """Where none are configured."""
    return ()


def labels_of(family: Family, custom: CustomNames = no_custom_labels) -> tuple[str, ...]:
    """All labels of a family, in the order in which values are given."""
    return family.labels if family is BUILD_INFO else (*family.labels, *custom(family.custom), ROLE)


def counter(name: str, registry: CollectorRegistry, custom: CustomNames = no_custom_labels) -> Counter:
    """The counter of a row."""
    family = FAMILIES[name]
    return Counter(PREFIX + name, family.help, labels_of(family, custom), registry=registry)


def gauge(name: str, registry: CollectorRegistry, custom: CustomNames = no_custom_labels) -> Gauge:
    """The gauge of a row."""
    family = FAMILIES[name]
    return Gauge(PREFIX + name, family.help, labels_of(family, custom), registry=registry)


def histogram(name: str, registry: CollectorRegistry, custom: CustomNames = no_custom_labels) -> Histogram:
    """The histogram of a row."""
    family = FAMILIES[name]
    return Histogram(PREFIX + name, family.help, labels_of(family, custom), registry=registry, buckets=family.buckets)


class Recorder:
    """Counters and histograms of EVENTS, created on a registry; labels are given without `replica_role`.

    A follower counts nothing: what the leader counts would be there twice.
    """

    def __init__(self, registry: CollectorRegistry, role: Role, custom: CustomNames = no_custom_labels) -> None:
        self._role = role
        self._families: dict[str, Counter | Histogram] = {
            row.name: counter(row.name, registry, custom)
            if row.kind == "counter"
            else histogram(row.name, registry, custom)
            for row in EVENTS
        }

    def record(self, name: str, labels: tuple[str, ...], value: float = 1.0) -> None:
        """Count one (counter) or observe `value` (histogram)."""
        role = self._role()
        if role == FOLLOWER:
            return
        child = self._families[name].labels(*labels, role)
        if isinstance(child, Counter):
            child.inc(value)
        else:
            child.observe(value)

    def forget(self, labels: dict[str, str]) -> None:
        """Drop the series that carry all of these labels: their object is gone."""
        for row in EVENTS:
            if labels.keys() <= set(row.labels):
                self._families[row.name].remove_by_labels(labels)

    def clear(self) -> None:
        """Drop all series: another instance counts from now on."""
        for family in self._families.values():
            family.clear()
