"""Settings of the webhook service."""

from __future__ import annotations

from shared.config.settings import AboveZero, BaseSettings, Port


class WebhookSettings(BaseSettings, frozen=True, kw_only=True):
    """What may be set besides the common settings."""

    kubeconfig: str = ""
    """Empty: the ServiceAccount of the pod."""
    webhook_host: str = "127.0.0.1"
    webhook_port: Port = 9443
    namespace: str = "kueue-system"
    """Where Sluice runs, and where the Secret with the certificate is."""
    certificate_dir: str = ""
    """Serve with tls.crt and tls.key of this folder instead of those of the Secret (Kueue: internalCertManagement.webhookSecretName)."""
    metrics_sources: str = ""
    """Where Kueue's metrics are, `http://host:port/metrics,...`: each address of a host is asked. Served over HTTPS at `metrics.bindAddress` of the
    configuration to whoever may get `/metrics`; empty: not served."""
    metrics_certificate_dir: str = ""
    """Serve metrics with tls.crt and tls.key of this folder; empty: with the certificate of the webhook."""
    api_timeout_s: AboveZero = 2.0
