"""What a service that runs beside a shared NATS has to be told, as environment variables (`shared.config.settings`)."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

import msgspec

from shared.bus.server_config import write_private
from shared.events.streams import SERVICES
from shared.runtime.overview import Address


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where everything is. `ports`: service -> port of its health page on loopback; `impersonate_user`: whom the gateway acts as, if anybody."""

    nats_url: str
    credentials: Path
    ports: dict[str, int]
    namespace: str
    webhook: Address
    webhook_url: str
    kubeconfig: str = ""
    configuration: str = ""
    feature_gates: str = ""
    cert_dir: str = ""
    instance: str = ""
    """The gateway's name among the candidates for its Lease: the same after a restart, so that it need not wait for the Lease of its dead self."""
    impersonate_user: str = ""
    impersonate_group: str = ""


def environment_of(service: str, place: Place) -> dict[str, str]:
    """Variables of one service; where a file is meant, its absolute path."""
    own = f"SLUICE_{service.upper()}_"
    variables = {
        "SLUICE_NATS_URL": place.nats_url,
        "SLUICE_NATS_USER": service,
        "SLUICE_NATS_PASSWORD_FILE": str(place.credentials / f"{service}.password"),
        "SLUICE_HEALTH_PORT": str(place.ports[service]),
        "SLUICE_CONFIGURATION": os.path.abspath(place.configuration) if place.configuration else "",
        "SLUICE_FEATURE_GATES": place.feature_gates,
    }
    if service in ("watcher", "webhook"):
        variables[f"{own}NAMESPACE"] = place.namespace
        if place.kubeconfig:
            # Several files may stand there, as in $KUBECONFIG.
            parts = place.kubeconfig.split(os.pathsep)
            variables[f"{own}KUBECONFIG"] = os.pathsep.join(os.path.abspath(p) for p in parts if p)
    if service == "watcher":
        variables[f"{own}INSTANCE"] = place.instance
        variables[f"{own}STANDBY_IS_READY"] = "false"
        variables[f"{own}WEBHOOK_URL"] = place.webhook_url
        variables[f"{own}MANAGE_CERTIFICATES"] = "false" if place.cert_dir else "true"
        if place.impersonate_user:
            variables[f"{own}IMPERSONATE_USER"] = place.impersonate_user
            variables[f"{own}IMPERSONATE_GROUP"] = place.impersonate_group
    if service == "webhook":
        variables[f"{own}WEBHOOK_HOST"] = place.webhook.host
        variables[f"{own}WEBHOOK_PORT"] = str(place.webhook.port)
        if place.cert_dir:
            variables[f"{own}CERTIFICATE_DIR"] = os.path.abspath(place.cert_dir)
    return variables


def shell_lines(variables: Mapping[str, str]) -> str:
    """For `eval` or `.` in a shell."""
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())


def environment_file(folder: Path, service: str) -> Path:
    """Where `write_environment` keeps the lines of a service."""
    return folder / f"{service}.env"


def write_environment(folder: Path, place: Place) -> None:
    """The lines of every service, for those who want to run one by hand."""
    for service in SERVICES:
        write_private(environment_file(folder, service), shell_lines(environment_of(service, place)) + "\n")
