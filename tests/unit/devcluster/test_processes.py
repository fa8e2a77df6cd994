"""Processes of ours: that they end when told, that a death is explained, and that none outlives its parent."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from devcluster.processes import Command, ManagedProcess, ProcessDiedError

SHELL = Path("/bin/sh")
# `exec`, so that the shell is not left between us and the process.
SLEEP = "echo begun; exec sleep 600"
DEAF = "trap '' TERM; echo begun; while :; do sleep 0.05; done"


def shell(tmp_path: Path, script: str) -> ManagedProcess:
    return ManagedProcess(Command("demo", SHELL, ("-c", script)), tmp_path / "demo.log")


@pytest_asyncio.fixture
async def sleeper(tmp_path: Path) -> AsyncIterator[ManagedProcess]:
    process = shell(tmp_path, SLEEP)
    await process.start()
    yield process
    await process.stop()


async def logged(process: ManagedProcess, text: str) -> None:
    """Returns once the log is exactly `text`: a script that has spoken has set its traps."""
    for _ in range(1000):
        if process.log.read_text() == text:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"the log is {process.log.read_text()!r} after 10 s, not {text!r}")


async def test_stop_ends_it(sleeper: ManagedProcess) -> None:
    pid = sleeper.pid
    assert psutil.pid_exists(pid)
    await sleeper.stop()
    assert not sleeper.running
    assert not psutil.pid_exists(pid)


async def test_stop_is_harmless_when_it_never_ran_or_ended(tmp_path: Path) -> None:
    process = shell(tmp_path, "exit 0")
    await process.stop()
    await process.start()
    assert await process.wait() == 0
    await process.stop()
    assert not process.running


async def test_one_that_ignores_the_request_is_killed_after_the_grace(tmp_path: Path) -> None:
    process = shell(tmp_path, DEAF)
    await process.start()
    await logged(process, "begun\n")
    await process.stop(grace_seconds=0.1)
    assert await process.wait() == -signal.SIGKILL


async def test_the_exit_code_is_kept_when_a_kill_and_the_end_cross(tmp_path: Path) -> None:
    for _ in range(30):
        process = shell(tmp_path, SLEEP)
        await process.start()
        # Without a grace the kill follows the request at once, while the end of the process is still on its way to us.
        await process.stop(grace_seconds=0)
        assert await process.wait() in (-signal.SIGTERM, -signal.SIGKILL)


async def test_signals_reach_it(sleeper: ManagedProcess) -> None:
    sleeper.send(signal.SIGKILL)
    assert await sleeper.wait() == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        sleeper.send(signal.SIGKILL)


async def test_it_can_be_started_again_after_its_end_and_the_log_goes_on(sleeper: ManagedProcess) -> None:
    first = sleeper.pid
    await logged(sleeper, "begun\n")
    await sleeper.stop()
    await sleeper.start()
    assert sleeper.pid != first
    await logged(sleeper, "begun\nbegun\n")


async def test_it_is_not_started_twice(sleeper: ManagedProcess) -> None:
    with pytest.raises(RuntimeError, match="runs already"):
        await sleeper.start()


async def test_check_passes_while_it_runs(sleeper: ManagedProcess) -> None:
    sleeper.check()


async def test_a_death_is_told_with_exit_code_and_the_end_of_the_log(tmp_path: Path) -> None:
    process = shell(
        tmp_path, "for n in $(seq 40); do echo line $n; done; echo 'bind: address already in use' >&2; exit 7"
    )
    await process.start()
    await process.wait()
    with pytest.raises(ProcessDiedError) as caught:
        process.check()
    message = str(caught.value)
    assert "demo ended with exit code 7" in message
    assert "line 40" in message
    assert "line 20\n" not in message
    assert "address already in use" in caught.value.last_lines


async def test_check_before_the_first_start(tmp_path: Path) -> None:
    with pytest.raises(ProcessDiedError, match="no log"):
        shell(tmp_path, SLEEP).check()


async def test_a_missing_program_is_an_error_at_start(tmp_path: Path) -> None:
    process = ManagedProcess(Command("demo", tmp_path / "missing", ()), tmp_path / "demo.log")
    with pytest.raises(FileNotFoundError):
        await process.start()


async def test_ctrl_c_of_the_terminal_does_not_reach_it(sleeper: ManagedProcess) -> None:
    assert os.getpgid(sleeper.pid) == sleeper.pid


PARENT = """
import asyncio, sys
from pathlib import Path
from devcluster.processes import Command, ManagedProcess

async def main():
    process = ManagedProcess(Command("demo", Path("/bin/sh"), ("-c", "exec sleep 600")), Path(sys.argv[1]))
    await process.start()
    print(process.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_it_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    gone, alive = psutil.wait_procs([child], timeout=10)
    assert (gone, alive) == ([child], [])
