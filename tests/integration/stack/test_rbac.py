"""The rules of k8s/rbac against the API server's audit log, both ways: nothing that Sluice does is refused, and nothing is granted that it does not do.

One stack of its own goes through a life: starts, stops, evictions, two-phase admission with a definition that comes late, owners of every kind,
deletions, a spoilt certificate. Reads that follow a conflict are brought about by writing to the same object all the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from cli.observe import Observer, observing
from devcluster.kubectl import KubectlError
from devcluster.options import ClusterOptions
from devcluster.ports import free_ports
from devcluster.stack import Stack
from shared.api.conditions import find
from shared.jobs.registry import KNOWN, OwnerKind
from shared.kube.client import KubeClient
from shared.kube.errors import Conflict, NotFound
from shared.kube.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    POD_TEMPLATES,
    PODS,
    PROVISIONING_REQUESTS,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    WORKLOADS,
    Resource,
)
from tests.eventually import eventually
from tests.integration.stack.grants import POLICY, Call, Grant, calls, granted, unused
from tests.integration.stack.manifests import (
    API,
    Manifest,
    as_list,
    cluster_queue,
    cohort,
    create_job,
    flavor,
    job,
    local_queue,
    queue,
)
from tests.integration.stack.test_two_phase import OWN, answer, checked_queue, requests_of, reserved, workload_of

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(400)]

WATCHER, WEBHOOK = "sluice-watcher", "sluice-webhook"
ENFORCEMENT = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement"
"""On in some distributions; with it, owning an object takes rights to the owner. No call shows those: the second test takes them away."""
BY_ENFORCEMENT = {
    Grant(WATCHER, "batch", "jobs/finalizers", "update"): ("create", "workloads"),
    Grant(WATCHER, "kueue.x-k8s.io", "workloads/finalizers", "update"): ("create", "podtemplates"),
    Grant(WATCHER, "autoscaling.x-k8s.io", "provisioningrequests/finalizers", "update"): ("patch", "podtemplates"),
    Grant(WATCHER, "", "podtemplates", "delete"): ("patch", "podtemplates"),
}
"""And which call is refused without it."""
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
metrics: {bindAddress: "127.0.0.1:%d"}
objectRetentionPolicies: {workloads: {afterDeactivatedByKueue: 0s}}
"""
BY_ACCIDENT = {
    # Read when its creation got no answer, or the watch was faster than the answer: nothing brings that about at will.
    Grant(WATCHER, "autoscaling.x-k8s.io", "provisioningrequests", "get"),
    # Read when the write of its share meets a change by somebody else; shares change seldom.
    Grant(WATCHER, "kueue.x-k8s.io", "cohorts", "get"),
}


class Life:
    """The stack under test, and what was asked of its API server so far."""

    def __init__(self, stack: Stack, client: KubeClient, seen: Observer, metrics_port: int) -> None:
        self.stack, self.client, self.seen = stack, client, seen
        self.metrics_port = metrics_port

    def made(self) -> set[Call]:
        log = self.stack.cluster.audit_log
        assert log is not None
        return calls(log)

    async def apply(self, *items: Manifest) -> None:
        await self.stack.cluster.kubectl("apply", "-f", "-", stdin=as_list(*items))

    async def patch(self, kind: str, name: str, change: Manifest) -> None:
        await self.stack.cluster.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps(change))

    async def running(self, name: str, yes: bool = True) -> None:
        key = f"default/{name}"
        assert await self.seen.until(lambda: key in self.seen.jobs and self.seen.jobs[key].suspended is not yes, 30), (
            key
        )

    async def asked(self, account: str, resource: Resource, verb: str, seconds: float = 30) -> bool:
        """Whether such a call was made, within that time."""

        async def made() -> bool:
            wanted = (account, resource.group, resource.plural, verb)
            return any((c.account, c.group, c.resource, c.verb) == wanted for c in self.made())

        return await eventually(made, seconds)

    async def contend(
        self, *objects: tuple[Resource, str, str], change: Manifest, stir: Callable[[], Awaitable[None]]
    ) -> None:
        """Patch these objects all the time and `stir`, until the watcher met a conflict and read each of them again."""

        async def patching(resource: Resource, namespace: str, name: str) -> None:
            for n in itertools.count():
                body = {"metadata": {"annotations": {"n": str(n)}, **change}}
                with contextlib.suppress(NotFound, Conflict):
                    await self.client.patch(resource, namespace, name, msgspec.json.encode(body))

        async def stirring() -> None:
            while True:
                await stir()

        tasks = [asyncio.create_task(patching(*one)) for one in objects for _ in range(2)]
        tasks.append(asyncio.create_task(stirring()))
        try:
            for resource, _, _ in objects:
                assert await self.asked(WATCHER, resource, "get"), resource.plural
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(e, asyncio.CancelledError) for e in ended), ended


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def life(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Life]:
    configuration = tmp_path_factory.mktemp("rbac") / "configuration.yaml"
    [metrics_port] = free_ports(1)
    configuration.write_text(CONFIGURATION % metrics_port)
    options = ClusterOptions(default_pod_seconds=0.5, audit_policy=POLICY, apiserver_flags=(ENFORCEMENT,))
    settings = {
        "SLUICE_QUEUE_MANAGER_FAIR_SHARING": "true",
        "SLUICE_WATCHER_CONFIGURATION": str(configuration),
        "SLUICE_WEBHOOK_CONFIGURATION": str(configuration),
        # Nothing is there: whether one may read is asked before.
        "SLUICE_WEBHOOK_METRICS_SOURCES": "http://127.0.0.1:1/metrics",
    }
    async with Stack(options, settings=settings) as stack, observing(stack.cluster.kubeconfig) as (client, seen):
        yield Life(stack, client, seen, metrics_port)


async def test_granted_is_what_is_used(life: Life) -> None:
    await _a_job_from_begin_to_end(life)
    await _a_definition_that_comes_late(life)
    await _owners_of_every_kind(life)
    await _stopped_and_started(life)
    await _finalizers(life)
    await _a_workload_that_does_not_fit_its_job(life)
    await _two_phases(life)
    await _a_job_that_is_given_up(life)
    await _an_elastic_job(life)
    await _metrics(life)
    await _a_spoilt_certificate(life)
    made = life.made()
    assert [c for c in made if c.refused] == [], "missing"
    grants = await granted(life.stack.cluster)
    assert grants >= {*BY_ENFORCEMENT, *BY_ACCIDENT}
    left = unused(grants, made) - {*BY_ENFORCEMENT, *BY_ACCIDENT}
    assert sorted(map(str, left)) == [], "granted, never used"


async def _a_job_from_begin_to_end(life: Life) -> None:
    await life.apply(*queue("rbac"), cohort("rbac"))

    async def share_written() -> bool:
        return any(c.resource == "cohorts/status" for c in life.made())

    assert await eventually(share_written, 30)
    await create_job(life.client, job("rbac-0", "rbac"))
    await life.seen.until(lambda: "default/rbac-0" in life.seen.jobs, 20)
    await life.stack.cluster.kubectl("wait", "--for=condition=Complete", "job/rbac-0", "--timeout=40s")
    # Without a queue it belongs to the namespace's default one, if there is one.
    plain = job("rbac-plain", "")
    del plain["metadata"]["labels"]
    await create_job(life.client, plain)
    assert await life.asked(WEBHOOK, LOCAL_QUEUES, "get")


async def _a_definition_that_comes_late(life: Life) -> None:
    await life.stack.cluster.kubectl("apply", "--server-side", "-f", str(OWN))
    assert await life.asked(WATCHER, PROVISIONING_REQUESTS, "watch", 60)


async def _known_to_enforcement(life: Life) -> None:
    """The plugin learns of new kinds twice a minute, and until then lets nobody own anything by them; administrators it does not ask."""
    group, plural = PROVISIONING_REQUESTS.group, PROVISIONING_REQUESTS.plural
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
        {"apiGroups": [group], "resources": [f"{plural}/finalizers"], "verbs": ["update"]},
    ]
    rbac, named = "rbac.authorization.k8s.io", {"metadata": {"name": "owner-of-things"}}
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": "owner-of-things"}
    subject = {"apiGroup": rbac, "kind": "User", "name": "somebody"}
    await life.apply(
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", **named, "rules": rules},
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRoleBinding", **named, "roleRef": role, "subjects": [subject]},
    )
    somebody = life.stack.cluster.user_kubeconfig("somebody")
    owner = {
        "apiVersion": PROVISIONING_REQUESTS.api_version,
        "kind": PROVISIONING_REQUESTS.kind,
        "name": "x",
        "uid": "x",
    }
    metadata = {"name": "owned", "ownerReferences": [{**owner, "blockOwnerDeletion": True}]}
    owned = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})

    async def allowed() -> bool:
        try:
            await life.stack.cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=owned, kubeconfig=somebody)
        except KubectlError:
            return False
        return True

    assert await eventually(allowed, 60)


def _definition(kind: OwnerKind, plural: str) -> Manifest:
    """A kind that is somebody else's."""
    group, _, version = kind.api_version.partition("/")
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    approved = {"api-approved.kubernetes.io": "unapproved, for tests"} if group.endswith("k8s.io") else {}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": approved},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind.kind, "plural": plural, "singular": kind.kind.lower()},
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


def _owner(kind: OwnerKind) -> Manifest:
    """An object of the kind that does nothing."""
    name = f"owner-{kind.kind.lower()}"
    whole: Manifest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}
    template = job("x", "x")["spec"]["template"]
    labels = {"owner": name}
    if kind.kind == "Pod":
        return whole | {"spec": template["spec"]}
    if kind.kind == "Job":
        return whole | {"spec": {"suspend": True, "template": template}}
    if kind.api_version == "apps/v1":
        template = {"metadata": {"labels": labels}, "spec": {**template["spec"], "restartPolicy": "Always"}}
        named = {"serviceName": "none"} if kind.kind == "StatefulSet" else {}
        return whole | {"spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template, **named}}
    return whole


async def _owners_of_every_kind(life: Life) -> None:
    ours = {OwnerKind("batch/v1", "Job")}
    builtin = {kind for kind in KNOWN if "." not in kind.api_version}
    foreign = [_definition(kind, plural) for kind, plural in KNOWN.items() if kind not in builtin]
    await life.apply(*foreign)
    await life.stack.cluster.kubectl(
        "wait", "--for=condition=Established", *(f"crd/{d['metadata']['name']}" for d in foreign), "--timeout=30s"
    )
    await life.apply(*map(_owner, KNOWN))
    for kind, plural in KNOWN.items():
        group, _, version = kind.api_version.rpartition("/")
        resource = Resource(group, version, plural, kind.kind)
        name = _owner(kind)["metadata"]["name"]
        uid = json.loads(await life.client.get(resource, "default", name))["metadata"]["uid"]
        child = job(f"of-{name}", "rbac")
        reference = {"apiVersion": kind.api_version, "kind": kind.kind, "name": name, "uid": uid, "controller": True}
        child["metadata"]["ownerReferences"] = [reference]
        await create_job(life.client, child)
        assert await life.asked(WEBHOOK, resource, "get"), kind
        # The watcher has its own copy of the kinds that are enabled, which is one here.
        assert kind in ours or await life.asked(WATCHER, resource, "get"), kind


async def _stopped_and_started(life: Life) -> None:
    await life.apply(*queue("tug"))
    uid = await create_job(life.client, job("tug-0", "tug", run_seconds="forever"))
    await life.running("tug-0")
    workload = workload_of(life.seen, uid)
    assert workload is not None

    async def stir() -> None:
        for policy, running in (("HoldAndDrain", False), ("None", True)):
            await life.patch("cq", "tug", {"spec": {"stopPolicy": policy}})
            await life.running("tug-0", running)

    await life.contend(
        (JOBS, "default", "tug-0"),
        (WORKLOADS, "default", workload.metadata.name),
        (CLUSTER_QUEUES, "", "tug"),
        (LOCAL_QUEUES, "default", "tug"),
        change={},
        stir=stir,
    )
    await life.patch("workload", workload.metadata.name, {"spec": {"active": False}})
    await life.running("tug-0", False)


async def _finalizers(life: Life) -> None:
    check = {
        "apiVersion": API,
        "kind": "AdmissionCheck",
        "metadata": {"name": "bare"},
        "spec": {"controllerName": "x/y"},
    }
    topology = {
        "apiVersion": API,
        "kind": "Topology",
        "metadata": {"name": "bare"},
        "spec": {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]},
    }
    await life.apply(flavor("bare"), check, topology, cluster_queue("bare"), local_queue("bare"))

    async def stir() -> None:
        await asyncio.sleep(0.1)

    # Whoever takes the finalizer away gets it back.
    objects = ((RESOURCE_FLAVORS, "", "bare"), (ADMISSION_CHECKS, "", "bare"), (TOPOLOGIES, "", "bare"))
    await life.contend(*objects, change={"finalizers": []}, stir=stir)
    for kind in ("localqueue", "clusterqueue", "resourceflavor", "admissioncheck", "topology"):
        await life.stack.cluster.kubectl("delete", kind, "bare", "--timeout=30s")


async def _a_workload_that_does_not_fit_its_job(life: Life) -> None:
    growing = job("grows", "rbac", run_seconds="forever")
    growing["spec"]["completions"] = 2
    await create_job(life.client, growing)
    await life.running("grows")
    await life.patch("job", "grows", {"spec": {"parallelism": 2}})
    assert await life.asked(WATCHER, WORKLOADS, "delete")


async def _a_job_that_is_given_up(life: Life) -> None:
    limit = {"kueue.x-k8s.io/max-exec-time-seconds": "1"}
    await create_job(life.client, job("endless", "rbac", labels=limit, run_seconds="forever"))
    assert await life.asked(WATCHER, JOBS, "delete", 60)


async def _an_elastic_job(life: Life) -> None:
    """Its pods are let run one by one."""
    growing = job("elastic", "rbac", run_seconds="forever")
    growing["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
    await create_job(life.client, growing)
    assert await life.asked(WATCHER, PODS, "list")
    assert await life.asked(WATCHER, PODS, "patch")


async def _two_phases(life: Life) -> None:
    cluster = life.stack.cluster
    hold = {"spec": {"stopPolicy": "Hold"}}
    retry = {"backoffLimitCount": 1, "backoffBaseSeconds": 1, "backoffMaxSeconds": 1}
    await life.apply(*checked_queue("phases", retryStrategy=retry))
    await _known_to_enforcement(life)
    uid = await create_job(life.client, job("phased", "phases"))
    workload = await reserved(life.seen, uid)
    first, second = (f"{workload.metadata.name}-phases-{n}" for n in (1, 2))
    assert first in await eventually(lambda: requests_of(life.stack, workload.metadata.name), 60)
    await answer(life.stack, first, Failed="no capacity")
    assert await eventually(lambda: requests_of(life.stack, workload.metadata.name), 40, lambda names: second in names)
    await answer(life.stack, second, Accepted="ok", Provisioned="capacity is there")
    await life.running("phased")
    await cluster.kubectl("delete", "job", "phased")
    # Its template has a name that somebody took.
    await life.patch("cq", "phases", hold)
    uid = await create_job(life.client, job("robbed", "phases"))

    def waits() -> bool:
        found = workload_of(life.seen, uid)
        condition = find(found.status.conditions, "QuotaReserved") if found else None
        return condition is not None and condition.reason == "Suspended"

    assert await life.seen.until(waits, 20)
    robbed = workload_of(life.seen, uid)
    assert robbed is not None
    taken = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": f"ppt-{robbed.metadata.name}-phases-1-main", "namespace": "default"},
        "template": job("x", "x")["spec"]["template"],
    }
    await life.apply(taken)
    await life.patch("cq", "phases", {"spec": {"stopPolicy": "None"}})
    assert await life.asked(WATCHER, POD_TEMPLATES, "get")


async def _metrics(life: Life) -> None:
    """A scrape by nobody, by somebody who may not, and by somebody who may."""
    kubectl = life.stack.cluster.kubectl
    token = (await kubectl("create", "token", "default")).strip()

    async def scraped(bearer: str) -> int:
        url = f"https://127.0.0.1:{life.metrics_port}/metrics"
        async with session.get(url, ssl=False, headers={"Authorization": f"Bearer {bearer}"}) as answer:
            return answer.status

    async with aiohttp.ClientSession() as session:
        assert await scraped("nonsense") == 401
        assert await scraped(token) == 403
        reader = (
            "clusterrolebinding",
            "scraper",
            "--clusterrole=kueue-metrics-reader",
            "--serviceaccount=default:default",
        )
        await kubectl("create", *reader)

        async def allowed() -> bool:
            return await scraped(token) == 502

        assert await eventually(allowed, 15)


async def _a_spoilt_certificate(life: Life) -> None:
    cluster = life.stack.cluster
    secret = ("secret", "kueue-webhook-server-cert", "-n", "kueue-system")
    await cluster.kubectl("patch", *secret, "--type=merge", "-p", '{"data":{"tls.crt":"bm9uc2Vuc2U="}}')
    await life.stack.restart("watcher")

    async def repaired() -> bool:
        return bool(
            json.loads(await cluster.kubectl("get", *secret, "-o", "json"))["data"]["tls.crt"] != "bm9uc2Vuc2U="
        )

    assert await eventually(repaired, 30)
    await life.stack.wait_ready()


@pytest.mark.parametrize("grant", sorted(BY_ENFORCEMENT), ids=str)
async def test_what_only_enforcement_asks_for_is_needed(life: Life, grant: Grant) -> None:
    cluster = life.stack.cluster
    await _a_definition_that_comes_late(life)
    await life.apply(*checked_queue("proof"))
    await _known_to_enforcement(life)
    before = {c for c in life.made() if c.refused}
    rules = json.loads(await cluster.kubectl("get", "clusterrole", WATCHER, "-o", "json"))["rules"]
    taken = {"apiGroups": [grant.group], "resources": [grant.resource], "verbs": [grant.verb]}
    assert taken in rules
    name = f"without-{sorted(BY_ENFORCEMENT).index(grant)}"
    await life.patch("clusterrole", WATCHER, {"rules": [rule for rule in rules if rule != taken]})
    try:
        await create_job(life.client, job(name, "proof"))

        async def refused() -> set[tuple[str, str]]:
            return {(c.verb, c.resource) for c in life.made() - before if c.refused}

        assert await eventually(refused, 30, lambda found: BY_ENFORCEMENT[grant] in found)
        assert await refused() == {BY_ENFORCEMENT[grant]}
    finally:
        await life.patch("clusterrole", WATCHER, {"rules": rules})
        await cluster.kubectl("delete", "job", name, "--wait=false")
