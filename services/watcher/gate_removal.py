"""How long admitted pods kept their scheduling gate: Kueue's pod_scheduling_gate_removal_seconds."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry

from services.watcher.projections_parts import seconds
from services.watcher.workload_state import condition
from shared.api import names
from shared.api.workload import Workload
from shared.config.configuration import Configured
from shared.telemetry.metrics import FAMILIES, LEADER, STANDALONE, histogram

_FAMILY = FAMILIES["pod_scheduling_gate_removal_seconds"]

GateRemoved = Callable[[Workload, bool], None]
"""(the workload of a pod that was let run, whether it is one of a group)"""


def not_measured(_workload: Workload, _is_group: bool) -> None:
    """Where nobody reads it."""


def gate_removal(configured: Configured, registry: CollectorRegistry, now: Callable[[], float]) -> GateRemoved:
    """What to call when the admission gate of a pod was taken away. `now` gives seconds since the epoch."""
    waits = histogram(_FAMILY.name, registry)
    role = LEADER if configured.configuration.leader_election.leader_elect else STANDALONE

    def removed(workload: Workload, is_group: bool) -> None:
        admitted = condition(workload, names.ADMITTED)
        admission = workload.status.admission
        if admitted is None or admitted.status != "True" or admission is None:
            return
        group = "true" if is_group else "false"
        # The API gives whole seconds.
        waited = max(0.0, now() - seconds(admitted.last_transition_time))
        waits.labels(names.ADMISSION_SCHEDULING_GATE, admission.cluster_queue, group, role).observe(waited)

    return removed
