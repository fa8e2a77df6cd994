"""What a search for victims is asked, and what it finds (values only)."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from shared.model.cluster_queue import ClusterQueue
from shared.model.flavor_resources import Vector
from shared.model.workload import WorkloadInfo


class PreemptionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Make room for a workload in a ClusterQueue."""

    preemptor: WorkloadInfo
    queue: ClusterQueue
    need: frozenset[int]
    """Flavor-resources that do not fit without preemption."""
    demand: Vector
    """All that the workload would use; of a replacing elastic slice only the difference."""
    excluded: Collection[str] = ()
    """Workloads that are gone already for the purposes of this search; the caller took their usage out."""
    usage_of: Callable[[str], float] | None = None
    """Admission fair sharing: LocalQueue key -> usage; workloads of larger users go first within a ClusterQueue."""


class Target(msgspec.Struct, frozen=True):
    """A workload to preempt, why, and the quota it holds."""

    key: str
    cluster_queue: str
    reason: str
    vector: Vector
