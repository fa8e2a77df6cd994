"""Outcomes are published before anything they answer is let go, and never lost by a bus that is away."""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from services.watcher import outcomes
from services.watcher.outcomes import OutcomePublisher
from shared.bus.interface import GatewayBus, OpenCommand, StreamsLost
from shared.events.commands import SyncAdmitted
from shared.events.outcomes import CommandOutcome, Outcome

COMMAND = OpenCommand(SyncAdmitted(id="c", kind="workload", name="w"), "queue_manager", "s", 1)
OUTCOME = CommandOutcome(command="c", subject="s", status="applied")


class Bus:
    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.happened: list[str] = []

    async def settle(self, found: Sequence[Outcome]) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.happened.append(f"settle {len(found)}")

    async def close_commands(self, found: Sequence[OpenCommand]) -> None:
        self.happened.append(f"close {len(found)}")


async def publish(bus: Bus, number: int = 1) -> None:
    publisher = OutcomePublisher(cast(GatewayBus, bus))
    done = asyncio.Event()
    for _ in range(number):
        publisher.put(OUTCOME, command=COMMAND, done=done.set)
    task = asyncio.create_task(publisher.run())
    async with asyncio.timeout(10):
        await done.wait()
    task.cancel()
    bus.happened.append("done")


async def test_an_outcome_is_out_before_its_command_is_deleted() -> None:
    bus = Bus()
    await publish(bus, 3)
    assert bus.happened == ["settle 3", "close 3", "done"]


async def test_a_bus_that_is_away_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "_PAUSE_S", 0)
    bus = Bus(TimeoutError(), TimeoutError())
    await publish(bus)
    assert bus.happened == ["settle 1", "close 1", "done"]


async def test_what_went_with_the_streams_is_dropped_and_no_command_of_the_new_ones_is_deleted() -> None:
    bus = Bus(StreamsLost("wiped"))
    await publish(bus)
    assert bus.happened == ["done"]


async def test_who_is_not_active_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "_PAUSE_S", 0)
    bus, asked = Bus(), [False, False, True]
    publisher = OutcomePublisher(cast(GatewayBus, bus), may_speak=lambda: asked.pop(0))
    done = asyncio.Event()
    publisher.put(OUTCOME, command=COMMAND, done=done.set)
    task = asyncio.create_task(publisher.run())
    async with asyncio.timeout(10):
        await done.wait()
    task.cancel()
    assert asked == []
    assert bus.happened == ["settle 1", "close 1"]
