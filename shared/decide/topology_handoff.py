"""Where quota ends and placement begins: which pod sets need a topology placement, and what its failure means (core rule 6.4).

Why it exists: a flavor with a topology admits pods only where its nodes have room. The search for flavors asks a Placement whether they have;
which domain the pods go to is found elsewhere. Without a Placement topologies are not looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec

from shared.decide.assignment import (
    Attempt,
    FlavorChoice,
    GranularMode,
    Mode,
    PodSetError,
    PodSetResult,
)
from shared.model.refusal import FlavorReason, PendingReason
from shared.model.workload import PodSetInfo

_LEVEL_KEYS = ("required", "preferred", "podSetSliceRequiredTopology")


class PlacementRequest(msgspec.Struct, frozen=True):
    """A pod set that needs a placement on the nodes of one flavor."""

    pod_set: PodSetInfo
    flavor: str
    count: int


class Placement(Protocol):
    """Knows topologies and nodes."""

    def levels(self, topology: str) -> tuple[str, ...] | None:
        """Node labels of the levels, widest first; None = the topology is not known."""
        ...

    def failures(self, requests: tuple[PlacementRequest, ...], *, empty: bool) -> dict[str, str]:
        """Why pod sets find no place, by name; nothing if all do. `empty`: as if no workload ran anywhere."""
        ...


def is_explicit(pod_set: PodSetInfo) -> bool:
    """Does the pod set itself ask for a placement? (A group name alone does not.)"""
    return pod_set.topology.get("unconstrained", "").lower() == "true" or bool(requested_levels(pod_set))


def requested_levels(pod_set: PodSetInfo) -> tuple[str, ...]:
    """Levels the pod set names."""
    return tuple(level for key in _LEVEL_KEYS if (level := pod_set.topology.get(key)))


def topology_mismatch(
    pod_set: PodSetInfo, flavor: str, topology: str, levels: tuple[str, ...] | None, covered: Collection[str]
) -> FlavorReason | None:
    """Why a flavor cannot hold a pod set that asks for a placement; `covered` = resources of the flavor's group."""
    if not topology:
        # Without topology it will do only if the pods themselves want nothing of its group (a leader without devices).
        return (
            FlavorReason("flavor_without_topology", flavor=flavor) if any(r in pod_set.pod for r in covered) else None
        )
    if levels is None:
        return FlavorReason("flavor_topology_unknown", flavor=flavor)
    if missing := [level for level in requested_levels(pod_set) if level not in levels]:
        return FlavorReason("level_not_in_flavor", flavor=flavor, detail=missing[0])
    return None


class Needed(msgspec.Struct, frozen=True):
    """Placements that pod sets need, and pod sets that cannot have one."""

    requests: tuple[PlacementRequest, ...] = ()
    errors: Mapping[str, PodSetError] = {}


def needed_placements(
    pod_sets: tuple[PodSetInfo, ...],
    results: tuple[PodSetResult, ...],
    topology_flavors: Collection[str],
    *,
    all_topology: bool = False,
    elastic: bool = False,
) -> Needed:
    """What must be placed; `topology_flavors` = flavors of the ClusterQueue that have a topology.

    `all_topology`: every flavor has one, so that each pod set is placed. Elastic workloads may only be placed unconstrained.
    """
    requests: list[PlacementRequest] = []
    errors: dict[str, PodSetError] = {}
    for pod_set, result in zip(pod_sets, results, strict=False):
        if result.count == 0 or not (is_explicit(pod_set) or all_topology):
            continue
        found = sorted({c.flavor for c in result.flavors.values() if c.flavor in topology_flavors})
        if not topology_flavors:
            errors[pod_set.name] = PodSetError("no_topology_flavor_in_cluster_queue")
        elif elastic and pod_set.topology.get("required"):
            errors[pod_set.name] = PodSetError("elastic_required_topology")
        elif elastic and pod_set.topology.get("preferred"):
            errors[pod_set.name] = PodSetError("elastic_preferred_topology")
        elif not found:
            errors[pod_set.name] = PodSetError("no_topology_flavor_assigned")
        elif len(found) > 1:
            errors[pod_set.name] = PodSetError("several_topology_flavors_assigned", tuple(found))
        else:
            requests.append(PlacementRequest(pod_set, found[0], result.count))
    return Needed(tuple(requests), errors)


def inherited(pod_sets: tuple[PodSetInfo, ...], results: list[PodSetResult], topology_flavors: Collection[str]) -> None:
    """Pod sets that request nothing take over the topology flavors of their group."""
    for place, result in enumerate(results):
        group = pod_sets[place].group
        if result.flavors or result.failed or not group:
            continue
        taken: dict[str, FlavorChoice] = {}
        for other, found in zip(pod_sets, results, strict=False):
            if other.group == group:
                taken.update((r, c) for r, c in found.flavors.items() if c.flavor in topology_flavors)
        if taken:
            results[place] = msgspec.structs.replace(result, flavors=taken)


def placed(results: list[PodSetResult], needed: Needed, placement: Placement) -> list[PodSetResult]:
    """The results after asking for room: as they were, needing preemption although quota fits, or hopeless."""
    results = [
        msgspec.structs.replace(result, error=needed.errors[result.name]) if result.name in needed.errors else result
        for result in results
    ]
    if needed.errors or not needed.requests or any(result.mode is Mode.NO_FIT for result in results):
        return results
    names = {request.pod_set.name: request.flavor for request in needed.requests}
    if all(result.mode is Mode.FIT for result in results):
        full = placement.failures(needed.requests, empty=False)
        if not full:
            return results
        results = [_with_reason(result, names.get(result.name, ""), full.get(result.name, "")) for result in results]
    hopeless = placement.failures(needed.requests, empty=True)
    if hopeless:
        return [
            _hopeless(result, names[result.name], hopeless[result.name]) if result.name in hopeless else result
            for result in results
        ]
    return [_preempting(result) if result.name in names else result for result in results]


def _with_reason(result: PodSetResult, flavor: str, why: str) -> PodSetResult:
    if not why:
        return result
    reason = FlavorReason("no_placement", flavor=flavor, detail=why)
    return msgspec.structs.replace(result, reasons=(*result.reasons, reason))


def _preempting(result: PodSetResult) -> PodSetResult:
    """All flavors of the pod set wait for others to leave: fragmentation counts like missing quota."""
    flavors = {
        resource: msgspec.structs.replace(choice, mode=min(choice.mode, GranularMode.PREEMPT))
        for resource, choice in result.flavors.items()
    }
    return msgspec.structs.replace(result, flavors=flavors)


def _hopeless(result: PodSetResult, flavor: str, why: str) -> PodSetResult:
    reason = FlavorReason("no_placement", flavor=flavor, detail=why)
    attempts = tuple(
        Attempt(
            attempt.flavor,
            attempt.group,
            GranularMode.NO_FIT,
            attempt.level,
            (*attempt.reasons, reason),
            PendingReason.TOPOLOGY_PLACEMENT_FAILED,
        )
        if attempt.flavor == flavor
        else attempt
        for attempt in result.attempts
    )
    reasons = result.reasons if reason in result.reasons else (*result.reasons, reason)
    return msgspec.structs.replace(result, attempts=attempts, reasons=reasons, failed=True)


def net_usage(
    domains: Mapping[tuple[str, ...], int], before: Mapping[tuple[str, ...], int]
) -> dict[tuple[str, ...], int]:
    """Additional pods per topology domain, beyond those an earlier admission has there already."""
    more = {values: count - before.get(values, 0) for values, count in domains.items()}
    return {values: count for values, count in more.items() if count > 0}
