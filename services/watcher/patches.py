"""Merge patches of what a step changes, and the tests of whether a step may be taken: is this the object, the state, that was meant?

A patch holds only the top-level fields of a status that differ, so fields that this version does not know are never touched; each list in it is
complete, which the resourceVersion guards (R2).
"""

import msgspec

from shared.api.quantity import format_amount, request_units
from shared.api.workload import Workload
from shared.api.workload_status import Admission, PodSetAssignment, WorkloadStatus
from shared.events import decisions, objects
from shared.jobs import merge_patch
from shared.jobs.manifest import JsonObject


class Refusal(msgspec.Struct, frozen=True):
    """Why a write must not happen; it never will on this object's present or any later state. `gone`: there is no such object any more."""

    why: str
    gone: bool = False


def status_patch(old: msgspec.Struct, new: msgspec.Struct) -> JsonObject:
    """`{"status": ...}` with what differs, removals as null; empty when nothing does."""
    if old == new:
        return {}
    before, after = msgspec.to_builtins(old), msgspec.to_builtins(new)
    difference = merge_patch.diff(before, after)
    return {"status": difference} if difference else {}


def workload_patch(workload: Workload, status: WorkloadStatus) -> JsonObject:
    """The patch of a workload's status."""
    return status_patch(workload.status, status)


def admission_of(cluster_queue: str, pod_sets: tuple[objects.PodSetAssignment, ...]) -> Admission:
    """`status.admission` as a decision asks for it."""
    return Admission(
        cluster_queue=cluster_queue,
        pod_set_assignments=tuple(
            PodSetAssignment(
                name=assignment.name,
                flavors=dict(assignment.flavors),
                resource_usage={
                    resource: format_amount(resource, units) for resource, units in assignment.usage.items()
                },
                count=assignment.count,
            )
            for assignment in pod_sets
        ),
    )


def carries_admission(workload: Workload, decision: decisions.Admit) -> bool:
    """The workload has the very reservation that the decision asks for."""
    admission = workload.status.admission
    if admission is None or admission.cluster_queue != decision.cluster_queue:
        return False
    present = {assignment.name: assignment for assignment in admission.pod_set_assignments}
    return len(present) == len(decision.pod_sets) and all(
        wanted.name in present and _same_assignment(present[wanted.name], wanted) for wanted in decision.pod_sets
    )


def _same_assignment(present: PodSetAssignment, wanted: objects.PodSetAssignment) -> bool:
    usage = {resource: request_units(resource, amount) for resource, amount in present.resource_usage.items()}
    return (present.flavors, usage, present.count) == (wanted.flavors, wanted.usage, wanted.count)
