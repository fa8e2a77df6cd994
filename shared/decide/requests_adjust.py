"""Pod templates after the cluster's defaults, and the bounds they must keep (core rules 3.1 and 3.5).

Why it exists: what a pod will really ask for depends on its RuntimeClass, on the LimitRanges of its namespace and on limits that stand in
for requests. This is applied to the engine's copy only; the object is never changed. Counting is `shared.decide.requests`' work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from shared.api.quantity import parse
from shared.model.limit_range import NO_RULES, Limits, PodRules
from shared.model.sources import ClaimSource, ContainerSource, PodSetSource, RequirementSource, TolerationSource

Amounts = Mapping[str, str]


class AdjustedContainer(msgspec.Struct, frozen=True):
    """A container with defaults filled in."""

    requests: Amounts
    limits: Amounts
    sidecar: bool
    ports: tuple[str, ...]


class AdjustedPodSet(msgspec.Struct, frozen=True, kw_only=True):
    """A pod set with defaults filled in; everything else as it was."""

    name: str
    count: int
    min_count: int | None
    containers: tuple[ContainerSource, ...]
    init_containers: tuple[ContainerSource, ...]
    pod_requests: Amounts | None
    pod_limits: Amounts | None
    overhead: Amounts
    runtime_class: str
    topology: Mapping[str, str]
    node_selector: Mapping[str, str]
    affinity_terms: tuple[tuple[RequirementSource, ...], ...] | None
    tolerations: tuple[TolerationSource, ...]
    claims: tuple[ClaimSource, ...]


def adjusted(pod_set: PodSetSource, rules: PodRules = NO_RULES) -> PodSetSource:
    """The pod set with overhead, LimitRange defaults and limits as requests; the same object when nothing is added."""
    overhead = pod_set.overhead
    if pod_set.runtime_class and not overhead:
        overhead = rules.overheads.get(pod_set.runtime_class, overhead)
    containers = _all_filled(pod_set.containers, rules.container)
    init_containers = _all_filled(pod_set.init_containers, rules.container)
    pod_requests, pod_limits = pod_set.pod_requests, pod_set.pod_limits
    if pod_requests is not None or pod_limits is not None:
        pod_requests, pod_limits = _filled(pod_requests or {}, pod_limits or {}, rules.pod)
    same = (
        containers is pod_set.containers
        and init_containers is pod_set.init_containers
        and overhead is pod_set.overhead
        and pod_requests == pod_set.pod_requests
        and pod_limits == pod_set.pod_limits
    )
    if same:
        return pod_set
    return AdjustedPodSet(
        name=pod_set.name,
        count=pod_set.count,
        min_count=pod_set.min_count,
        containers=containers,
        init_containers=init_containers,
        pod_requests=pod_requests,
        pod_limits=pod_limits,
        overhead=overhead,
        runtime_class=pod_set.runtime_class,
        topology=pod_set.topology,
        node_selector=pod_set.node_selector,
        affinity_terms=pod_set.affinity_terms,
        tolerations=pod_set.tolerations,
        claims=pod_set.claims,
    )


def _all_filled(containers: tuple[ContainerSource, ...], defaults: Limits) -> tuple[ContainerSource, ...]:
    if not defaults.default and not defaults.default_request and all(_complete(one) for one in containers):
        return containers
    filled = tuple(
        AdjustedContainer(*_filled(one.requests, one.limits, defaults), one.sidecar, one.ports) for one in containers
    )
    same = all(
        new.requests == old.requests and new.limits == old.limits for new, old in zip(filled, containers, strict=True)
    )
    return containers if same else filled


def _complete(container: ContainerSource) -> bool:
    return container.limits.keys() <= container.requests.keys()


def _filled(requests: Amounts, limits: Amounts, defaults: Limits) -> tuple[Amounts, Amounts]:
    """(requests, limits): defaults for what is missing; a limit stands in for a request that is missing even then."""
    limits = {**defaults.default, **limits}
    return {**limits, **defaults.default_request, **requests}, limits


def _has_limits(pod_set: PodSetSource) -> bool:
    if pod_set.pod_limits:
        return True
    return any(one.limits for one in pod_set.containers) or any(one.limits for one in pod_set.init_containers)


Fault = tuple[str, tuple[str, ...]]
"""Where in the pod's spec (`.containers[0]`; empty: the pod as a whole), and the resources that are wrong there, sorted."""


def limit_faults(pod_set: PodSetSource) -> Iterator[Fault]:
    """Where more is requested than the limit right beside it."""
    if not _has_limits(pod_set):
        return
    pairs = [(at, container.requests, container.limits) for at, container in _containers(pod_set)]
    pairs.append((".resources", pod_set.pod_requests or {}, pod_set.pod_limits or {}))
    for at, requests, limits in pairs:
        above = (r for r, raw in requests.items() if r in limits and parse(raw).nano > parse(limits[r]).nano)
        if limits and (found := tuple(sorted(above))):
            yield at, found


def over_limit(pod_set: PodSetSource) -> tuple[str, ...]:
    """Resources of which some container, or the pod as a whole, requests more than its own limit; sorted."""
    return tuple(sorted({resource for _, resources in limit_faults(pod_set) for resource in resources}))


def range_faults(pod_set: PodSetSource, one_pod: Mapping[str, int], rules: PodRules) -> Iterator[Fault]:
    """What is beyond the LimitRanges of the namespace. `one_pod` = what one pod requests, in nano-units."""
    if rules.container.max or rules.container.min:
        for at, container in _containers(pod_set):
            requests, limits = _nano(container.requests), _nano(container.limits)
            # A resource that stands in one of the two only is both.
            pairs = {
                r: (requests.get(r, limits.get(r, 0)), limits.get(r, requests.get(r, 0))) for r in requests | limits
            }
            highest = {r: max(pair) for r, pair in pairs.items()}
            lowest = {r: min(pair) for r, pair in pairs.items()}
            if found := rules.container.exceeded(highest, lowest):
                yield at, found
    if found := rules.pod.exceeded(one_pod, one_pod):
        yield "", found


def out_of_bounds(pod_set: PodSetSource, one_pod: Mapping[str, int], rules: PodRules) -> tuple[str, ...]:
    """Resources beyond the LimitRanges of the namespace, sorted."""
    return tuple(sorted({resource for _, resources in range_faults(pod_set, one_pod, rules) for resource in resources}))


def _containers(pod_set: PodSetSource) -> Iterator[tuple[str, ContainerSource]]:
    yield from ((f".initContainers[{i}]", one) for i, one in enumerate(pod_set.init_containers))
    yield from ((f".containers[{i}]", one) for i, one in enumerate(pod_set.containers))


def _nano(amounts: Amounts) -> dict[str, int]:
    return {name: parse(raw).nano for name, raw in amounts.items()}


def refused(pod_sets: Iterable[tuple[PodSetSource, Mapping[str, int]]], rules: PodRules) -> str:
    """Why these (adjusted) pod sets may not be admitted, first cause only; empty if they may."""
    listed = tuple(pod_sets)
    above = [(pod_set.name, names) for pod_set, _ in listed if (names := over_limit(pod_set))]
    if above:
        return "; ".join(f"pod set {name}: requests above limits for {', '.join(names)}" for name, names in above)
    if rules is NO_RULES:
        return ""
    beyond = [(pod_set.name, names) for pod_set, one in listed if (names := out_of_bounds(pod_set, one, rules))]
    return "; ".join(
        f"pod set {name}: outside the LimitRange of the namespace for {', '.join(names)}" for name, names in beyond
    )
