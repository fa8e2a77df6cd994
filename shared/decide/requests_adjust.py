"""Pod templates after the cluster's defaults, and the bounds they must keep (core rules 3.1 and 3.5).

Why it exists: what a pod will really ask for depends on its RuntimeClass, on the LimitRanges of its namespace and on limits that stand in
for requests. This is applied to the engine's copy only; the object is never changed. Counting is `shared.decide.requests`' work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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


def over_limit(pod_set: PodSetSource) -> tuple[str, ...]:
    """Resources of which some container, or the pod as a whole, requests more than its own limit; sorted."""
    if not _has_limits(pod_set):
        return ()
    found: set[str] = set()
    pairs = [(container.requests, container.limits) for container in (*pod_set.init_containers, *pod_set.containers)]
    pairs.append((pod_set.pod_requests or {}, pod_set.pod_limits or {}))
    for requests, limits in pairs:
        if limits:
            found.update(
                resource
                for resource, raw in requests.items()
                if resource in limits and parse(raw).nano > parse(limits[resource]).nano
            )
    return tuple(sorted(found))


def out_of_bounds(pod_set: PodSetSource, one_pod: Mapping[str, int], rules: PodRules) -> tuple[str, ...]:
    """Resources beyond the LimitRanges of the namespace, sorted. `one_pod` = what one pod requests, in nano-units."""
    found: set[str] = set()
    if rules.container.max or rules.container.min:
        for container in (*pod_set.init_containers, *pod_set.containers):
            requests, limits = _nano(container.requests), _nano(container.limits)
            highest = {
                name: max(requests.get(name, limits.get(name, 0)), limits.get(name, requests.get(name, 0)))
                for name in {**requests, **limits}
            }
            lowest = {
                name: min(requests.get(name, limits.get(name, 0)), limits.get(name, requests.get(name, 0)))
                for name in {**requests, **limits}
            }
            found.update(rules.container.exceeded(highest, lowest))
    found.update(rules.pod.exceeded(one_pod, one_pod))
    return tuple(sorted(found))


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
