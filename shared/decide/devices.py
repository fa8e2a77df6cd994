"""Device claims as logical resources that have quota (core rule 3.6).

Why it exists: what a pod claims by dynamic resource allocation is not in its requests. Claims made of templates, and extended resources that a
DeviceClass stands behind, are counted per device of a mapped class. What cannot be counted keeps its workload from being tried, and says why.
Counters and capacities of devices are not counted: a mapping with sources refuses what it maps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from shared.decide.requests import NO_DEVICES, LogicalDevices, RequestRules, pod_requests
from shared.model.sources import ClaimSource, PodSetSource

NANO = 10**9


class DeviceRequestSource(Protocol):
    """One request of a claim template."""

    @property
    def device_class(self) -> str: ...
    @property
    def count(self) -> int: ...
    @property
    def unsupported(self) -> str: ...


class Uncountable(ValueError):
    """A claim that is counted by no rule; the text says which and why."""


Templates = Callable[[str], Sequence[DeviceRequestSource] | None]
"""Requests of the claim template of this name in the workload's namespace; None: there is no such template."""


def devices_of(
    pod_sets: Sequence[PodSetSource], rules: RequestRules, classes: Mapping[str, str], templates: Templates
) -> LogicalDevices:
    """The devices of these (adjusted) pod sets. `classes`: extended resource -> DeviceClass behind it. Raises Uncountable, QuantityError."""
    per_pod: dict[str, dict[str, str]] = {}
    replaced: dict[str, tuple[str, ...]] = {}
    for pod_set in pod_sets:
        found: Counter[str] = Counter()
        for claim in pod_set.claims:
            for request in _requests(claim, rules, templates):
                found[_logical(request.device_class, rules)] += request.count * NANO
        stood_for = _extended(pod_set, rules, classes)
        for resource, amount in stood_for.items():
            found[_logical(classes[resource], rules)] += amount
        if found:
            per_pod[pod_set.name] = {name: f"{amount}n" for name, amount in found.items()}
        if stood_for:
            replaced[pod_set.name] = tuple(sorted(stood_for))
    return LogicalDevices(per_pod=per_pod, replaced=replaced) if per_pod or replaced else NO_DEVICES


def _requests(claim: ClaimSource, rules: RequestRules, templates: Templates) -> Iterator[DeviceRequestSource]:
    if not rules.devices:
        if rules.refuse_devices:
            raise Uncountable(f"resource claim {claim.name}: devices are not counted, as KueueDRAIntegration is off")
        return
    if not claim.template:
        raise Uncountable(f"resource claim {claim.name}: only claims made of a template are counted")
    requests = templates(claim.template)
    if requests is None:
        raise Uncountable(f"resource claim {claim.name}: ResourceClaimTemplate {claim.template} does not exist")
    for request in requests:
        if request.unsupported:
            raise Uncountable(f"resource claim {claim.name}: {request.unsupported} is not counted")
        yield request


def _extended(pod_set: PodSetSource, rules: RequestRules, classes: Mapping[str, str]) -> dict[str, int]:
    """Extended resources of one pod that a DeviceClass stands behind, in nano-units."""
    if not (rules.devices and rules.extended_resources and classes):
        return {}
    return {name: amount for name, amount in pod_requests(pod_set).items() if amount and name in classes}


def _logical(device_class: str, rules: RequestRules) -> str:
    mapping = next((one for one in rules.device_mappings if device_class in one.classes), None)
    if mapping is None:
        raise Uncountable(f"DeviceClass {device_class} is in no mapping of resources.deviceClassMappings")
    if mapping.sources:
        raise Uncountable(f"DeviceClass {device_class}: counters and capacities of {mapping.resource} are not counted")
    return mapping.resource


class ClassSource(Protocol):
    """A DeviceClass."""

    @property
    def name(self) -> str: ...
    @property
    def created(self) -> int: ...
    @property
    def extended_resource(self) -> str: ...


def classes_of(classes: Iterable[ClassSource]) -> dict[str, str]:
    """Extended resource -> the class behind it: of several the youngest, of those of one second the first by name, as kube-scheduler has it."""
    by_name = sorted((one for one in classes if one.extended_resource), key=lambda one: one.name, reverse=True)
    return {one.extended_resource: one.name for one in sorted(by_name, key=lambda one: one.created)}
