"""What `python -m devcluster up` leaves for `status` and `down`: who runs, by pid and start time.

A pid alone may be another program's by now; with its start time it is the very process that we started, or none.
"""

import os
from pathlib import Path

import msgspec
import psutil


class RunningProcess(msgspec.Struct, frozen=True):
    """`started` is the start time that the kernel reports, in seconds since the epoch."""

    name: str
    pid: int
    started: float


class ClusterState(msgspec.Struct, frozen=True):
    """`owner` is the `up` process itself; `parts` are the control plane."""

    kubeconfig: str
    server: str
    owner: RunningProcess
    parts: tuple[RunningProcess, ...]


def state_directory() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "sluice" / "devcluster"


def identify(name: str, pid: int) -> RunningProcess:
    """Raises psutil.NoSuchProcess when there is none."""
    return RunningProcess(name, pid, psutil.Process(pid).create_time())


def find(recorded: RunningProcess) -> psutil.Process | None:
    """The recorded process if it still runs, else None."""
    try:
        process = psutil.Process(recorded.pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        # The kernel counts in ticks of 10 ms.
        return process if abs(process.create_time() - recorded.started) < 0.05 else None
    except psutil.NoSuchProcess:
        return None


def write_state(directory: Path, state: ClusterState) -> None:
    temporary = directory / "state.json.new"
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(state)))
    temporary.rename(_file(directory))


def read_state(directory: Path) -> ClusterState | None:
    """None when no cluster was recorded; raises msgspec.DecodeError on a file that is not ours."""
    try:
        content = _file(directory).read_bytes()
    except FileNotFoundError:
        return None
    return msgspec.json.decode(content, type=ClusterState)


def remove_state(directory: Path) -> None:
    _file(directory).unlink(missing_ok=True)


def end_recorded(state: ClusterState, grace_seconds: float = 15.0) -> list[str]:
    """Ends the owner, which ends its parts, then whatever part is left; the names of those that were ended."""
    ended: list[str] = []
    for recorded in (state.owner, *reversed(state.parts)):
        process = find(recorded)
        if process is None:
            continue
        ended.append(recorded.name)
        try:
            process.terminate()
            process.wait(grace_seconds)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(grace_seconds)
        except psutil.NoSuchProcess:
            continue
    return ended


def _file(directory: Path) -> Path:
    return directory / "state.json"
