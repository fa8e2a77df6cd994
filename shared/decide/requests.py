"""Effective requests: from pod templates to one integer vector per pod set (core rules 3.1 to 3.5).

Why it exists: quota, order of flavors, preemption and status all use the same numbers, computed once per change of a
workload or of the rules. Sums are exact (nano-units) and become model units only at the end, rounded up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from hashlib import blake2s
from sys import intern

import msgspec

from shared.api import names
from shared.api.quantity import parse, request_units
from shared.decide.requests_adjust import adjusted, refused
from shared.model.amounts import clamp, mul
from shared.model.limit_range import NO_RULES, PodRules
from shared.model.sources import AssignmentSource, ContainerSource, PodSetSource, WorkloadSource
from shared.model.workload import (
    DECISIVE_CONDITIONS,
    Admission,
    ConditionInfo,
    PodSetAssignment,
    PodSetInfo,
    WorkloadInfo,
)

GATED_BY_ANNOTATION = names.ADMISSION_GATED_BY

Nano = dict[str, int]
"""Amount per resource in nano-units."""

_NANO = 10**9
_MILLI = 10**6


class Transformation(msgspec.Struct, frozen=True, kw_only=True):
    """resources.transformations: what one input resource is counted as."""

    input: str
    replace: bool = False
    multiply_by: str = ""
    outputs: tuple[tuple[str, str], ...] = ()
    """(resource, factor as a quantity); a factor may be negative."""


class DeviceMapping(msgspec.Struct, frozen=True, kw_only=True):
    """resources.deviceClassMappings: the logical resource that devices of some classes count as."""

    resource: str
    classes: tuple[str, ...] = ()
    sources: bool = False
    """Not whole devices are to be counted, but counters or capacities of them."""


class RequestRules(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that shape effective requests."""

    exclude_prefixes: tuple[str, ...] = ()
    transformations: tuple[Transformation, ...] = ()
    reclaimable_pods: bool = True
    priority_boost: bool = False
    equivalence_hashing: bool = True
    admission_gates: bool = True
    """Honour the annotation that gates admission."""
    devices: bool = True
    """Count device claims; else refuse them, if `refuse_devices`."""
    refuse_devices: bool = True
    extended_resources: bool = True
    """Count extended resources that a DeviceClass stands behind as devices of it."""
    device_mappings: tuple[DeviceMapping, ...] = ()


DEFAULT_RULES = RequestRules()


class LogicalDevices(msgspec.Struct, frozen=True, kw_only=True):
    """Device claims of a workload as logical resources (core 3.6), by pod set; worked out where DeviceClasses are known."""

    per_pod: Mapping[str, Mapping[str, str]] = {}
    """Pod set -> resource -> quantity of one pod."""
    replaced: Mapping[str, tuple[str, ...]] = {}
    """Pod set -> extended resources that the logical ones stand for."""


NO_DEVICES = LogicalDevices()

_EMPTY: Mapping[str, str] = {}
_NOTHING: Mapping[str, int] = {}


def pod_requests(pod_set: PodSetSource) -> Nano:
    """Requests of one pod: containers and sidecars together, init containers as a floor, pod level, overhead."""
    run: Nano = {}
    for container in pod_set.containers:
        _add(run, _requests(container))
    side: Nano = {}
    floor: Nano = {}
    for container in pod_set.init_containers:
        own = _requests(container)
        if container.sidecar:
            _add(side, own)
            _raise_to(floor, side)
        else:
            need = dict(side)
            _add(need, own)
            _raise_to(floor, need)
    _add(run, side)
    _raise_to(run, floor)
    for resource, amount in _with_limits(pod_set.pod_requests or {}, pod_set.pod_limits or {}).items():
        if resource in ("cpu", "memory") or resource.startswith("hugepages-"):
            run[resource] = amount
    _add(run, {resource: parse(raw).nano for resource, raw in pod_set.overhead.items()})
    return run


def _requests(container: ContainerSource) -> Nano:
    return _with_limits(container.requests, container.limits)


def _with_limits(requests: Mapping[str, str], limits: Mapping[str, str]) -> Nano:
    """Requests, and the limit of each resource that has only a limit."""
    return {resource: parse(raw).nano for resource, raw in {**limits, **requests}.items()}


def _add(total: Nano, more: Mapping[str, int]) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + amount


def _raise_to(total: Nano, floor: Mapping[str, int]) -> None:
    for resource, amount in floor.items():
        if amount > total.get(resource, 0):
            total[resource] = amount
        else:
            total.setdefault(resource, 0)


def transformed(
    requests: Mapping[str, int],
    rules: RequestRules,
    devices: Mapping[str, str] | None = None,
    replaced: Iterable[str] = (),
) -> dict[str, int]:
    """One pod's requests after exclusion, transformation and devices, in model units (rounded up, at least 0).

    `requests` in nano-units; `devices` are logical resources to add, `replaced` extended resources they stand for.
    """
    if not (rules.exclude_prefixes or rules.transformations or devices or replaced):
        return {resource: _units(resource, amount) for resource, amount in requests.items()}
    kept: dict[str, int | Fraction] = {
        resource: amount
        for resource, amount in requests.items()
        if not (rules.exclude_prefixes and resource.startswith(rules.exclude_prefixes))
    }
    by_input = {transformation.input: transformation for transformation in rules.transformations}
    if by_input.keys() & kept.keys():
        kept = _transform(kept, by_input)
    for resource in replaced:
        kept.pop(resource, None)
    for resource, raw in (devices or {}).items():
        kept[resource] = kept.get(resource, 0) + parse(raw).nano
    return {resource: _units(resource, amount) for resource, amount in kept.items()}


def _transform(
    requests: Mapping[str, int | Fraction], by_input: Mapping[str, Transformation]
) -> dict[str, int | Fraction]:
    retained: dict[str, int | Fraction] = {}
    generated: dict[str, Fraction] = {}
    for resource, amount in requests.items():
        rule = by_input.get(resource)
        if rule is None or not rule.replace:
            retained[resource] = amount
        if rule is None:
            continue
        factor = requests.get(rule.multiply_by) if rule.multiply_by else None
        base = Fraction(amount) if factor is None else Fraction(amount) * factor / _NANO
        for output, raw in rule.outputs:
            generated[output] = generated.get(output, Fraction(0)) + base * parse(raw).nano / _NANO
    for output, amount in generated.items():
        retained[output] = retained.get(output, 0) + max(Fraction(0), amount)
    return retained


def _units(resource: str, nano: int | Fraction) -> int:
    step = _MILLI if resource == "cpu" else _NANO
    units = -(-nano // step)
    return clamp(units) if units > 0 else 0


def effective_count(pod_set: PodSetSource, reclaimable: Mapping[str, int], rules: RequestRules) -> int:
    """Pods that still need quota."""
    if not rules.reclaimable_pods:
        return pod_set.count
    return pod_set.count - min(reclaimable.get(pod_set.name, 0), pod_set.count)


def pod_set_info(
    pod_set: PodSetSource,
    reclaimable: Mapping[str, int],
    rules: RequestRules,
    one: Nano | None = None,
    devices: LogicalDevices = NO_DEVICES,
) -> PodSetInfo:
    """The engine's view of one (adjusted) pod set; `one` = requests of one pod, if known. Raises QuantityError."""
    count = effective_count(pod_set, reclaimable, rules)
    raw = pod_requests(pod_set) if one is None else one
    one_pod = transformed(
        raw,
        rules,
        devices.per_pod.get(pod_set.name),
        devices.replaced.get(pod_set.name, ()),
    )
    return PodSetInfo(
        name=pod_set.name,
        count=count,
        requests={resource: mul(amount, count) for resource, amount in one_pod.items()},
        min_count=pod_set.min_count,
        group=pod_set.topology.get("podSetGroupName", ""),
        topology=pod_set.topology or _EMPTY,
        pod=transformed(raw, DEFAULT_RULES) if pod_set.topology else _NOTHING,
        node_selector=pod_set.node_selector,
        affinity_terms=pod_set.affinity_terms,
        tolerations=pod_set.tolerations,
    )


def held(
    assignment: AssignmentSource, spec_count: int | None, reclaimable: Mapping[str, int], rules: RequestRules
) -> PodSetAssignment:
    """What an admitted pod set still holds: its usage, scaled down by pods that no longer need quota (3.4)."""
    count = assignment.count or spec_count or 0
    usage = dict(assignment.usage)
    if spec_count is not None and rules.reclaimable_pods:
        left = spec_count - min(reclaimable.get(assignment.name, 0), spec_count)
        if left < count:
            usage = {resource: mul(amount // count, left) for resource, amount in usage.items()}
            count = left
    return PodSetAssignment(
        name=assignment.name,
        count=count,
        flavors=dict(assignment.flavors),
        usage=usage,
        delayed_topology=assignment.delayed_topology,
    )


def resource_requests_differ(current: Mapping[str, Mapping[str, str]], totals: Mapping[str, Mapping[str, int]]) -> bool:
    """Does status.resourceRequests (`current`: pod set -> resource -> quantity) say something else than these totals?"""
    shown = {
        name: {resource: request_units(resource, raw) for resource, raw in one.items()} for name, one in current.items()
    }
    return shown != {name: dict(one) for name, one in totals.items()}


def _admission(source: WorkloadSource, rules: RequestRules) -> Admission | None:
    if source.admission is None:
        return None
    if not any(condition.type == "QuotaReserved" and condition.status for condition in source.conditions):
        return None
    counts = {pod_set.name: pod_set.count for pod_set in source.pod_sets}
    return Admission(
        source.admission.cluster_queue,
        tuple(
            [
                held(pod_set, counts.get(pod_set.name), source.reclaimable, rules)
                for pod_set in source.admission.pod_sets
            ]
        ),
    )


def _reclaimable(source: WorkloadSource) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(source.reclaimable.items())) if source.reclaimable else ()


def _parent_uid(source: WorkloadSource) -> str:
    return next((owner.uid for owner in source.owners if owner.controller and owner.kind == names.WORKLOAD), "")


def _allowed_flavors(raw: str | None) -> frozenset[str] | None:
    return None if raw is None else frozenset(name.strip() for name in raw.split(",") if name.strip())


def hashes(
    pod_sets: Iterable[tuple[PodSetSource, PodSetInfo]], priority: int, allowed: str | None = None
) -> tuple[str, str]:
    """(shape, family). The shape is equal for workloads that the scheduler cannot tell apart: names, labels, images and limits do not matter.

    The family is equal for those that differ only in amounts and priority; empty where amounts are not all there is to compare.
    """
    kinds, amounts, comparable = [], [], True
    for source, info in pod_sets:
        containers = (*source.init_containers, *source.containers)
        kinds.append(
            (
                info.name,
                info.count,
                sorted(info.requests),
                info.min_count,
                [container.ports for container in containers],
                len(source.init_containers),
                sorted(source.node_selector.items()),
                source.affinity_terms,
                source.tolerations,
                source.runtime_class,
                sorted(source.topology.items()),
                sorted((claim.claim, claim.template) for claim in source.claims),
            )
        )
        amounts.append(
            (
                sorted(info.requests.items()),
                [sorted(container.requests.items()) for container in containers],
                sorted(source.overhead.items()),
                sorted((source.pod_requests or {}).items()),
            )
        )
        comparable = comparable and info.min_count is None and not source.topology
    family = blake2s(repr((kinds, allowed)).encode(), digest_size=8).hexdigest()
    shape = blake2s(repr((family, amounts, priority)).encode(), digest_size=8).hexdigest()
    return shape, family if comparable else ""


class _Spec(msgspec.Struct, frozen=True):
    """What follows from the spec of a workload, whatever its status."""

    pod_sets: tuple[PodSetInfo, ...]
    invalid: str
    shape: str
    family: str


def _spec(
    source: WorkloadSource, rules: RequestRules, pod_rules: PodRules, devices: LogicalDevices, priority: int
) -> _Spec:
    templates = tuple(adjusted(pod_set, pod_rules) for pod_set in source.pod_sets)
    ones = [pod_requests(pod_set) for pod_set in templates]
    pod_sets = tuple(
        pod_set_info(pod_set, source.reclaimable, rules, one, devices)
        for pod_set, one in zip(templates, ones, strict=True)
    )
    shape = family = ""
    if rules.equivalence_hashing:
        shape, family = hashes(
            zip(templates, pod_sets, strict=True), priority, source.annotations.get(names.ALLOWED_FLAVORS)
        )
    return _Spec(pod_sets, refused(zip(templates, ones, strict=True), pod_rules), shape, family)


_SPECS_KEPT = 4096
_specs: dict[tuple[object, ...], tuple[_Spec, PodRules]] = {}
"""What followed from templates met before: workloads of one template share it. A pure function's memory, no state.

The rules of a namespace are known by identity, and kept, so that no others can come to have it.
"""

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def _shared_spec(
    source: WorkloadSource, rules: RequestRules, pod_rules: PodRules, devices: LogicalDevices, priority: int
) -> _Spec:
    """`_spec`, worked out once for workloads of the same template."""
    if devices is not NO_DEVICES:
        return _spec(source, rules, pod_rules, devices, priority)
    template = _encode((source.pod_sets, source.reclaimable, source.annotations.get(names.ALLOWED_FLAVORS)))
    key = (template, priority, rules, id(pod_rules))
    known = _specs.get(key)
    if known is not None:
        return known[0]
    found = _spec(source, rules, pod_rules, devices, priority)
    if len(_specs) >= _SPECS_KEPT:
        _specs.clear()
    _specs[key] = (found, pod_rules)
    return found


def _same_spec(source: WorkloadSource, before: WorkloadInfo, priority: int) -> bool:
    """Is it sure that nothing changed that a `_Spec` is made of? The API server counts every change of a spec."""
    return (
        source.generation > 0
        and source.generation == before.generation
        and source.uid == before.uid
        and priority == before.priority
        and len(source.pod_sets) == len(before.pod_sets)
        and _reclaimable(source) == before.reclaimable
        and _allowed_flavors(source.annotations.get(names.ALLOWED_FLAVORS)) == before.allowed_flavors
    )


def workload_info(
    source: WorkloadSource,
    rules: RequestRules = DEFAULT_RULES,
    pod_rules: PodRules = NO_RULES,
    devices: LogicalDevices = NO_DEVICES,
    before: WorkloadInfo | None = None,
) -> WorkloadInfo:
    """The engine's view of a workload. Raises QuantityError when a request cannot be read.

    `pod_rules`: defaults and bounds of its namespace; `devices`: its device claims, worked out before (they survive updates).
    `before`: an earlier view made by the same rules; what depends on the spec alone is taken over while that is the same.
    """
    priority = source.priority + (source.priority_boost if rules.priority_boost else 0)
    annotations = source.annotations
    conditions = tuple(
        [
            ConditionInfo(condition.type, condition.status, condition.reason, condition.changed)
            for condition in source.conditions
            if condition.type in DECISIVE_CONDITIONS
        ]
    )
    finished = source.finished or any(c.status for c in conditions if c.type == "Finished")
    if before is not None and _same_spec(source, before, priority):
        spec = _Spec(before.pod_sets, before.invalid, before.shape, before.family)
        key = before.key
    else:
        spec = _shared_spec(source, rules, pod_rules, devices, priority)
        key = intern(f"{source.namespace}/{source.name}")
    return WorkloadInfo(
        namespace=source.namespace,
        name=source.name,
        key=key,
        uid=source.uid,
        version=source.version,
        generation=source.generation,
        incarnation=source.incarnation,
        created=source.created,
        queue_name=source.queue_name,
        queue_key=intern(f"{source.namespace}/{source.queue_name}"),
        priority=priority,
        base_priority=source.priority,
        active=source.active,
        finished=finished,
        pod_sets=spec.pod_sets,
        conditions=conditions,
        checks=tuple([(check.name, check.state) for check in source.checks]),
        requeue_at=source.requeue_at,
        reclaimable=_reclaimable(source),
        admission=_admission(source, rules),
        gated_by=annotations.get(GATED_BY_ANNOTATION, "") if rules.admission_gates else "",
        allowed_flavors=_allowed_flavors(annotations.get(names.ALLOWED_FLAVORS)),
        parent_uid=_parent_uid(source) if source.owners else "",
        replaces=annotations.get(names.WORKLOAD_SLICE_REPLACEMENT_FOR, ""),
        preemption_gated=bool(source.preemption_gates) and any(not gate.open for gate in source.preemption_gates),
        invalid=spec.invalid,
        shape="" if finished else spec.shape,
        family="" if finished else spec.family,
        job_uid=source.job_uid,
    )
