"""What the flags, the file and the defaults come to, and what is refused before anything runs."""

from __future__ import annotations

import fcntl
import socket
import tempfile
from pathlib import Path

import pytest

from cli import all_in_one
from cli.all_in_one import Options, StartError, _check_ports, _folder, plan_of, running_folders
from shared.config.configuration_file import ConfigurationError
from shared.events.streams import SERVICES
from shared.runtime.overview import Address

HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def with_file(tmp_path: Path, body: str) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(HEAD + body)
    return str(path)


def test_defaults() -> None:
    plan = plan_of(Options())
    assert plan.services == SERVICES
    assert plan.webhook == Address("127.0.0.1", 9443)
    assert plan.webhook_url == "https://127.0.0.1:9443"
    assert plan.health == Address("127.0.0.1", 8081)
    assert plan.metrics == Address("127.0.0.1", 8443)
    assert plan.cert_dir == ""


def test_flags_go_before_the_file(tmp_path: Path) -> None:
    config = with_file(
        tmp_path,
        "webhook: {host: 10.0.0.1, port: 1000}\n"
        "health: {healthProbeBindAddress: '0.0.0.0:1001'}\n"
        "metrics: {bindAddress: ':1002'}\n",
    )
    plan = plan_of(Options(config=config))
    assert (plan.webhook, plan.webhook_url) == (Address("10.0.0.1", 1000), "https://10.0.0.1:1000")
    assert (plan.health, plan.metrics) == (Address("0.0.0.0", 1001), Address("127.0.0.1", 1002))
    plan = plan_of(
        Options(config=config, webhook_host="127.0.0.2", webhook_port=2000, health_port=2001, metrics_port=2002)
    )
    assert (plan.webhook, plan.webhook_url) == (Address("127.0.0.2", 2000), "https://127.0.0.2:2000")
    assert (plan.health, plan.metrics) == (Address("127.0.0.1", 2001), Address("127.0.0.1", 2002))


@pytest.mark.parametrize(
    ("host", "url"),
    [("0.0.0.0", "https://127.0.0.1:9443"), ("::", "https://127.0.0.1:9443"), ("::1", "https://[::1]:9443")],
)
def test_url_of_the_webhook(host: str, url: str) -> None:
    assert plan_of(Options(webhook_host=host)).webhook_url == url
    assert plan_of(Options(webhook_host=host, webhook_url="https://elsewhere/x/")).webhook_url == "https://elsewhere/x"


def test_metrics_may_be_off(tmp_path: Path) -> None:
    config = with_file(tmp_path, "metrics: {bindAddress: '0'}\n")
    assert plan_of(Options(config=config)).metrics is None
    assert plan_of(Options(config=config, metrics_port=5)).metrics == Address("127.0.0.1", 5)


def test_a_port_0_is_a_free_one(tmp_path: Path) -> None:
    config = with_file(tmp_path, "metrics: {bindAddress: '0'}\nwebhook: {port: 1000}\n")
    plan = plan_of(Options(config=config, webhook_port=0, health_port=0, metrics_port=0))
    assert plan.metrics is not None
    ports = [plan.webhook.port, plan.health.port, plan.metrics.port]
    assert not {0, 1000} & set(ports)
    assert plan.webhook_url == f"https://127.0.0.1:{plan.webhook.port}"
    _check_ports(plan)


def test_certificates(tmp_path: Path) -> None:
    config = with_file(
        tmp_path, f"internalCertManagement: {{enable: false}}\nwebhook: {{certDir: {tmp_path / 'given'}}}\n"
    )
    with pytest.raises(StartError, match=r"webhook-cert-dir: .*tls\.crt: no such file"):
        plan_of(Options(config=config))
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "tls.crt").touch()
    with pytest.raises(StartError, match=r"tls\.key: no such file"):
        plan_of(Options(config=config))
    (tmp_path / "given" / "tls.key").touch()
    assert plan_of(Options(config=config)).cert_dir == str(tmp_path / "given")
    assert plan_of(Options(webhook_cert_dir=str(tmp_path / "given"))).cert_dir == str(tmp_path / "given")


def test_services_that_are_left_out() -> None:
    plan = plan_of(Options(without=("scheduler",), print_env="metrics"))
    assert plan.services == tuple(s for s in SERVICES if s not in ("scheduler", "metrics"))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (Options(without=("nobody",)), "'nobody' is no service: there are watcher,"),
        (Options(print_env="nobody"), "'nobody' is no service"),
        (Options(install=("crds", "pods")), "install: 'pods' is not one of all, crds, rbac, webhooks"),
    ],
)
def test_refused(options: Options, error: str) -> None:
    with pytest.raises(StartError, match=error):
        plan_of(options)


@pytest.mark.parametrize("body", ["health: {healthProbeBindAddress: here}\n", "metrics: {bindAddress: 'host:'}\n"])
def test_addresses_that_are_none(tmp_path: Path, body: str) -> None:
    with pytest.raises(ConfigurationError, match="must be HOST:PORT or :PORT"):
        plan_of(Options(config=with_file(tmp_path, body)))


def test_an_empty_address_is_the_default(tmp_path: Path) -> None:
    plan = plan_of(
        Options(config=with_file(tmp_path, "health: {healthProbeBindAddress: ''}\nmetrics: {bindAddress: ''}\n"))
    )
    assert (plan.health.port, plan.metrics and plan.metrics.port) == (8081, 8443)


def test_a_wrong_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nonsense: no such field"):
        plan_of(Options(config=with_file(tmp_path, "nonsense: 1\n")))
    with pytest.raises(ConfigurationError, match="Foo: no such feature gate"):
        plan_of(Options(feature_gates="Foo=true"))


@pytest.mark.parametrize("flag", ["health", "metrics", "webhook"])
def test_a_port_that_is_taken(flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        ports = {"health_port": 0, "metrics_port": 0, "webhook_port": 0, f"{flag}_port": taken}
        free = {name: port or _free() for name, port in ports.items()}
        with pytest.raises(StartError, match=f"^{flag}-port: 127.0.0.1:{taken}: "):
            _check_ports(plan_of(Options(**free)))  # type: ignore[arg-type]
        if flag == "webhook":
            _check_ports(plan_of(Options(without=("webhook",), **free)))  # type: ignore[arg-type]


def _free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_lives_as_long_as_its_owner(temporary: Path) -> None:
    with _folder() as (folder, instance):
        assert folder.parent == temporary
        assert folder.stat().st_mode & 0o777 == 0o700
        assert running_folders() == [folder]
        with _folder() as (other, other_instance):
            assert folder.exists()
            assert instance != other_instance
            assert set(running_folders()) == {folder, other}
    assert running_folders() == []
    assert list(temporary.iterdir()) == []


def test_what_a_killed_one_left_is_swept_and_its_name_taken_over(temporary: Path) -> None:
    dead = temporary / f"{all_in_one.FOLDER_PREFIX}dead"
    dead.mkdir()
    (dead / "lock").touch()
    (dead / all_in_one.INSTANCE).write_text("host-dead")
    with _folder() as (_, instance):
        assert not dead.exists()
        assert instance == "host-dead"
        with _folder() as (_, other):
            assert other != "host-dead"


def test_a_folder_whose_owner_lives_is_left_alone(temporary: Path) -> None:
    alive = temporary / f"{all_in_one.FOLDER_PREFIX}alive"
    alive.mkdir()
    (alive / all_in_one.INSTANCE).write_text("host-alive")
    with (alive / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with _folder() as (_, instance):
            assert alive.exists()
            assert instance != "host-alive"
