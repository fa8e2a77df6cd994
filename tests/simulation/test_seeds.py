"""Seeds of the mixed generator keep all promises: a share of them with every run of the tests, thousands by `make simulate`."""

from __future__ import annotations

import multiprocessing
import os

import pytest

from tests.simulation.generators import mixed
from tests.simulation.run import LEAST_FAULTS, LEAST_STEPS, LEAST_WORKLOADS, many, told
from tests.simulation.world import simulate

SEEDS = int(os.environ.get("SLUICE_SIMULATION_SEEDS", "90"))


@pytest.mark.timeout(1800)
def test_seeds_keep_all_promises() -> None:
    """On every core. More are for `make simulate`."""
    broken = []
    for report in many(1, SEEDS, multiprocessing.cpu_count()):
        if report.violations:
            broken.append(told(report))
            continue
        assert report.workloads >= LEAST_WORKLOADS, report.scenario.seed
        assert report.steps >= LEAST_STEPS, report.scenario.seed
        assert report.faults.total() >= LEAST_FAULTS, report.scenario.seed
    assert not broken, "\n".join(broken)


def test_a_seed_is_one_history() -> None:
    first, second = simulate(mixed(7)), simulate(mixed(7))
    assert first.digest == second.digest
    assert first.steps == second.steps
