"""Settings of provisioning_request."""

from __future__ import annotations

from shared.config.settings import BaseSettings, NotNegative


class ProvisioningSettings(BaseSettings, frozen=True, kw_only=True):
    cleanup_on_eviction: bool = True
    """Delete the ProvisioningRequests of a workload that was evicted (gate CleanupProvisioningRequestsOnEviction)."""
    stagger_s: NotNegative = 2.0
    """Instances that do not hold the lease act this much later: what the one that does has done is then seen, not asked twice."""
