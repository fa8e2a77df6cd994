"""Wiring of provisioning_request."""

from __future__ import annotations

from services.provisioning_request.service import serve
from services.provisioning_request.settings import ProvisioningSettings
from shared.runtime.service import run


def main() -> None:
    """Run until stopped."""
    run("provisioning_request", ProvisioningSettings, serve)


if __name__ == "__main__":
    main()
