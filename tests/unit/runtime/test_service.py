"""A service process from the outside: what it says when it cannot start, and that it says it in one line."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shared.bus.connection import without_credentials
from shared.runtime.service import log_unhandled

ROOT = Path(__file__).resolve().parents[3]


def start(**environ: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environ}
    command = [sys.executable, "-m", "services.metrics"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        ({"SLUICE_LOG_LEVEL": "NOPE"}, "sluice metrics: settings: log_level: Unknown level: 'NOPE'"),
        ({"SLUICE_HEALTH_PORT": "x"}, "sluice metrics: settings: SLUICE_HEALTH_PORT: Expected `int`, got `str`"),
    ],
)
def test_bad_settings_end_with_2_and_one_line(environ: dict[str, str], line: str) -> None:
    ended = start(**environ)
    assert (ended.returncode, ended.stderr) == (2, line + "\n")


@pytest.mark.parametrize(
    "environ",
    [{"SLUICE_NATS_URL": "foo://user:secret@x"}, {"SLUICE_NATS_CA_FILE": str(ROOT / "nowhere.pem")}],
)
def test_a_bus_that_cannot_be_used_ends_with_2_and_a_line_without_secrets(environ: dict[str, str]) -> None:
    ended = start(**environ)
    assert ended.returncode == 2
    said = [json.loads(line) for line in ended.stderr.splitlines()]
    assert [s["level"] for s in said].count("ERROR") == 1
    assert "secret" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_addresses_are_told_without_credentials() -> None:
    assert without_credentials("nats://u:p@h:1,tls://q@i:2,nats://j") == "nats://h:1,tls://i:2,nats://j"


HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


@pytest.mark.parametrize(
    ("body", "gates", "error"),
    [
        ("nonsense: 1\n", "", "{file}: nonsense: no such field"),
        ("", "NoSuchGate=true", "feature gates: NoSuchGate: no such feature gate"),
        (
            "featureGates: {PriorityBoost: true}\n",
            "PartialAdmission=false",
            "{file}: featureGates: given here and by the flag; only one of both may be",
        ),
    ],
)
def test_a_wrong_configuration_ends_with_1_and_one_line(tmp_path: Path, body: str, gates: str, error: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(HEAD + body)
    ended = start(SLUICE_CONFIGURATION=str(file), SLUICE_FEATURE_GATES=gates)
    assert (ended.returncode, ended.stderr) == (1, f"sluice metrics: configuration: {error.format(file=file)}\n")


class Transport:
    def __init__(self, closing: bool) -> None:
        self._closing = closing

    def is_closing(self) -> bool:
        return self._closing


OF_TLS = {"protocol": object()}


@pytest.mark.parametrize(
    ("context", "told"),
    [
        ({**OF_TLS, "transport": Transport(closing=True), "exception": RuntimeError("the handler is closed")}, False),
        ({**OF_TLS, "transport": None, "exception": RuntimeError("the handler is closed")}, False),
        (
            {
                **OF_TLS,
                "transport": Transport(closing=False),
                "exception": RuntimeError("on <x>; the handler is closed"),
            },
            False,
        ),
        ({"transport": Transport(closing=False), "exception": RuntimeError("the handler is closed")}, True),
        ({**OF_TLS, "transport": Transport(closing=True), "exception": BrokenPipeError()}, False),
        ({**OF_TLS, "transport": Transport(closing=True), "exception": KeyError("a fault of ours")}, True),
        ({**OF_TLS, "transport": Transport(closing=False), "exception": RuntimeError("of an open connection")}, True),
        ({**OF_TLS, "transport": Transport(closing=True)}, True),
        ({"exception": RuntimeError("of a task")}, True),
    ],
)
def test_only_what_comes_after_the_end_of_a_connection_is_no_error(
    context: dict[str, object], told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.new_event_loop()
    try:
        with caplog.at_level(logging.INFO):
            log_unhandled(loop, {"message": "something failed", **context})
    finally:
        loop.close()
    assert [r.levelname for r in caplog.records] == (["ERROR"] if told else [])
