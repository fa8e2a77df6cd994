"""Passing over workloads that ask for no less than a refused one changes nothing of what is decided."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.decide import hopeless
from shared.decide.cycle import run_batch
from shared.model.world import World
from tests.unit.model.builders import group, local, put, queue, workload, world

AMOUNTS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 2), st.integers(0, 20)), min_size=1, max_size=25)


def crowd(amounts: list[tuple[int, int, int]], within: str) -> World:
    """One ClusterQueue of 12 cpu and workloads (cpu, priority, created) that all differ."""
    built = world(queue("cq", group(default="cpu=12"), within_cluster_queue=within), local("lq", "cq"))
    for number, (cpu, priority, created) in enumerate(amounts):
        text = f"{cpu * 1000 + number}m"
        put(built, workload(f"w{number}", cpu=text, priority=priority, created=created))
    return built


def decided(built: World) -> list[tuple[str, str]]:
    batch = run_batch(built, 100.0)
    return sorted((type(decision).__name__, decision.key) for decision in batch.decisions)


@pytest.mark.parametrize("within", ["Never", "LowerPriority"])
@settings(max_examples=60, deadline=None)
@given(amounts=AMOUNTS, later=AMOUNTS)
def test_same_decisions_as_by_looking_at_each(
    within: str, amounts: list[tuple[int, int, int]], later: list[tuple[int, int, int]]
) -> None:
    quick, plain = crowd(amounts, within), crowd(amounts, within)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hopeless.HopelessFamilies, "_consider", lambda self, refused: None)
        by_each = decided(plain)
    assert decided(quick) == by_each
    for built in (quick, plain):
        for number, (cpu, priority, created) in enumerate(later):
            put(built, workload(f"x{number}", cpu=f"{cpu * 1000 + 500 + number}m", priority=priority, created=created))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hopeless.HopelessFamilies, "_consider", lambda self, refused: None)
        by_each = decided(plain)
    assert decided(quick) == by_each


def test_a_crowd_that_cannot_fit_is_parked_after_one_look() -> None:
    built = crowd([(9, 0, 0)] + [(8, 0, place) for place in range(1, 20)], "Never")
    batch = run_batch(built, 100.0)
    assert [admit.key for admit in batch.admits] == ["ns/w0"]
    assert len(batch.refused) == 1
    line = built.pending.queues["cq"]
    assert len(line.heap) == 0
    assert len(line.inadmissible) == 19
    assert {line.parked_reason(key) for key in line.inadmissible} == {"WaitingForQuota"}


def test_a_higher_priority_in_a_parked_family_is_looked_at() -> None:
    built = crowd([(9, 0, 0)] + [(8, 0, place) for place in range(1, 5)], "LowerPriority")
    run_batch(built, 100.0)
    put(built, workload("urgent", cpu="11500m", priority=5))
    batch = run_batch(built, 100.0)
    assert [preempt.key for preempt in batch.preempts] == ["ns/w0"]
