"""Validation of Workloads beyond their schema (core specification 1.7): what pod sets may hold and what assignments and checks may say. Pure.

What may not change once quota is reserved stands in validate_workload_change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from services.webhook.validate_workload_change import change_errors
from shared.api import names
from shared.api.conditions import MAX_MESSAGE_BYTES, Condition, is_true
from shared.api.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_long,
)
from shared.api.pods import Container, ResourceRequirements
from shared.api.quantity import QuantityError, parse, request_units
from shared.api.raw_workload import RawWorkload
from shared.api.schema_hints import LONG_AGO, RawQuantity
from shared.api.validate_labels import annotation_errors, label_errors, name_errors, toleration_errors
from shared.api.workload import PodSet, PodSetTopologyRequest, Workload
from shared.api.workload_status import Admission, AdmissionCheckState
from shared.config.feature_gates import FeatureGates
from shared.jobs.validate_annotations import boost_errors, gate_errors

MAX_REASON_LENGTH = 1024
REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", re.ASCII)


def workload_errors(new: RawWorkload, old: RawWorkload | None, gates: FeatureGates) -> Iterator[FieldError]:
    """Faults of a Workload that is created (no `old`) or updated, in spec or status. Raises msgspec.ValidationError: no pod template."""
    workload = new.lean()
    elastic = is_elastic(workload, gates)
    yield from _pod_set_errors(workload, elastic, gates)
    yield from _status_errors(workload, old, elastic)
    if gates["AdmissionGatedBy"]:
        yield from gate_errors(workload.metadata.annotations)
    if gates["PriorityBoost"]:
        yield from boost_errors(workload.metadata.annotations)
    if old is not None:
        yield from change_errors(new, old, elastic=elastic, gates=gates)


def is_elastic(workload: Workload, gates: FeatureGates) -> bool:
    """Whether its pods may become more or fewer while it runs (integration specification 10.7)."""
    return gates["ElasticJobsViaWorkloadSlices"] and workload.metadata.annotations.get(names.ELASTIC_JOB) == "true"


def _pod_set_errors(workload: Workload, elastic: bool, gates: FeatureGates) -> Iterator[FieldError]:
    for i, pod_set in enumerate(workload.spec.pod_sets):
        at = f"spec.podSets[{i}]"
        template = pod_set.template
        if gates["WorkloadValidationForPodSetMetadata"]:
            yield from label_errors(f"{at}.template.metadata.labels", template.metadata.labels)
            yield from annotation_errors(f"{at}.template.metadata.annotations", template.metadata.annotations)
        negative_too = gates["WorkloadValidateResourcesAreNonNegative"]
        yield from _container_errors(f"{at}.template.spec.initContainers", template.spec.init_containers, negative_too)
        yield from _container_errors(f"{at}.template.spec.containers", template.spec.containers, negative_too)
        if template.spec.resources is not None:
            yield from _amount_errors(f"{at}.template.spec.resources", template.spec.resources, negative_too)
        if pod_set.topology_request is not None and gates["TASValidateWorkloadSliceSize"]:
            yield from _slice_errors(f"{at}.topologyRequest", pod_set.topology_request)
    variable = sum(1 for pod_set in workload.spec.pod_sets if pod_set.min_count is not None)
    if variable > 1:
        yield invalid("spec.podSets", variable, "at most one podSet can use minCount")
    if variable and elastic:
        yield invalid("spec.podSets", variable, "minCount cannot be used by an elastic workload")


def _container_errors(at: str, containers: Iterable[Container], negative_too: bool) -> Iterator[FieldError]:
    for i, container in enumerate(containers):
        yield from _amount_errors(f"{at}[{i}].resources", container.resources, negative_too)


def _amount_errors(at: str, resources: ResourceRequirements, negative_too: bool) -> Iterator[FieldError]:
    amounts: dict[str, Mapping[str, RawQuantity]] = {"requests": resources.requests, "limits": resources.limits}
    for kind, values in amounts.items():
        for resource, quantity in sorted(values.items()):
            path = f"{at}.{kind}[{resource}]"
            if resource == "pods":
                yield invalid(path, resource, "the key is reserved for internal use")
            try:
                negative = parse(quantity).is_negative()
            except QuantityError as error:
                # The schema does not look into pod templates.
                yield invalid(path, quantity, str(error))
                continue
            if negative and negative_too:
                yield invalid(path, quantity, "must be greater than or equal to 0")


def _slice_errors(at: str, request: PodSetTopologyRequest) -> Iterator[FieldError]:
    size = request.pod_set_slice_size
    if request.pod_set_slice_required_topology is None:
        if size is not None:
            yield forbidden(f"{at}.podSetSliceSize", "may only be set with podSetSliceRequiredTopology")
    elif size is None:
        yield required(f"{at}.podSetSliceSize", "must be set with podSetSliceRequiredTopology")
    elif size <= 0:
        yield invalid(f"{at}.podSetSliceSize", size, "must be greater than 0")
    for i, constraint in enumerate(request.podset_slice_required_topology_constraints):
        if constraint.size <= 0:
            path = f"{at}.podsetSliceRequiredTopologyConstraints[{i}].size"
            yield invalid(path, constraint.size, "must be greater than 0")


def _status_errors(workload: Workload, old: RawWorkload | None, elastic: bool) -> Iterator[FieldError]:
    status = workload.status
    pod_sets = {p.name: p for p in workload.spec.pod_sets}
    if is_true(status.conditions, names.QUOTA_RESERVED):
        if status.admission is not None:
            yield from _admission_errors(status.admission, pod_sets)
        elif (
            old is None or old.status.admission is not None or not is_true(old.status.conditions, names.QUOTA_RESERVED)
        ):
            # One that is stored like this must still be cleaned up.
            yield required("status.admission", "must be set while quota is reserved")
    yield from _condition_errors(status.conditions)
    yield from _reclaimable_errors(workload, old if elastic else None, pod_sets)
    for i, check in enumerate(status.admission_checks):
        yield from _check_errors(f"status.admissionChecks[{i}].podSetUpdates", check, pod_sets)


def _admission_errors(admission: Admission, pod_sets: Mapping[str, PodSet]) -> Iterator[FieldError]:
    for i, assignment in enumerate(admission.pod_set_assignments):
        path = f"status.admission.podSetAssignments[{i}]"
        if assignment.name not in pod_sets:
            yield not_found(f"{path}.name", assignment.name)
        count = assignment.count or 0
        if count > 0:
            for resource, quantity in sorted(assignment.resource_usage.items()):
                if request_units(resource, quantity) % count:
                    yield invalid(f"{path}.resourceUsage[{resource}]", quantity, f"is not a multiple of {count}")


def _condition_errors(conditions: Iterable[Condition]) -> Iterator[FieldError]:
    """Kubernetes' rules for conditions, as far as their types leave something to say."""
    seen: set[str] = set()
    for i, condition in enumerate(conditions):
        at = f"status.conditions[{i}]"
        if condition.type in seen:
            yield duplicate(f"{at}.type", condition.type)
        seen.add(condition.type)
        yield from name_errors(f"{at}.type", condition.type)
        if condition.observed_generation < 0:
            yield invalid(f"{at}.observedGeneration", condition.observed_generation, "must be at least 0")
        if condition.last_transition_time == LONG_AGO:
            yield required(f"{at}.lastTransitionTime", "must be set")
        if not condition.reason:
            yield required(f"{at}.reason", "must be set")
        elif not REASON.fullmatch(condition.reason):
            yield invalid(f"{at}.reason", condition.reason, "must be one CamelCase word")
        if len(condition.reason) > MAX_REASON_LENGTH:
            yield too_long(f"{at}.reason", MAX_REASON_LENGTH)
        if len(condition.message.encode()) > MAX_MESSAGE_BYTES:
            yield too_long(f"{at}.message", MAX_MESSAGE_BYTES)


def _reclaimable_errors(
    workload: Workload, elastic_before: RawWorkload | None, pod_sets: Mapping[str, PodSet]
) -> Iterator[FieldError]:
    """`elastic_before`: the state before, of an elastic workload only. Its entries may be stale: the pod set has shrunk since they were written."""
    before = {r.name: r.count for r in elastic_before.status.reclaimable_pods} if elastic_before is not None else {}
    for reclaimable in workload.status.reclaimable_pods:
        path = f"status.reclaimablePods[{reclaimable.name}]"
        pod_set = pod_sets.get(reclaimable.name)
        if pod_set is None:
            yield not_supported(f"{path}.name", reclaimable.name, sorted(pod_sets))
        elif reclaimable.count > pod_set.count and before.get(reclaimable.name) != reclaimable.count:
            yield invalid(f"{path}.count", reclaimable.count, f"should be less or equal to {pod_set.count}")


def _check_errors(at: str, check: AdmissionCheckState, pod_sets: Mapping[str, PodSet]) -> Iterator[FieldError]:
    for i, update in enumerate(check.pod_set_updates):
        path = f"{at}[{i}]"
        if update.name not in pod_sets:
            yield not_supported(f"{path}.name", update.name, sorted(pod_sets))
        yield from toleration_errors(f"{path}.tolerations", update.tolerations)
        yield from annotation_errors(f"{path}.annotations", update.annotations)
        yield from label_errors(f"{path}.nodeSelector", update.node_selector)
        yield from label_errors(f"{path}.labels", update.labels)
