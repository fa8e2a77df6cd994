"""The manifests that Kueue's documentation gives to its users run through as they are: applied with their queues, admitted, and finished where
something can end them. Of a kind whose controller is not here, a driver tells the end in its status.

Needs `../shared`, which a lone clone has not.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from shared.kube.resources import DEPLOYMENTS, JOBS, PODS, Resource
from tests.eventually import eventually
from tests.integration.stack.kind_cluster import CRON_JOBS, Cluster, cluster_of_all_kinds, condition, resource_of
from tests.integration.stack.kind_rows import ROWS
from tests.integration.stack.manifests import Manifest

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "samples"
FOLDERS = ("jobs", "pods-kueue", "serving-workloads")
ELSEWHERE = ("sample-leaderworkerset", "sample-statefulset")
"""Those of sets are run in `test_serving`, which has their controllers."""
WORKLOADS_OF = {"sample-deployment": 3}
"""How many workloads there are at once; of all others one."""
SECONDS = 90
"""Longer than the minute after which a CronJob runs first."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with cluster_of_all_kinds(tmp_path_factory.mktemp("configuration")) as made:
        # The queue that all of them name.
        await made.stack.cluster.kubectl("apply", "-f", str(SAMPLES / "admin" / "single-clusterqueue-setup.yaml"))
        yield made


def samples() -> list[Path]:
    found = [path for folder in FOLDERS for path in sorted((SAMPLES / folder).glob("*.yaml"))]
    return [path for path in found if path.stem not in ELSEWHERE]


def resource(made: Manifest) -> Resource:
    known = {r.kind: r for r in (*(resource_of(row) for row in ROWS), CRON_JOBS, DEPLOYMENTS, JOBS, PODS)}
    return known[made["kind"]]


async def told_to_end(cluster: Cluster, made: Manifest) -> bool:
    """Whether it ends: what fake kubelets run does by itself, some kinds when their controller says so, others never."""
    row = next((row for row in ROWS if row.kind.kind == made["kind"]), None)
    if row is None:
        return bool(made["kind"] != "Deployment")
    if row.succeeded is None:
        return False
    await cluster.patch(resource_of(row), made["metadata"]["name"], {"status": row.succeeded}, "status")
    return True


@pytest.mark.parametrize("path", samples(), ids=lambda path: f"{path.parent.name}-{path.stem}")
async def test_runs_through_unmodified(cluster: Cluster, path: Path) -> None:
    said = await cluster.stack.cluster.kubectl("create", "-n", "default", "-o", "name", "-f", str(path))
    objects = [
        json.loads(await cluster.stack.cluster.kubectl("get", "-n", "default", "-o", "json", name))
        for name in said.split()
    ]

    async def conditions(type_: str) -> list[Any]:
        return [condition(workload, type_) for workload in await cluster.workloads()]

    count = WORKLOADS_OF.get(path.stem, 1)
    admitted = [("True", "Admitted")] * count
    assert await eventually(lambda: conditions("Admitted"), SECONDS, lambda found: found == admitted) == admitted
    if all([await told_to_end(cluster, made) for made in objects]):
        finished = [("True", "Succeeded")] * count
        last = await eventually(lambda: conditions("Finished"), SECONDS, lambda found: found[:count] == finished)
        assert last[:count] == finished
    for made in objects:
        await cluster.client.delete(resource(made), "default", made["metadata"]["name"], propagation="Background")

    async def left() -> int:
        return len(await cluster.workloads()) + await cluster.reserving("cluster-queue")

    assert await eventually(left, SECONDS, lambda n: n == 0) == 0


async def test_every_sample_is_run() -> None:
    """What is left out is named, and is there."""
    run = {path.stem for path in samples()}
    there = {path.stem for folder in FOLDERS for path in (SAMPLES / folder).glob("*.yaml")}
    assert there - run == (set(ELSEWHERE) if there else set())
