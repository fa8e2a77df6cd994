"""A supervisor with children of given manners, for the tests to watch from outside: `python -m tests.unit.runtime.family DIR NAME=MANNER...`.

Each child writes its pid to DIR/<name>.pid when it runs and appends a line to DIR/events when it starts and when it is told to end.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path
from types import FrameType

from shared.runtime.supervisor import HOPELESS, Child, Supervisor, Timing

TIMING = Timing(pause_s=0.02, most_pause_s=0.08, calm_s=5.0, stop_s=1.0, stop_last_s=1.0, look_s=0.05)


def main(folder: Path, manners: dict[str, str]) -> int:
    """The exit code of the supervisor."""
    with Supervisor(TIMING) as supervisor:
        once = supervisor.begin(Child(name="once", main=lambda: 7))
        for name, manner in manners.items():
            log = folder / f"{name}.log" if manner == "talks" else None
            ails = partial(_ails, folder, name) if manner.startswith("ails") else None
            child = Child(name=name, main=_child(folder, name, manner), log=log, last=manner == "last", ails=ails)
            supervisor.start(child)
        _note(folder, f"once {supervisor.finish(once)}")
        (folder / "begun").touch()
        return supervisor.run()


def _ails(folder: Path, name: str) -> str:
    """As long as the test says so, and it has come so far that a test can see it."""
    return "it ails" if (folder / f"{name}.ails").exists() and (folder / f"{name}.pid").exists() else ""


class _child:
    def __init__(self, folder: Path, name: str, manner: str) -> None:
        self._folder, self._name, self._manner = folder, name, manner

    def __call__(self) -> int | None:
        _note(self._folder, f"start {self._name}")
        match self._manner:
            case "fails":
                return 1
            case "hopeless":
                return HOPELESS
            case "hopeless-later":
                return 1 if (self._folder / "events").read_text().count(f"start {self._name}\n") == 1 else HOPELESS
            case "raises":
                raise ValueError("of a child")
            case "talks":
                print("to the log", flush=True)
            case "exec":
                os.execv("/bin/sleep", ["sleep", "60"])
            case "stubborn" | "ails-stubborn":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            case _:
                signal.signal(signal.SIGTERM, self._told)
        pid = self._folder / f"{self._name}.pid.new"
        pid.write_text(f"{os.getpid()} {os.getpgid(0)}")
        pid.rename(self._folder / f"{self._name}.pid")
        while True:
            signal.pause()

    def _told(self, _: int, __: FrameType | None) -> None:
        _note(self._folder, f"end {self._name}")
        sys.exit(0)


def _note(folder: Path, line: str) -> None:
    descriptor = os.open(folder / "events", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), dict(a.split("=") for a in sys.argv[2:])))
