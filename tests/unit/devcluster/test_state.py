"""What a running `up` leaves behind, and that `down` ends those very processes and no others."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from devcluster.state import (
    ClusterState,
    RunningProcess,
    end_recorded,
    find,
    identify,
    read_state,
    remove_state,
    state_directory,
    write_state,
)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def cluster(owner: RunningProcess, *parts: RunningProcess) -> ClusterState:
    return ClusterState("/somewhere/admin.kubeconfig", "https://127.0.0.1:1", owner, parts)


GONE = RunningProcess("up", 2**22 + 1, 0.0)


def test_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    state = cluster(RunningProcess("up", 1, 2.5), RunningProcess("etcd", 3, 4.25))
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state
    remove_state(tmp_path)
    assert read_state(tmp_path) is None
    remove_state(tmp_path)


def test_a_broken_file_is_an_error_not_an_absence(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(msgspec.DecodeError):
        read_state(tmp_path)


def test_a_process_is_found_by_pid_and_start_time(sleeper: subprocess.Popen[bytes]) -> None:
    found = find(identify("etcd", sleeper.pid))
    assert found is not None
    assert found.pid == sleeper.pid


def test_a_pid_that_was_given_to_another_program_is_not_ours(sleeper: subprocess.Popen[bytes]) -> None:
    recorded = identify("etcd", sleeper.pid)
    assert find(msgspec.structs.replace(recorded, started=recorded.started - 60)) is None


def test_an_ended_process_is_not_found_even_while_its_parent_has_not_noticed(
    sleeper: subprocess.Popen[bytes],
) -> None:
    recorded = identify("etcd", sleeper.pid)
    psutil.Process(sleeper.pid).kill()
    # Waits for its end but leaves it a zombie, as a parent that has not looked yet does.
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert find(recorded) is None
    assert find(GONE) is None


def test_parts_that_a_killed_owner_left_are_ended(sleeper: subprocess.Popen[bytes]) -> None:
    state = cluster(GONE, identify("etcd", sleeper.pid))
    assert end_recorded(state) == ["etcd"]
    assert not psutil.pid_exists(sleeper.pid) or find(state.parts[0]) is None


def test_strangers_are_left_alone(sleeper: subprocess.Popen[bytes]) -> None:
    stranger = msgspec.structs.replace(identify("etcd", sleeper.pid), started=1.0)
    assert end_recorded(cluster(GONE, stranger)) == []
    assert sleeper.poll() is None


def test_state_is_the_users_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_directory() == tmp_path / "sluice" / "devcluster"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert state_directory() == tmp_path / "home" / ".local" / "state" / "sluice" / "devcluster"
