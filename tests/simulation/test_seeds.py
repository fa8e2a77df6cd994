"""Seeds of the mixed generator keep all promises: a share of them with every run of the tests, thousands by `make simulate`."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys

import pytest

from tests.simulation.generators import mixed
from tests.simulation.run import LEAST_FAULTS, LEAST_STEPS, LEAST_WORKLOADS, many, told
from tests.simulation.simulation import simulate

SEEDS = int(os.environ.get("SLUICE_SIMULATION_SEEDS", "300"))


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


def test_a_seed_is_one_history_whatever_the_hash_of_a_text() -> None:
    """Seed 5 was two: an order of reports came out of a set of texts, and those hash differently in every process."""

    def digest(hash_seed: str) -> bytes:
        code = "from tests.simulation.run import one; report = one(5); print(report.digest, report.steps)"
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True).stdout

    assert digest("0") == digest("12")


def test_a_seed_after_others_is_the_same_as_a_seed_alone() -> None:
    first, _, again = simulate(mixed(7)), simulate(mixed(8)), simulate(mixed(7))
    assert first.digest == again.digest
    assert first.steps == again.steps
