"""Settings of the metrics service."""

from __future__ import annotations

from shared.config.settings import BaseSettings


class MetricsSettings(BaseSettings, frozen=True, kw_only=True):
    """What may be set besides the common settings."""

    cluster_queue_resources: bool = False
    """Publish quota and usage per flavor and resource of each ClusterQueue (Kueue: metrics.enableClusterQueueResources)."""
    local_queues: bool = True
    """Publish the series of LocalQueues."""
    replica_role: str = "standalone"
