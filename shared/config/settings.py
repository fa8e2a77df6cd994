"""Settings of a service: a msgspec Struct filled from a YAML file, then from the environment.

`SLUICE_SETTINGS` names the file: its top level holds what all services share, a section named like a service holds what only that one
reads. The environment wins: `SLUICE_NATS_URL` sets `nats_url` for all, `SLUICE_SCHEDULER_CYCLE_BUDGET_S` sets `cycle_budget_s` for the
scheduler alone. Whatever is unknown or of the wrong type is one SettingsError that names the file or variable, the field and the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import yaml

ENV_PREFIX = "SLUICE_"
FILE_VARIABLE = "SLUICE_SETTINGS"


Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
AboveZero = Annotated[float, msgspec.Meta(gt=0)]
"""Seconds or a rate that may not be nothing."""
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
HttpUrl = Annotated[str, msgspec.Meta(pattern=r"^(https?://\S+)?$")]


class SettingsError(ValueError):
    """One line for the person who starts the service: where, which field, why."""


class BaseSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every service needs. Durations are seconds."""

    nats_url: str = "nats://127.0.0.1:4222"
    nats_user: str = ""
    """Defaults to the name of the service."""
    nats_password: str = ""
    nats_password_file: str = ""
    nats_ca_file: str = ""
    """A PEM file: connect with TLS and trust these authorities."""
    nats_stream_replicas: Annotated[int, msgspec.Meta(ge=1, le=5)] = 1
    """Servers that keep each stream; the gateway makes and changes the streams."""
    configuration: str = ""
    """Kueue's configuration file; empty: all defaults. What it says goes before the settings of a service."""
    feature_gates: str = ""
    """`A=true,B=false`, unless the configuration file sets some."""
    health_host: str = "127.0.0.1"
    health_port: Port = 0
    """Port of /healthz, /readyz and /metrics; 0 takes a free one and logs it."""
    log_level: str = "INFO"
    trace_file: str = ""
    """Append finished spans to this file, one JSON object a line."""
    trace_otlp_endpoint: HttpUrl = ""
    """Send finished spans to this collector, OTLP over HTTP: `http://collector:4318`."""
    shard: str = "0"
    stop_timeout_s: NotNegative = 5.0


S = TypeVar("S", bound=BaseSettings)


def load(type_: type[S], service: str, services: Collection[str], environ: Mapping[str, str]) -> S:
    """Settings of `service`. `services` are all names that may head a section. Raises SettingsError."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    path = environ.get(FILE_VARIABLE, "")
    if path:
        for name, value in _file_values(path, type_, service, services).items():
            values[name] = value
            sources[name] = path
    fields = {f.name for f in msgspec.structs.fields(type_)}
    own = f"{ENV_PREFIX}{service.upper()}_"
    for prefix in (ENV_PREFIX, own):
        for field in fields:
            variable = f"{prefix}{field.upper()}"
            if variable in environ:
                values[field] = environ[variable]
                sources[field] = variable
    for variable in environ:
        if variable.startswith(own) and variable[len(own) :].lower() not in fields:
            raise SettingsError(f"{variable}: {service} has no setting {variable[len(own) :].lower()!r}")
    for name, value in values.items():
        _check(type_, name, value, sources[name])
    try:
        return msgspec.convert(values, type_, strict=False)
    except msgspec.ValidationError as error:
        # The rule of a Struct as a whole; whoever set anything is to look at what they set.
        where = ", ".join(dict.fromkeys(sources.values())) or "settings"
        raise SettingsError(f"{where}: {error}") from error


def _file_values(path: str, type_: type[S], service: str, services: Collection[str]) -> dict[str, Any]:
    try:
        document = yaml.safe_load(Path(path).read_text())
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise SettingsError(f"{path}: the top level must be a map of settings")
    section = document.get(service) or {}
    if not isinstance(section, dict):
        raise SettingsError(f"{path}: {service}: must be a map of settings")
    shared_fields = {f.name for f in msgspec.structs.fields(BaseSettings)}
    fields = {f.name for f in msgspec.structs.fields(type_)}
    common = {name: value for name, value in document.items() if name not in services}
    for name in common:
        if name not in shared_fields:
            raise SettingsError(f"{path}: {name}: no such setting")
    for name in section:
        if name not in fields:
            raise SettingsError(f"{path}: {service}.{name}: no such setting")
    return common | section


def _check(type_: type[S], name: str, value: object, source: str) -> None:
    field = next(f for f in msgspec.structs.fields(type_) if f.name == name)
    try:
        msgspec.convert(value, field.type, strict=False)
    except msgspec.ValidationError as error:
        where = source if source.startswith(ENV_PREFIX) else f"{source}: {name}"
        raise SettingsError(f"{where}: {error}") from error


def password(settings: BaseSettings) -> str:
    """The NATS password, from the file if one is named. Raises SettingsError."""
    if not settings.nats_password_file:
        return settings.nats_password
    try:
        return Path(settings.nats_password_file).read_text().strip()
    except OSError as error:
        raise SettingsError(f"{settings.nats_password_file}: nats_password_file: {error.strerror or error}") from error
