"""Spans of a whole stack at a collector: one trace per Job over the services, nothing secret in it, and no harm when nobody collects."""

from __future__ import annotations

import asyncio
import signal
import time
import uuid
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from cli.observe import Observer, observing
from devcluster.options import ClusterOptions
from devcluster.stack import Stack
from shared.events.streams import SERVICES
from shared.kube.client import KubeClient
from tests.collector import Collector
from tests.eventually import eventually
from tests.integration.stack.manifests import as_list, create_job, job, queue

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

LIFE = {
    "watcher.job_seen",
    "watcher.create_workload",
    "scheduler.admit",
    "watcher.apply_admission",
    "watcher.start_job",
}
SECRET = "hunter2-hunter2"

Traced = tuple[Collector, Stack, KubeClient, Observer]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def traced() -> AsyncIterator[Traced]:
    with Collector() as collector:
        settings = {"SLUICE_TRACE_OTLP_ENDPOINT": collector.url, "SLUICE_TRACE_FILE": ""}
        async with (
            Stack(ClusterOptions(default_pod_seconds=0.5), settings=settings) as stack,
            observing(stack.cluster.kubeconfig) as (client, seen),
        ):
            await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*queue("traced")))
            yield collector, stack, client, seen


async def test_one_trace_follows_a_job_through_the_services(traced: Traced) -> None:
    collector, stack, client, _ = traced
    manifest = job("traced-0", "traced")
    manifest["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": SECRET}]
    uid = await create_job(client, manifest)

    async def names() -> set[str]:
        spans = await asyncio.to_thread(collector.spans)
        return {span.name for _, span in spans if span.trace_id.hex() == uuid.UUID(uid).hex}

    assert await eventually(names, 30, lambda found: found >= LIFE) >= LIFE
    services = {service for service, span in collector.spans() if span.trace_id.hex() == uuid.UUID(uid).hex}
    assert services == {"sluice-watcher", "sluice-scheduler"}
    secrets = [SECRET, *(stack.nats.password(service) for service in SERVICES)]
    for body in list(collector.bodies):
        assert not [secret for secret in secrets if secret.encode() in body]
    assert b"traced-0" in b"".join(collector.bodies)


async def test_a_collector_that_hangs_disturbs_nobody(traced: Traced) -> None:
    collector, stack, client, seen = traced
    collector.answering.clear()
    try:
        for number in range(5):
            await create_job(client, job(f"hanging-{number}", "traced"))
        assert await seen.until(lambda: all(_complete(seen, f"default/hanging-{n}") for n in range(5)), 40)
        pages = {name: service.starts for name, service in stack.services.items()}
        assert set(pages.values()) == {1}, "none of them was started again"
        await stack.wait_ready(2)
        began = time.monotonic()
        await stack.restart("watcher", signal.SIGTERM)
        assert time.monotonic() - began < 5, "it ends although it has spans that nobody takes"
    finally:
        collector.answering.set()


def _complete(seen: Observer, key: str) -> bool:
    return key in seen.jobs and seen.jobs[key].complete
