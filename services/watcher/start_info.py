"""From an admitted Workload and the flavors it was given to what goes into its pods (job specification 9.1)."""

import msgspec

from services.watcher.family_view import is_parent
from services.watcher.store import Store
from services.watcher.workload_state import is_admitted, workload_of
from shared.api import names
from shared.api.resource_flavor import ResourceFlavor
from shared.api.workload import PodSetTopologyRequest, Workload
from shared.api.workload_status import AdmissionCheckState
from shared.jobs.podset_info import Assigned, FlavorNodes, PodSetInfo, Start, infos_of


def pod_set_infos(store: Store, workload: Workload, *, with_check_updates: bool = True) -> tuple[PodSetInfo, ...]:
    """One info per pod set of a workload with a reservation. Raises MissingFlavor, MergeConflict, or ValueError without a reservation."""
    start = start_of(workload, with_check_updates=with_check_updates)
    if with_check_updates and is_parent(workload):
        # A parent has no checks; those of the variant that it was admitted by have passed in its place.
        start = msgspec.structs.replace(start, updates=_updates_of_variant(store, workload))
    infos = infos_of(start, _flavors(store, start))
    annotations = workload.metadata.annotations
    if annotations.get(names.ELASTIC_JOB) != "true":
        return infos
    first = {names.WORKLOAD_SLICE_NAME: annotations.get(names.WORKLOAD_SLICE_NAME, workload.metadata.name)}
    return tuple(msgspec.structs.replace(info, annotations=info.annotations | first) for info in infos)


def _updates_of_variant(store: Store, parent: Workload) -> tuple[tuple[PodSetInfo, ...], ...]:
    for stored in store.owned_by("workload", parent.metadata.uid):
        variant = workload_of(stored)
        if is_admitted(variant) and variant.status.admission == parent.status.admission:
            return tuple(_updates(check) for check in variant.status.admission_checks)
    return ()


def start_of(workload: Workload, *, with_check_updates: bool = True) -> Start:
    """What the reservation says. Raises ValueError if there is none."""
    admission = workload.status.admission
    if admission is None:
        raise ValueError(f"workload {workload.metadata.key} has no reservation")
    pod_sets = {pod_set.name: pod_set for pod_set in workload.spec.pod_sets}
    assigned = []
    for assignment in admission.pod_set_assignments:
        pod_set = pod_sets.get(assignment.name)
        count = assignment.count
        if count is None:
            count = 0 if pod_set is None else pod_set.count
        assigned.append(
            Assigned(
                name=assignment.name,
                count=count,
                flavors=tuple(dict.fromkeys(assignment.flavors.values())),
                has_topology=assignment.topology_assignment is not None,
                asks_topology=pod_set is not None and _asks_topology(pod_set.topology_request),
            )
        )
    return Start(
        workload=workload.metadata.name,
        queue=workload.spec.queue_name,
        cluster_queue=admission.cluster_queue,
        assigned=tuple(assigned),
        updates=tuple(_updates(check) for check in workload.status.admission_checks) if with_check_updates else (),
        on_worker_cluster=names.MULTIKUEUE_ORIGIN_LABEL in workload.metadata.labels,
    )


def _asks_topology(request: PodSetTopologyRequest | None) -> bool:
    return request is not None and bool(request.required or request.preferred or request.unconstrained)


def _updates(check: AdmissionCheckState) -> tuple[PodSetInfo, ...]:
    return tuple(
        PodSetInfo(
            name=update.name,
            labels=update.labels,
            annotations=update.annotations,
            node_selector=update.node_selector,
            tolerations=update.tolerations,
        )
        for update in check.pod_set_updates
    )


def _flavors(store: Store, start: Start) -> dict[str, FlavorNodes]:
    result: dict[str, FlavorNodes] = {}
    for name in {flavor for assigned in start.assigned for flavor in assigned.flavors}:
        stored = store.get("resourceflavor", "", name)
        if stored is not None and isinstance(stored.object, ResourceFlavor):
            spec = stored.object.spec
            result[name] = FlavorNodes(spec.node_labels, spec.tolerations)
    return result
