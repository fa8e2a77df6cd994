"""The reference work: fixed, and measured beside a load."""

from __future__ import annotations

import asyncio

from loadtest import reference


def test_the_work_is_always_the_same() -> None:
    """Whoever changes it makes all budgets void."""
    assert reference.work() == reference.work() == 25032


def test_it_takes_a_time_that_clocks_can_tell() -> None:
    assert 0.05 < reference.measure() < 1000


async def test_beside_a_load_it_is_measured_in_another_process() -> None:
    async with reference.beside() as found:
        assert found.milliseconds == 0.0
        # Long enough for an interpreter to start and to measure once.
        async with asyncio.timeout(30):
            process = await asyncio.create_subprocess_exec("true")
            await process.wait()
    assert found.milliseconds >= 0.0
