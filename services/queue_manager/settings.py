"""Settings of queue_manager."""

from __future__ import annotations

from shared.config.fairness import FairnessSettings


class QueueManagerSettings(FairnessSettings, frozen=True, kw_only=True):
    status_interval_s: float = 1.0
    """Counts and usage of one queue are written at most this often; a change of its Active condition at once."""
    status_per_s: float = 20.0
    """Counts and usage of all queues together: about what the gateway has room to write."""
    status_burst: int = 100
    finish_orphans: bool = True
    """Finish workloads whose job is gone (gate FinishOrphanedWorkloads)."""
