"""What OBJECTS carries of each kind, and what it must never carry."""

from typing import Any

import pytest

from services.watcher.kinds import KINDS, read
from services.watcher.projections import project
from shared.events import objects
from tests.unit.watcher.manifests import LATER, TIME, TIME_S, condition, job, metadata, raw, template, workload


def projected(kind: str, document: dict[str, Any]) -> Any:
    return project(read(kind, raw(document)))


def test_every_kind_on_the_bus_is_projected_to_its_struct() -> None:
    on_bus = {token for token, kind in KINDS.items() if kind.on_bus}
    assert on_bus == set(objects.KINDS) - {"epoch"}


def test_cluster_queue() -> None:
    found = projected(
        "clusterqueue",
        {
            "metadata": metadata("cq", version=7, generation=3, finalizers=["f"], deletionTimestamp=LATER),
            "spec": {
                "cohortName": "all",
                "queueingStrategy": "StrictFIFO",
                "namespaceSelector": {
                    "matchLabels": {"a": "b"},
                    "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}],
                },
                "resourceGroups": [
                    {
                        "coveredResources": ["cpu"],
                        "flavors": [
                            {
                                "name": "spot",
                                "resources": [{"name": "cpu", "nominalQuota": 9, "borrowingLimit": "1500m"}],
                            }
                        ],
                    }
                ],
                "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "preference": "PreemptionOverBorrowing"},
                "preemption": {
                    "reclaimWithinCohort": "Any",
                    "withinClusterQueue": "LowerPriority",
                    "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 5},
                },
                "admissionChecksStrategy": {"admissionChecks": [{"name": "c", "onFlavors": ["spot"]}, {"name": "d"}]},
                "stopPolicy": "Hold",
                "fairSharing": {"weight": "2"},
                "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
            },
            "status": {
                "pendingWorkloads": 1,
                "reservingWorkloads": 2,
                "admittedWorkloads": 3,
                "conditions": [condition("Active", "False", "Stopped")],
                "flavorsUsage": [
                    {"name": "spot", "resources": [{"name": "cpu", "total": "2500m", "borrowed": "500m"}]},
                ],
                "flavorsReservation": [{"name": "spot", "resources": [{"name": "memory", "total": "1Gi"}]}],
            },
        },
    )
    assert found == objects.ClusterQueue(
        name="cq",
        uid="uid-cq",
        version=7,
        generation=3,
        created=TIME_S,
        deleting=True,
        finalizers=("f",),
        cohort="all",
        strategy="StrictFIFO",
        groups=(
            objects.ResourceGroup(("cpu",), (objects.Flavor("spot", (objects.FlavorQuota("cpu", "9", "1500m"),)),)),
        ),
        namespace_selector=objects.Selector({"a": "b"}, (objects.Requirement("k", "In", ("v",)),)),
        when_can_borrow="TryNextFlavor",
        when_can_preempt="TryNextFlavor",
        fungibility_preference="PreemptionOverBorrowing",
        reclaim_within_cohort="Any",
        borrow_within_cohort="LowerPriority",
        borrow_max_priority=5,
        within_cluster_queue="LowerPriority",
        checks=(objects.CheckRule("c", ("spot",)), objects.CheckRule("d")),
        stop_policy="Hold",
        fair_weight="2",
        admission_mode="UsageBasedAdmissionFairSharing",
        status_pending=1,
        status_reserving=2,
        status_admitted=3,
        status_usage=objects.QueueUsage((("spot", "cpu", 2500, 500),)),
        status_reservation=objects.QueueUsage((("spot", "memory", 2**30, 0),)),
        conditions=(objects.Condition("Active", False, "Stopped", "", TIME_S),),
    )


def test_concurrent_admission_and_shares_of_a_cluster_queue() -> None:
    migration = {"mode": "TryPreferredFlavors", "constraints": {"lastAcceptableFlavorName": "spot"}}
    found = projected(
        "clusterqueue",
        {
            "metadata": metadata("cq"),
            "spec": {"concurrentAdmissionPolicy": {"migration": migration}},
            "status": {"fairSharing": {"weightedShare": 250}},
        },
    )
    assert isinstance(found, objects.ClusterQueue)
    assert (found.migration_mode, found.last_acceptable_flavor) == ("TryPreferredFlavors", "spot")
    assert found.weighted_share == 250


def test_the_share_of_a_cohort() -> None:
    document = {
        "metadata": metadata("team"),
        "spec": {"parentName": "root"},
        "status": {"fairSharing": {"weightedShare": 7}},
    }
    found = projected("cohort", document)
    assert isinstance(found, objects.Cohort)
    assert (found.parent, found.weighted_share) == ("root", 7)


def test_the_past_usage_of_a_local_queue() -> None:
    usage = {"consumedResources": {"cpu": "1500m", "memory": 3}, "lastUpdate": TIME}
    status = {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": usage}}
    found = projected("localqueue", {"metadata": metadata("lq", namespace="team"), "spec": {}, "status": status})
    assert isinstance(found, objects.LocalQueue)
    assert (found.consumed, found.consumed_at) == ({"cpu": "1500m", "memory": "3"}, TIME_S)


def test_a_bare_cluster_queue_has_the_defaults_of_the_api() -> None:
    found = projected("clusterqueue", {"metadata": metadata("cq"), "spec": {}})
    assert found == objects.ClusterQueue(name="cq", uid="uid-cq", version=1, created=TIME_S)
    assert found.namespace_selector is None


def test_an_empty_namespace_selector_is_not_an_absent_one() -> None:
    found = projected("clusterqueue", {"metadata": metadata("cq"), "spec": {"namespaceSelector": {}}})
    assert found.namespace_selector == objects.Selector()


def test_local_queue() -> None:
    found = projected(
        "localqueue",
        {
            "metadata": metadata("lq", namespace="team"),
            "spec": {"clusterQueue": "cq", "stopPolicy": "HoldAndDrain"},
            "status": {
                "pendingWorkloads": 4,
                "flavorsUsage": [{"name": "spot", "resources": [{"name": "cpu", "total": 2}]}],
            },
        },
    )
    assert found == objects.LocalQueue(
        namespace="team",
        name="lq",
        uid="uid-lq",
        version=1,
        created=TIME_S,
        cluster_queue="cq",
        stop_policy="HoldAndDrain",
        status_pending=4,
        status_usage=objects.QueueUsage((("spot", "cpu", 2000, 0),)),
    )


def test_cohort_flavor_topology_and_classes() -> None:
    assert projected("cohort", {"metadata": metadata("c"), "spec": {"parentName": "root"}}).parent == "root"
    flavor = projected(
        "resourceflavor",
        {
            "metadata": metadata("f"),
            "spec": {
                "nodeLabels": {"pool": "spot"},
                "nodeTaints": [{"key": "t", "effect": "NoSchedule"}],
                "tolerations": [{"key": "u", "operator": "Exists"}, {"key": "v", "value": "w"}],
                "topologyName": "rack",
            },
        },
    )
    assert flavor.node_labels == {"pool": "spot"}
    assert flavor.node_taints == (objects.Taint("t", "", "NoSchedule"),)
    assert flavor.tolerations == (objects.Toleration("u", "Exists"), objects.Toleration("v", "Equal", "w"))
    assert flavor.topology == "rack"
    topology = projected("topology", {"metadata": metadata("t"), "spec": {"levels": [{"nodeLabel": "rack"}]}})
    assert topology.levels == ("rack",)
    assert projected("workloadpriorityclass", {"metadata": metadata("p"), "value": 10}).value == 10
    assert projected("namespace", {"metadata": metadata("n", labels={"a": "b"})}).labels == {"a": "b"}


def test_what_pods_get_beside_their_template() -> None:
    item = {
        "type": "Container",
        "max": {"cpu": "4"},
        "min": {"cpu": 1},
        "default": {"memory": "1Gi"},
        "defaultRequest": {"cpu": "100m"},
        "maxLimitRequestRatio": {"cpu": "2"},
    }
    limits = projected(
        "limitrange",
        {"metadata": metadata("l", namespace="team"), "spec": {"limits": [item, {"type": "PersistentVolumeClaim"}]}},
    )
    assert limits.key == "team/l"
    assert limits.items == (
        objects.LimitItem(
            type="Container",
            max={"cpu": "4"},
            min={"cpu": "1"},
            default={"memory": "1Gi"},
            default_request={"cpu": "100m"},
        ),
        objects.LimitItem(type="PersistentVolumeClaim"),
    )
    kata = {"metadata": metadata("kata"), "handler": "kata", "overhead": {"podFixed": {"cpu": "250m"}}}
    assert projected("runtimeclass", kata).overhead == {"cpu": "250m"}
    assert projected("runtimeclass", {"metadata": metadata("runc"), "handler": "runc"}).overhead == {}
    gpu = {"metadata": metadata("gpu"), "spec": {"extendedResourceName": "example.com/gpu"}}
    assert projected("deviceclass", gpu).extended_resource == "example.com/gpu"
    assert projected("deviceclass", {"metadata": metadata("gpu"), "spec": {}}).extended_resource == ""


@pytest.mark.parametrize(
    ("request_", "wanted"),
    [
        (
            {"name": "r", "exactly": {"deviceClassName": "gpu"}},
            objects.DeviceRequest(name="r", device_class="gpu", count=1),
        ),
        (
            {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 3}},
            objects.DeviceRequest(name="r", device_class="gpu", count=3),
        ),
        (
            {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}},
            objects.DeviceRequest(name="r", device_class="gpu", unsupported="allocation mode All"),
        ),
        (
            {"name": "r", "exactly": {"deviceClassName": "gpu", "adminAccess": True}},
            objects.DeviceRequest(name="r", device_class="gpu", unsupported="admin access"),
        ),
        (
            {"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "gpu"}]},
            objects.DeviceRequest(name="r", unsupported="a choice of several requests"),
        ),
    ],
)
def test_requests_of_a_claim_template(request_: dict[str, Any], wanted: objects.DeviceRequest) -> None:
    spec = {"spec": {"devices": {"requests": [request_]}}}
    found = projected("resourceclaimtemplate", {"metadata": metadata("t", namespace="team"), "spec": spec})
    assert found.requests == (wanted,)


def test_claims_of_a_pod() -> None:
    claims = [{"name": "a", "resourceClaimName": "mine"}, {"name": "b", "resourceClaimTemplateName": "made"}]
    pod_sets = [{"name": "main", "count": 1, "template": template(resourceClaims=claims)}]
    (pod_set,) = projected("workload", workload(pod_sets=pod_sets)).pod_sets
    assert pod_set.claims == (objects.PodClaim("a", claim="mine"), objects.PodClaim("b", template="made"))


def test_admission_check() -> None:
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "p"}
    found = projected(
        "admissioncheck",
        {
            "metadata": metadata("c"),
            "spec": {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters},
            "status": {"conditions": [condition("Other"), condition("Active", reason="Active")]},
        },
    )
    assert (found.controller, found.parameters_kind) == (
        "kueue.x-k8s.io/provisioning-request",
        "ProvisioningRequestConfig",
    )
    assert (found.parameters_group, found.parameters_name) == ("kueue.x-k8s.io", "p")
    assert found.active == objects.Condition("Active", True, "Active", "", TIME_S)
    bare = projected("admissioncheck", {"metadata": metadata("c"), "spec": {"controllerName": "x"}})
    assert (bare.active, bare.parameters_name) == (None, "")


def test_provisioning_kinds() -> None:
    config = projected(
        "provisioningrequestconfig",
        {
            "metadata": metadata("c"),
            "spec": {
                "provisioningClassName": "check",
                "parameters": {"a": "b"},
                "managedResources": ["gpu"],
                "retryStrategy": {"backoffLimitCount": 1, "backoffBaseSeconds": 2, "backoffMaxSeconds": 3},
                "podSetUpdates": {"nodeSelector": [{"key": "k", "valueFromProvisioningClassDetail": "d"}]},
                "podSetMergePolicy": "IdenticalPodTemplates",
            },
        },
    )
    assert (config.class_name, config.parameters, config.managed_resources) == ("check", {"a": "b"}, ("gpu",))
    assert (config.backoff_limit, config.backoff_base_s, config.backoff_max_s) == (1, 2, 3)
    assert (config.selector_updates, config.merge_policy) == ((("k", "d"),), "IdenticalPodTemplates")
    owner = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "name": "w", "uid": "u", "controller": True}
    request = projected(
        "provisioningrequest",
        {
            "metadata": metadata("r", namespace="team", ownerReferences=[owner]),
            "spec": {"provisioningClassName": "check", "podSets": [{"podTemplateRef": {"name": "t"}, "count": 3}]},
            "status": {"conditions": [condition("Provisioned")], "provisioningClassDetails": {"d": "v"}},
        },
    )
    assert request.pod_sets == (("t", 3),)
    assert request.owners == (objects.Owner("kueue.x-k8s.io/v1beta2", "Workload", "w", "u", True),)
    assert request.conditions == (objects.Condition("Provisioned", True, "Because", "", TIME_S),)
    assert request.class_details == {"d": "v"}
    made = projected("podtemplate", {"metadata": metadata("t", namespace="team", ownerReferences=[owner])})
    assert made.owners == request.owners


@pytest.mark.parametrize(
    ("kind", "document"),
    [("job", job()), ("priorityclass", {"metadata": metadata("p"), "value": 1, "globalDefault": True})],
)
def test_jobs_and_priority_classes_stay_in_the_watcher(kind: str, document: dict[str, Any]) -> None:
    assert projected(kind, document) is None
