"""The projection of a Workload, and its incarnation. Pure.

Pod sets depend on the spec alone and are the same for all workloads of one shape, so each is projected once and shared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2s

import msgspec

from services.watcher.projections_parts import conditions_of, owners_of, seconds, texts, toleration_of
from shared.api import names
from shared.api.conditions import find, is_true
from shared.api.pods import Affinity, Container, PodTemplateSpec, ResourceRequirements
from shared.api.quantity import request_units
from shared.api.workload import PodSet, PodSetTopologyRequest, Workload
from shared.api.workload_status import Admission, AdmissionCheckState
from shared.events import objects
from shared.events.incarnation import incarnation

_DECIMAL = re.compile(r"[+-]?[0-9]+")
_INT32 = range(-(2**31), 2**31)
_READ_ANNOTATIONS = (
    names.ADMISSION_GATED_BY,
    names.PRIORITY_BOOST,
    names.ALLOWED_FLAVORS,
    names.WORKLOAD_SLICE_REPLACEMENT_FOR,
)


def incarnation_of(workload: Workload) -> str:
    """Which state of the workload this is, for preconditions (R2)."""
    status = workload.status
    reserved = find(status.conditions, names.QUOTA_RESERVED)
    holds = reserved is not None and reserved.status == "True"
    evicted = find(status.conditions, names.EVICTED)
    requeued = find(status.conditions, names.REQUEUED)
    requeue_at = status.requeue_state.requeue_at if status.requeue_state else None
    return incarnation(
        uid=workload.metadata.uid,
        generation=workload.metadata.generation,
        reserved_in=status.admission.cluster_queue if holds and status.admission else "",
        reserved_at=seconds(reserved.last_transition_time) if holds and reserved else 0,
        evicted=(evicted is not None and evicted.status == "True", seconds(evicted.last_transition_time))
        if evicted
        else (False, 0),
        requeued=(requeued.status == "True", seconds(requeued.last_transition_time)) if requeued else (None, 0),
        requeue_at=seconds(requeue_at) if requeue_at else None,
        evictions=_evictions(workload),
    )


def project_workload(workload: Workload, raw: bytes = b"") -> objects.Workload:
    """What OBJECTS carries. Template hashes are of `raw`, the whole object; without it there are none.
    A finished one is a stub: identity, queue, ClusterQueue and its Finished condition. Raises ValueError for a usage that is no quantity."""
    if is_true(workload.status.conditions, names.FINISHED):
        return _stub(workload)
    metadata, spec, status = workload.metadata, workload.spec, workload.status
    state = status.requeue_state
    source = spec.priority_class_ref
    hashes = _template_hashes(raw)
    return objects.Workload(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        version=int(metadata.resource_version),
        generation=metadata.generation,
        created=seconds(metadata.creation_timestamp),
        deleting=metadata.deletion_timestamp is not None,
        finalizers=metadata.finalizers,
        queue_name=spec.queue_name,
        priority=spec.priority or 0,
        priority_class=source.name if source else "",
        priority_class_source=source.kind if source else "",
        priority_boost=_boost(metadata.annotations),
        active=spec.active,
        max_execution_s=spec.maximum_execution_time_seconds,
        pod_sets=tuple(_pod_set(pod_set, hashes.get(pod_set.name, "")) for pod_set in spec.pod_sets),
        conditions=conditions_of(status.conditions),
        admission=_admission(status.admission, spec.pod_sets) if status.admission else None,
        checks=tuple(_check(check) for check in status.admission_checks),
        preemption_gates=_gates(workload),
        requeue_count=state.count if state else 0,
        requeue_at=seconds(state.requeue_at) if state and state.requeue_at else None,
        has_requeue_state=state is not None,
        reclaimable={pods.name: pods.count for pods in status.reclaimable_pods},
        past_execution_s=status.accumulated_past_execution_time_seconds or 0,
        evictions=_evictions(workload),
        incarnation=incarnation_of(workload),
        owners=owners_of(metadata),
        annotations={
            key: value
            for key, value in metadata.annotations.items()
            if key in _READ_ANNOTATIONS or key.startswith(names.PROVISIONING_ANNOTATION_PREFIX)
        },
        job_uid=metadata.labels.get(names.JOB_UID_LABEL, ""),
        has_variants=metadata.labels.get(names.CONCURRENT_ADMISSION_PARENT_LABEL) == "true",
    )


def _stub(workload: Workload) -> objects.Workload:
    metadata, status = workload.metadata, workload.status
    finished = find(status.conditions, names.FINISHED)
    return objects.Workload(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        version=int(metadata.resource_version),
        generation=metadata.generation,
        created=seconds(metadata.creation_timestamp),
        deleting=metadata.deletion_timestamp is not None,
        finalizers=metadata.finalizers,
        queue_name=workload.spec.queue_name,
        conditions=conditions_of((finished,)) if finished else (),
        admission=objects.Admission(status.admission.cluster_queue) if status.admission else None,
        incarnation=incarnation_of(workload),
        finished=True,
    )


def _evictions(workload: Workload) -> int:
    stats = workload.status.scheduling_stats
    return sum(entry.count for entry in stats.evictions) if stats else 0


def _boost(annotations: Mapping[str, str]) -> int:
    raw = annotations.get(names.PRIORITY_BOOST, "0")
    # Digits alone: what int() reads beyond them, such as 1_000, is no number to anybody else.
    boost = int(raw) if _DECIMAL.fullmatch(raw) else 0
    return boost if boost in _INT32 else 0


def _admission(admission: Admission, pod_sets: tuple[PodSet, ...]) -> objects.Admission:
    counts = {pod_set.name: pod_set.count for pod_set in pod_sets}
    return objects.Admission(
        admission.cluster_queue,
        tuple(
            objects.PodSetAssignment(
                name=assigned.name,
                count=counts.get(assigned.name, 0) if assigned.count is None else assigned.count,
                flavors=dict(assigned.flavors),
                usage={resource: request_units(resource, q) for resource, q in assigned.resource_usage.items()},
            )
            for assigned in admission.pod_set_assignments
        ),
    )


def _gates(workload: Workload) -> tuple[objects.PreemptionGate, ...]:
    """The gates of the spec; one that the status does not know is closed."""
    states = {state.name: state for state in workload.status.preemption_gates}
    return tuple(
        objects.PreemptionGate(gate.name, state.position == "Open", seconds(state.last_transition_time))
        if (state := states.get(gate.name)) is not None
        else objects.PreemptionGate(gate.name)
        for gate in workload.spec.preemption_gates
    )


def _check(check: AdmissionCheckState) -> objects.CheckState:
    return objects.CheckState(
        name=check.name,
        state=check.state,
        message=check.message,
        changed=seconds(check.last_transition_time),
        requeue_after_s=check.requeue_after_seconds,
        retry_count=check.retry_count,
        has_updates=bool(check.pod_set_updates),
    )


class _RawPodSet(msgspec.Struct, gc=False):
    template: msgspec.Raw
    name: str = names.DEFAULT_PODSET


class _RawSpec(msgspec.Struct, rename="camel", gc=False):
    pod_sets: list[_RawPodSet] = []


class _RawWorkload(msgspec.Struct, gc=False):
    spec: _RawSpec


_raw_decoder = msgspec.json.Decoder(_RawWorkload)


def _template_hashes(raw: bytes) -> dict[str, str]:
    if not raw:
        return {}
    return {pod_set.name: template_hash(bytes(pod_set.template)) for pod_set in _raw_decoder.decode(raw).spec.pod_sets}


@lru_cache(maxsize=4096)
def template_hash(template: bytes) -> str:
    """16 hex digits, equal for equal templates whatever the order of their fields."""
    canonical = msgspec.json.encode(msgspec.json.decode(template), order="deterministic")
    return blake2s(canonical, digest_size=8).hexdigest()


_pod_sets: dict[tuple[str, int, int | None, str], tuple[PodTemplateSpec, objects.PodSet]] = {}
_MOST_POD_SETS = 4096


def _pod_set(pod_set: PodSet, hash_: str) -> objects.PodSet:
    key = (pod_set.name, pod_set.count, pod_set.min_count, hash_)
    known = _pod_sets.get(key)
    if known is not None and known[0] is pod_set.template and pod_set.topology_request is None:
        return known[1]
    made = _made_pod_set(pod_set, hash_)
    if pod_set.topology_request is None:
        if len(_pod_sets) >= _MOST_POD_SETS:
            _pod_sets.clear()
        _pod_sets[key] = (pod_set.template, made)
    return made


def _made_pod_set(pod_set: PodSet, hash_: str) -> objects.PodSet:
    spec = pod_set.template.spec
    return objects.PodSet(
        name=pod_set.name,
        count=pod_set.count,
        min_count=pod_set.min_count,
        containers=tuple(_container(c) for c in spec.containers),
        init_containers=tuple(_container(c) for c in spec.init_containers),
        pod_requests=texts(spec.resources.requests) if spec.resources else None,
        pod_limits=texts(spec.resources.limits) if spec.resources else None,
        overhead=texts(spec.overhead),
        runtime_class=spec.runtime_class_name,
        node_selector=spec.node_selector,
        affinity_terms=_affinity_terms(spec.affinity),
        tolerations=tuple(toleration_of(t) for t in spec.tolerations),
        template_hash=hash_,
        topology=_topology(pod_set.topology_request) if pod_set.topology_request else {},
        claims=tuple(
            objects.PodClaim(claim.name, claim.resource_claim_name, claim.resource_claim_template_name)
            for claim in spec.resource_claims
        ),
    )


def _container(container: Container) -> objects.Container:
    resources: ResourceRequirements = container.resources
    return objects.Container(
        requests=texts(resources.requests),
        limits=texts(resources.limits),
        sidecar=container.is_sidecar,
        ports=tuple(f"{p.host_port}/{p.container_port}/{p.protocol or 'TCP'}" for p in container.ports),
    )


def _affinity_terms(affinity: Affinity | None) -> tuple[tuple[objects.Requirement, ...], ...] | None:
    """Required terms by node label; a term that only looks at fields (the node's name) has no expression and so matches every flavor."""
    node = affinity.node_affinity if affinity else None
    required = node.required_during_scheduling_ignored_during_execution if node else None
    if required is None:
        return None
    return tuple(
        tuple(objects.Requirement(e.key, e.operator, e.values) for e in term.match_expressions)
        for term in required.node_selector_terms
    )


def _topology(request: PodSetTopologyRequest) -> dict[str, str]:
    """What is asked for, under the names of the API; nested constraints as JSON."""
    values = msgspec.to_builtins(request)
    return {
        key: value if isinstance(value, str) else msgspec.json.encode(value).decode() for key, value in values.items()
    }
