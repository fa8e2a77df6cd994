"""Settings of the metrics service."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shared.config.configuration import Configured
from shared.config.settings import BaseSettings


class MetricsSettings(BaseSettings, frozen=True, kw_only=True):
    """What may be set besides the common settings."""

    cluster_queue_resources: bool = False
    """Publish quota and usage per flavor and resource of each ClusterQueue (Kueue: metrics.enableClusterQueueResources)."""
    local_queues: bool = True
    """Publish the series of LocalQueues."""
    cohorts: bool = True
    """Publish the series of cohorts."""
    unadmitted: bool = True
    """Publish why workloads are not admitted."""
    replica_role: str = ""
    """What the label `replica_role` says; empty: as the election goes, or `standalone` where the configuration file switches that off."""
    git_version: str = "v0.1.0"
    git_commit: str = ""
    build_date: str = ""
    """What build_info says of the image."""
    afs_weights: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Weight of a resource in the past usage of LocalQueues, where it is not 1 (Kueue: admissionFairSharing.resourceWeights)."""


def with_configuration(settings: MetricsSettings, configured: Configured) -> MetricsSettings:
    """What Kueue's configuration switches on or off on top."""
    metrics = configured.configuration.metrics
    section = configured.configuration.admission_fair_sharing
    of_local_queues = metrics.local_queue_metrics.enable and configured.gates["LocalQueueMetrics"]
    return msgspec.structs.replace(
        settings,
        cluster_queue_resources=settings.cluster_queue_resources or metrics.enable_cluster_queue_resources,
        local_queues=settings.local_queues and of_local_queues,
        cohorts=settings.cohorts and configured.gates["MetricsForCohorts"],
        unadmitted=settings.unadmitted and configured.gates["UnadmittedWorkloadsObservability"],
        afs_weights=section.resource_weights if section is not None else settings.afs_weights,
    )
