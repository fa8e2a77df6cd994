"""Children that end, fail, resist and are killed; their parent too. All seen from outside, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[3]
WITHIN_S = 20.0


class Family:
    """A running `family`."""

    def __init__(self, folder: Path, *manners: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.runtime.family", str(folder), *manners],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not holds():
            assert time.monotonic() < deadline, self.events
            time.sleep(0.005)

    @property
    def events(self) -> list[str]:
        file = self.folder / "events"
        return file.read_text().splitlines() if file.exists() else []

    def count(self, event: str) -> int:
        return self.events.count(event)

    def pid(self, name: str) -> int:
        """Of a child, once it is ready for signals."""
        file = self.folder / f"{name}.pid"
        self.until(file.exists)
        return int(file.read_text().split()[0])

    def next_pid(self, name: str, before: int) -> int:
        self.until(lambda: self.pid(name) != before)
        return self.pid(name)

    def ready(self) -> None:
        self.until((self.folder / "begun").exists)

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Exit code and standard error."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=WITHIN_S)
        return self.process.returncode, errors

    def is_gone(self, pid: int) -> bool:
        return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Family]]:
    made: list[Family] = []

    def start(*manners: str) -> Family:
        made.append(Family(tmp_path, *manners))
        return made[-1]

    yield start
    for family in made:
        if family.process.poll() is None:
            family.process.kill()
        family.process.communicate()


Make = Callable[..., Family]


def test_starts_and_stops_all(make: Make) -> None:
    family = make("a=steady", "b=steady")
    family.ready()
    pids = [family.pid("a"), family.pid("b")]
    code, _ = family.end()
    assert code == 0
    assert all(family.is_gone(pid) for pid in pids)
    assert sorted(family.events) == ["end a", "end b", "once 7", "start a", "start b"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_other_ways_to_be_told(make: Make, number: signal.Signals) -> None:
    family = make("a=steady")
    family.ready()
    family.pid("a")
    assert family.end(number)[0] == 0
    assert family.count("end a") == 1


def test_a_child_has_a_session_of_its_own(make: Make) -> None:
    family = make("a=steady")
    family.pid("a")
    pid, group = (family.folder / "a.pid").read_text().split()
    assert pid == group


def test_a_killed_child_is_started_again(make: Make) -> None:
    family = make("a=steady", "b=steady")
    first, other = family.pid("a"), family.pid("b")
    os.kill(first, signal.SIGKILL)
    second = family.next_pid("a", first)
    os.kill(second, signal.SIGKILL)
    family.next_pid("a", second)
    assert family.pid("b") == other
    code, errors = family.end()
    assert code == 0
    assert errors.splitlines().count("ended") == 2


@pytest.mark.parametrize(("manner", "told"), [("ails", 1), ("ails-stubborn", 0)])
def test_one_that_ails_is_started_again_whether_it_listens_or_not(make: Make, manner: str, told: int) -> None:
    family = make(f"a={manner}", "b=steady")
    first, other = family.pid("a"), family.pid("b")
    ails = family.folder / "a.ails"
    ails.touch()
    family.until(lambda: family.is_gone(first))
    ails.unlink()
    family.until(lambda: not family.is_gone(family.pid("a")))
    assert family.pid("b") == other
    assert family.count("end a") >= told
    code, errors = family.end()
    assert code == 0
    assert "ended: it ails" in errors


def test_one_that_fails_is_tried_again_and_again_with_pauses(make: Make) -> None:
    started = time.monotonic()
    family = make("a=fails", "b=steady")
    family.until(lambda: family.count("start a") >= 5)
    # 0.02, 0.04, 0.08, 0.08 between five starts.
    assert time.monotonic() - started >= 0.2
    assert family.end()[0] == 0


def test_an_exception_in_a_child_ends_that_child_only(make: Make) -> None:
    family = make("a=raises", "b=steady")
    family.until(lambda: family.count("start a") >= 2)
    pid = family.pid("b")
    assert psutil.pid_exists(pid)
    code, errors = family.end()
    assert code == 0
    assert "ValueError: of a child" in errors


def test_one_that_can_never_run_ends_everything(make: Make) -> None:
    family = make("b=steady", "a=hopeless")
    _, errors = family.process.communicate(timeout=WITHIN_S)
    assert family.process.returncode == 1
    assert family.count("start a") == 1
    # The other may have been told to end before it could write its pid.
    assert not (family.folder / "b.pid").exists() or family.is_gone(family.pid("b"))
    assert errors == "cannot run\n"


def test_only_the_first_start_can_be_hopeless(make: Make) -> None:
    # What worked once is not wrong settings: what it needs may be away just now.
    family = make("a=hopeless-later", "b=steady")
    family.until(lambda: family.count("start a") >= 4)
    assert family.end()[0] == 0


def test_the_last_one_goes_last(make: Make) -> None:
    family = make("base=last", "a=steady", "b=steady")
    family.ready()
    for name in ("base", "a", "b"):
        family.pid(name)
    family.end()
    assert [e for e in family.events if e.startswith("end")][-1] == "end base"


def test_who_does_not_end_is_killed(make: Make) -> None:
    family = make("a=stubborn", "b=steady")
    family.ready()
    pid = family.pid("a")
    family.pid("b")
    started = time.monotonic()
    code, _ = family.end()
    assert code == 0
    assert family.is_gone(pid)
    assert 1.0 <= time.monotonic() - started < 10.0


def test_a_second_signal_does_not_wait(make: Make) -> None:
    family = make("a=stubborn", "b=steady")
    family.ready()
    family.pid("a")
    family.pid("b")
    started = time.monotonic()
    family.process.send_signal(signal.SIGTERM)
    family.until(lambda: family.count("end b") == 1)
    family.end(signal.SIGINT)
    assert time.monotonic() - started < 1.0


def test_children_die_with_a_killed_parent(make: Make) -> None:
    family = make("a=steady", "b=stubborn", "c=exec")
    family.ready()
    pids = [family.pid("a"), family.pid("b"), *(p.pid for p in psutil.Process(family.process.pid).children())]
    assert len(set(pids)) == 3
    family.end(signal.SIGKILL)
    family.until(lambda: all(family.is_gone(pid) for pid in pids))


def test_output_goes_to_the_log_of_a_child(make: Make) -> None:
    family = make("a=talks")
    family.until(lambda: (family.folder / "a.log").exists() and (family.folder / "a.log").read_text() == "to the log\n")
    assert (family.folder / "a.log").stat().st_mode & 0o777 == 0o600
    family.end()
