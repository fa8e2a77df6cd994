"""The webhook is away for a while on a running system: what is created meanwhile is refused whole, what runs and waits goes on, and nothing is lost."""

from __future__ import annotations

import json

import pytest

from cli.observe import Observer
from devcluster.kubectl import KubectlError
from devcluster.stack import Stack
from shared.kube.client import KubeClient
from tests.eventually import eventually
from tests.integration.stack.manifests import as_list, cluster_queue, create_job, flavor, job, local_queue

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

Watched = tuple[KubeClient, Observer]


async def test_nothing_is_lost_while_the_webhook_is_away(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    await stack.cluster.kubectl(
        "apply", "-f", "-", stdin=as_list(flavor("away"), cluster_queue("away", cpu="1"), local_queue("away"))
    )
    running = await create_job(client, job("away-first", "away", run_seconds="2"))
    first = "default/away-first"
    assert await seen.until(lambda: first in seen.jobs and not seen.jobs[first].suspended, 20)
    waiting = await create_job(client, job("away-second", "away"))
    assert await seen.until(
        lambda: waiting in {w.metadata.labels.get("kueue.x-k8s.io/job-uid") for w in seen.workloads.values()}, 20
    )

    webhook = stack.services["webhook"]
    webhook.hold()
    webhook.kill()
    await webhook.process.wait()
    try:
        # A Job slips in neither suspended nor running; whoever made it is told and tries again.
        with pytest.raises(KubectlError, match=r"mjob\.kb\.io"):
            await stack.cluster.kubectl("create", "-f", "-", stdin=json.dumps(job("away-third", "away")))
        assert not await exists(stack, "job", "away-third")
        # Changes of queues wait for it, changes of a LocalQueue and reads of v1beta2 do not.
        with pytest.raises(KubectlError, match=r"vclusterqueue\.kb\.io"):
            await stack.cluster.kubectl("patch", "cq", "away", "--type=merge", "-p", '{"spec":{"stopPolicy":"Hold"}}')
        await stack.cluster.kubectl("get", "workloads", "-A")
        # The first ends and the second is admitted, started and finished meanwhile, since our own writes ask nobody.
        assert await seen.until(lambda: seen.jobs["default/away-first"].complete, 30)
        assert await seen.until(lambda: seen.jobs["default/away-second"].complete, 30)
        assert seen.verifier.starts[running] == seen.verifier.starts[waiting] == 1
    finally:
        webhook.release()
    await stack.wait_ready()

    async def created() -> bool:
        try:
            await stack.cluster.kubectl("create", "-f", "-", stdin=json.dumps(job("away-third", "away")))
        except KubectlError:
            return False
        return True

    assert await eventually(created, 20)
    assert await seen.until(lambda: "default/away-third" in seen.jobs and seen.jobs["default/away-third"].complete, 30)
    await stack.cluster.kubectl("patch", "cq", "away", "--type=merge", "-p", '{"spec":{"stopPolicy":"Hold"}}')


async def exists(stack: Stack, kind: str, name: str) -> bool:
    return bool(await stack.cluster.kubectl("get", kind, name, "--ignore-not-found", "-o", "name"))
