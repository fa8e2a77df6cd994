"""A parent workload and its variants as `decide/variant_family` looks at them, and the variants to create. Pure.

Names used here: a *parent* has the label of concurrent admission; a *variant* is controlled by another Workload and names one flavor.
"""

from collections.abc import Iterable

import msgspec

from services.watcher.projections_parts import seconds
from services.watcher.workload_state import condition, is_admitted, is_evicted, is_finished, is_reserved
from shared.api import conditions, names
from shared.api.cluster_queue import ClusterQueue
from shared.api.workload import Workload
from shared.api.workload_status import PreemptionGateState, WorkloadStatus
from shared.decide.variant_family import Family, Variant
from shared.jobs.manifest import JsonObject, section
from shared.jobs.naming import variant_name

GATE = names.CONCURRENT_ADMISSION_PREEMPTION_GATE
_FOLLOWED = (names.ADMISSION_GATED_BY,)
_NOT_COPIED = frozenset({names.IS_GROUP_WORKLOAD, "kubectl.kubernetes.io/last-applied-configuration"})
"""Annotations that say what only the parent is."""


def is_parent(workload: Workload) -> bool:
    return workload.metadata.labels.get(names.CONCURRENT_ADMISSION_PARENT_LABEL) == "true"


def is_variant(workload: Workload) -> bool:
    owner = workload.metadata.controller_owner()
    return owner is not None and owner.kind == names.WORKLOAD and owner.api_version.startswith(f"{names.GROUP}/")


def family_of(parent: Workload, queue: ClusterQueue | None, variants: Iterable[Workload]) -> Family:
    """`queue`: the ClusterQueue that the parent's LocalQueue leads to, if both are there."""
    policy = queue.spec.concurrent_admission_policy if queue is not None else None
    migration = policy.migration if policy is not None else None
    flavors: tuple[str, ...] | None = None
    if queue is not None:
        flavors = () if migration is None else flavors_of(queue)
    state = parent.status.requeue_state
    admission = parent.status.admission
    used = [f for a in admission.pod_set_assignments for f in a.flavors.values()] if admission is not None else []
    return Family(
        variants=tuple(_variant(parent, variant) for variant in variants),
        flavors=flavors,
        retain_first=migration is not None and migration.mode == "RetainFirstAdmission",
        last_acceptable=migration.constraints.last_acceptable_flavor_name
        if migration is not None and migration.constraints is not None
        else "",
        active=parent.spec.active,
        finished=is_finished(parent),
        deleting=parent.metadata.deletion_timestamp is not None,
        reserved=is_reserved(parent),
        admitted=is_admitted(parent),
        evicted=is_evicted(parent),
        flavor=used[0] if used else "",
        requeue_at=seconds(state.requeue_at) if state is not None and state.requeue_at is not None else None,
    )


def flavors_of(queue: ClusterQueue) -> tuple[str, ...]:
    """In the order in which the queue prefers them."""
    return tuple(dict.fromkeys(flavor.name for group in queue.spec.resource_groups for flavor in group.flavors))


def _variant(parent: Workload, variant: Workload) -> Variant:
    status, spec = variant.status, variant.spec
    gate = next((g for g in status.preemption_gates if g.name == GATE and g.position == "Open"), None)
    reserved = is_reserved(variant)
    requeued = condition(variant, names.REQUEUED)
    return Variant(
        name=variant.metadata.name,
        flavor=variant.metadata.annotations.get(names.ALLOWED_FLAVORS, ""),
        current=spec.pod_sets == parent.spec.pod_sets
        and spec.maximum_execution_time_seconds == parent.spec.maximum_execution_time_seconds,
        follows=not followed(parent, variant),
        active=spec.active,
        admissible=_admissible(variant),
        reserved=reserved,
        admitted=is_admitted(variant),
        evicted=is_evicted(variant),
        finished=is_finished(variant),
        deleting=variant.metadata.deletion_timestamp is not None,
        looked_at=condition(variant, names.QUOTA_RESERVED) is not None,
        blocked=conditions.is_true(status.conditions, names.BLOCKED_ON_PREEMPTION_GATES),
        open_since=seconds(gate.last_transition_time) if gate is not None else None,
        parked=not reserved
        and requeued is not None
        and requeued.status == "False"
        and requeued.reason == names.REASON_FLAVOR_MIGRATION,
        same_progress=with_progress(variant.status, parent.status) == variant.status,
    )


def _admissible(workload: Workload) -> bool:
    reserved = condition(workload, names.QUOTA_RESERVED)
    return (
        workload.spec.active
        and not is_finished(workload)
        and not is_reserved(workload)
        and not workload.metadata.annotations.get(names.ADMISSION_GATED_BY)
        and (reserved is None or reserved.reason != names.REASON_ON_HOLD)
        and not conditions.is_true(workload.status.conditions, names.WAITING_FOR_REPLACEMENT_PODS)
    )


def with_progress(status: WorkloadStatus, parent: WorkloadStatus) -> WorkloadStatus:
    """How far the job is, of which only the parent is told: PodsReady, and pods that need no quota any more."""
    ready = conditions.find(parent.conditions, names.PODS_READY)
    present = status.conditions if ready is None else conditions.set_condition(status.conditions, ready)
    return msgspec.structs.replace(status, conditions=present, reclaimable_pods=parent.reclaimable_pods)


def with_open_gate(status: WorkloadStatus, opened: PreemptionGateState) -> WorkloadStatus:
    """The gate of concurrent admission, open."""
    others = tuple(gate for gate in status.preemption_gates if gate.name != opened.name)
    return msgspec.structs.replace(status, preemption_gates=(*others, opened))


def followed(parent: Workload, variant: Workload) -> JsonObject:
    """The patch by which a variant takes over what may change of its parent: priority and admission gates always, the queue while it holds no quota."""
    ours, theirs = variant.spec, parent.spec
    spec: JsonObject = {}
    if (ours.priority, ours.priority_class_ref) != (theirs.priority, theirs.priority_class_ref):
        reference = theirs.priority_class_ref
        spec["priority"] = theirs.priority
        spec["priorityClassRef"] = None if reference is None else msgspec.to_builtins(reference)
    if ours.queue_name != theirs.queue_name and not is_reserved(variant):
        spec["queueName"] = theirs.queue_name or None
    annotations: JsonObject = {}
    for key in _FOLLOWED:
        wanted = parent.metadata.annotations.get(key)
        if (variant.metadata.annotations.get(key) or None) != (wanted or None):
            annotations[key] = wanted or None
    patch: JsonObject = {"spec": spec} if spec else {}
    return {**patch, "metadata": {"annotations": annotations}} if annotations else patch


def build_variant(parent: JsonObject, flavor: str) -> JsonObject:
    """The Workload that tries one flavor, of the parent as the API server has it. Its templates are the parent's, field by field."""
    metadata = section(parent, "metadata")
    spec = section(parent, "spec")
    name = str(metadata["name"])
    labels = {k: v for k, v in section(metadata, "labels").items() if k != names.CONCURRENT_ADMISSION_PARENT_LABEL}
    annotations = {k: v for k, v in section(metadata, "annotations").items() if k not in _NOT_COPIED}
    present = spec.get("preemptionGates")
    gates = [gate for gate in present if gate != {"name": GATE}] if isinstance(present, list) else []
    return {
        "apiVersion": names.GROUP_VERSION,
        "kind": names.WORKLOAD,
        "metadata": {
            "name": variant_name(name, flavor),
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": {**annotations, names.ALLOWED_FLAVORS: flavor},
            "ownerReferences": [
                {
                    "apiVersion": names.GROUP_VERSION,
                    "kind": names.WORKLOAD,
                    "name": name,
                    "uid": metadata["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {**spec, "active": True, "preemptionGates": [*gates, {"name": GATE}]},
    }
