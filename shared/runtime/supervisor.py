"""Runs children forked from this very process, and starts each again when it ends. Knows nothing of what they do.

1. What all children need is imported before the first fork: a child then costs a fork, not a second of imports. This process must have no other
   thread and no event loop, at any time: a fork copies only the thread that calls it.
2. A child gets a session of its own (Ctrl-C reaches us alone), the signals of a fresh process, and dies with us, even by SIGKILL (Linux).
3. A child that ends is started again after a pause that doubles up to a bound and is short again once it ran for a while. One that says at its
   first start that it can never run (exit code 2: settings) ends everything. One that runs but `ails` is ended, and so started again.
4. SIGTERM, SIGINT or SIGHUP: children are told to end, those marked `last` after the others; who has not after its time is killed. A second signal
   kills at once.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

import msgspec

HOPELESS = 2
"""Exit code of a child that would fail the same way each time."""
STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_SET_PARENT_DEATH_SIGNAL, _SET_NAME = 1, 15

log = logging.getLogger("sluice.supervisor")
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """`main` runs in the child and returns its exit code, or replaces it by another program. `log`: where its output goes, else to ours."""

    name: str
    main: Callable[[], int | None]
    log: Path | None = None
    last: bool = False
    """Told to end only when all others have."""
    ails: Callable[[], str] | None = None
    """Asked now and then while it runs: why it has to be started again, empty if it need not. It is called here, so it must be quick."""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. Who may ail is asked every `look_s`. After `calm_s` of running the next pause is `pause_s` again; all that is not `last` has `stop_s` to
    end, the rest `stop_last_s`."""

    pause_s: float = 0.2
    most_pause_s: float = 5.0
    calm_s: float = 10.0
    stop_s: float = 3.5
    stop_last_s: float = 1.0
    look_s: float = 2.0


class Exit(msgspec.Struct, frozen=True):
    """How a child ended: its exit code, or the signal that killed it (then `code` is 128 + its number, as shells say)."""

    code: int
    signal: str = ""

    def __str__(self) -> str:
        return self.signal or f"exit code {self.code}"


class _Run(msgspec.Struct):
    """What is known of one child. `pid` 0: does not run; `due`: when it may be started again."""

    child: Child
    pid: int = 0
    starts: int = 0
    started: float = 0.0
    pause: float = 0.0
    due: float | None = None
    look: float = 0.0
    """When it is asked next whether it ails."""
    told: bool = False
    """To end, since it ailed."""


class Supervisor:
    """Start children with `start`, then `run`. Use it in `with`: signals are held back inside, and whatever still runs at its end is ended."""

    def __init__(self, timing: Timing | None = None) -> None:
        self._timing = timing if timing is not None else Timing()
        self._runs: dict[str, _Run] = {}
        self._stop_requested = False
        self._hopeless = ""
        self._mask: Iterable[int] = ()

    def __enter__(self) -> Supervisor:
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *STOP_SIGNALS})
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def start(self, child: Child) -> None:
        """Start a child that is kept running from now on."""
        if child.name in self._runs:
            raise ValueError(f"{child.name} was started already")
        run = self._runs[child.name] = _Run(child)
        self._start(run)

    def begin(self, child: Child) -> int:
        """Run a child once; its pid, for `finish`."""
        return self._fork(child)

    def finish(self, pid: int) -> int:
        """Wait for a child that was begun; its exit code. A stop signal ends it early."""
        while True:
            found = _ended(pid)
            if found is not None:
                return found.code
            if self._wait(None) in STOP_SIGNALS:
                self._stop_requested = True
                _kill(pid, signal.SIGKILL)

    def run(self) -> int:
        """Until a stop signal (returns 0) or a child that can never run (returns 1)."""
        while not self._stop_requested and not self._hopeless:
            # Before the wait: a signal of an end may have been taken by another wait, and one that comes after this look is kept for the wait.
            self._reap()
            self._start_due()
            self._look()
            if not self._hopeless and self._wait(self._next_due()) in STOP_SIGNALS:
                self._stop_requested = True
        return 1 if self._hopeless else 0

    @property
    def stopping(self) -> bool:
        """Whether a stop signal came."""
        return self._stop_requested

    def stop(self) -> None:
        """End every child, in order."""
        for run in self._runs.values():
            run.due = None
        self._end([r for r in self._runs.values() if not r.child.last], self._timing.stop_s)
        self._end([r for r in self._runs.values() if r.child.last], self._timing.stop_last_s)

    def _start(self, run: _Run) -> None:
        run.pid = self._fork(run.child)
        run.due = None
        run.started = time.monotonic()
        run.look, run.told = run.started + self._timing.look_s, False
        run.starts += 1
        log.log(
            logging.INFO if run.starts == 1 else logging.WARNING,
            "started" if run.starts == 1 else "started again",
            extra={"child": run.child.name, "pid": run.pid},
        )

    def _start_due(self) -> None:
        now = time.monotonic()
        for run in self._runs.values():
            if run.due is not None and run.due <= now:
                self._start(run)

    def _look(self) -> None:
        now = time.monotonic()
        for run in self._runs.values():
            if run.child.ails is None or not run.pid or run.look > now:
                continue
            run.look = now + self._timing.look_s
            if run.told:
                _kill(run.pid, signal.SIGKILL)
            elif why := run.child.ails():
                log.error("ended: %s", why, extra={"child": run.child.name})
                run.told = True
                _kill(run.pid, signal.SIGTERM)

    def _next_due(self) -> float | None:
        """Seconds until the next start or look; None when nothing waits for one."""
        due = [r.due for r in self._runs.values() if r.due is not None]
        due += [r.look for r in self._runs.values() if r.pid and r.child.ails is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _wait(self, seconds: float | None) -> int:
        """The next signal; 0 after `seconds` without any."""
        watched = {signal.SIGCHLD, *STOP_SIGNALS}
        if seconds is None:
            return signal.sigwait(watched)
        found = signal.sigtimedwait(watched, seconds)
        return found.si_signo if found is not None else 0

    def _reap(self) -> None:
        for run in self._runs.values():
            found = _ended(run.pid) if run.pid else None
            if found is None:
                continue
            run.pid = 0
            if found.code == HOPELESS and run.starts == 1:
                self._hopeless = run.child.name
                log.error("cannot run", extra={"child": run.child.name})
                continue
            now = time.monotonic()
            calm = now - run.started >= self._timing.calm_s
            run.pause = self._timing.pause_s if calm or not run.pause else min(run.pause * 2, self._timing.most_pause_s)
            run.due = now + run.pause
            log.error("ended", extra={"child": run.child.name, "how": str(found), "again_in_s": round(run.pause, 1)})

    def _end(self, runs: list[_Run], seconds: float) -> None:
        for run in runs:
            _kill(run.pid, signal.SIGTERM)
        deadline = time.monotonic() + seconds
        killed = False
        while any(r.pid for r in runs):
            for run in runs:
                if run.pid and _ended(run.pid) is not None:
                    run.pid = 0
            if not any(r.pid for r in runs):
                return
            left = deadline - time.monotonic()
            urgent = self._wait(max(0.0, left) if not killed else None) in STOP_SIGNALS
            if not killed and (urgent or time.monotonic() >= deadline):
                killed = True
                for run in runs:
                    if run.pid:
                        log.error("killed: it did not end in time", extra={"child": run.child.name})
                        _kill(run.pid, signal.SIGKILL)

    def _fork(self, child: Child) -> int:
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _be(child, parent, self._mask)
        return pid


def _be(child: Child, parent: int, mask: Iterable[int]) -> NoReturn:
    """The life of a child, in the child."""
    code: object = 1
    try:
        if _prctl is not None:
            _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            # As `top` and `ps -o comm` show it; 15 bytes fit.
            _prctl(_SET_NAME, child.name.encode()[:15], 0, 0, 0)
            # The parent may have died before that call.
            if os.getppid() != parent:
                os._exit(1)
        os.setsid()
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _redirect(child.log)
        code = child.main() or 0
    except SystemExit as end:
        code = end.code if end.code is not None else 0
    except BaseException:  # noqa: BLE001 - it must not run on as a second copy of us
        traceback.print_exc()
    finally:
        # Not sys.exit: what the parent registered to happen at its own end is not ours to do.
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code if isinstance(code, int) else 1)


def _redirect(path: Path | None) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    if path is None:
        return
    output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)


def _ended(pid: int) -> Exit | None:
    """How the child ended; None while it runs."""
    found, status = os.waitpid(pid, os.WNOHANG)
    if found == 0:
        return None
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return Exit(128 + number, signal.Signals(number).name)
    return Exit(os.waitstatus_to_exitcode(status))


def _kill(pid: int, number: signal.Signals) -> None:
    """To a child that was not waited for, so that its pid is still its own."""
    if pid:
        os.kill(pid, number)
