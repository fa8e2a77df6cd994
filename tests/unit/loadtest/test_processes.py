"""CPU time and memory of real processes."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil

from loadtest.processes import ProcessUsage, Sample, busy_s

BURN = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass\nprint('done', flush=True); input()"


def burner() -> subprocess.Popen[bytes]:
    """A process that has used a fifth of a second once it printed."""
    return subprocess.Popen([sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def wait_done(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    process.stdout.readline()


def test_cpu_counts_from_the_first_look() -> None:
    usage = ProcessUsage(lambda: {"me": os.getpid()})
    usage.look()
    (before,) = usage.usage()
    assert (before.name, before.cpu_s, before.starts) == ("me", 0.0, 1)
    assert before.peak_mib > 1
    sum(i * i for i in range(3_000_000))
    usage.look()
    assert usage.usage()[0].cpu_s > 0


def test_a_process_that_was_replaced_counts_with_its_successor() -> None:
    pids: dict[str, int] = {}
    usage = ProcessUsage(lambda: pids)
    total = 0.0
    for _ in range(2):
        with burner() as process:
            try:
                pids["worker"] = process.pid
                usage.look()
                wait_done(process)
                usage.look()
            finally:
                process.kill()
        # Gone, but still named: its last sample stays.
        usage.look()
        (found,) = usage.usage()
        assert found.cpu_s > total
        total = found.cpu_s
    assert found.starts == 2


def test_the_machine_is_busier_after_work() -> None:
    before = busy_s()
    with burner() as process:
        try:
            wait_done(process)
        finally:
            process.kill()
    # The kernel counts in ticks of a hundredth of a second.
    assert busy_s() - before > 0.15


PARENT = f"import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', {BURN!r}], stdin=subprocess.PIPE); child.wait()"


def test_children_count_with_their_parent_if_they_are_asked_for() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        try:
            wait_done(parent)
            whole = ProcessUsage(lambda: {"parent": parent.pid}, tree=("parent",))
            alone = ProcessUsage(lambda: {"parent": parent.pid})
            for usage in (whole, alone):
                usage.look()
        finally:
            for child in psutil.Process(parent.pid).children():
                child.kill()
            parent.kill()
    (with_child,), (only,) = whole.usage(), alone.usage()
    assert with_child.starts == only.starts == 1
    assert with_child.peak_mib > only.peak_mib * 1.3


def test_memory_together_is_that_of_one_moment() -> None:
    usage = ProcessUsage(dict)
    usage.samples["a"] = [Sample(1.0, 0.0, 100.0), Sample(2.0, 0.0, 10.0)]
    usage.samples["b"] = [Sample(1.0, 0.0, 5.0), Sample(2.0, 0.0, 50.0)]
    assert usage.peak_together_mib(("a", "b")) == 105.0
    assert usage.peak_together_mib(()) == 0.0
