"""Settings from file and environment, and the one line for each way they can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.config.settings import BaseSettings, SettingsError, load, password

SERVICES = ("scheduler", "watcher")


class Settings(BaseSettings, frozen=True, kw_only=True):
    budget_s: float = 0.05
    batch: int = 256
    namespaces: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ValueError("batch must be more than 0")


def read(tmp_path: Path, text: str | bytes = "", **environ: str) -> Settings:
    if text:
        path = tmp_path / "s.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        environ["SLUICE_SETTINGS"] = str(path)
    return load(Settings, "scheduler", SERVICES, environ)


def test_defaults(tmp_path: Path) -> None:
    assert read(tmp_path) == Settings()


def test_the_file_has_a_common_part_and_a_section_per_service(tmp_path: Path) -> None:
    found = read(tmp_path, "log_level: DEBUG\nscheduler: {batch: 5, namespaces: [a, b]}\nwatcher: {anything: 1}\n")
    assert (found.log_level, found.batch, found.namespaces) == ("DEBUG", 5, ("a", "b"))


def test_the_environment_wins_and_the_own_variable_wins_over_the_common_one(tmp_path: Path) -> None:
    found = read(
        tmp_path, "health_port: 1\n", SLUICE_HEALTH_PORT="2", SLUICE_SCHEDULER_HEALTH_PORT="3", SLUICE_BATCH="7"
    )
    assert (found.health_port, found.batch) == (3, 7)


@pytest.mark.parametrize(
    ("text", "environ", "expected"),
    [
        ("nope: 1\n", {}, "{file}: nope: no such setting"),
        ("scheduler: {nope: 1}\n", {}, "{file}: scheduler.nope: no such setting"),
        ("batch: 5\n", {}, "{file}: batch: no such setting"),
        ("scheduler: {batch: many}\n", {}, "{file}: batch: Expected `int`, got `str`"),
        ("scheduler: 5\n", {}, "{file}: scheduler: must be a map of settings"),
        ("- a\n", {}, "{file}: the top level must be a map of settings"),
        ("a: [", {}, "{file}: not YAML: "),
        (b"\xff\xfe\xfa", {}, "{file}: not YAML: "),
        ("scheduler: {batch: 0}\n", {}, "{file}: batch must be more than 0"),
        ("trace_otlp_endpoint: collector:4318\n", {}, "{file}: trace_otlp_endpoint: Expected `str` matching regex"),
        ("", {"SLUICE_SCHEDULER_BATCH": "many"}, "SLUICE_SCHEDULER_BATCH: Expected `int`, got `str`"),
        ("", {"SLUICE_SCHEDULER_NOPE": "1"}, "SLUICE_SCHEDULER_NOPE: scheduler has no setting 'nope'"),
        ("", {"SLUICE_HEALTH_PORT": "99999"}, "SLUICE_HEALTH_PORT: Expected `int` <= 65535"),
        ("", {"SLUICE_BATCH": "0"}, "SLUICE_BATCH: batch must be more than 0"),
    ],
)
def test_one_line_says_where_and_why(tmp_path: Path, text: str | bytes, environ: dict[str, str], expected: str) -> None:
    with pytest.raises(SettingsError) as refused:
        read(tmp_path, text, **environ)
    line = str(refused.value)
    assert line.startswith(expected.format(file=tmp_path / "s.yaml"))
    assert "\n" not in line


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.yaml: No such file"):
        read(tmp_path, SLUICE_SETTINGS=str(tmp_path / "nowhere.yaml"))


def test_the_password_comes_from_its_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("abc\n")
    assert password(Settings(nats_password="x")) == "x"
    assert password(Settings(nats_password="x", nats_password_file=str(secret))) == "abc"
    with pytest.raises(SettingsError, match="nats_password_file"):
        password(Settings(nats_password_file=str(tmp_path / "nowhere")))
