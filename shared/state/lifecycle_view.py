"""What the life of one workload depends on, out of the folded world.

Why it exists: the service that executes steps and the simulation that tells why a workload is not even tried must look at the same facts.
"""

from __future__ import annotations

from shared.decide.lifecycle import LifecycleView
from shared.events.objects import Workload
from shared.model.world import World


def lifecycle_view(
    workload: Workload,
    world: World,
    *,
    finish_orphans: bool = False,
    admission_gates: bool = True,
    legacy_reasons: bool = False,
    explicit_status: bool = False,
) -> LifecycleView:
    """What the life of this workload depends on, out of the folded world."""
    local_queue = world.local_queues.get(f"{workload.namespace}/{workload.queue_name}")
    name = local_queue.cluster_queue if local_queue is not None else ""
    if workload.admission is not None:
        name = workload.admission.cluster_queue
    cluster_queue = world.cluster_queues.get(name)
    info = world.workloads.get(workload.key)
    return LifecycleView(
        workload=workload,
        local_queue=local_queue,
        cluster_queue=cluster_queue,
        activity=world.activity(name) if cluster_queue is not None else None,
        namespace_matches=world.namespace_matches(name, workload.namespace),
        invalid=info.invalid if info is not None else "",
        in_cycle=cluster_queue is not None and world.forest.in_cycle(name),
        finish_orphans=finish_orphans,
        admission_gates=admission_gates,
        legacy_reasons=legacy_reasons,
        explicit_status=explicit_status,
        has_variants=workload.has_variants,
    )
