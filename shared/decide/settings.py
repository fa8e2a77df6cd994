"""Settings and limits of the scheduling cycle: configuration and feature gates, as values.

Why it exists: the cycle, its parts and whoever starts it (a service, a simulation, a test) share them.
"""

from __future__ import annotations

import msgspec

from shared.decide.flavors import SearchSettings
from shared.decide.order import HeadOrder


class FairSharing(msgspec.Struct, frozen=True, gc=False):
    """fairSharing of the configuration, and its gates."""

    strategies: tuple[str, ...] = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")
    preempt_within_nominal: bool = True


class CycleSettings(msgspec.Struct, frozen=True):
    """Gates and configuration of the cycle. `fair` is the one switch for fair sharing."""

    search: SearchSettings = SearchSettings()
    order: HeadOrder = HeadOrder()
    fair: FairSharing | None = None
    preserve_scan_progress: bool = True
    partial_admission: bool = True
    recompute_overlap: bool = True
    """Look again when other heads of the cycle took the same victims."""
    preemption_gates: bool = False
    """Honour spec.preemptionGates."""
    elastic_slices: bool = True
    block_admission: bool = False
    """waitForPodsReady.blockAdmission: one admission at a time, until its pods are ready."""

    def flavor_search(self) -> SearchSettings:
        """Settings of the search for flavors, which depends on fair sharing."""
        if self.search.fair_sharing == (self.fair is not None):
            return self.search
        return msgspec.structs.replace(self.search, fair_sharing=self.fair is not None)


class BatchLimits(msgspec.Struct, frozen=True, gc=False):
    """How much one batch may decide: its own size, and all decisions that are not settled (R6).

    The victims of one preemptor are decided together, so a batch may end some decisions above its size.
    """

    max_decisions: int = 512
    max_unsettled: int = 512


DEFAULT_SETTINGS = CycleSettings()
DEFAULT_LIMITS = BatchLimits()
