"""Kueue's configuration reaches the decisions: devices as logical resources, transformations, gates, and changes of priority while Jobs wait."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from cli.observe import Observer, observing
from devcluster.stack import Stack
from shared.kube.client import KubeClient
from tests.integration.stack.configured import configured_stack
from tests.integration.stack.manifests import (
    API,
    Manifest,
    as_list,
    cluster_queue,
    create_job,
    job,
    local_queue,
    priority_class,
    queue,
)
from tests.integration.stack.test_requests import pending_reason, used, workload_of

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

Watched = tuple[KubeClient, Observer]
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
featureGates: {PriorityBoost: true}
resources:
  transformations:
  - {input: example.com/mig-1g, strategy: Replace, outputs: {example.com/gpu-memory: 5Gi}}
  deviceClassMappings:
  - {name: example.com/whole-gpus, deviceClassNames: [gpu.example.com]}
"""
DEVICES: list[Manifest] = [
    {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.example.com"}, "spec": {}},
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "two-gpus", "namespace": "default"},
        "spec": {
            "spec": {
                "devices": {
                    "requests": [{"name": "gpus", "exactly": {"deviceClassName": "gpu.example.com", "count": 2}}]
                }
            }
        },
    },
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def configured(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    async with configured_stack(tmp_path_factory.mktemp("configuration"), CONFIGURATION) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def watched(configured: Stack) -> AsyncIterator[Watched]:
    async with observing(configured.cluster.kubeconfig) as pair:
        yield pair


def queue_of(name: str, resource: str, amount: str) -> list[Manifest]:
    """A queue that has quota for one resource beside cpu."""
    quotas = [{"name": "cpu", "nominalQuota": "9"}, {"name": resource, "nominalQuota": amount}]
    group = {"coveredResources": ["cpu", resource], "flavors": [{"name": name, "resources": quotas}]}
    flavor, _, local = queue(name)
    return [flavor, cluster_queue(name, resourceGroups=[group]), local]


def with_pods(manifest: Manifest, **spec: Any) -> Manifest:
    manifest["spec"]["template"]["spec"].update(spec)
    return manifest


def claiming(name: str, template: str) -> Manifest:
    claims = [{"name": "gpus", "resourceClaimTemplateName": template}]
    return with_pods(job(name, "devices", pods=2, run_seconds="forever"), resourceClaims=claims)


def usage(seen: Observer, uid: str) -> dict[str, str]:
    """What the workload of a Job was given; empty while it waits."""
    found = workload_of(seen, uid)
    if found is None or found.status.admission is None:
        return {}
    return {r: str(a) for r, a in found.status.admission.pod_set_assignments[0].resource_usage.items()}


async def test_claims_of_devices_count_once_their_template_is_known(configured: Stack, watched: Watched) -> None:
    client, seen = watched
    await configured.cluster.kubectl(
        "apply", "-f", "-", stdin=as_list(*queue_of("devices", "example.com/whole-gpus", "5"))
    )
    uid = await create_job(client, claiming("claims", "two-gpus"))
    # At first it may be the queue that is not known yet.
    assert await seen.until(lambda: "two-gpus does not exist" in pending_reason(seen, uid)[1], 20), pending_reason(
        seen, uid
    )
    assert pending_reason(seen, uid)[0] == "Misconfigured"
    await configured.cluster.kubectl("apply", "-f", "-", stdin=as_list(*DEVICES))
    assert await seen.until(lambda: usage(seen, uid) == {"cpu": "2", "example.com/whole-gpus": "4"}, 20)
    more = await create_job(client, claiming("more-claims", "two-gpus"))
    assert await seen.until(lambda: pending_reason(seen, more)[0] == "WaitingForQuota", 20)
    await configured.cluster.kubectl("delete", "job", "claims", "more-claims", "--wait=false")


async def test_a_resource_counts_as_what_the_configuration_makes_of_it(configured: Stack, watched: Watched) -> None:
    client, seen = watched
    await configured.cluster.kubectl(
        "apply", "-f", "-", stdin=as_list(*queue_of("slices", "example.com/gpu-memory", "20Gi"))
    )
    manifest = job("slices", "slices", pods=2, run_seconds="forever")
    asked = {"cpu": "1", "example.com/mig-1g": "1"}
    manifest["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": asked, "limits": asked}
    uid = await create_job(client, manifest)
    assert await seen.until(lambda: usage(seen, uid) == {"cpu": "2", "example.com/gpu-memory": "10737418240"}, 20), (
        usage(seen, uid)
    )
    await configured.cluster.kubectl("delete", "job", "slices", "--wait=false")


async def test_a_class_that_changes_and_a_boost_move_who_waits(configured: Stack, watched: Watched) -> None:
    client, seen = watched
    classes = [priority_class("moved-up", 1), priority_class("stays", 5)]
    await configured.cluster.kubectl("apply", "-f", "-", stdin=as_list(*classes, *queue("moved", "1")))
    await create_job(client, job("moved-holder", "moved", run_seconds="forever"))
    assert await seen.until(lambda: used(seen, "moved") == "1", 20)
    uids = {
        name: await create_job(
            client,
            job(f"moved-{name}", "moved", run_seconds="forever", labels={"kueue.x-k8s.io/priority-class": class_}),
        )
        for name, class_ in (("first", "moved-up"), ("second", "stays"), ("third", "stays"))
    }
    assert await seen.until(lambda: seen.cluster_queues["moved"].status.pending_workloads == 3, 20)
    await configured.cluster.kubectl("apply", "-f", "-", stdin=as_list(priority_class("moved-up", 100)))

    def priority(name: str) -> int | None:
        found = workload_of(seen, uids[name])
        return found.spec.priority if found is not None else None

    assert await seen.until(lambda: priority("first") == 100, 20)
    third = workload_of(seen, uids["third"])
    assert third is not None
    boost = "kueue.x-k8s.io/priority-boost=50"
    await configured.cluster.kubectl("annotate", "workload", third.metadata.name, boost)
    for quota, name in (("2", "first"), ("3", "third"), ("4", "second")):
        waiting = [n for n in uids if seen.jobs[f"default/moved-{n}"].suspended and n != name]
        await configured.cluster.kubectl("apply", "-f", "-", stdin=as_list(cluster_queue("moved", quota)))
        assert await seen.until(lambda name=name: not seen.jobs[f"default/moved-{name}"].suspended, 20), name  # type: ignore[misc]
        assert all(seen.jobs[f"default/moved-{n}"].suspended for n in waiting)
    await configured.cluster.kubectl("delete", "job", "-l", "kueue.x-k8s.io/queue-name=moved", "--wait=false")


async def test_a_stopped_local_queue_lets_others_pass_and_comes_back(configured: Stack, watched: Watched) -> None:
    client, seen = watched
    other = local_queue("open-side", queue="two-sides")
    held: Manifest = {
        "apiVersion": API,
        "kind": "LocalQueue",
        "metadata": {"name": "held-side", "namespace": "default"},
        "spec": {"clusterQueue": "two-sides", "stopPolicy": "Hold"},
    }
    flavor, whole, _ = queue("two-sides", "1", queueingStrategy="StrictFIFO")
    await configured.cluster.kubectl("apply", "-f", "-", stdin=as_list(flavor, whole, other, held))
    stopped = await create_job(client, job("held-job", "held-side", run_seconds="forever"))
    assert await seen.until(lambda: pending_reason(seen, stopped)[0] == "Suspended", 20)
    await create_job(client, job("open-job", "open-side", run_seconds="forever"))
    assert await seen.until(lambda: "default/open-job" in seen.jobs and not seen.jobs["default/open-job"].suspended, 20)
    held["spec"]["stopPolicy"] = "None"
    await configured.cluster.kubectl("apply", "-f", "-", stdin=as_list(held))
    assert await seen.until(lambda: pending_reason(seen, stopped)[0] == "WaitingForQuota", 20)
    # Drained, the open side gives its quota to the other.
    other["spec"]["stopPolicy"] = "HoldAndDrain"
    await configured.cluster.kubectl("apply", "-f", "-", stdin=as_list(other))
    assert await seen.until(lambda: not seen.jobs["default/held-job"].suspended, 30)
    assert await seen.until(lambda: seen.jobs["default/open-job"].suspended, 20)
    await configured.cluster.kubectl("delete", "job", "held-job", "open-job", "--wait=false")
