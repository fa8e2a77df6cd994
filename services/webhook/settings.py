"""Settings of the webhook service."""

from __future__ import annotations

from shared.config.settings import BaseSettings, Port


class WebhookSettings(BaseSettings, frozen=True, kw_only=True):
    """What may be set besides the common settings."""

    kubeconfig: str = ""
    """Empty: the ServiceAccount of the pod."""
    webhook_host: str = "127.0.0.1"
    webhook_port: Port = 9443
    namespace: str = "kueue-system"
    """Where Sluice runs, and where the Secret with the certificate is."""
    certificate_secret: str = "kueue-webhook-server-cert"
    manage_jobs_without_queue_name: bool = False
    unmanaged_namespaces: tuple[str, ...] = ("kube-system", "kueue-system")
    """Namespaces whose jobs are left alone (Kueue: managedJobsNamespaceSelector)."""
    api_timeout_s: float = 2.0
