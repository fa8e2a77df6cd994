"""What the scheduler counts about itself. Series about workloads and queues are the metrics service's, read off the log."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from shared.config.custom_labels import NO_MARKS, CustomLabels, Marks
from shared.events.objects import ClusterQueue
from shared.state.scheduling import SchedulerState
from shared.telemetry import metrics as table
from shared.telemetry.metrics import FAMILIES, LEADER, PREFIX, Role, SourceKind, labels_of


class PendingCollector(Collector):
    """What waits, off the scheduler's own queues when it is scraped; workloads of one shape are looked at once."""

    def __init__(
        self, state: SchedulerState, role: Role, custom: CustomLabels, *, hashes: bool = True, resources: bool = False
    ) -> None:
        """`hashes`: workloads of one shape are known as such; `resources`: publish quota and usage of ClusterQueues."""
        self._state = state
        self._role = role
        self._custom = custom
        self._names = (
            *(("pending_scheduling_hashes",) if hashes else ()),
            *(("cluster_queue_resource_pending",) if resources else ()),
        )

    def describe(self) -> Iterable[Metric]:
        """Without looking at the state, which need not be whole yet."""
        return self._families().values()

    def collect(self) -> Iterable[Metric]:
        families = self._families()
        role = self._role()
        for name, queue in self._state.world.pending.queues.items():
            shapes: dict[bool, set[str]] = {False: set(), True: set()}
            asked: Tally[str] = Tally()
            for info, parked, number in queue.alike():
                shapes[parked].add(info.shape)
                for pod_set in info.pod_sets:
                    for resource, amount in pod_set.requests.items():
                        asked[resource] += amount * number
            samples = {
                "pending_scheduling_hashes": {
                    "active": float(len(shapes[False] - {""})),
                    "inadmissible": float(len(shapes[True] - {""})),
                },
                "cluster_queue_resource_pending": {
                    resource: amount / 1000 if resource == "cpu" else float(amount)
                    for resource, amount in asked.items()
                },
            }
            found = self._state.objects.get(ClusterQueue, name)
            marks = Marks(found.labels, found.annotations) if found is not None else NO_MARKS
            for family, metric in families.items():
                custom = self._custom.values(FAMILIES[family].custom, partial(_the_same, marks))
                for label, value in samples[family].items():
                    metric.add_metric((name, label, *custom, role), value)
        return families.values()

    def _families(self) -> dict[str, GaugeMetricFamily]:
        rows = (FAMILIES[name] for name in self._names)
        return {
            row.name: GaugeMetricFamily(PREFIX + row.name, row.help, labels=labels_of(row, self._custom.names))
            for row in rows
        }


def _the_same(marks: Marks, _: SourceKind) -> Marks:
    return marks


class SchedulerMetrics:
    """Counters, created on a registry. `role`: what an instance that decides calls itself."""

    def __init__(self, registry: CollectorRegistry, role: str = LEADER) -> None:
        self._role = role
        self._attempts = table.counter("admission_attempts_total", registry)
        self._duration = table.histogram("admission_attempt_duration_seconds", registry)
        self._skips = table.gauge("admission_cycle_preemption_skips", registry)
        self._recomputations = table.counter("preemption_target_recomputations_total", registry)
        own = "sluice_scheduler_"
        self.cycles = Counter(f"{own}cycles_total", "Scheduling cycles.", registry=registry)
        self.heads = Counter(f"{own}heads_total", "Workloads admitted or refused.", registry=registry)
        self.failed = Counter(f"{own}failed_cycles_total", "Cycles that ended in an error.", registry=registry)
        self.appended = Counter(f"{own}batches_appended_total", "Batches that are in the log.", registry=registry)
        self.preemptions = Counter(f"{own}preemptions_decided_total", "Victims in the log.", registry=registry)
        self.lost = Counter(f"{own}lost_races_total", "Appends that the fence refused.", registry=registry)
        self.unknown = Counter(f"{own}unknown_appends_total", "Appends without an answer.", registry=registry)
        self.refused = Counter(f"{own}refused_appends_total", "Appends for which there was no room.", registry=registry)
        self.rejected = Counter(f"{own}rejected_decisions_total", "Decisions that could not land.", registry=registry)
        self.unfoldable = Counter(
            f"{own}unfoldable_messages_total", "Messages left out of the state.", registry=registry
        )
        self.reports = Counter(f"{own}pending_reports_total", "Pending reasons sent.", registry=registry)
        self.unsettled = Gauge(f"{own}unsettled_decisions", "Decisions that are not settled.", registry=registry)
        self.active = Gauge(f"{own}active", "1 while this instance holds the lease.", registry=registry)

    def attempt(self, admitted: bool, seconds: float) -> None:
        """One batch of cycles."""
        result = "success" if admitted else "inadmissible"
        self._attempts.labels(result, self._role).inc()
        self._duration.labels(result, self._role).observe(seconds)

    def preempted(self, skipped: Mapping[str, int], recomputations: Mapping[tuple[str, str], int]) -> None:
        """What a batch of cycles had to skip, by ClusterQueue, and to search again, by ClusterQueue and result."""
        self._skips.clear()
        for queue, number in skipped.items():
            self._skips.labels(queue, self._role).set(number)
        for (queue, result), number in recomputations.items():
            self._recomputations.labels(queue, result, self._role).inc(number)
