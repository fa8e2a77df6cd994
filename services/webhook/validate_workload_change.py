"""What may not change in a Workload (core specification 1.7): a reservation freezes what it was made for. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from shared.api import names
from shared.api.conditions import is_true
from shared.api.field_errors import FieldError, immutable, invalid, required
from shared.api.quantity import QuantityError, parse
from shared.api.raw_workload import RawPodSet, RawWorkload
from shared.api.workload_status import Admission, PodSetAssignment
from shared.config.feature_gates import FeatureGates
from shared.jobs.validate_annotations import gate_change_errors


def change_errors(new: RawWorkload, old: RawWorkload, *, elastic: bool, gates: FeatureGates) -> Iterator[FieldError]:
    """Faults of a change from `old` to `new`."""
    was_reserved = is_true(old.status.conditions, names.QUOTA_RESERVED)
    if was_reserved:
        yield from _pod_set_errors(new, old, may_shrink=gates["ElasticJobsViaWorkloadSlices"])
    if was_reserved and is_true(new.status.conditions, names.QUOTA_RESERVED):
        yield from _reclaimable_errors(new, old, elastic)
    yield from _admission_errors(new.status.admission, old.status.admission, gates)
    yield from _update_errors(new, old)
    yield from _cluster_errors(new, old, gates)
    if gates["AdmissionGatedBy"]:
        yield from gate_change_errors(new.metadata.annotations, old.metadata.annotations)


def _pod_set_errors(new: RawWorkload, old: RawWorkload, may_shrink: bool) -> Iterator[FieldError]:
    pod_sets, before = new.spec.pod_sets, old.spec.pod_sets
    if len(pod_sets) != len(before):
        yield immutable("spec.podSets", [pod_set.name for pod_set in pod_sets])
        return
    for i, (pod_set, was) in enumerate(zip(pod_sets, before, strict=True)):
        compared = replace(pod_set, count=was.count) if may_shrink and pod_set.count < was.count else pod_set
        if not _same(compared, was):
            yield immutable(f"spec.podSets[{i}]", pod_set.name)


def _same(pod_set: RawPodSet, other: RawPodSet) -> bool:
    empty = msgspec.Raw(b"{}")
    if replace(pod_set, template=empty) != replace(other, template=empty):
        return False
    one, two = bytes(pod_set.template), bytes(other.template)
    return one == two or _meaning(msgspec.json.decode(one)) == _meaning(msgspec.json.decode(two))


def _meaning(value: object, amounts: bool = False) -> object:
    """What of a template counts: empty is absent, and an amount is the same however it is written."""
    if isinstance(value, dict):
        found = {k: _meaning(v, k in ("requests", "limits", "overhead")) for k, v in value.items()}
        return {k: _amount(v) if amounts else v for k, v in found.items() if v not in (None, {}, [])}
    return [_meaning(one) for one in value] if isinstance(value, list) else value


def _amount(value: object) -> object:
    try:
        return parse(value).nano if isinstance(value, str | int) else value
    except QuantityError:
        return value


def _reclaimable_errors(new: RawWorkload, old: RawWorkload, elastic: bool) -> Iterator[FieldError]:
    counts = {r.name: r.count for r in new.status.reclaimable_pods}
    shrunk = _shrunk(new) if elastic else frozenset()
    for was in old.status.reclaimable_pods:
        path = f"status.reclaimablePods[{was.name}]"
        if was.name in shrunk:
            continue
        if was.name not in counts:
            yield required(path, "may not be removed while quota is reserved")
        elif counts[was.name] < was.count:
            yield invalid(f"{path}.count", counts[was.name], f"cannot be less than {was.count} while quota is reserved")


def _shrunk(workload: RawWorkload) -> frozenset[str]:
    """Pod sets that have fewer pods now than were admitted."""
    admission = workload.status.admission
    assignments = admission.pod_set_assignments if admission is not None else ()
    admitted = {a.name: a.count for a in assignments if a.count is not None}
    return frozenset(p.name for p in workload.spec.pod_sets if p.count < admitted.get(p.name, 0))


def _admission_errors(new: Admission | None, old: Admission | None, gates: FeatureGates) -> Iterator[FieldError]:
    if new is None or old is None:
        return
    placed_later = gates["TopologyAwareScheduling"]
    if _frozen(new, placed_later) != _frozen(old, placed_later):
        yield immutable("status.admission", new)


def _frozen(admission: Admission, placed_later: bool) -> Admission:
    """What of an admission may not change. `placed_later`: where its pods go is not part of it."""
    return replace(admission, pod_set_assignments=tuple(_bare(a, placed_later) for a in admission.pod_set_assignments))


def _bare(assignment: PodSetAssignment, placed_later: bool) -> PodSetAssignment:
    usage = {resource: parse(quantity).nano for resource, quantity in assignment.resource_usage.items()}
    bare = replace(assignment, resource_usage=dict(usage))
    return replace(bare, topology_assignment=None, delayed_topology_request=None) if placed_later else bare


def _update_errors(new: RawWorkload, old: RawWorkload) -> Iterator[FieldError]:
    checks = {c.name: c for c in new.status.admission_checks}
    for i, was in enumerate(old.status.admission_checks):
        check = checks.get(was.name)
        if check is None or not was.state == check.state == "Ready":
            continue
        if was.pod_set_updates != check.pod_set_updates:
            yield immutable(f"status.admissionChecks[{i}].podSetUpdates", check.pod_set_updates)


def _cluster_errors(new: RawWorkload, old: RawWorkload, gates: FeatureGates) -> Iterator[FieldError]:
    name = new.status.cluster_name
    if name is None or old.status.cluster_name is not None or name in old.status.nominated_cluster_names:
        return
    replacement = names.WORKLOAD_SLICE_REPLACEMENT_FOR in new.metadata.annotations
    if not (replacement and gates["ElasticJobsViaWorkloadSlices"]):
        # A slice that replaces another one runs where that one does.
        yield invalid("status.clusterName", name, "must be one of the clusters nominated before")
