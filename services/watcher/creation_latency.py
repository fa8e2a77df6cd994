"""How long a job waits for its Workload: Kueue's workload_creation_latency_seconds. Gate MetricForWorkloadCreationLatency.

Only jobs that nobody has changed since they were created count: a job that got its queue later would tell how long that took.
"""

from collections.abc import Callable

from prometheus_client import CollectorRegistry

from services.watcher.job_control import Job, queue_of
from services.watcher.projections_parts import seconds
from services.watcher.store import Store
from shared.config.configuration import Configured
from shared.config.custom_labels import NO_MARKS, Marks, custom_labels
from shared.telemetry.metrics import FAMILIES, LEADER, STANDALONE, histogram

_FIRST_GENERATION = 1
_FAMILY = FAMILIES["workload_creation_latency_seconds"]

Created = Callable[[Job], None]


def not_measured(_: Job) -> None:
    """With the gate off."""


def creation_latency(
    configured: Configured, registry: CollectorRegistry, store: Store, now: Callable[[], float]
) -> Created:
    """What to call when the Workload of a job was created. `now` gives seconds since the epoch."""
    if not configured.gates["MetricForWorkloadCreationLatency"]:
        return not_measured
    custom = custom_labels(configured)
    waits = histogram(_FAMILY.name, registry, custom.names)
    role = LEADER if configured.configuration.leader_election.leader_elect else STANDALONE

    def created(job: Job) -> None:
        metadata = job.stored.object.metadata
        if metadata.generation != _FIRST_GENERATION or metadata.creation_timestamp is None:
            return
        queue = store.get("localqueue", metadata.namespace, queue_of(job))
        marks = Marks(queue.object.metadata.labels, queue.object.metadata.annotations) if queue else NO_MARKS
        values = custom.values(_FAMILY.custom, lambda _: marks)
        # The API gives whole seconds.
        waits.labels(job.kind.kind, *values, role).observe(max(0.0, now() - seconds(metadata.creation_timestamp)))

    return created
