"""Runs one control plane process: its log, its end, and that it never outlives us. Knows nothing of Kubernetes."""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

LAST_LINES = 15


class ProcessDiedError(RuntimeError):
    """A process ended while it was needed; the message ends with the last lines of its log."""

    def __init__(self, name: str, returncode: int | None, last_lines: str) -> None:
        super().__init__(f"{name} ended with exit code {returncode}; the last lines of its log:\n{last_lines}")
        self.name = name
        self.last_lines = last_lines


class Command(msgspec.Struct, frozen=True):
    """What to run: `name` is the part's own (kube-apiserver), `arguments` do not hold the program, `environment` replaces ours."""

    name: str
    program: Path
    arguments: tuple[str, ...]
    environment: dict[str, str] | None = None


class ManagedProcess:
    """One process that can be started again after its end. States: not started, running, ended."""

    def __init__(self, command: Command, log: Path) -> None:
        self.command = command
        self.log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        """Of the current or last run; raises RuntimeError before the first."""
        if self._process is None:
            raise RuntimeError(f"{self.command.name} was never started")
        return self._process.pid

    async def start(self) -> None:
        """Starts it; its output is appended to the log. Raises RuntimeError when it runs already."""
        if self.running:
            raise RuntimeError(f"{self.command.name} runs already, with pid {self.pid}")
        with self.log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                self.command.program,
                *self.command.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self.command.environment,
                # Ctrl-C in a terminal must reach us alone: we end the parts in their order.
                start_new_session=True,
                preexec_fn=_end_with_parent(),
            )

    def check(self) -> None:
        """Raises ProcessDiedError unless it runs."""
        if not self.running:
            returncode = self._process.returncode if self._process is not None else None
            raise ProcessDiedError(self.command.name, returncode, self.last_lines())

    def last_lines(self) -> str:
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LAST_LINES:])

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to this very process; raises ProcessLookupError when it has ended."""
        if self._process is None or not self.running:
            raise ProcessLookupError(f"{self.command.name} does not run")
        # Not `self._process.send_signal`: it may take the exit code away from the one who waits for it.
        os.kill(self._process.pid, number)

    async def wait(self) -> int:
        """The exit code, once it ends."""
        if self._process is None:
            raise RuntimeError(f"{self.command.name} was never started")
        return await self._process.wait()

    async def stop(self, grace_seconds: float = 2.0) -> None:
        """Asks it to end, and kills it when it has not after the grace; returns when it is gone."""
        if self._process is None or not self.running:
            return
        with contextlib.suppress(ProcessLookupError):
            self.send(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), grace_seconds)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self.send(signal.SIGKILL)
            await self._process.wait()


def _end_with_parent() -> Callable[[], None] | None:
    """Has the kernel kill the child when the thread that started it dies, SIGKILL of the parent included (Linux)."""
    if sys.platform != "linux":
        return None
    # Loaded before the fork: after it, hardly anything is safe to call.
    prctl = ctypes.CDLL(None).prctl
    set_parent_death_signal = 1
    parent = os.getpid()

    def in_child() -> None:
        prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)
        # The parent may have died before that call.
        if os.getppid() != parent:
            os._exit(1)

    return in_child
