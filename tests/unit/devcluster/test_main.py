"""The command line: what it says when nothing runs, when something runs already, and when it cannot go on."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from devcluster.__main__ import app
from devcluster.state import ClusterState, identify, read_state, write_state


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()


def test_status_exits_1_when_nothing_runs(runner: CliRunner, tmp_path: Path) -> None:
    result = runner.invoke(app, ["status", "--state-dir", str(tmp_path)])
    assert result.exit_code == 1


def test_status_prints_the_kubeconfig_of_what_runs(runner: CliRunner, tmp_path: Path) -> None:
    me = identify("up", os.getpid())
    write_state(tmp_path, ClusterState("/somewhere/admin.kubeconfig", "https://127.0.0.1:1", me, (me,)))
    result = runner.invoke(app, ["status", "--state-dir", str(tmp_path)])
    assert result.exit_code == 0
    assert result.stdout == "KUBECONFIG=/somewhere/admin.kubeconfig\n"


def test_up_refuses_a_folder_whose_cluster_runs(runner: CliRunner, tmp_path: Path) -> None:
    me = identify("up", os.getpid())
    state = ClusterState("/somewhere/admin.kubeconfig", "https://127.0.0.1:1", me, ())
    write_state(tmp_path, state)
    assert runner.invoke(app, ["up", "--state-dir", str(tmp_path)]).exit_code == 1
    assert read_state(tmp_path) == state


def test_down_without_a_cluster_is_no_error(runner: CliRunner, tmp_path: Path) -> None:
    assert runner.invoke(app, ["down", "--state-dir", str(tmp_path)]).exit_code == 0


def test_up_with_an_existing_cluster_needs_kubeconfig(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    (assets / "kubectl").write_text("#!/bin/sh\n")
    (assets / "kubectl").chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    arguments = ["up", "--use-existing-cluster", "--state-dir", str(tmp_path / "state")]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 1
    assert not isinstance(result.exception, Exception)


@pytest.mark.parametrize(
    "arguments", [["up", "--nodes", "-1"], ["up", "--pod-seconds", "-1"], ["fly"], ["build", "--kubernetes", "1.2"]]
)
def test_senseless_arguments_are_usage_errors(runner: CliRunner, arguments: list[str]) -> None:
    assert runner.invoke(app, arguments).exit_code == 2
