"""What a search for flavors found: modes, choices and attempts (values only).

Why it exists: the search (`shared.decide.flavors`), the cycle, preemption and explanations share these Structs. The rules of
how modes compare are here because all of them use the same relation.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from shared.model.cluster_queue import Fungibility
from shared.model.flavor_resources import Vector
from shared.model.pending import ScanProgress
from shared.model.refusal import SEVERITY, FlavorReason, PendingReason
from shared.model.workload import Admission, PodSetAssignment


class GranularMode(IntEnum):
    """How one flavor-resource could be had, worst to best."""

    NO_FIT = 0
    NO_PREEMPTION_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


class Mode(IntEnum):
    """How a pod set or workload could be admitted, worst to best."""

    NO_FIT = 0
    PREEMPT = 1
    DEFERRED_FIT = 2
    FIT = 3


class Grade(msgspec.Struct, frozen=True, gc=False):
    """A mode with its borrowing level (0 = own nominal quota, else the height of the smallest cohort with room)."""

    mode: GranularMode
    level: int = 0


NO_FIT = Grade(GranularMode.NO_FIT)
FIT = Grade(GranularMode.FIT)


def api_mode(mode: GranularMode) -> Mode:
    """The three modes the rest of the cycle knows."""
    if mode is GranularMode.NO_FIT:
        return Mode.NO_FIT
    return Mode.FIT if mode is GranularMode.FIT else Mode.PREEMPT


def preferred(left: Grade, right: Grade, fungibility: Fungibility) -> bool:
    """Is `left` strictly better? Viable preemption beats none; then mode or level first, by the queue's preference."""
    if left.mode is GranularMode.NO_FIT:
        return False
    if right.mode is GranularMode.NO_FIT:
        return True
    hopeless = GranularMode.NO_PREEMPTION_CANDIDATES
    if (left.mode is hopeless) != (right.mode is hopeless):
        return right.mode is hopeless
    if fungibility.preemption_over_borrowing:
        return (-left.level, left.mode) > (-right.level, right.mode)
    return (left.mode, -left.level) > (right.mode, -right.level)


class FlavorChoice(msgspec.Struct, frozen=True, gc=False):
    """The flavor one resource of a pod set got; `tried` is where the scan stopped (-1: at the last flavor)."""

    flavor: str
    mode: GranularMode
    level: int
    tried: int
    index: int
    """Interned (flavor, resource)."""


class Attempt(msgspec.Struct, frozen=True, gc=False):
    """One flavor that was looked at for one resource group."""

    flavor: str
    group: int
    mode: GranularMode
    level: int = 0
    reasons: tuple[FlavorReason, ...] = ()
    refusal: str = ""
    """For a flavor that does not fit: the most severe PendingReason over its resources."""


class PodSetError(msgspec.Struct, frozen=True, gc=False):
    """Why a pod set cannot be had although quota was found.

    Codes: no_topology_flavor_in_cluster_queue, no_topology_flavor_assigned, several_topology_flavors_assigned (flavors),
    elastic_required_topology, elastic_preferred_topology.
    """

    code: str
    flavors: tuple[str, ...] = ()


class PodSetResult(msgspec.Struct, frozen=True):
    """The outcome for one pod set."""

    name: str
    count: int
    requests: dict[str, int]
    flavors: dict[str, FlavorChoice] = {}
    reasons: tuple[FlavorReason, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    failed: bool = False
    """Some resource it needs got no flavor, or its constraints are malformed."""
    error: PodSetError | None = None

    @property
    def mode(self) -> Mode:
        """The worst over its resources."""
        if self.failed or self.error is not None:
            return Mode.NO_FIT
        worst = GranularMode.FIT
        for choice in self.flavors.values():
            if choice.mode < worst:
                worst = choice.mode
        return api_mode(worst)

    def no_fit_reason(self) -> str:
        """Why it does not fit: the least severe reason per group, then the most severe group; empty if no attempt says."""
        if not self.attempts:
            return "" if self.error is not None else PendingReason.NO_MATCHING_FLAVOR
        by_group: dict[int, str] = {}
        for attempt in self.attempts:
            if attempt.mode is GranularMode.NO_FIT:
                best = by_group.get(attempt.group)
                if best is None or SEVERITY[attempt.refusal] < SEVERITY[best]:
                    by_group[attempt.group] = attempt.refusal
        return max(by_group.values(), key=SEVERITY.__getitem__, default="")


class Assignment(msgspec.Struct, frozen=True):
    """Flavors for a whole workload."""

    pod_sets: tuple[PodSetResult, ...]
    usage: Vector
    """Quota the workload would be charged, per interned flavor-resource."""
    progress: ScanProgress | None = None

    @property
    def mode(self) -> Mode:
        """The worst over the pod sets."""
        return min([pod_set.mode for pod_set in self.pod_sets], default=Mode.FIT)

    @property
    def level(self) -> int:
        """Borrowing level: the largest over pod sets and resources."""
        return max([choice.level for pod_set in self.pod_sets for choice in pod_set.flavors.values()], default=0)

    def no_fit_reason(self) -> str:
        """The most severe reason over the pod sets that do not fit; may be empty."""
        reasons = [pod_set.no_fit_reason() for pod_set in self.pod_sets if pod_set.mode is Mode.NO_FIT]
        return max(reasons, key=SEVERITY.__getitem__, default="")

    def refusal(self) -> str:
        """The reason for its condition, which must not be empty when it does not fit."""
        reason = self.no_fit_reason()
        return reason or (PendingReason.NO_MATCHING_FLAVOR if self.mode is Mode.NO_FIT else "")

    def admission(self, cluster_queue: str) -> Admission:
        """The reservation this assignment stands for."""
        return Admission(
            cluster_queue,
            tuple(
                [
                    PodSetAssignment(
                        name=pod_set.name,
                        count=pod_set.count,
                        flavors={resource: choice.flavor for resource, choice in pod_set.flavors.items()},
                        usage={resource: pod_set.requests[resource] for resource in pod_set.flavors},
                    )
                    for pod_set in self.pod_sets
                ]
            ),
        )
