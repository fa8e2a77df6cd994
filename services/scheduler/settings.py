"""Settings of the scheduler: how much a batch may take, how far it may run ahead, and how often it may report."""

from __future__ import annotations

from shared.config.fairness import FairnessSettings
from shared.config.settings import AboveZero, AtLeastOne, NotNegative


class SchedulerSettings(FairnessSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Durations are seconds."""

    cycle_budget_s: AboveZero = 0.05
    """Time one batch may take; it is appended when this is over."""
    batch_decisions: AtLeastOne = 256
    """Decisions one batch may hold; the victims of one preemptor stay together."""
    batch_bytes: AtLeastOne = 512 * 1024
    """Size of an encoded batch; a larger one is decided again with fewer decisions."""
    max_unsettled: AtLeastOne = 128
    """K: unsettled Admits and Preempts; with so many the scheduler waits for outcomes. A second or two of what an API server takes: who comes later and is
    more urgent waits behind no more than that."""
    retry_delay_s: NotNegative = 0.05
    """After a batch that admitted nothing: changes that come within this time are looked at together; half of it after one that did."""
    race_wait_s: AboveZero = 1.0
    """After a lost or unanswered append: how long to wait for the log to show what happened before trying again."""
    report_interval_s: NotNegative = 300.0
    """A pending message whose reason stays is written again not before this."""
    reports_per_s: AboveZero = 15.0
    """Pending reports of all workloads together: about what the gateway has room to write, so that few are sent in vain."""
    report_burst: AtLeastOne = 100
