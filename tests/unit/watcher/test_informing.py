"""One budget for what informs: shares, order, and what happens to those who give up."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from services.watcher.informing import Informing, Purpose


@contextlib.asynccontextmanager
async def running(informing: Informing) -> AsyncIterator[asyncio.TaskGroup]:
    """With the budget handed out, and a group for those who ask."""
    async with asyncio.TaskGroup() as asking:
        giving = asyncio.create_task(informing.run())
        try:
            yield asking
        finally:
            giving.cancel()
            await asyncio.wait({giving})
    assert giving.cancelled()


async def first_turns(informing: Informing, asked: dict[Purpose, int], number: int) -> Counter[Purpose]:
    """Who had the first turns, when so many of each asked at the same time."""
    turns: list[Purpose] = []
    done = asyncio.Event()

    async def ask(purpose: Purpose) -> None:
        async with informing.of(purpose).spend():
            turns.append(purpose)
            if len(turns) == number:
                done.set()

    async with running(informing) as group:
        tasks = [group.create_task(ask(purpose)) for purpose, count in asked.items() for _ in range(count)]
        async with asyncio.timeout(5):
            await done.wait()
        for task in tasks:
            task.cancel()
    return Counter(turns[:number])


async def test_when_all_have_much_to_say_each_gets_its_share() -> None:
    informing = Informing(status_per_s=5000, events_per_s=1000, burst=1)
    asked = dict.fromkeys(Purpose, 60)
    assert await first_turns(informing, asked, 60) == {
        Purpose.QUEUES: 30,
        Purpose.PENDING: 20,
        Purpose.EVENTS: 10,
    }


@pytest.mark.parametrize("purpose", list(Purpose))
async def test_what_others_do_not_use_goes_to_who_asks(purpose: Purpose) -> None:
    informing = Informing(status_per_s=5000, events_per_s=1000, burst=1)
    assert await first_turns(informing, {purpose: 40}, 40) == {purpose: 40}


async def test_who_was_away_has_saved_nothing_up() -> None:
    informing = Informing(status_per_s=5000, events_per_s=1000, burst=1)
    await first_turns(informing, {Purpose.QUEUES: 50}, 50)
    turns = await first_turns(informing, {Purpose.QUEUES: 30, Purpose.PENDING: 30}, 25)
    assert turns[Purpose.QUEUES] >= 14


async def test_turns_come_at_the_rate_of_all_purposes_together() -> None:
    informing = Informing(status_per_s=150, events_per_s=50, burst=1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await first_turns(informing, {Purpose.QUEUES: 11, Purpose.EVENTS: 10}, 21)
    # The first turn is there at once, twenty more come at 200 a second.
    assert loop.time() - began >= 0.095


async def test_who_gives_up_costs_nobody_a_turn() -> None:
    informing = Informing(status_per_s=1000, events_per_s=1000, burst=1)
    gone = asyncio.create_task(informing.turn(Purpose.EVENTS))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait({gone})
    assert await first_turns(informing, {Purpose.EVENTS: 3}, 3) == {Purpose.EVENTS: 3}


async def test_after_silence_the_next_one_is_heard() -> None:
    informing = Informing(status_per_s=1000, events_per_s=1000, burst=5)
    async with running(informing), asyncio.timeout(5):
        for _ in range(20):
            async with informing.of(Purpose.PENDING).spend():
                await asyncio.sleep(0)


async def test_while_what_matters_queues_up_it_goes_at_a_third() -> None:
    busy = True
    informing = Informing(status_per_s=100, events_per_s=100, burst=3, is_busy=lambda: busy)
    loop = asyncio.get_running_loop()
    began = loop.time()
    # The burst pays for the first turn, the next five cost three tokens each, of 200 a second.
    await first_turns(informing, {Purpose.QUEUES: 6}, 6)
    assert loop.time() - began >= 0.07
    busy = False
    began = loop.time()
    await first_turns(informing, {Purpose.QUEUES: 6}, 6)
    assert loop.time() - began < 0.07
