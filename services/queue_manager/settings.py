"""Settings of queue_manager."""

from __future__ import annotations

from shared.config.fairness import FairnessSettings
from shared.config.settings import AboveZero, AtLeastOne, NotNegative


class QueueManagerSettings(FairnessSettings, frozen=True, kw_only=True):
    status_interval_s: NotNegative = 1.0
    """Counts and usage of one queue are written at most this often; a change of its Active condition at once."""
    status_per_s: AboveZero = 20.0
    """Counts and usage of all queues together: about what the gateway has room to write."""
    status_burst: AtLeastOne = 100
    finish_orphans: bool = True
    """Finish workloads whose job is gone (gate FinishOrphanedWorkloads)."""
