"""Admission on a real API server: what the webhook defaults and refuses there, whom it leaves alone, and its certificates."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

from services.watcher.certificates import CONFIGURATIONS
from shared.kube.errors import Refused, ServerTimeout
from shared.kube.resources import (
    CLUSTER_QUEUES,
    COHORTS,
    JOBS,
    LOCAL_QUEUES,
    RESOURCE_FLAVORS,
    SECRETS,
    WORKLOADS,
    Resource,
)
from tests.integration.admission_server import (
    NAMESPACE,
    SECRET,
    TIMEOUT_S,
    Admission,
    Document,
    cluster_queue,
    job,
    named,
    serving,
)

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def admission() -> AsyncIterator[Admission]:
    async with serving() as it:
        yield it


# What is defaulted.


async def test_a_job_with_a_queue_name_is_suspended(admission: Admission) -> None:
    made = await admission.create(JOBS, job("queued", queue="team"), namespace="default")
    assert made["spec"]["suspend"] is True


async def test_a_job_without_a_queue_name_is_left_alone(admission: Admission) -> None:
    made = await admission.create(JOBS, job("free"), namespace="default")
    assert made["spec"]["suspend"] is False


@pytest.mark.parametrize("namespace", ["kube-system", NAMESPACE])
async def test_system_namespaces_are_left_alone(admission: Admission, namespace: str) -> None:
    made = await admission.create(JOBS, job("system", queue="team"), namespace=namespace)
    assert made["spec"]["suspend"] is False


async def test_a_child_of_a_queued_job_is_not_suspended_by_itself(admission: Admission) -> None:
    parent = await admission.create(JOBS, job("parent", queue="team"), namespace="default")
    child = job("child", queue="team")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "parent", "uid": parent["metadata"]["uid"]}
    child["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    assert (await admission.create(JOBS, child, namespace="default"))["spec"]["suspend"] is False


async def test_the_default_queue_of_a_namespace_found_by_a_live_read(admission: Admission) -> None:
    await admission.cluster.kubectl("create", "namespace", "with-default")
    await admission.create(LOCAL_QUEUES, named("LocalQueue", "default", clusterQueue="any"), namespace="with-default")
    made = await admission.create(JOBS, job("nameless"), namespace="with-default")
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "default"
    assert made["spec"]["suspend"] is True


async def test_finalizers_of_cluster_queues_and_flavors(admission: Admission) -> None:
    queue = await admission.create(CLUSTER_QUEUES, cluster_queue("with-finalizer"))
    flavor = await admission.create(RESOURCE_FLAVORS, named("ResourceFlavor", "with-finalizer"))
    kept = named("ResourceFlavor", "with-two")
    kept["metadata"]["finalizers"] = ["example.com/mine"]
    both = await admission.create(RESOURCE_FLAVORS, kept)
    assert queue["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    assert flavor["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    assert both["metadata"]["finalizers"] == ["example.com/mine", "kueue.x-k8s.io/resource-in-use"]


# What is refused, and the field it names.

LENDING_TOO_MUCH = cluster_queue("bad", cohortName="all")
LENDING_TOO_MUCH["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["lendingLimit"] = "10"
MEMORY = {"name": "default", "resources": [{"name": "memory", "nominalQuota": "1Gi"}]}
FLAVOR_TWICE = cluster_queue("bad")
FLAVOR_TWICE["spec"]["resourceGroups"].append({"coveredResources": ["memory"], "flavors": [MEMORY]})
COHORT = named("Cohort", "bad", resourceGroups=FLAVOR_TWICE["spec"]["resourceGroups"])
LIMIT = "spec.resourceGroups[0].flavors[0].resources[0]"


@pytest.mark.parametrize(
    ("resource", "document", "who", "path"),
    [
        (CLUSTER_QUEUES, LENDING_TOO_MUCH, "vclusterqueue.kb.io", f"{LIMIT}.lendingLimit"),
        (CLUSTER_QUEUES, FLAVOR_TWICE, "vclusterqueue.kb.io", "spec.resourceGroups[1].flavors[0].name"),
        (
            CLUSTER_QUEUES,
            cluster_queue("bad", namespaceSelector={"matchLabels": {"team": "-"}}),
            "vclusterqueue.kb.io",
            "spec.namespaceSelector.matchLabels",
        ),
        (COHORTS, COHORT, "vcohort.kb.io", "spec.resourceGroups[1].flavors[0].name"),
        (
            RESOURCE_FLAVORS,
            named("ResourceFlavor", "bad", nodeLabels={"no spaces": "x"}),
            "vresourceflavor.kb.io",
            "spec.nodeLabels",
        ),
        (
            JOBS,
            job("bad", queue="Not_A_Name"),
            "vjob.kb.io",
            "metadata.labels[kueue.x-k8s.io/queue-name]",
        ),
        (
            JOBS,
            job("bad", queue="q", labels={"kueue.x-k8s.io/max-exec-time-seconds": "0"}),
            "vjob.kb.io",
            "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]",
        ),
    ],
)
async def test_refusals_name_the_field(
    admission: Admission, resource: Resource, document: Document, who: str, path: str
) -> None:
    namespace = "default" if resource is JOBS else ""
    with pytest.raises(Refused) as refused:
        await admission.create(resource, document, namespace=namespace)
    assert f'admission webhook "{who}" denied the request' in refused.value.message
    assert f"{path}: " in refused.value.message


async def test_a_running_job_cannot_change_its_queue(admission: Admission) -> None:
    await admission.create(JOBS, job("running"), namespace="default")
    moved = msgspec.json.encode({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}})
    with pytest.raises(Refused, match=r"queue-name\]: Invalid value: \"other\": field is immutable"):
        await admission.admin.patch(JOBS, "default", "running", moved)


async def test_a_workload_is_validated_in_its_status_too(admission: Admission) -> None:
    template = job("any")["spec"]["template"]
    workload = named("Workload", "admitted", podSets=[{"name": "main", "count": 1, "template": template}])
    await admission.create(WORKLOADS, workload, namespace="default")
    status = msgspec.json.encode({"status": {"reclaimablePods": [{"name": "other", "count": 1}]}})
    with pytest.raises(Refused, match=r"vworkload\.kb\.io.*status\.reclaimablePods\[other\]\.name: Unsupported value"):
        await admission.admin.patch(WORKLOADS, "default", "admitted", status, subresource="status")


async def _status(server: Admission, name: str, **changed: object) -> int:
    """Patches a Workload's status; how often the webhook was asked about it."""
    before = server.asked["workload"]
    patch = msgspec.json.encode({"status": changed})
    await server.admin.patch(WORKLOADS, "default", name, patch, subresource="status")
    return server.asked["workload"] - before


def _condition(type_: str, status: str) -> Document:
    return {
        "type": type_,
        "status": status,
        "reason": "Tested",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


async def test_the_webhook_is_asked_about_a_status_only_where_the_schema_cannot_judge_it(admission: Admission) -> None:
    template = job("any")["spec"]["template"]
    workload = named("Workload", "stepwise", podSets=[{"name": "main", "count": 2, "template": template}])
    before = admission.asked["workload"]
    await admission.create(WORKLOADS, workload, namespace="default")
    assert admission.asked["workload"] - before == 1  # no pod set has a minCount: nothing to default
    admitted: Document = {
        "clusterQueue": "cq",
        "podSetAssignments": [{"name": "main", "count": 2, "flavors": {"cpu": "rf"}}],
    }

    assert await _status(admission, "stepwise", conditions=[_condition("PodsReady", "False")]) == 0
    with pytest.raises(Refused, match=r"status\.admission: Required value"):
        await _status(admission, "stepwise", conditions=[_condition("QuotaReserved", "True")])
    reserved = [_condition("QuotaReserved", "True")]
    # An admission is judged once quota is reserved for it: neither half of the way is unseen.
    foreign = {**admitted, "podSetAssignments": [{**admitted["podSetAssignments"][0], "name": "other"}]}
    assert await _status(admission, "stepwise", admission=foreign) == 1
    with pytest.raises(Refused, match=r"podSetAssignments\[0\]\.name: Not found"):
        await _status(admission, "stepwise", conditions=reserved)
    assert await _status(admission, "stepwise", admission=None) == 0
    assert await _status(admission, "stepwise", conditions=reserved, admission=admitted) == 1
    assert await _status(admission, "stepwise", conditions=[*reserved, _condition("Finished", "True")]) == 0
    with pytest.raises(Refused, match=r"status\.admission: Invalid value"):
        await _status(admission, "stepwise", admission={**admitted, "clusterQueue": "other"})
    assert await _status(admission, "stepwise", reclaimablePods=[{"name": "main", "count": 1}]) == 1
    with pytest.raises(Refused, match=r"reclaimablePods\[main\].count: Invalid value"):
        await _status(admission, "stepwise", reclaimablePods=[{"name": "main", "count": 0}])
    check: Document = {"name": "c", "state": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    check["podSetUpdates"] = [{"name": "other"}]
    with pytest.raises(Refused, match=r"podSetUpdates\[0\]\.name: Unsupported value"):
        await _status(admission, "stepwise", admissionChecks=[check])
    released = [_condition("QuotaReserved", "False")]
    assert await _status(admission, "stepwise", conditions=released, admission=None) == 0


async def test_a_pod_set_with_a_least_count_is_asked_about(admission: Admission) -> None:
    template = job("any")["spec"]["template"]
    pod_set = {"name": "main", "count": 2, "minCount": 1, "template": template}
    before = admission.asked["workload"]
    made = await admission.create(WORKLOADS, named("Workload", "variable", podSets=[pod_set]), namespace="default")
    assert admission.asked["workload"] - before == 2
    assert made["spec"]["podSets"][0]["minCount"] == 1


async def test_a_change_of_a_valid_object_passes(admission: Admission) -> None:
    await admission.create(CLUSTER_QUEUES, cluster_queue("changing"))
    held = msgspec.json.decode(
        await admission.admin.patch(CLUSTER_QUEUES, "", "changing", b'{"spec":{"stopPolicy":"Hold"}}')
    )
    assert held["spec"]["stopPolicy"] == "Hold"


# The gateway is exempt, whether the webhook answers or not (R2).


async def test_the_gateway_writes_while_the_webhook_is_down(admission: Admission) -> None:
    await admission.create(JOBS, job("to-evict", queue="team"), namespace="default")
    template = job("any")["spec"]["template"]
    workload = named("Workload", "by-the-gateway", podSets=[{"name": "main", "count": 1, "template": template}])
    suspend = msgspec.json.encode({"spec": {"suspend": True}, "metadata": {"annotations": {"a": "b"}}})
    await admission.hang_up()
    try:
        with pytest.raises(ServerTimeout, match=r"mjob\.kb\.io"):
            await admission.create(JOBS, job("refused", queue="team"), namespace="default")
        await admission.watcher.patch(JOBS, "default", "to-evict", suspend)
        await admission.watcher.create(WORKLOADS, "default", msgspec.json.encode(workload))
    finally:
        await admission.listen()


# Certificates.


async def test_the_ensured_certificate_stays(admission: Admission) -> None:
    before = await admission.secret()
    await admission.certificates().ensure()
    assert await admission.secret() == before


async def test_rotation_needs_no_restart_and_leaves_no_gap(admission: Admission) -> None:
    before = await admission.secret()
    # Another name that it has to serve is a reason to make a new one.
    await admission.certificates(service="renamed").ensure()
    after = await admission.secret()
    assert after["tls.crt"] != before["tls.crt"]
    assert after["ca.crt"] == before["ca.crt"]
    # Old or new: what is served now is trusted.
    await admission.create(JOBS, job("meanwhile", queue="team"), namespace="default")
    await admission.until_served(after["tls.crt"])
    await admission.hang_up()
    await admission.listen()
    made = await admission.create(JOBS, job("afterwards", queue="team"), namespace="default")
    assert made["spec"]["suspend"] is True


@pytest.mark.parametrize("spoilt", ["ca.crt", "tls.crt", "tls.key"])
async def test_garbage_in_the_secret_is_replaced(admission: Admission, spoilt: str) -> None:
    garbage = msgspec.json.encode({"data": {spoilt: base64.b64encode(b"garbage").decode()}})
    await admission.admin.patch(SECRETS, NAMESPACE, SECRET, garbage)
    await admission.certificates().ensure()
    after = await admission.secret()
    assert after[spoilt] != b"garbage"
    await admission.until_served(after["tls.crt"])
    for resource, name in CONFIGURATIONS:
        body = msgspec.json.decode(await admission.admin.get(resource, "", name))
        bundles = {webhook["clientConfig"]["caBundle"] for webhook in body["webhooks"]}
        assert bundles == {base64.b64encode(after["ca.crt"]).decode()}
    # The API server takes a new authority up in its own time.
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            with contextlib.suppress(ServerTimeout):
                document = job(f"after-{spoilt.replace('.', '-')}", queue="team")
                made = await admission.create(JOBS, document, namespace="default")
                break
            await asyncio.sleep(0.05)
    assert made["spec"]["suspend"] is True
