"""The command: what it refuses, and its exit code."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from loadtest.processes import Usage
from loadtest.run import exit_code, main, relative_cpu
from loadtest.thresholds import Check
from tests.unit.loadtest.test_report import report


def test_an_unknown_shape_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no-such-shape"]) == 2
    assert "there are: " in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("count", ["0", "-3", "many"])
def test_a_count_is_a_positive_number(count: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["small", "--count", count])
    assert ended.value.code == 2
    assert "--count" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("unfinished", "met", "checked", "code"),
    [(0.0, True, True, 0), (0.0, False, False, 0), (0.0, False, True, 1), (1.0, True, False, 1)],
)
def test_the_exit_code(unfinished: float, met: bool, checked: bool, code: int) -> None:
    made = msgspec.structs.replace(
        report(checks=(Check("x", "at most 1", 1.0, met),)), figures={"unfinished": unfinished}
    )
    assert exit_code(made, checked=checked) == code


def test_after_faults_nobody_has_to_be_finished() -> None:
    made = report(checks=())
    assert (
        exit_code(msgspec.structs.replace(made, figures={"unfinished": 5.0, "pause_s.wipe-nats": 3.0}), checked=True)
        == 0
    )


def test_where_all_have_to_start_only_those_count_that_did_not() -> None:
    made = msgspec.structs.replace(report(checks=()), figures={"unfinished": 5.0, "unstarted": 0.0})
    assert exit_code(made, checked=True, ends="started") == 0
    assert exit_code(made, checked=True, ends="finished") == 1
    left = msgspec.structs.replace(made, figures={"unfinished": 5.0, "unstarted": 1.0})
    assert exit_code(left, checked=False, ends="started") == 1


def test_another_controller_needs_a_kubeconfig_that_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["small", "--external", str(tmp_path / "none")]) == 2
    assert "no such file" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("process", ["manager", "=7", "manager=seven"])
def test_a_process_has_a_name_and_a_pid(process: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["small", "--external", str(tmp_path), "--process", process])
    assert ended.value.code == 2
    assert "--process" in capsys.readouterr().err


def test_cpu_is_told_in_multiples_of_the_reference_per_admission() -> None:
    usage = [Usage("watcher", 4.0, 0.0, 1), Usage("scheduler", 1.0, 0.0, 1)]
    found = relative_cpu(usage, 500, 2.0)
    # 8 ms an admission are four times the reference.
    assert found == {"reference_ms": 2.0, "relative_cpu.watcher": 4000.0, "relative_cpu.scheduler": 1000.0}
    assert relative_cpu(usage, 0, 2.0) == {}
    assert relative_cpu(usage, 500, 0.0) == {}
