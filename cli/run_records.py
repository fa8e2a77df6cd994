"""Which `sluice up` run on this machine and where their files are, so that `sluice down` can end them and clean up after one that was killed."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil

from devcluster.state import RunningProcess, find, identify, state_directory

STOP_S = 30.0


class Record(msgspec.Struct, frozen=True):
    """One run: its process, and the folder with its data, credentials and logs."""

    process: RunningProcess
    folder: str


def _directory() -> Path:
    return state_directory().parent / "up"


@contextlib.contextmanager
def recorded(folder: Path) -> Iterator[None]:
    """Keep a record of this process while the body runs."""
    directory = _directory()
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{os.getpid()}.json"
    path.write_bytes(msgspec.json.encode(Record(identify("sluice up", os.getpid()), str(folder))))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def folders() -> list[Path]:
    """Of the runs that are recorded, whether they live or not."""
    found = []
    for path in sorted(_directory().glob("*.json")):
        with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
            found.append(Path(msgspec.json.decode(path.read_bytes(), type=Record).folder))
    return found


def end_all() -> list[str]:
    """End every recorded run and remove its folder; a line about each."""
    lines = []
    for path in sorted(_directory().glob("*.json")):
        try:
            record = msgspec.json.decode(path.read_bytes(), type=Record)
        except (FileNotFoundError, msgspec.DecodeError):
            path.unlink(missing_ok=True)
            continue
        process = find(record.process)
        lines.append(f"{'stopped' if process else 'cleaned up after'} process {record.process.pid}")
        if process is not None:
            _end(process)
        path.unlink(missing_ok=True)
        shutil.rmtree(record.folder, ignore_errors=True)
    return lines


def _end(process: psutil.Process) -> None:
    process.terminate()
    try:
        process.wait(timeout=STOP_S)
    except psutil.TimeoutExpired:
        # It hangs, for example on a stopped terminal; its children end with it.
        process.kill()
        process.wait(timeout=STOP_S)
