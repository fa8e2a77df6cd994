"""What counts against quota beside what a Job asks for: LimitRanges and RuntimeClasses, edited while Jobs wait and run."""

from __future__ import annotations

from typing import Any

import pytest

from cli.observe import Observer
from devcluster.stack import Stack
from shared.api.conditions import find
from shared.api.workload import Workload
from shared.kube.client import KubeClient
from tests.integration.stack.manifests import Manifest, as_list, cluster_queue, create_job, flavor, job, local_queue

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

Watched = tuple[KubeClient, Observer]


def namespaced_queue(name: str, cpu: str) -> list[Manifest]:
    """Namespace, flavor, ClusterQueue and LocalQueue of that name: a LimitRange there concerns no other test."""
    namespace: Manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    return [namespace, flavor(name), cluster_queue(name, cpu), local_queue(name, name)]


def limit_range(namespace: str, **item: dict[str, str]) -> Manifest:
    metadata = {"name": "limits", "namespace": namespace}
    limits = [{"type": "Container", **item}]
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}}


def in_namespace(manifest: Manifest, **pod: Any) -> Manifest:
    """The Job in the namespace that is named like its queue; `pod` are fields of its pods."""
    manifest["metadata"]["namespace"] = manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    manifest["spec"]["template"]["spec"].update(pod)
    return manifest


def asking_nothing(manifest: Manifest) -> Manifest:
    del manifest["spec"]["template"]["spec"]["containers"][0]["resources"]
    return in_namespace(manifest)


def workload_of(seen: Observer, uid: str) -> Workload | None:
    labelled = (w for w in seen.workloads.values() if w.metadata.labels.get("kueue.x-k8s.io/job-uid") == uid)
    return next(labelled, None)


def pending_reason(seen: Observer, uid: str) -> tuple[str, str]:
    """Reason and message of QuotaReserved=False; empty otherwise."""
    found = workload_of(seen, uid)
    condition = find(found.status.conditions, "QuotaReserved") if found is not None else None
    return (condition.reason, condition.message) if condition is not None and condition.status == "False" else ("", "")


def used(seen: Observer, name: str) -> str:
    """cpu that the ClusterQueue says is reserved."""
    found = seen.cluster_queues.get(name)
    rows = [r for f in found.status.flavors_reservation for r in f.resources] if found is not None else []
    return str(rows[0].total) if rows else ""


async def test_a_default_of_the_namespace_is_what_a_job_uses(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    defaults = limit_range("defaulted", defaultRequest={"cpu": "600m"}, default={"cpu": "2"})
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*namespaced_queue("defaulted", "1"), defaults))
    first = await create_job(client, asking_nothing(job("first", "defaulted", run_seconds="forever")))
    assert await seen.until(lambda: used(seen, "defaulted") == "600m", 20)
    found = workload_of(seen, first)
    assert found is not None
    assert found.status.admission is not None
    usage = found.status.admission.pod_set_assignments[0].resource_usage
    assert {resource: str(amount) for resource, amount in usage.items()} == {"cpu": "600m"}

    # The second does not fit, until the default is less: what runs keeps what it was given.
    second = await create_job(client, asking_nothing(job("second", "defaulted", run_seconds="forever")))
    assert await seen.until(lambda: pending_reason(seen, second)[0] == "WaitingForQuota", 20)
    less = limit_range("defaulted", defaultRequest={"cpu": "300m"}, default={"cpu": "2"})
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(less))
    assert await seen.until(lambda: not seen.jobs["defaulted/second"].suspended, 20)
    assert await seen.until(lambda: used(seen, "defaulted") == "900m", 20)
    await stack.cluster.kubectl("delete", "job", "-n", "defaulted", "first", "second")


async def test_beyond_the_limits_of_the_namespace_a_job_is_told_so_and_comes_in_once_they_are_raised(
    stack: Stack, watched: Watched
) -> None:
    client, seen = watched
    narrow = limit_range("bounded", max={"cpu": "500m"})
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*namespaced_queue("bounded", "4"), narrow))
    big = in_namespace(job("big", "bounded", "1", run_seconds="forever"))
    # A limit of its own: else it would get the highest as its limit, and ask for more than that.
    big["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "1"}
    uid = await create_job(client, big)
    # At first it may be the queue that is not known yet.
    assert await seen.until(lambda: "LimitRange" in pending_reason(seen, uid)[1], 20)
    assert pending_reason(seen, uid)[0] == "Misconfigured"
    assert seen.jobs["bounded/big"].suspended
    wide = limit_range("bounded", max={"cpu": "2"})
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(wide))
    assert await seen.until(lambda: not seen.jobs["bounded/big"].suspended, 20)
    assert await seen.until(lambda: used(seen, "bounded") == "1", 20)
    await stack.cluster.kubectl("delete", "job", "-n", "bounded", "big")


async def test_requests_above_their_own_limits_are_told(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    # The API server refuses a container like this in a pod, but not in the template of a Job with a default limit of its namespace.
    low = limit_range("inverted", default={"cpu": "500m"})
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*namespaced_queue("inverted", "4"), low))
    uid = await create_job(client, in_namespace(job("upside-down", "inverted", "1", run_seconds="forever")))
    assert await seen.until(lambda: "requests above limits for cpu" in pending_reason(seen, uid)[1], 20)
    assert pending_reason(seen, uid)[0] == "Misconfigured"
    await stack.cluster.kubectl("delete", "limitrange", "-n", "inverted", "limits")
    assert await seen.until(lambda: not seen.jobs["inverted/upside-down"].suspended, 20)
    await stack.cluster.kubectl("delete", "job", "-n", "inverted", "upside-down")


async def test_the_overhead_of_a_runtime_class_counts_for_every_pod(stack: Stack, watched: Watched) -> None:
    client, seen = watched
    kata = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "kata-overhead"},
        "handler": "kata",
        "overhead": {"podFixed": {"cpu": "250m"}},
    }
    await stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(kata, *namespaced_queue("sandboxed", "4")))
    sandboxed = in_namespace(
        job("sandboxed", "sandboxed", "1", pods=2, run_seconds="forever"), runtimeClassName="kata-overhead"
    )
    await create_job(client, sandboxed)
    assert await seen.until(lambda: used(seen, "sandboxed") == "2500m", 20)
    await stack.cluster.kubectl("delete", "job", "-n", "sandboxed", "sandboxed")
    await stack.cluster.kubectl("delete", "runtimeclass", "kata-overhead")
