"""Every series and label that the dashboard of compose.yaml and the alerts use is one that the running services export."""

from __future__ import annotations

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cli.observe import Observer
from devcluster.stack import Stack
from shared.kube.client import KubeClient
from shared.telemetry.metrics import EVENTS, PREFIX, ROLE, STATE
from tests.eventually import eventually
from tests.integration.stack.manifests import as_list, create_job, job, queue
from tests.unit.k8s.dashboard import expression, expressions
from tests.unit.k8s.test_overlays import alerts

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

ADDED_BY_PROMETHEUS = {"service", "job", "instance"}
ENDINGS = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",), "gauge": ("",)}


async def exported(stack: Stack) -> dict[str, set[str]]:
    """Series -> its labels, of all services; those of a family without samples are not known here."""
    found: dict[str, set[str]] = {}
    async with aiohttp.ClientSession() as session:
        for service in stack.services.values():
            async with session.get(f"http://127.0.0.1:{service.health_port}/metrics") as response:
                page = await response.text()
            for family in text_string_to_metric_families(page):
                for ending in ENDINGS.get(family.type, ()):
                    found.setdefault(family.name + ending, set())
                for sample in family.samples:
                    found.setdefault(sample.name, set()).update(sample.labels)
    return found


async def test_the_dashboard_shows_what_is_exported(stack: Stack, watched: tuple[KubeClient, Observer]) -> None:
    client, seen = watched
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*queue("dashboard")))
    await create_job(client, job("dashboard-job", "dashboard"))
    assert await seen.until(
        lambda: "default/dashboard-job" in seen.jobs and not seen.jobs["default/dashboard-job"].suspended, 20
    )
    table = {
        PREFIX + row.name.removesuffix("_total") + ending: {*row.labels, ROLE, "le"}
        for row in (*EVENTS, *STATE)
        for ending in ENDINGS[row.kind]
    }

    used = [*expressions(), *(expression(rule["alert"], rule["expr"]) for rule in alerts())]
    # What others export is not ours to check.
    used = [one for one in used if one.series]

    async def wrong() -> list[str]:
        there = {"up": ADDED_BY_PROMETHEUS, **await exported(stack)}
        found = [f"{e.panel}: no series {s}" for e in used for s in e.series - there.keys()]
        for one in used:
            labels = {label for s in one.series for label in there.get(s, set()) | table.get(s, set())}
            found += [f"{one.panel}: no label {x}" for x in one.labels - labels - ADDED_BY_PROMETHEUS]
        return sorted(found)

    # Labels show with the first sample, which may come some moments after what it counts.
    assert await eventually(wrong, 20, lambda found: not found) == []
