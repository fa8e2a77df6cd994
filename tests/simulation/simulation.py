"""Runs one scenario from its first object to rest, and says what became of it: the same scenario, the same report."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from random import Random

import msgspec

from shared.testing.virtual_time import VirtualTimeLoop, machine, unheard
from tests.simulation import ending
from tests.simulation.invariants import Violation
from tests.simulation.scenario import Scenario
from tests.simulation.wiring import wired
from tests.simulation.world import World


class Report(msgspec.Struct, frozen=True):
    """What became of a scenario. `digest` is the same for the same seed, whatever the machine."""

    scenario: Scenario
    violations: tuple[Violation, ...]
    faults: Counter[str]
    steps: int
    """Commits of the API server, messages that streams took, answers and batches of events that set out."""
    workloads: int
    seconds: float
    """Virtual ones."""
    digest: str
    story: tuple[str, ...] = ()
    admissions: int = 0
    evictions: int = 0
    processor_s: float = 0.0
    """Real seconds of one core."""


def simulate(scenario: Scenario, look: Callable[[World], None] = lambda world: None) -> Report:
    """Run a scenario; the same one gives the same report. `look` is shown the world at its end."""
    before = logging.root.manager.disable
    began = time.process_time()
    logging.disable(logging.CRITICAL)
    try:
        with unheard():
            report = _simulate(scenario, look)
        return msgspec.structs.replace(report, processor_s=time.process_time() - began)
    finally:
        logging.disable(before)


def _simulate(scenario: Scenario, look: Callable[[World], None]) -> Report:
    loop = VirtualTimeLoop(Random(f"loop {scenario.seed}"))
    asyncio.set_event_loop(loop)
    try:
        with machine(loop, scenario.seed):
            world = loop.run_until_complete(_run(scenario, loop))
            look(world)
            return _report(world)
    finally:
        loop.close()
        asyncio.set_event_loop(None)


async def _run(scenario: Scenario, loop: VirtualTimeLoop) -> World:
    world = World(scenario, loop)
    with wired(world):
        await world.run()
    return world


def _report(world: World) -> Report:
    found = tuple(world.invariants.violations)
    story: tuple[str, ...] = ()
    if found:
        story = tuple(world.story.lines(found[0].keys, until=found[0].at))
    return Report(
        scenario=world.scenario,
        violations=found,
        faults=world.faults,
        steps=len(world.api.history) + world.stored + world.passed,
        workloads=len(world.users.jobs) + len(world.users.workloads),
        seconds=world.loop.time(),
        digest=ending.digest(world),
        story=story,
        admissions=world.invariants.reservations,
        evictions=world.invariants.evictions,
    )
