"""The named interleavings about evictions (6 of the design's list): issued again after a rejection, late for a victim that runs again, and the freed quota in
reach of others."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from shared.api import names
from shared.events import decisions, outcomes
from shared.events.decisions import Admit, Batch, Preempt
from shared.events.outcomes import CommandOutcome
from shared.kube.resources import WORKLOADS
from shared.testing.simulated_bus import StoredMessage
from tests.simulation.scenario import Step
from tests.simulation.test_interleavings import VARIANTS, a_job, chapters, fault, queues, run
from tests.simulation.world import World


def of_key(world: World, key: str, kind: type[Any]) -> list[tuple[Any, Any]]:
    """(id, decision) of the decisions about a workload, in log order."""
    return [(d[0], d[1]) for d in chapters(world, key, "decided") if isinstance(d[1], kind)]


@pytest.mark.parametrize("seed", VARIANTS)
def test_an_eviction_is_issued_again_after_a_rejection(seed: int) -> None:
    """The victim is edited while the first one is on its way."""
    edited: list[str] = []

    def watch(world: World) -> None:
        def stored(message: StoredMessage) -> None:
            entry = decisions.codec.decode(message.payload) if message.stream.startswith("DECISIONS") else None
            victims = [d.key for d in getattr(entry, "decisions", ()) if isinstance(d, Preempt)]
            if victims and not edited:
                edited.append(victims[0])
                world.later(0.0, edit, victims[0])

        def edit(key: str) -> None:
            patch = {"spec": {"priority": 1}}
            namespace, _, name = key.partition("/")
            world.api.write(WORKLOADS, namespace, name, patch, user="user")

        world.broker.subscribe(stored)

    def again(world: World) -> None:
        (victim,) = edited
        (first, _), *later = of_key(world, victim, Preempt)
        said = {d[0]: d[1] for d in chapters(world, victim, "outcome")}
        assert said[first] == "rejected"
        # Another one may do as well; somebody was evicted for whoever asked.
        keys = [key for key in world.story._chapters if of_key(world, key, Preempt)]
        assert later or len(keys) > 1
        assert all(wanted.done for wanted in world.users.jobs.values())

    load = [a_job(1.0 + 0.01 * i, f"low{i}", runs_s=6.0) for i in range(8)]
    load.append(a_job(2.5, "high", cpu="2", high=True, runs_s=0.5))
    faults = [fault(2.0, "call", watch), fault(2.4, "slow_link", "watcher-0", "api", 0.2, 1.0)]
    report = run(seed, load, faults, look=again)
    assert edited
    assert report.evictions


@pytest.mark.parametrize("seed", VARIANTS)
def test_an_eviction_arrives_after_its_victim_was_released_and_admitted_again(seed: int) -> None:
    """A queue drains for a moment. The commands that say so are late: meanwhile somebody urgent came, and its victims run again."""
    late: list[CommandOutcome] = []

    def hold(world: World) -> None:
        world.broker.delay(4.0, "commands", service="watcher")

    def watch(world: World) -> None:
        def stored(message: StoredMessage) -> None:
            outcome = outcomes.codec.decode(message.payload) if message.stream == "OUTCOMES" else None
            if isinstance(outcome, CommandOutcome) and outcome.status == "rejected":
                late.append(outcome)

        world.broker.subscribe(stored)

    def once(world: World) -> None:
        evicted = [
            (
                key,
                sum(names.EVICTED in now and names.EVICTED not in before for before, now in pairwise(states)),
            )
            for key in world.story._chapters
            if (states := chapters(world, key, "commit"))
        ]
        twice = [key for key, times in evicted if times > 1]
        assert not twice
        assert any(len(of_key(world, key, Admit)) > 1 for key in world.story._chapters)

    load = [a_job(1.0 + 0.01 * i, f"low{i}", runs_s=7.0) for i in range(4)]
    load += [Step(2.0, "stop_queue", ("cq0", "HoldAndDrain")), Step(2.3, "stop_queue", ("cq0", "None"))]
    load.append(a_job(2.4, "high", cpu="4", high=True, runs_s=0.3))
    faults = [fault(1.9, "call", hold), fault(1.9, "call", watch)]
    run(seed, load, faults, setup=queues(count=1), active_s=16.0, look=once)
    assert late


@pytest.mark.parametrize("seed", VARIANTS)
def test_freed_quota_goes_to_whoever_it_was_freed_for(seed: int) -> None:
    """Others of lower priority wait for a part of it, in the same queue and in its cohort, from before the victims go until they are gone."""

    def in_order(world: World) -> None:
        order: list[str] = []
        for name in (n for n in world.broker.streams if n.startswith("DECISIONS")):
            for message in world.broker.streams[name].messages.values():
                entry = decisions.codec.decode(message.payload)
                if isinstance(entry, Batch):
                    order += [d.key for d in entry.decisions if isinstance(d, Admit)]
        high = next(i for i, key in enumerate(order) if "high" in key)
        late = [i for i, key in enumerate(order) if "late" in key]
        assert late
        assert min(late) > high

    load = [a_job(1.0 + 0.01 * i, f"low{i}", queue=f"cq{i % 2}", runs_s=7.0) for i in range(8)]
    load.append(a_job(2.5, "high", cpu="4", high=True, runs_s=1.0))
    load += [a_job(2.45 + 0.05 * i, f"late{i}", queue=f"cq{i % 2}", runs_s=0.3) for i in range(12)]
    run(seed, load, [fault(2.4, "slow_link", "watcher-0", "api", 0.3, 3.0)], active_s=16.0, look=in_order)
