"""Validation of Workloads beyond their schema (core specification 1.7): what a reservation freezes, and what checks may say. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from services.webhook.field_errors import FieldError, forbidden, invalid, not_supported
from services.webhook.validate_job import gate_errors
from services.webhook.validate_quota import immutable
from shared.api import names
from shared.api.conditions import is_true
from shared.api.pods import Container
from shared.api.quantity import parse, request_units
from shared.api.validation import label_key_errors, labels_errors
from shared.api.workload import PodSet, Workload
from shared.api.workload_status import Admission, AdmissionCheckState, PodSetAssignment


def workload_errors(workload: Workload, old: Workload | None) -> Iterator[FieldError]:
    """Faults of a Workload that is created (no `old`) or updated, in spec or status."""
    yield from _spec_errors(workload)
    yield from _status_errors(workload, old)
    yield from gate_errors(workload.metadata.annotations)
    if old is not None:
        yield from _change_errors(workload, old)


def _reserved(workload: Workload) -> bool:
    return is_true(workload.status.conditions, names.QUOTA_RESERVED)


def _spec_errors(workload: Workload) -> Iterator[FieldError]:
    variable = [i for i, p in enumerate(workload.spec.pod_sets) if p.min_count is not None]
    if len(variable) > 1:
        yield invalid("spec.podSets", len(variable), "at most one podSet can use minCount")
    for i, pod_set in enumerate(workload.spec.pod_sets):
        at = f"spec.podSets[{i}].template"
        for kind, values in (("labels", pod_set.template.metadata.labels),):
            yield from (invalid(f"{at}.metadata.{kind}", values, detail) for detail in labels_errors(dict(values)))
        for key in pod_set.template.metadata.annotations:
            yield from (invalid(f"{at}.metadata.annotations", key, d) for d in label_key_errors(key.lower()))
        yield from _container_errors(f"{at}.spec.initContainers", pod_set.template.spec.init_containers)
        yield from _container_errors(f"{at}.spec.containers", pod_set.template.spec.containers)


def _container_errors(at: str, containers: Iterable[Container]) -> Iterator[FieldError]:
    for i, container in enumerate(containers):
        amounts = {"requests": container.resources.requests, "limits": container.resources.limits}
        for kind, values in amounts.items():
            for resource, quantity in values.items():
                path = f"{at}[{i}].resources.{kind}[{resource}]"
                if resource == "pods":
                    yield invalid(path, resource, "the key is reserved for internal use")
                if parse(quantity).is_negative():
                    yield invalid(path, quantity, "must be greater than or equal to 0")


def _status_errors(workload: Workload, old: Workload | None) -> Iterator[FieldError]:
    status = workload.status
    pod_sets = {p.name: p for p in workload.spec.pod_sets}
    if _reserved(workload) and status.admission is None:
        before = old is not None and _reserved(old) and old.status.admission is None
        if not before:
            yield forbidden("status.admission", "must be set while quota is reserved")
    if _reserved(workload) and status.admission is not None:
        for i, assignment in enumerate(status.admission.pod_set_assignments):
            yield from _assignment_errors(i, assignment, pod_sets)
    for i, reclaimable in enumerate(status.reclaimable_pods):
        path = f"status.reclaimablePods[{i}]"
        pod_set = pod_sets.get(reclaimable.name)
        if pod_set is None:
            yield not_supported(f"{path}.name", reclaimable.name, sorted(pod_sets))
        elif reclaimable.count > pod_set.count:
            yield invalid(f"{path}.count", reclaimable.count, f"should be less or equal to {pod_set.count}")
    for i, check in enumerate(status.admission_checks):
        yield from _check_errors(i, check, pod_sets)


def _assignment_errors(i: int, assignment: PodSetAssignment, pod_sets: dict[str, PodSet]) -> Iterator[FieldError]:
    path = f"status.admission.podSetAssignments[{i}]"
    if assignment.name not in pod_sets:
        yield not_supported(f"{path}.name", assignment.name, sorted(pod_sets))
        return
    count = assignment.count or 0
    if count > 0:
        for resource, quantity in assignment.resource_usage.items():
            if request_units(resource, quantity) % count:
                detail = f"is not a multiple of {count}"
                yield invalid(f"{path}.resourceUsage[{resource}]", quantity, detail)


def _check_errors(i: int, check: AdmissionCheckState, pod_sets: dict[str, PodSet]) -> Iterator[FieldError]:
    for j, update in enumerate(check.pod_set_updates):
        path = f"status.admissionChecks[{i}].podSetUpdates[{j}]"
        if update.name not in pod_sets:
            yield not_supported(f"{path}.name", update.name, sorted(pod_sets))
        yield from (invalid(f"{path}.labels", update.labels, d) for d in labels_errors(dict(update.labels)))
        selector = dict(update.node_selector)
        yield from (invalid(f"{path}.nodeSelector", selector, d) for d in labels_errors(selector))
        for key in update.annotations:
            yield from (invalid(f"{path}.annotations", key, d) for d in label_key_errors(key.lower()))
        for k, toleration in enumerate(update.tolerations):
            if toleration.key:
                at = f"{path}.tolerations[{k}].key"
                yield from (invalid(at, toleration.key, d) for d in label_key_errors(toleration.key))


def _change_errors(workload: Workload, old: Workload) -> Iterator[FieldError]:
    if _reserved(old) and workload.spec.pod_sets != old.spec.pod_sets:
        yield immutable("spec.podSets", "changed")
    if _reserved(old) and _reserved(workload):
        counts = {r.name: r.count for r in workload.status.reclaimable_pods}
        for i, reclaimable in enumerate(old.status.reclaimable_pods):
            path = f"status.reclaimablePods[{i}].count"
            if reclaimable.name not in counts:
                yield forbidden(
                    "status.reclaimablePods", f"{reclaimable.name} may not be removed while quota is reserved"
                )
            elif counts[reclaimable.name] < reclaimable.count:
                yield forbidden(path, f"cannot be less than {reclaimable.count} while quota is reserved")
    new_admission, old_admission = workload.status.admission, old.status.admission
    if new_admission is not None and old_admission is not None and _frozen(new_admission) != _frozen(old_admission):
        yield immutable("status.admission", new_admission.cluster_queue)
    before = {c.name: c for c in old.status.admission_checks}
    for i, check in enumerate(workload.status.admission_checks):
        was = before.get(check.name)
        if was is not None and was.state == check.state == "Ready" and was.pod_set_updates != check.pod_set_updates:
            yield immutable(f"status.admissionChecks[{i}].podSetUpdates", check.name)


def _frozen(admission: Admission) -> Admission:
    """What of an admission may not change: all but topology."""
    assignments = tuple(
        replace(a, topology_assignment=None, delayed_topology_request=None) for a in admission.pod_set_assignments
    )
    return replace(admission, pod_set_assignments=assignments)
