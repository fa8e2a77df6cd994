"""A service that is configured wrongly says so in a line and does not start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def start(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "services.metrics"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    ("body", "gates", "error"),
    [
        ("nonsense: 1\n", "", "{file}: nonsense: no such field"),
        ("", "NoSuchGate=true", "feature gates: NoSuchGate: no such feature gate"),
        (
            "featureGates: {PriorityBoost: true}\n",
            "PartialAdmission=false",
            "{file}: featureGates: given here and by the flag",
        ),
    ],
)
def test_a_wrong_configuration(tmp_path: Path, body: str, gates: str, error: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(HEAD + body)
    ended = start(SLUICE_CONFIGURATION=str(file), SLUICE_FEATURE_GATES=gates)
    assert ended.returncode == 1
    assert ended.stderr.startswith("sluice metrics: configuration: " + error.format(file=file))
    assert ended.stderr.count("\n") == 1


def test_wrong_settings() -> None:
    ended = start(SLUICE_HEALTH_PORT="many")
    assert ended.returncode == 2
    assert ended.stderr.startswith("sluice metrics: settings: SLUICE_HEALTH_PORT: ")
