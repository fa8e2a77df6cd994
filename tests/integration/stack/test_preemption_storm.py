"""The storm of `tests.chaos.storm` in small: 40 urgent Jobs preempt 40 others while services are killed at random."""

from __future__ import annotations

import os

import pytest
from rich.console import Console

from cli.observe import observing
from devcluster.options import ClusterOptions
from devcluster.stack import Stack
from tests.chaos.judge import Judge
from tests.chaos.storm import Storm

JOBS = 40
SEED = int(os.environ.get("SLUICE_STORM_SEED", "4"))
"""Of who is killed when; set the variable to try another order."""
pytestmark = [pytest.mark.integration, pytest.mark.timeout(420)]


async def test_a_preemption_storm_while_services_are_killed() -> None:
    console = Console(stderr=True, highlight=False)
    async with Stack(ClusterOptions(default_pod_seconds=0.5), console=console) as stack:
        async with observing(stack.cluster.kubeconfig) as (client, seen):
            judge = seen.verifier = Judge()
            storm = Storm(stack, client, seen, judge, JOBS, SEED, console)
            assert await storm.run() == []
        restarts = sum(service.starts - 1 for service in stack.services.values())
    assert len(storm.kills) == restarts == JOBS // 5
