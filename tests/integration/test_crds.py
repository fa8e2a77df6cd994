"""The shipped definitions on a real API server: accepted, defaulting, refusing, and shown as users know them.

Each rule has an object that breaks it and one that keeps it. Only etcd and the API server run.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
import yaml

from devcluster.cluster import DevCluster
from devcluster.kubectl import KubectlError
from devcluster.options import ClusterOptions
from shared.api.cluster_queue import ClusterQueue
from shared.api.crd_kinds import KINDS
from shared.api.decoding import convert, decode
from shared.api.raw_workload import RawWorkload

REPOSITORY = Path(__file__).parents[2]
SAMPLES = REPOSITORY.parent / "shared" / "samples"
TIME = "2026-01-02T03:04:05Z"

Json = None | bool | int | str | list["Json"] | dict[str, "Json"]
Object = dict[str, Json]

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[DevCluster]:
    options = ClusterOptions(with_controllers=False, with_scheduler=False, with_kwok=False)
    async with DevCluster(options) as cluster:
        await cluster.kubectl("apply", "--server-side", "-k", str(REPOSITORY / "k8s" / "crds"))
        await cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        yield cluster


async def refusal(cluster: DevCluster, *arguments: str, stdin: str | None = None) -> str:
    """What the API server said against it; empty when it accepted."""
    try:
        await cluster.kubectl(*arguments, stdin=stdin)
    except KubectlError as error:
        return error.stderr
    return ""


async def stored(cluster: DevCluster, *arguments: str) -> Object:
    """The object as the API server has it."""
    loaded: Object = json.loads(await cluster.kubectl("get", *arguments, "-o", "json"))
    return loaded


def manifest(kind: str, name: str, namespace: str = "", **fields: Json) -> Object:
    metadata: Object = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, **fields}


def at(thing: Json, *path: str | int) -> Json:
    for step in path:
        if isinstance(step, int):
            assert isinstance(thing, list)
            thing = thing[step]
        else:
            assert isinstance(thing, dict)
            thing = thing[step]
    return thing


def quota(name: str, **limits: Json) -> Json:
    return {"name": name, "nominalQuota": 9, **limits}


def group(*resources: Json, covered: tuple[str, ...] = ("cpu",)) -> Json:
    return {"coveredResources": list(covered), "flavors": [{"name": "default", "resources": list(resources)}]}


def queue(**spec: Json) -> Object:
    return manifest("ClusterQueue", "q", spec=spec)


def flavor(**spec: Json) -> Object:
    return manifest("ResourceFlavor", "f", spec=spec)


def tolerating(**toleration: Json) -> Object:
    return flavor(tolerations=[toleration])


def topology(*levels: str) -> Object:
    return manifest("Topology", "t", spec={"levels": [{"nodeLabel": level} for level in levels]})


def pod_set(**fields: Json) -> Json:
    return {"name": "main", "count": 3, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}, **fields}


def workload(name: str = "w", **spec: Json) -> Object:
    return manifest("Workload", name, "default", spec={"queueName": "lq", "podSets": [pod_set()], **spec})


def check(**spec: Json) -> Object:
    return manifest("AdmissionCheck", "c", spec=spec)


HOST = "kubernetes.io/hostname"
CORE_CLASS: dict[str, Json] = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"}
OWN_CLASS: dict[str, Json] = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
BOTH_NEXT: dict[str, Json] = {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}

CREATED: list[tuple[str, Object, Object, str]] = [
    (
        "borrowing needs a cohort",
        queue(resourceGroups=[group(quota("cpu", borrowingLimit=1))]),
        queue(resourceGroups=[group(quota("cpu", borrowingLimit=1))], cohortName="all"),
        "borrowingLimit must be nil when cohortName is empty",
    ),
    (
        "preference needs both TryNextFlavor",
        queue(flavorFungibility={"preference": "BorrowingOverPreemption"}),
        queue(flavorFungibility={"preference": "BorrowingOverPreemption", **BOTH_NEXT}),
        "flavorFungibility.preference needs",
    ),
    (
        "borrowWithinCohort needs reclaim",
        queue(preemption={"borrowWithinCohort": {"policy": "LowerPriority"}}),
        queue(preemption={"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}),
        "borrowWithinCohort needs",
    ),
    (
        "as many resources as covered",
        queue(resourceGroups=[group(quota("cpu"), covered=("cpu", "memory"))]),
        queue(resourceGroups=[group(quota("cpu"), quota("memory"), covered=("cpu", "memory"))]),
        "as many resources as coveredResources",
    ),
    (
        "the same for a cohort",
        manifest("Cohort", "co", spec={"resourceGroups": [group(quota("cpu"), covered=("cpu", "memory"))]}),
        manifest("Cohort", "co", spec={"resourceGroups": [group(quota("cpu"))], "parentName": "root"}),
        "as many resources as coveredResources",
    ),
    (
        "quantities are quantities",
        queue(resourceGroups=[group({"name": "cpu", "nominalQuota": "9 cores"})]),
        queue(resourceGroups=[group({"name": "cpu", "nominalQuota": "1500m"})]),
        "nominalQuota",
    ),
    ("stop policy", queue(stopPolicy="Sometimes"), queue(stopPolicy="HoldAndDrain"), "Unsupported value"),
    ("cohort name", queue(cohortName="Not A Name"), queue(cohortName="a.b"), "cohortName"),
    (
        "checks are unique",
        queue(admissionChecksStrategy={"admissionChecks": [{"name": "a"}, {"name": "a"}]}),
        queue(admissionChecksStrategy={"admissionChecks": [{"name": "a", "onFlavors": ["a", "b"]}]}),
        "Duplicate value",
    ),
    (
        "topology needs node labels",
        flavor(topologyName="t"),
        flavor(topologyName="t", nodeLabels={"a": "b"}),
        "at least one nodeLabel",
    ),
    (
        "taint effect",
        flavor(nodeTaints=[{"key": "a", "effect": "Never"}]),
        flavor(nodeTaints=[{"key": "a", "effect": "PreferNoSchedule"}]),
        "effect must be",
    ),
    ("no key, not Exists", tolerating(operator="Equal"), tolerating(operator="Exists"), "when key is empty"),
    (
        "seconds without NoExecute",
        tolerating(key="a", tolerationSeconds=1, effect="NoSchedule"),
        tolerating(key="a", tolerationSeconds=1, effect="NoExecute"),
        "tolerationSeconds needs",
    ),
    ("operator", tolerating(key="a", operator="Near"), tolerating(key="a", operator="Equal"), "operator must be Equal"),
    (
        "Exists with a value",
        tolerating(key="a", operator="Exists", value="b"),
        tolerating(key="a", operator="Equal", value="b"),
        "value must be empty",
    ),
    ("toleration effect", tolerating(key="a", effect="Never"), tolerating(key="a"), "effect must be"),
    ("levels are unique", topology("a", "a"), topology("a", "b"), "levels must be unique"),
    ("hostname is last", topology(HOST, "a"), topology("a", HOST), "can only be the last level"),
    ("a check has a controller", check(), check(controllerName="x"), "controllerName"),
    (
        "parameters are complete",
        check(controllerName="x", parameters={"apiGroup": "g", "kind": "K"}),
        check(controllerName="x", parameters={"apiGroup": "g", "kind": "Kind", "name": "n"}),
        "parameters.name",
    ),
    (
        "a priority class has a value",
        manifest("WorkloadPriorityClass", "p"),
        manifest("WorkloadPriorityClass", "p", value=0),
        "value",
    ),
    (
        "minCount within count",
        workload(podSets=[pod_set(minCount=4)]),
        workload(podSets=[pod_set(minCount=3)]),
        "minCount must not be more than count",
    ),
    (
        "a class needs a priority",
        workload(priorityClassRef=OWN_CLASS),
        workload(priorityClassRef=OWN_CLASS, priority=1),
        "priority must be set",
    ),
    (
        "kind for the scheduling group",
        workload(priority=1, priorityClassRef={**OWN_CLASS, "group": "scheduling.k8s.io"}),
        workload(priority=1, priorityClassRef=CORE_CLASS),
        "kind must be PriorityClass",
    ),
    (
        "kind for the own group",
        workload(priority=1, priorityClassRef={**CORE_CLASS, "group": "kueue.x-k8s.io"}),
        workload(priority=1, priorityClassRef=OWN_CLASS),
        "kind must be WorkloadPriorityClass",
    ),
    (
        "pod sets are unique",
        workload(podSets=[pod_set(), pod_set()]),
        workload(podSets=[pod_set(), pod_set(name="other")]),
        "Duplicate value",
    ),
    ("a pod set has a template", workload(podSets=[{"name": "a"}]), workload(podSets=[{"template": {}}]), "template"),
]


@pytest.mark.parametrize(("bad", "good", "message"), [case[1:] for case in CREATED], ids=[case[0] for case in CREATED])
async def test_rules_at_creation(cluster: DevCluster, bad: Object, good: Object, message: str) -> None:
    create = ("create", "--dry-run=server", "-f", "-")
    refused, accepted = await asyncio.gather(
        refusal(cluster, *create, stdin=json.dumps(bad)), refusal(cluster, *create, stdin=json.dumps(good))
    )
    assert message in refused
    assert accepted == ""


CHANGED: list[tuple[str, Object, Object, Object, str]] = [
    (
        "clusterQueue is fixed",
        manifest("LocalQueue", "fixed", "default", spec={"clusterQueue": "a"}),
        {"spec": {"clusterQueue": "b"}},
        {"spec": {"stopPolicy": "Hold"}},
        "clusterQueue is immutable",
    ),
    (
        "controllerName is fixed",
        manifest("AdmissionCheck", "fixed", spec={"controllerName": "a"}),
        {"spec": {"controllerName": "b"}},
        {"spec": {"parameters": {"apiGroup": "g", "kind": "K", "name": "n"}}},
        "controllerName is immutable",
    ),
    (
        "topologyName cannot change",
        manifest("ResourceFlavor", "changed", spec={"topologyName": "a", "nodeLabels": {"a": "b"}}),
        {"spec": {"topologyName": "b"}},
        {"spec": {"nodeLabels": {"c": "d"}}},
        "topologyName cannot be changed or removed",
    ),
    (
        "topologyName cannot go",
        manifest("ResourceFlavor", "removed", spec={"topologyName": "a", "nodeLabels": {"a": "b"}}),
        {"spec": {"topologyName": None}},
        {"spec": {"topologyName": "a"}},
        "topologyName cannot be changed or removed",
    ),
    (
        "levels without hostname",
        manifest("Topology", "plain", spec={"levels": [{"nodeLabel": "a"}]}),
        {"spec": {"levels": [{"nodeLabel": "b"}]}},
        {"spec": {"levels": [{"nodeLabel": "a"}]}},
        "levels can only be changed",
    ),
    (
        "levels that lose hostname",
        manifest("Topology", "hosts", spec={"levels": [{"nodeLabel": "a"}, {"nodeLabel": HOST}]}),
        {"spec": {"levels": [{"nodeLabel": "a"}]}},
        {"spec": {"levels": [{"nodeLabel": "b"}, {"nodeLabel": HOST}]}},
        "levels can only be changed",
    ),
]


@pytest.mark.parametrize(
    ("before", "bad", "good", "message"), [case[1:] for case in CHANGED], ids=[case[0] for case in CHANGED]
)
async def test_rules_at_change(cluster: DevCluster, before: Object, bad: Object, good: Object, message: str) -> None:
    await cluster.kubectl("create", "-f", "-", stdin=json.dumps(before))
    target = (str(before["kind"]), str(at(before, "metadata", "name")))
    assert message in await patched(cluster, target, bad)
    assert await patched(cluster, target, good) == ""


async def patched(
    cluster: DevCluster, target: tuple[str, str], patch: Object, *, status: bool = False, keep: bool = False
) -> str:
    """The refusal of a merge patch; tried out only unless `keep`."""
    flags = (["--subresource=status"] if status else []) + ([] if keep else ["--dry-run=server"])
    return await refusal(cluster, "patch", *target, "--type=merge", "-p", json.dumps(patch), *flags)


def condition(type_: str, status: str = "True") -> Json:
    return {"type": type_, "status": status, "reason": "R", "message": "", "lastTransitionTime": TIME}


def admission(*names: str) -> Json:
    return {"clusterQueue": "q", "podSetAssignments": [{"name": name, "count": 3} for name in names]}


async def reserved(cluster: DevCluster, name: str, *, admitted: bool = False, **spec: Json) -> tuple[str, str]:
    """A Workload with a reservation; its kind and name."""
    await cluster.kubectl("create", "-f", "-", stdin=json.dumps(workload(name, **spec)))
    conditions = [condition("QuotaReserved"), *([condition("Admitted")] if admitted else [])]
    status: Json = {"conditions": conditions, "admission": admission("main")}
    assert await patched(cluster, ("workload", name), {"status": status}, status=True, keep=True) == ""
    return "workload", name


async def test_assignments_are_as_many_as_pod_sets(cluster: DevCluster) -> None:
    await cluster.kubectl("create", "-f", "-", stdin=json.dumps(workload("assigned")))
    target = ("workload", "assigned")
    for names, refused in ((("main",), False), (("main", "other"), True), ((), True)):
        status: Json = {"conditions": [condition("QuotaReserved")], "admission": admission(*names)}
        said = await patched(cluster, target, {"status": status}, status=True)
        assert ("podSetAssignments must be as many as podSets" in said) is refused


async def test_what_a_reservation_fixes(cluster: DevCluster) -> None:
    core = await reserved(cluster, "core", priority=1, priorityClassRef=CORE_CLASS)
    own = await reserved(cluster, "own", priority=1, priorityClassRef=OWN_CLASS)
    none = await reserved(cluster, "none")
    assert "cannot be set or removed" in await patched(cluster, own, {"spec": {"priorityClassRef": None}})
    with_class: Object = {"spec": {"priorityClassRef": OWN_CLASS, "priority": 1}}
    assert "cannot be set or removed" in await patched(cluster, none, with_class)
    assert "group and kind are immutable" in await patched(cluster, own, {"spec": {"priorityClassRef": CORE_CLASS}})
    renamed: Object = {"spec": {"priorityClassRef": {"name": "low"}}}
    assert "name of a PriorityClass is immutable" in await patched(cluster, core, renamed)
    assert await patched(cluster, own, renamed) == ""
    assert "queueName is immutable" in await patched(cluster, own, {"spec": {"queueName": "other"}})
    assert "queueName is immutable" in await patched(cluster, own, {"spec": {"queueName": None}})
    assert await patched(cluster, own, {"spec": {"active": False, "priority": 5}}) == ""


async def test_without_a_reservation_they_are_free(cluster: DevCluster) -> None:
    created = workload("free", priority=1, priorityClassRef=CORE_CLASS, maximumExecutionTimeSeconds=1)
    await cluster.kubectl("create", "-f", "-", stdin=json.dumps(created))
    changed: Object = {"queueName": "other", "priorityClassRef": OWN_CLASS, "maximumExecutionTimeSeconds": 5}
    assert await patched(cluster, ("workload", "free"), {"spec": changed}) == ""


async def test_what_an_admission_fixes(cluster: DevCluster) -> None:
    admitted = await reserved(cluster, "admitted", admitted=True, maximumExecutionTimeSeconds=10)
    unlimited = await reserved(cluster, "unlimited", admitted=True)
    only_reserved = await reserved(cluster, "only-reserved", maximumExecutionTimeSeconds=10)
    longer: Object = {"spec": {"maximumExecutionTimeSeconds": 20}}
    fixed = "maximumExecutionTimeSeconds is immutable"
    assert fixed in await patched(cluster, admitted, longer)
    assert fixed in await patched(cluster, admitted, {"spec": {"maximumExecutionTimeSeconds": None}})
    assert fixed in await patched(cluster, unlimited, longer)
    assert await patched(cluster, only_reserved, longer) == ""


async def test_cluster_names(cluster: DevCluster) -> None:
    await cluster.kubectl("create", "-f", "-", stdin=json.dumps(workload("remote")))
    target = ("workload", "remote")

    async def status(keep: bool = False, **fields: Json) -> str:
        return await patched(cluster, target, {"status": fields}, status=True, keep=keep)

    assert await status(keep=True, nominatedClusterNames=["a", "b"]) == ""
    assert "nominatedClusterNames must be empty" in await status(clusterName="a")
    assert await status(keep=True, clusterName="a", nominatedClusterNames=None) == ""
    assert "not changed" in await status(clusterName="b")
    assert await status(clusterName=None) == ""


async def test_topology_assignments(cluster: DevCluster) -> None:
    await cluster.kubectl("create", "-f", "-", stdin=json.dumps(workload("placed")))

    async def placed(**piece: Json) -> str:
        whole: Object = {
            "domainCount": 2,
            "valuesPerLevel": [{"individual": {"prefix": "node-", "roots": ["1", "2"]}}],
            "podCounts": {"universal": 1},
        }
        assignment: Json = {
            "name": "main",
            "topologyAssignment": {"levels": [HOST], "slices": [{**whole, **piece}]},
        }
        status: Json = {"admission": {"clusterQueue": "q", "podSetAssignments": [assignment]}}
        return await patched(cluster, ("workload", "placed"), {"status": status}, status=True)

    assert await placed() == ""
    assert await placed(podCounts={"individual": [1, 2]}) == ""
    assert await placed(valuesPerLevel=[{"universal": "x"}]) == ""
    universal: Json = {"universal": "x"}
    assert "valuesPerLevel must be as many as levels" in await placed(valuesPerLevel=[universal, universal])
    assert "exactly one of" in await placed(valuesPerLevel=[{}])
    assert "exactly one of" in await placed(podCounts={"universal": 1, "individual": [1, 2]})
    assert "individual podCounts must be" in await placed(podCounts={"individual": [1]})
    assert "individual values must be" in await placed(valuesPerLevel=[{"individual": {"roots": ["1"]}}])


async def test_defaults_are_applied_and_are_those_of_the_structs(cluster: DevCluster) -> None:
    said = manifest("ClusterQueue", "bare", spec={"fairSharing": {}})
    await cluster.kubectl("create", "-f", "-", stdin=json.dumps(said))
    applied = await stored(cluster, "cq", "bare")
    assert at(applied, "spec") == {
        "fairSharing": {"weight": "1"},
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
        "preemption": {
            "borrowWithinCohort": {"policy": "Never"},
            "reclaimWithinCohort": "Never",
            "withinClusterQueue": "Never",
        },
        "queueingStrategy": "BestEffortFIFO",
        "stopPolicy": "None",
    }
    assert convert(ClusterQueue, said).spec == convert(ClusterQueue, applied).spec

    config = manifest("ProvisioningRequestConfig", "bare", spec={"provisioningClassName": "x"})
    await cluster.kubectl("create", "-f", "-", stdin=json.dumps(config))
    retries = at(await stored(cluster, "prc", "bare"), "spec", "retryStrategy")
    assert retries == {"backoffLimitCount": 3, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800}

    bare = workload("bare", podSets=[{"template": {}}])
    await cluster.kubectl("create", "-f", "-", stdin=json.dumps(bare))
    spec = at(await stored(cluster, "workload", "bare"), "spec")
    assert at(spec, "active") is True
    assert at(spec, "podSets", 0) == {"name": "main", "count": 1, "template": {}}


async def test_pod_templates_are_kept_whole(cluster: DevCluster) -> None:
    template: Json = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "env": [{"name": "E", "value": "v"}], "new": {"deep": [1, "2"]}}]},
    }
    created = workload("whole", podSets=[{"name": "main", "count": 2, "template": template}])
    await cluster.kubectl("create", "-f", "-", stdin=json.dumps(created))
    assert at(await stored(cluster, "workload", "whole"), "spec", "podSets", 0, "template") == template
    raw = decode(RawWorkload, (await cluster.kubectl("get", "workload", "whole", "-o", "json")).encode())
    assert msgspec.json.decode(raw.spec.pod_sets[0].template) == template
    assert raw.lean().spec.pod_sets[0].template.spec.containers[0].name == "c"


async def test_unknown_fields_outside_templates_are_dropped(cluster: DevCluster) -> None:
    odd = manifest("Cohort", "odd", spec={"parentName": "p", "colour": "red"})
    await cluster.kubectl("create", "--validate=false", "-f", "-", stdin=json.dumps(odd))
    assert at(await stored(cluster, "cohort", "odd"), "spec") == {"parentName": "p"}


async def test_columns_as_users_know_them(cluster: DevCluster) -> None:
    objects = [
        manifest("ClusterQueue", "shown", spec={"cohortName": "all"}),
        manifest("LocalQueue", "shown", "default", spec={"clusterQueue": "shown"}),
        workload("shown"),
        manifest("WorkloadPriorityClass", "shown", value=1000),
    ]
    await cluster.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    counts: Object = {"status": {"pendingWorkloads": 4, "admittedWorkloads": 2}}
    assert await patched(cluster, ("cq", "shown"), counts, status=True, keep=True) == ""
    assert await patched(cluster, ("lq", "shown"), counts, status=True, keep=True) == ""
    conditions: Json = [condition("QuotaReserved"), condition("Admitted"), condition("Finished", "False")]
    status: Object = {"status": {"admission": admission("main"), "conditions": conditions}}
    assert await patched(cluster, ("kwl", "shown"), status, status=True, keep=True) == ""

    async def table(*arguments: str) -> tuple[list[str], list[str]]:
        head, row = (await cluster.kubectl("get", *arguments)).strip().splitlines()
        return [column.strip() for column in head.split("  ") if column.strip()], row.split()

    assert await table("cq", "shown") == (["NAME", "COHORT", "PENDING WORKLOADS"], ["shown", "all", "4"])
    assert await table("cq", "shown", "-o", "wide") == (
        ["NAME", "COHORT", "STRATEGY", "PENDING WORKLOADS", "ADMITTED WORKLOADS"],
        ["shown", "all", "BestEffortFIFO", "4", "2"],
    )
    assert await table("lq", "shown") == (
        ["NAME", "CLUSTERQUEUE", "PENDING WORKLOADS", "ADMITTED WORKLOADS"],
        ["shown", "shown", "4", "2"],
    )
    head, row = await table("workloads", "shown")
    assert head == ["NAME", "QUEUE", "RESERVED IN", "ADMITTED", "FINISHED", "AGE"]
    assert row[:5] == ["shown", "lq", "q", "True", "False"]
    assert await table("wpc", "shown") == (["NAME", "VALUE"], ["shown", "1000"])
    in_q = await cluster.kubectl(
        "get", "workloads", "--field-selector", "status.admission.clusterQueue=q", "-o", "name"
    )
    assert "workload.kueue.x-k8s.io/shown" in in_q.split()
    elsewhere = await cluster.kubectl(
        "get", "workloads", "--field-selector", "status.admission.clusterQueue=elsewhere", "-o", "name"
    )
    assert elsewhere == ""


async def test_short_names(cluster: DevCluster) -> None:
    resources = await cluster.kubectl("api-resources", "--api-group=kueue.x-k8s.io", "--no-headers")
    served = {columns[-1]: columns for columns in (line.split() for line in resources.splitlines())}
    for crd in KINDS:
        assert served[crd.kind][:4] == [
            crd.plural,
            ",".join(crd.short_names),
            "kueue.x-k8s.io/v1beta2",
            str(crd.namespaced).lower(),
        ]


async def test_status_is_apart_from_spec(cluster: DevCluster) -> None:
    """A write to the object cannot touch the status, and the other way round."""
    await cluster.kubectl("create", "-f", "-", stdin=json.dumps(manifest("ClusterQueue", "apart", spec={})))
    assert await patched(cluster, ("cq", "apart"), {"status": {"pendingWorkloads": 1}}, keep=True) == ""
    assert "status" not in await stored(cluster, "cq", "apart")
    sneaky: Object = {"spec": {"stopPolicy": "Hold"}, "status": {"pendingWorkloads": 2}}
    assert await patched(cluster, ("cq", "apart"), sneaky, status=True, keep=True) == ""
    applied = await stored(cluster, "cq", "apart")
    assert at(applied, "spec", "stopPolicy") == "None"
    assert at(applied, "status") == {"pendingWorkloads": 2}


def published() -> list[Path]:
    """Sample files that hold objects of this group and nothing the API server here does not serve."""
    found = sorted(SAMPLES.rglob("*.yaml")) if SAMPLES.is_dir() else []
    return [path for path in found if _only_ours(path)]


def _only_ours(path: Path) -> bool:
    documents = [document for document in yaml.safe_load_all(path.read_text()) if document]
    return bool(documents) and all(document["apiVersion"].startswith("kueue.x-k8s.io/") for document in documents)


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the published samples are not beside the repository")
async def test_published_samples_apply_unmodified(cluster: DevCluster) -> None:
    assert len(published()) >= 5
    for path in published():
        await cluster.kubectl("apply", "-f", str(path))
