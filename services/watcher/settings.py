"""Settings of the watcher."""

from __future__ import annotations

from shared.config.settings import AboveZero, BaseSettings, NotNegative


class WatcherSettings(BaseSettings, frozen=True, kw_only=True):
    """Durations are seconds, rates per second."""

    kubeconfig: str = ""
    """Empty: $KUBECONFIG, else the pod's service account."""
    kube_context: str = ""
    impersonate_user: str = ""
    """Act as this user (the credentials must allow it), so that what Sluice writes is told apart from what their owner writes."""
    impersonate_group: str = ""
    namespace: str = "kueue-system"
    """Where Sluice runs; Jobs in here are never managed."""
    manage_certificates: bool = True
    """Make the webhooks' certificates and write CA and URL into the webhook configurations. Off: somebody else does."""
    webhook_url: str = ""
    """Base URL for the API server to call the webhooks by, where it cannot reach a Service; empty: the Service."""
    instance: str = ""
    """Name of this process among the candidates for the Lease; empty makes a unique one."""
    standby_is_ready: bool = True
    """Off: ready only while it holds the Lease, where there is one candidate and "ready" is to mean that jobs move."""
    lease_name: str = "sluice-watcher"
    """In `namespace`; the shard is appended."""
    lease_duration_s: AboveZero = 3.0
    lease_renew_s: AboveZero = 1.0
    api_timeout_s: AboveZero = 2.0
    """Time-out of a call; has to be below the duration of the Lease."""
    list_timeout_s: AboveZero = 30.0
    """Time-out of one page of a list, which is only a read."""
    check_s: float = 2.0
    """How often the streams are looked after."""
    lane_workers: int = 32
    """Calls to the API server in flight."""
    gather_s: NotNegative = 0.02
    """Distance between two batches to the bus. Each batch wakes every reader, which costs more than what is in it; what comes after a silence does not wait."""
    status_per_s: float = 22.0
    """Status writes that inform: queues, reasons of pending workloads. Together with Events they are one budget: what one does not use, the others get."""
    status_burst: int = 40
    events_per_s: float = 6.0
    events_burst: int = 20

    def __post_init__(self) -> None:
        # A call that outlives the Lease could land after somebody else took over (R2).
        if self.api_timeout_s >= self.lease_duration_s:
            raise ValueError(
                f"api_timeout_s ({self.api_timeout_s}) must be less than lease_duration_s ({self.lease_duration_s})"
            )
        if self.lease_renew_s >= self.lease_duration_s:
            raise ValueError(
                f"lease_renew_s ({self.lease_renew_s}) must be less than lease_duration_s ({self.lease_duration_s})"
            )
        for name in ("events_per_s", "events_burst", "status_per_s", "status_burst", "lane_workers", "check_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than 0")
