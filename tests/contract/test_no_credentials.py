"""A service that cannot know its API server, as a process with a real NATS: it says so in one line and ends, however it was told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from devcluster.nats_server import NatsServer

ROOT = Path(__file__).resolve().parents[2]
CONTEXT = (
    "contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t}}]\ncurrent-context: c\n"
)
NO_PEM = "certificate-authority-data: bm90IGEgY2VydGlmaWNhdGU="


@pytest_asyncio.fixture
async def nats(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with NatsServer(tmp_path / "nats") as server:
        yield server


def ended(service: str, nats: NatsServer, **environ: str) -> tuple[int, list[dict[str, object]], str]:
    """Exit code, the lines of the log that are errors, and all that it said."""
    given = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "SLUICE_NATS_URL": nats.url,
        "SLUICE_NATS_PASSWORD": nats.password(service),
        **environ,
    }
    command = [sys.executable, "-m", f"services.{service}"]
    done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=60, check=False)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    return done.returncode, [line for line in lines if line["level"] == "ERROR"], done.stderr


@pytest.mark.parametrize("service", ["watcher", "webhook"])
@pytest.mark.parametrize(
    ("file", "why"),
    [
        (None, "no such file"),
        ("", "{path}"),
        (
            f"clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1', {NO_PEM}}}}}]\n{CONTEXT}",
            "certificates of",
        ),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used(
    nats: NatsServer, tmp_path: Path, service: str, file: str | None, why: str
) -> None:
    path = tmp_path / "kubeconfig"
    if file is not None:
        path.write_text(file)
    code, errors, said = ended(service, nats, SLUICE_KUBECONFIG=str(path))
    assert code == 2
    assert len(errors) == 1, said
    assert why.format(path=path) in str(errors[0]), said
    assert "Traceback" not in said


@pytest.mark.parametrize("service", ["watcher", "webhook"])
async def test_nothing_that_names_an_api_server(nats: NatsServer, service: str) -> None:
    code, errors, said = ended(service, nats)
    assert code == 2
    assert ["no kubeconfig is set" in str(error) for error in errors] == [True], said
    assert "Traceback" not in said
