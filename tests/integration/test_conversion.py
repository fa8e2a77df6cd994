"""Both versions of the API on a real API server: clients of v1beta1 work as if it were the only one, and lose nothing of what v1beta2 says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import yaml

from devcluster.cluster import DevCluster
from devcluster.kubectl import KubectlError
from devcluster.options import ClusterOptions
from services.webhook.convert import converted
from shared.api import names
from shared.api.crd_kinds import KINDS
from shared.kube.client import APPLY_PATCH, connect
from shared.kube.errors import ApiError, Conflict
from shared.kube.resources import CLUSTER_QUEUES, CRDS, LOCAL_QUEUES, WORKLOADS, Resource
from tests.eventually import eventually
from tests.integration.admission_server import NAMESPACE, ROOT, TIMEOUT_S, Admission, cluster_queue, named

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

V1, V2 = "kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"
SAMPLES = ROOT.parent / "shared" / "samples"
TIME = "2026-01-02T03:04:05Z"
HOST = "kubernetes.io/hostname"
Document = dict[str, Any]


def old(resource: Resource) -> Resource:
    """The resource in v1beta1."""
    return msgspec.structs.replace(resource, version="v1beta1")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[Admission]:
    """An API server, and the webhook that converts for it."""
    options = ClusterOptions(with_controllers=False, with_scheduler=False, with_kwok=False)
    async with DevCluster(options) as cluster, contextlib.AsyncExitStack() as stack:
        await cluster.kubectl("apply", "--server-side", "-k", str(ROOT / "k8s" / "local"))
        await cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        clients = []
        for account in ("", "sluice-watcher", "sluice-webhook"):
            path = await cluster.service_account_kubeconfig(NAMESPACE, account) if account else cluster.kubeconfig
            clients.append(await stack.enter_async_context(await connect(str(path), timeout_s=TIMEOUT_S)))
        it = Admission(cluster, *clients)
        reading = asyncio.create_task(it.certificate.run())
        await it.certificates().ensure()
        async with asyncio.timeout(TIMEOUT_S):
            await it.certificate.ready.wait()
        await it.listen()
        assert await eventually(lambda: converts(it), TIMEOUT_S)
        yield it
        await it.hang_up()
        reading.cancel()


async def converts(it: Admission) -> bool:
    """Whether the API server has heard where to convert and to review."""
    try:
        await it.create(old(CLUSTER_QUEUES), in_v1(cluster_queue("probe")))
        await it.admin.delete(CLUSTER_QUEUES, "", "probe")
        await it.admin.patch(CLUSTER_QUEUES, "", "probe", b'{"metadata": {"finalizers": null}}')
    except ApiError:
        return False
    return True


def in_v1(document: Document) -> Document:
    """As one would have written it for v1beta1."""
    return converted(json.loads(json.dumps(document)), V1)


async def read(it: Admission, resource: Resource, name: str, namespace: str = "") -> Document:
    found: Document = msgspec.json.decode(await it.admin.get(resource, namespace, name))
    return found


async def apply(it: Admission, *documents: Document, flags: tuple[str, ...] = ()) -> str:
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    return await it.cluster.kubectl("apply", *flags, "-f", "-", stdin=body)


def old_queue(name: str, **spec: object) -> Document:
    """A ClusterQueue as written for v1beta1, with all that only v1beta1 can say."""
    own = {
        "cohort": "all",
        "admissionChecks": ["b", "a"],
        "flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"},
        **spec,
    }
    return {**cluster_queue(name, **own), "apiVersion": V1}


# The definitions.


async def test_every_kind_is_served_in_both_versions_and_stored_in_one(world: Admission) -> None:
    for crd in KINDS:
        spec = (await read(world, CRDS, crd.name))["spec"]
        served = {v["name"]: (v["served"], v["storage"], bool(v.get("deprecated"))) for v in spec["versions"]}
        # Kueue never called this one deprecated.
        deprecated = crd.kind != "MultiKueueConfig"
        assert served == {"v1beta1": (True, False, deprecated), "v1beta2": (True, True, False)}
        assert spec["conversion"]["strategy"] == ("Webhook" if crd.converted else "None")


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
async def test_kubectl_explains_every_kind(world: Admission, version: str) -> None:
    async def explained(plural: str) -> None:
        said = await world.cluster.kubectl("explain", plural, f"--api-version=kueue.x-k8s.io/{version}", "--recursive")
        assert f"VERSION:    {version}" in said
        description = said.split("DESCRIPTION:")[1].split("FIELDS:")[0].strip()
        assert description not in ("", "<empty>")

    await asyncio.gather(*(explained(crd.plural) for crd in KINDS))
    field = "clusterqueue.spec.cohort" if version == "v1beta1" else "clusterqueue.spec.cohortName"
    assert "need not exist" in await world.cluster.kubectl("explain", field, f"--api-version=kueue.x-k8s.io/{version}")


async def test_users_of_v1beta1_are_told(world: Admission) -> None:
    program = await asyncio.create_subprocess_exec(
        world.cluster.kubectl_program, "get", "clusterqueues.v1beta1.kueue.x-k8s.io",
        env={**os.environ, "KUBECONFIG": str(world.cluster.kubeconfig)},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, said = await program.communicate()
    assert f"Warning: {V1} is deprecated; use {V2}" in said.decode()


# Clients of v1beta1.


async def test_a_manifest_of_v1beta1_applies_and_both_versions_show_it(world: Admission) -> None:
    manifest = old_queue("applied")
    assert "created" in await apply(world, manifest)
    assert "unchanged" in await apply(world, manifest)
    stored = (await read(world, CLUSTER_QUEUES, "applied"))["spec"]
    assert stored["cohortName"] == "all"
    assert stored["admissionChecksStrategy"] == {"admissionChecks": [{"name": "b"}, {"name": "a"}]}
    assert stored["flavorFungibility"] == {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}
    assert not stored.keys() & {"cohort", "admissionChecks"}
    shown = (await read(world, old(CLUSTER_QUEUES), "applied"))["spec"]
    assert {key: shown[key] for key in manifest["spec"]} == manifest["spec"]
    assert not shown.keys() & {"cohortName", "admissionChecksStrategy"}


async def test_changes_in_one_version_show_in_the_other(world: Admission, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl = world.cluster.kubectl
    await apply(world, old_queue("changed"))
    await kubectl(
        "patch", "clusterqueues.v1beta1.kueue.x-k8s.io", "changed", "--type=merge", "-p", '{"spec":{"cohort":"one"}}'
    )
    assert (await read(world, CLUSTER_QUEUES, "changed"))["spec"]["cohortName"] == "one"
    monkeypatch.setenv("KUBE_EDITOR", "sed -i -e 's/cohort: one/cohort: two/'")
    assert "edited" in await kubectl("edit", "clusterqueues.v1beta1.kueue.x-k8s.io", "changed")
    assert (await read(world, CLUSTER_QUEUES, "changed"))["spec"]["cohortName"] == "two"
    # Whoever writes v1beta2 has the last word on the checks.
    checks = {"admissionChecks": [{"name": "a", "onFlavors": ["default"]}]}
    await kubectl(
        "patch", "cq", "changed", "--type=merge", "-p", json.dumps({"spec": {"admissionChecksStrategy": checks}})
    )
    shown = (await read(world, old(CLUSTER_QUEUES), "changed"))["spec"]
    assert shown["admissionChecksStrategy"] == checks
    assert "admissionChecks" not in shown
    assert shown["flavorFungibility"]["whenCanBorrow"] == "Borrow"
    assert "all" not in await kubectl(
        "get", "clusterqueues.v1beta1.kueue.x-k8s.io", "changed", "-o", "jsonpath={.spec.cohort}"
    )
    assert "two" in await kubectl("get", "clusterqueues.v1beta1.kueue.x-k8s.io", "changed")


def workload(name: str, **spec: object) -> Document:
    """Of v1beta2, with all that only v1beta2 can say."""
    constraints = [{"topology": "rack", "size": 2}]
    request = {"podSetSliceRequiredTopology": "block", "podSetSliceSize": 2}
    pod_set = {
        "name": "main",
        "count": 4,
        "template": {"spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "E", "value": "1"}]}]}},
        "topologyRequest": {**request, "podsetSliceRequiredTopologyConstraints": constraints},
    }
    ref = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
    own = {"preemptionGates": [{"name": "kueue.x-k8s.io/multikueue"}], "priority": 5, "priorityClassRef": ref}
    document = named("Workload", name, queueName="lq", podSets=[pod_set], **own, **spec)
    document["metadata"]["namespace"] = "default"
    return document


ADMISSION: Document = {
    "clusterQueue": "q",
    "podSetAssignments": [
        {
            "name": "main",
            "count": 4,
            "topologyAssignment": {
                "levels": [HOST],
                "slices": [
                    {
                        "domainCount": 2,
                        "valuesPerLevel": [{"individual": {"prefix": "node-", "roots": ["1", "2"]}}],
                        "podCounts": {"universal": 2},
                    }
                ],
            },
        }
    ],
}
RESERVED = {
    "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "", "lastTransitionTime": TIME
}  # fmt: skip


async def test_a_workload_survives_writers_of_v1beta1(world: Admission) -> None:
    made = await world.create(WORKLOADS, workload("whole"), namespace="default")
    gate = {"name": "kueue.x-k8s.io/multikueue", "position": "Closed", "lastTransitionTime": TIME}
    status = {
        "conditions": [RESERVED],
        "admission": ADMISSION,
        "preemptionGates": [gate],
        "accumulatedPastExecutionTimeSeconds": 7,
    }
    body = msgspec.json.encode({"status": status})
    before = msgspec.json.decode(await world.watcher.patch(WORKLOADS, "default", "whole", body, subresource="status"))
    assert before["spec"] == made["spec"]

    shown = await read(world, old(WORKLOADS), "whole", "default")
    assert shown["spec"]["priorityClassName"] == "high"
    assert shown["spec"]["priorityClassSource"] == "kueue.x-k8s.io/workloadpriorityclass"
    assert shown["status"]["accumulatedPastExexcutionTimeSeconds"] == 7
    assert shown["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]["domains"] == [
        {"values": ["node-1"], "count": 2},
        {"values": ["node-2"], "count": 2},
    ]
    await world.cluster.kubectl("annotate", "workloads.v1beta1.kueue.x-k8s.io", "whole", "team=a")
    ready = {"type": "PodsReady", "status": "True", "reason": "Started", "message": "", "lastTransitionTime": TIME}
    conditions = {"status": {"conditions": [*shown["status"]["conditions"], ready]}}
    await world.admin.patch(old(WORKLOADS), "default", "whole", msgspec.json.encode(conditions), subresource="status")
    # A whole object of v1beta1, put back as it was read.
    shown = await read(world, old(WORKLOADS), "whole", "default")
    await world.admin.put(old(WORKLOADS), "default", "whole", msgspec.json.encode(shown))

    after = await read(world, WORKLOADS, "whole", "default")
    assert after["spec"] == before["spec"]
    assert after["metadata"]["annotations"] == {"team": "a"}
    assert [c["type"] for c in after["status"].pop("conditions")] == ["QuotaReserved", "PodsReady"]
    before["status"].pop("conditions")
    assert after["status"] == before["status"]


async def test_a_watch_of_v1beta1_sees_what_v1beta2_writes(world: Admission) -> None:
    seen: list[Document] = []

    async def watching() -> None:
        async for lines in world.admin.watch(old(LOCAL_QUEUES), "default", query={"resourceVersion": "0"}, idle_s=30):
            seen.extend(msgspec.json.decode(line) for line in lines)

    task = asyncio.create_task(watching())
    try:
        queue = named("LocalQueue", "watched", clusterQueue="q")
        await world.create(LOCAL_QUEUES, queue, namespace="default")
        usage = {"status": {"flavorsUsage": [{"name": "f", "resources": [{"name": "cpu", "total": "3"}]}]}}
        body = msgspec.json.encode(usage)
        await world.watcher.patch(LOCAL_QUEUES, "default", "watched", body, subresource="status")

        async def used() -> bool:
            return any("flavorUsage" in event["object"].get("status", {}) for event in seen)

        assert await eventually(used, TIMEOUT_S)
        assert {event["object"]["apiVersion"] for event in seen} == {V1}
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_server_side_apply_in_different_versions(world: Admission) -> None:
    """Each owner keeps what is his, whichever version he speaks."""

    async def applied(resource: Resource, owner: str, spec: Document) -> Document:
        document = {
            "apiVersion": resource.api_version,
            "kind": "ClusterQueue",
            "metadata": {"name": "owned"},
            "spec": spec,
        }
        body = msgspec.json.encode(document)
        got: Document = msgspec.json.decode(
            await world.admin.patch(resource, "", "owned", body, content_type=APPLY_PATCH, field_manager=owner)
        )
        return got

    policy = {"migration": {"mode": "RetainFirstAdmission"}}
    await applied(CLUSTER_QUEUES, "new", {"stopPolicy": "Hold", "concurrentAdmissionPolicy": policy})
    await applied(old(CLUSTER_QUEUES), "old", {"cohort": "all", "admissionChecks": ["a"], "namespaceSelector": {}})
    with pytest.raises(Conflict, match=r'conflict with "old": \.spec\.cohort'):
        await applied(
            CLUSTER_QUEUES,
            "new",
            {"stopPolicy": "Hold", "concurrentAdmissionPolicy": policy, "cohortName": "other"},
        )
    again = await applied(
        old(CLUSTER_QUEUES), "old", {"cohort": "all", "admissionChecks": ["a", "b"], "namespaceSelector": {}}
    )
    assert again["spec"]["stopPolicy"] == "Hold"
    both = (await read(world, CLUSTER_QUEUES, "owned"))["spec"]
    assert both["concurrentAdmissionPolicy"] == policy
    assert [c["name"] for c in both["admissionChecksStrategy"]["admissionChecks"]] == ["a", "b"]
    # What its owner does not apply any more goes, in the version that he never saw.
    await applied(old(CLUSTER_QUEUES), "old", {"namespaceSelector": {}})
    left = (await read(world, CLUSTER_QUEUES, "owned"))["spec"]
    assert not left.keys() & {"cohortName", "admissionChecksStrategy"}
    assert left["stopPolicy"] == "Hold"


def samples() -> list[Document]:
    found = [d for path in sorted(SAMPLES.rglob("*.yaml")) for d in yaml.safe_load_all(path.read_text())]
    return [d for d in found if d and d["apiVersion"].startswith("kueue.x-k8s.io/")]


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the published samples are not beside the repository")
async def test_every_sample_of_kinds_that_are_here_passes_the_webhooks_unmodified(world: Admission) -> None:
    """As its file says it, and on its own: nothing is stored, so that one cannot be a change of another."""
    found = [d for path in sorted(SAMPLES.rglob("*.yaml")) for d in yaml.safe_load_all(path.read_text()) if d]
    served = [d for d in found if d["apiVersion"].partition("/")[0] in ("kueue.x-k8s.io", "batch", "apps", "v1")]
    assert len(served) > 30
    for namespace in {d["metadata"].get("namespace", "default") for d in served}:
        with contextlib.suppress(KubectlError):
            await world.cluster.kubectl("create", "namespace", namespace)
    for document in served:
        verb = "create" if "generateName" in document["metadata"] else "apply"
        said = await world.cluster.kubectl(
            verb, "--dry-run=server", "-o", "json", "-f", "-", stdin=yaml.safe_dump(document)
        )
        answer = json.loads(said)
        assert answer["kind"] == document["kind"]
        if document["kind"] == "Job" and names.QUEUE_NAME_LABEL in document["metadata"].get("labels", {}):
            assert answer["spec"]["suspend"] is True


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the published samples are not beside the repository")
async def test_samples_as_they_were_in_v1beta1(world: Admission) -> None:
    """None is refused, and applied in v1beta1, each reads in v1beta2 as if it had been applied there."""
    assert len(samples()) > 15
    converting = {crd.kind: crd for crd in KINDS if crd.converted}
    for i, document in enumerate(samples()):
        crd = next(crd for crd in KINDS if crd.kind == document["kind"])
        name = f"{document['metadata']['name']}-{i}"
        both: list[object] = []
        for version in (V1, V2):
            wanted = {**document, "apiVersion": version, "metadata": {"name": f"{name}-{version[-1]}"}}
            if document["kind"] in converting and version == V1:
                wanted = in_v1({**wanted, "apiVersion": V2})
            await apply(world, wanted)
            resource = Resource("kueue.x-k8s.io", "v1beta2", crd.plural, crd.kind, crd.namespaced)
            got = await read(world, resource, wanted["metadata"]["name"], "default" if crd.namespaced else "")
            both.append({key: value for key, value in got.items() if key != "metadata"})
        assert both[0] == both[1], name


# Faults.


async def test_a_bad_object_gets_one_clear_error(world: Admission) -> None:
    bad = {"apiVersion": V1, "kind": "ClusterQueue", "metadata": {"name": "bad"}, "spec": {"resourceGroups": "none"}}
    with pytest.raises(ApiError) as refused:
        await world.create(old(CLUSTER_QUEUES), bad)
    assert "resourceGroups" in refused.value.message
    assert refused.value.status in (400, 403, 422)
    # Reviews are of v1beta2, whichever version was written.
    quota = {"name": "cpu", "nominalQuota": "-1"}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}
    with pytest.raises(ApiError, match=r"resourceGroups\[0\].flavors\[0\].resources\[0\].nominalQuota"):
        await world.create(old(CLUSTER_QUEUES), {**bad, "spec": {"resourceGroups": [group]}})


async def test_without_the_webhook_v1beta2_goes_on_and_v1beta1_says_why_not(world: Admission) -> None:
    await apply(world, old_queue("down", admissionChecks=[]))
    await world.hang_up()
    try:
        assert (await read(world, CLUSTER_QUEUES, "down"))["spec"]["cohortName"] == "all"
        listed = msgspec.json.decode(await world.admin.list_page(CLUSTER_QUEUES, query={"limit": "500"}))
        assert "down" in [item["metadata"]["name"] for item in listed["items"]]
        # The gateway writes although fields of the object are owned through v1beta1.
        body = b'{"status": {"pendingWorkloads": 3}}'
        await world.watcher.patch(CLUSTER_QUEUES, "", "down", body, subresource="status")
        written = await read(world, CLUSTER_QUEUES, "down")
        assert written["status"]["pendingWorkloads"] == 3
        # The price, which is the API server's: it cannot tell the owners apart any more.
        assert "managedFields" not in written["metadata"]
        with pytest.raises(ApiError, match=r"conversion webhook for .*ClusterQueue failed"):
            await world.admin.get(old(CLUSTER_QUEUES), "", "down")
    finally:
        await world.listen()
    assert (await read(world, old(CLUSTER_QUEUES), "down"))["status"]["pendingWorkloads"] == 3


async def test_names_of_kubectl(world: Admission) -> None:
    """A plural or short name without a version means v1beta2, as before."""
    for name in ("cq", "clusterqueues"):
        listed = json.loads(await world.cluster.kubectl("get", name, "-o", "json"))
        assert {item["apiVersion"] for item in listed["items"]} == {V2}
    with pytest.raises(KubectlError, match="doesn't have a resource type"):
        await world.cluster.kubectl("get", "clusterqueues.v1alpha1.kueue.x-k8s.io")
