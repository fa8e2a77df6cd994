"""`sluice down` ends what runs and removes what a killed run left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from cli import run_records
from devcluster.state import identify

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def record(tmp_path: Path, pid: int, name: str) -> Path:
    """Leave the record of a run with a folder of its own; returns the folder."""
    folder = tmp_path / name
    folder.mkdir()
    (folder / "secret").write_text("x")
    directory = tmp_path / "state" / "sluice" / "up"
    directory.mkdir(parents=True, exist_ok=True)
    found = run_records.Record(identify("sluice up", pid), str(folder))
    (directory / f"{pid}.json").write_bytes(msgspec.json.encode(found))
    return folder


def test_a_running_one_is_stopped_and_a_dead_one_cleaned_up(tmp_path: Path) -> None:
    with subprocess.Popen(SLEEPER) as running, subprocess.Popen(SLEEPER) as killed:
        folders = [record(tmp_path, running.pid, "running"), record(tmp_path, killed.pid, "killed")]
        killed.kill()
        killed.wait()
        lines = run_records.end_all()
        assert sorted(lines) == sorted([f"stopped process {running.pid}", f"cleaned up after process {killed.pid}"])
        assert running.poll() is not None
    assert not any(folder.exists() for folder in folders)
    assert run_records.end_all() == []


def test_a_run_that_ends_leaves_no_record(tmp_path: Path) -> None:
    with run_records.recorded(tmp_path):
        assert len(list((tmp_path / "state/sluice/up").iterdir())) == 1
    assert list((tmp_path / "state/sluice/up").iterdir()) == []


def test_what_is_no_record_is_removed(tmp_path: Path) -> None:
    directory = tmp_path / "state/sluice/up"
    directory.mkdir(parents=True)
    (directory / "1.json").write_text("garbage")
    assert run_records.end_all() == []
    assert list(directory.iterdir()) == []
