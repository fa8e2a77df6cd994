"""What the scheduler counts about itself. Series about workloads and queues are the metrics service's, read off the log."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from shared.telemetry.metrics import PREFIX, ROLE

_LEADER = "leader"


class SchedulerMetrics:
    """Counters, created on a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._attempts = Counter(
            f"{PREFIX}admission_attempts_total", "Batches of cycles, by result.", ("result", ROLE), registry=registry
        )
        self._duration = Histogram(
            f"{PREFIX}admission_attempt_duration_seconds",
            "Time a batch of cycles took, without its append.",
            ("result", ROLE),
            registry=registry,
        )
        self._skips = Gauge(
            f"{PREFIX}admission_cycle_preemption_skips",
            "Heads of the last batch that could preempt but lost victims or quota to others of their cycle.",
            ("cluster_queue", ROLE),
            registry=registry,
        )
        self._recomputations = Counter(
            f"{PREFIX}preemption_target_recomputations_total",
            "Searches for victims that were repeated since other heads of the cycle took the same ones, by result.",
            ("cluster_queue", "result", ROLE),
            registry=registry,
        )
        own = "sluice_scheduler_"
        self.cycles = Counter(f"{own}cycles_total", "Scheduling cycles.", registry=registry)
        self.heads = Counter(f"{own}heads_total", "Workloads admitted or refused.", registry=registry)
        self.failed = Counter(f"{own}failed_cycles_total", "Cycles that ended in an error.", registry=registry)
        self.appended = Counter(f"{own}batches_appended_total", "Batches that are in the log.", registry=registry)
        self.preemptions = Counter(f"{own}preemptions_decided_total", "Victims in the log.", registry=registry)
        self.lost = Counter(f"{own}lost_races_total", "Appends that the fence refused.", registry=registry)
        self.unknown = Counter(f"{own}unknown_appends_total", "Appends without an answer.", registry=registry)
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
        self._attempts.labels(result, _LEADER).inc()
        self._duration.labels(result, _LEADER).observe(seconds)

    def preempted(self, skipped: Mapping[str, int], recomputations: Mapping[tuple[str, str], int]) -> None:
        """What a batch of cycles had to skip, by ClusterQueue, and to search again, by ClusterQueue and result."""
        self._skips.clear()
        for queue, number in skipped.items():
            self._skips.labels(queue, _LEADER).set(number)
        for (queue, result), number in recomputations.items():
            self._recomputations.labels(queue, result, _LEADER).inc(number)
