"""Bad input: one clear error where its owner looks, and everything else goes on."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import nats
import pytest

from cli.observe import Observer
from devcluster.kubectl import KubectlError
from devcluster.stack import ROOT, SERVICES, Stack
from shared.api.conditions import find
from shared.events import subjects
from shared.kube.client import KubeClient
from tests.integration.stack.manifests import as_list, cluster_queue, create_job, flavor, job, local_queue, queue

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

Watched = tuple[KubeClient, Observer]


async def runs(seen: Observer, client: KubeClient, name: str, queue_name: str) -> bool:
    """Whether a new Job of that queue completes."""
    await create_job(client, job(name, queue_name, "10m"))
    return await seen.until(lambda: (j := seen.jobs.get(f"default/{name}")) is not None and j.complete, 30)


def reason(seen: Observer, workload_of: str, type_: str) -> str:
    """Reason of a condition of the workload that belongs to a Job."""
    for workload in seen.workloads.values():
        if workload.metadata.name.startswith(f"job-{workload_of}-"):
            condition = find(workload.status.conditions, type_)
            return condition.reason if condition else ""
    return ""


async def test_malformed_messages_on_every_stream(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*queue("garbled")))
    assert await runs(seen, client, "before-garbage", "garbled")
    starts = {name: service.starts for name, service in stack.services.items()}
    epoch = await newest_epoch(stack)
    gateway = await nats.connect(stack.url_of("watcher"), inbox_prefix="_INBOX_watcher")
    stream = gateway.jetstream()
    for subject in (
        subjects.objects("workload", "default", "garbage"),
        subjects.objects("clusterqueue", "", "garbage"),
        "sluice.objects.nokind.x.y",
        subjects.decisions("0", epoch),
        subjects.OUTCOMES_OF_DECISIONS,
        subjects.OUTCOMES_OF_COMMANDS,
        "sluice.events._.nonsense.x",
    ):
        for payload in (b"\xff\x00not a message", b"", b"\x80"):
            await stream.publish(subject, payload)
    await gateway.close()
    for service in ("queue_manager", "scheduler", "preemptor", "provisioning_request"):
        writer = await nats.connect(stack.url_of(service), inbox_prefix=f"_INBOX_{service}")
        subject = f"sluice.commands.{service}.set-active.workload.default.garbage"
        await writer.jetstream().publish(subject, b"\xc1garbage")
        await writer.close()
    assert await runs(seen, client, "after-garbage", "garbled")
    assert {name: service.starts for name, service in stack.services.items()} == starts, "a service died of garbage"
    assert await dead_letters(stack) > 0
    assert seen.verifier.problems == []


async def newest_epoch(stack: Stack) -> int:
    gateway = await nats.connect(stack.url_of("watcher"), inbox_prefix="_INBOX_watcher")
    try:
        names = [s.config.name or "" for s in await gateway.jetstream().streams_info()]
    finally:
        await gateway.close()
    return max(int(n.rsplit("_", 1)[1]) for n in names if n.startswith("DECISIONS_0_"))


async def dead_letters(stack: Stack) -> int:
    gateway = await nats.connect(stack.url_of("watcher"), inbox_prefix="_INBOX_watcher")
    try:
        return (await gateway.jetstream().stream_info("DEADLETTER")).state.messages
    finally:
        await gateway.close()


async def test_a_cluster_queue_that_names_a_missing_flavor(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    good = queue("beside-missing")
    bad = [cluster_queue("missing", flavors=("not-there",)), local_queue("missing")]
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*good, *bad))

    def active() -> str:
        queue_object = seen.cluster_queues.get("missing")
        condition = find(queue_object.status.conditions, "Active") if queue_object else None
        return f"{condition.status} {condition.reason} {condition.message}" if condition else ""

    assert await seen.until(lambda: active().startswith("False FlavorNotFound"), 15), active()
    assert "not-there" in active()
    await create_job(client, job("waits-for-flavor", "missing"))
    assert await seen.until(lambda: reason(seen, "waits-for-flavor", "QuotaReserved") == "Suspended", 15)
    assert await runs(seen, client, "not-disturbed", "beside-missing")
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(flavor("not-there")))
    assert await seen.until(lambda: seen.jobs["default/waits-for-flavor"].complete, 30)


async def test_a_job_with_an_impossible_request(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*queue("impossible")))
    await create_job(client, job("too-big", "impossible", "1000"))
    assert await seen.until(lambda: reason(seen, "too-big", "QuotaReserved") == "ExceedsMaxQuota", 15)
    assert await runs(seen, client, "fits-behind", "impossible"), "BestEffortFIFO lets others pass"
    assert seen.jobs["default/too-big"].suspended


async def test_a_job_for_a_queue_that_does_not_exist_yet(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    await create_job(client, job("early", "comes-later"))
    assert await seen.until(lambda: reason(seen, "early", "QuotaReserved") == "Misconfigured", 15)
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*queue("comes-later")))
    assert await seen.until(lambda: seen.jobs["default/early"].complete, 30)


async def test_refusals_name_the_field(stack: Stack) -> None:
    bad = cluster_queue("refused", "-1")
    with pytest.raises(KubectlError) as refusal:
        await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(bad))
    assert "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: Invalid value" in refusal.value.stderr


@pytest.mark.parametrize("service", SERVICES)
async def test_a_bad_settings_file_is_one_line_that_names_file_and_field(service: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(json.dumps({service: {"no_such_setting": 1}}))
    environment = {**os.environ, "SLUICE_SETTINGS": str(path), "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"services.{service}", stderr=asyncio.subprocess.PIPE, env=environment
    )
    _, errors = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 2
    assert errors.decode().splitlines() == [
        f"sluice {service}: settings: {path}: {service}.no_such_setting: no such setting"
    ]
