"""Settings of preemptor."""

from __future__ import annotations

from shared.config.settings import AboveZero, AtLeastOne, BaseSettings


class PreemptorSettings(BaseSettings, frozen=True, kw_only=True):
    victim_timeout_s: AboveZero = 60.0
    """An evicted workload that holds its quota for longer is asked to stop again; so is a decision to preempt without an outcome noticed."""
    victim_attempts: AtLeastOne = 3
    """So often it is asked again before it is an error in the log."""
