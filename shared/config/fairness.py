"""Settings of fair sharing, which the scheduler decides by and the queue_manager shows in status: both must be given the same.

Two things that have little in common but the name: fair sharing divides what cohorts can lend by weight, admission fair sharing lets LocalQueues of one
ClusterQueue take turns by past usage. Both are off by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from shared.config.settings import AboveZero, BaseSettings, NotNegative
from shared.model.admission_fair_sharing import AfsSettings

Strategies = Literal[
    "LessThanOrEqualToFinalShare,LessThanInitialShare",
    "LessThanInitialShare,LessThanOrEqualToFinalShare",
    "LessThanOrEqualToFinalShare",
    "LessThanInitialShare",
]


class FairnessSettings(BaseSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Durations are seconds."""

    fair_sharing: bool = False
    """Divide what cohorts can lend by the weights of queues and cohorts."""
    fair_sharing_strategies: Strategies = "LessThanOrEqualToFinalShare,LessThanInitialShare"
    """Whom fair sharing may preempt, in the order in which it is tried."""
    afs: bool = False
    """Admission fair sharing, in ClusterQueues that ask for it."""
    afs_half_life_s: NotNegative = 0.0
    """usageHalfLifeTime; 0: the past does not count."""
    afs_sampling_s: AboveZero = 300.0
    """usageSamplingInterval."""
    afs_weights: Mapping[str, float] = msgspec.field(default_factory=dict)
    """resourceWeights; what is not named has weight 1."""

    def admission_fair_sharing(self) -> AfsSettings | None:
        """None when it is off."""
        if not self.afs:
            return None
        return AfsSettings(half_life_s=self.afs_half_life_s, sampling_s=self.afs_sampling_s, weights=self.afs_weights)
