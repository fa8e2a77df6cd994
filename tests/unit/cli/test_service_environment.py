"""What a service is told is what its settings know, and what a shell can read."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path

import msgspec
import pytest

from cli.service_environment import Place, environment_file, environment_of, shell_lines, write_environment
from services.watcher.settings import WatcherSettings
from services.webhook.settings import WebhookSettings
from shared.bus.server_config import ensure_passwords
from shared.config.settings import BaseSettings, load, password
from shared.events.streams import SERVICES
from shared.runtime.overview import Address


@pytest.fixture
def place(tmp_path: Path) -> Place:
    ensure_passwords(tmp_path / "credentials", SERVICES)
    return Place(
        nats_url="nats://127.0.0.1:4000",
        credentials=tmp_path / "credentials",
        ports={service: 5000 + number for number, service in enumerate(SERVICES)},
        namespace="own",
        webhook=Address("127.0.0.1", 9443),
        webhook_url="https://127.0.0.1:9443",
    )


def settings_type(service: str) -> type[BaseSettings]:
    module = importlib.import_module(f"services.{service}.settings")
    return next(
        v
        for v in vars(module).values()
        if isinstance(v, type) and issubclass(v, BaseSettings) and v is not BaseSettings
    )


@pytest.mark.parametrize("service", SERVICES)
def test_settings_understand_it(service: str, place: Place) -> None:
    settings = load(settings_type(service), service, SERVICES, environment_of(service, place))
    assert settings.nats_url == "nats://127.0.0.1:4000"
    assert settings.nats_user == service
    assert settings.health_port == place.ports[service]
    assert password(settings) == (place.credentials / f"{service}.password").read_text()
    assert settings.configuration == ""


def test_the_gateway(place: Place, tmp_path: Path) -> None:
    told = msgspec.structs.replace(
        place, kubeconfig="rel/a:/abs/b", instance="name", impersonate_user="u:v", impersonate_group="g"
    )
    settings = load(WatcherSettings, "watcher", SERVICES, environment_of("watcher", told))
    assert settings.kubeconfig == f"{Path.cwd()}/rel/a:/abs/b"
    assert (settings.namespace, settings.instance, settings.webhook_url) == ("own", "name", "https://127.0.0.1:9443")
    assert (settings.impersonate_user, settings.impersonate_group) == ("u:v", "g")
    assert settings.manage_certificates
    assert not settings.standby_is_ready
    given = msgspec.structs.replace(place, cert_dir=str(tmp_path))
    assert not load(WatcherSettings, "watcher", SERVICES, environment_of("watcher", given)).manage_certificates


def test_the_webhook(place: Place, tmp_path: Path) -> None:
    settings = load(WebhookSettings, "webhook", SERVICES, environment_of("webhook", place))
    assert (settings.webhook_host, settings.webhook_port, settings.namespace) == ("127.0.0.1", 9443, "own")
    assert settings.certificate_dir == ""
    given = msgspec.structs.replace(place, cert_dir=str(tmp_path))
    settings = load(WebhookSettings, "webhook", SERVICES, environment_of("webhook", given))
    assert settings.certificate_dir == str(tmp_path)


def test_only_who_speaks_to_kubernetes_gets_credentials(place: Place) -> None:
    told = msgspec.structs.replace(place, kubeconfig="/k")
    assert [s for s in SERVICES if "/k" in environment_of(s, told).values()] == ["watcher", "webhook"]


def test_a_shell_reads_it(place: Place, tmp_path: Path) -> None:
    told = msgspec.structs.replace(place, feature_gates="A=true,B='x y'; exit 1", configuration="a b.yaml")
    variables = environment_of("scheduler", told)
    write_environment(tmp_path, told)
    file = environment_file(tmp_path, "scheduler")
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text() == shell_lines(variables) + "\n"
    script = f". {file}; env -0"
    seen = subprocess.run(["/bin/sh", "-c", script], env={}, capture_output=True, text=True, check=True).stdout
    shown = dict(line.split("=", 1) for line in seen.split("\0") if line)
    assert {k: v for k, v in shown.items() if k.startswith("SLUICE_")} == variables
