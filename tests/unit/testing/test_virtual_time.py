"""The loop whose time jumps: order, processes that are stopped and killed, and one history for one seed."""

from __future__ import annotations

import asyncio
import secrets
import time
import uuid
from random import Random

import pytest

from shared.testing.virtual_time import EPOCH, Idle, Process, VirtualTimeLoop, machine


async def ticks(told: list[float], count: int = 3) -> None:
    """One a second."""
    for _ in range(count):
        await asyncio.sleep(1)
        told.append(asyncio.get_running_loop().time())


def test_waiting_costs_nothing_and_lasts_as_long_as_it_says() -> None:
    loop = VirtualTimeLoop(Random(1))
    began = time.monotonic()
    loop.run_until_complete(asyncio.sleep(3600))
    assert loop.time() == 3600
    assert time.monotonic() - began < 5
    loop.close()


def test_what_can_never_happen_is_idle() -> None:
    loop = VirtualTimeLoop(Random(1))
    with pytest.raises(Idle):
        loop.run_until_complete(loop.create_future())
    loop.close()


def test_a_pause_too_short_for_the_clock_still_moves_it() -> None:
    loop = VirtualTimeLoop(Random(1))

    async def wait() -> None:
        until = asyncio.get_running_loop().time() + 1e-5
        while asyncio.get_running_loop().time() < until:  # noqa: ASYNC110 - the very thing that is tested
            await asyncio.sleep(1e-18)

    loop.run_until_complete(asyncio.sleep(1e6))
    loop.run_until_complete(wait())
    loop.close()


def test_a_stopped_process_is_late_and_a_killed_one_is_silent() -> None:
    loop = VirtualTimeLoop(Random(1))
    stopped, killed = Process("stopped"), Process("killed")
    late: list[float] = []
    never: list[float] = []
    ended: list[str] = []

    async def doomed() -> None:
        try:
            await ticks(never)
        finally:
            ended.append("told")

    async def main() -> None:
        loop.spawn(killed, doomed())
        work = loop.spawn(stopped, ticks(late))
        await asyncio.sleep(1.5)
        loop.kill_process(killed)
        loop.stop_process(stopped)
        await asyncio.sleep(4)
        loop.continue_process(stopped)
        await work
        assert ended == [], "not even its end is told"

    loop.run_until_complete(main())
    assert late == [1.0, 5.5, 6.5]
    assert never == [1.0]
    loop.close()


def history(seed: int) -> list[object]:
    loop = VirtualTimeLoop(Random(seed))
    told: list[object] = []

    async def worker(name: str) -> None:
        for i in range(20):
            await asyncio.sleep(0.5)
            told.append((name, i))

    async def main() -> None:
        tasks = [loop.spawn(Process(name), worker(name)) for name in "abc"]
        await asyncio.wait(set(tasks))
        told.extend([str(uuid.uuid4()), secrets.token_hex(4), time.time(), time.monotonic()])

    with machine(loop, seed):
        loop.run_until_complete(main())
    loop.close()
    return told


def test_one_seed_is_one_history_and_another_is_another() -> None:
    assert history(1) == history(1)
    assert history(1)[:60] != history(2)[:60], "whose turn it is among processes is drawn"
    assert history(1)[62] == EPOCH + 10


def test_the_machine_is_itself_again_afterwards() -> None:
    history(1)
    assert abs(time.time() - EPOCH) > 1e6
    assert uuid.uuid4() != uuid.uuid4()
