"""The program behind `kubectl sluice` and `kubectl kueue`, as a shell sees it: exit codes, one line for an error, and what goes to kubectl."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.main import kubectl_plugin

PROGRAM = 'import sys; sys.argv[0] = "kubectl-kueue"; from cli.main import kubectl_plugin; kubectl_plugin()'


def called(*arguments: str, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
    environment = {**{k: v for k, v in os.environ.items() if k != "KUBECONFIG"}, "HOME": "/nowhere", "PATH": path}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def here(line: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Exit code of it in this process."""
    monkeypatch.setattr(sys, "argv", ["kubectl-kueue", *line.split()])
    with pytest.raises(SystemExit) as ended:
        kubectl_plugin()
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("frobnicate", "No such command 'frobnicate'."),
        ("create lq", "Missing argument 'name'."),
        ("create lq a", "Missing option '--clusterqueue' / '-c'."),
        ("list cq --nonsense", "No such option: --nonsense"),
        ("list pods", "Missing option '--for'."),
        (
            "list workload --status foo",
            'invalid status value (foo). Must be "all", "pending", "admitted" or "finished"',
        ),
        ("stop cq q --dry-run maybe", 'invalid dry-run value (maybe). Must be "none", "server", or "client"'),
        ("delete workload", "requires at least 1 arg(s), only received 0"),
        ("list cq --kubeconfig /absent", "kubeconfig /absent: no such file"),
    ],
)
def test_what_is_typed_wrong_is_one_line_and_exit_code_1(
    line: str, error: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert here(line, monkeypatch) == 1
    told = capfd.readouterr()
    assert (told.out, told.err) == ("", f"error: {error}\n")


@pytest.mark.parametrize("line", ["", "list", "create", "--help", "list cq --help"])
def test_help_is_no_error(line: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert here(line, monkeypatch) == 0
    told = capfd.readouterr()
    assert "Usage: " in told.out
    assert "--kubeconfig" in told.out or "Commands" in told.out
    assert told.err == ""


def test_kubectl_gets_the_arguments_as_they_were_typed(tmp_path: Path) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 7\n')
    kubectl.chmod(0o755)
    typed = ["-n", "ns", "patch", "cq", "team", "--type=merge", "-p", '{"spec": {}}', "-o", "json"]
    told = called(*typed, path=f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert told.stdout.splitlines() == typed
    assert told.returncode == 7


def test_without_kubectl_it_says_so(tmp_path: Path) -> None:
    told = called("get", "cq", path=str(tmp_path))
    assert told.returncode == 1
    assert told.stderr.startswith("error: pass-through command are not available: ")
    assert told.stderr.rstrip().endswith(f'PATH="{tmp_path}"')
