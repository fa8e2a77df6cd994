"""What OBJECTS carries of each kind, and what it must never carry."""

from typing import Any

import msgspec
import pytest

from services.watcher.kinds import KINDS, read
from services.watcher.projections import incarnation_of, project, project_workload
from services.watcher.projections_workload import template_hash
from shared.api.workload import Workload
from shared.events import objects
from tests.unit.watcher.manifests import LATER, LATER_S, TIME, TIME_S, condition, job, metadata, raw, template, workload


def projected(kind: str, document: dict[str, Any]) -> Any:
    return project(read(kind, raw(document)))


def projected_workload(**options: Any) -> objects.Workload:
    found = projected("workload", workload(**options))
    assert isinstance(found, objects.Workload)
    return found


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


def test_a_pending_workload() -> None:
    found = projected_workload(
        version=9,
        priority=5,
        priorityClassRef={"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"},
        maximumExecutionTimeSeconds=60,
        meta={
            "labels": {"kueue.x-k8s.io/job-uid": "job-1"},
            "annotations": {
                "kueue.x-k8s.io/priority-boost": "-3",
                "provreq.kueue.x-k8s.io/zone": "a",
                "private": "not for the bus",
            },
        },
    )
    assert (found.key, found.version, found.queue_name, found.job_uid) == ("team/w", 9, "lq", "job-1")
    assert (found.priority, found.priority_boost) == (5, -3)
    assert (found.priority_class, found.priority_class_source) == ("high", "WorkloadPriorityClass")
    assert found.max_execution_s == 60
    assert found.annotations == {"kueue.x-k8s.io/priority-boost": "-3", "provreq.kueue.x-k8s.io/zone": "a"}
    assert (found.admission, found.checks, found.requeue_at, found.has_requeue_state) == (None, (), None, False)
    (pod_set,) = found.pod_sets
    assert (pod_set.name, pod_set.count) == ("main", 3)
    assert pod_set.containers == (objects.Container({"cpu": "1"}),)
    assert not found.finished


@pytest.mark.parametrize("boost", ["", "high", "99999999999", "1.5", " 5", "1_000", "٣"])
def test_a_boost_that_is_no_int32_does_not_count(boost: str) -> None:
    assert projected_workload(meta={"annotations": {"kueue.x-k8s.io/priority-boost": boost}}).priority_boost == 0


def test_no_environment_no_commands_no_images_cross_the_bus() -> None:
    text = msgspec.json.encode(projected_workload())
    for secret in (b"hush", b"TOKEN", b"sleep", b"busybox"):
        assert secret not in text


def test_a_pod_set_in_full() -> None:
    spec = {
        "initContainers": [
            {"name": "side", "restartPolicy": "Always", "resources": {"limits": {"memory": "1Gi"}}},
            {"name": "init"},
        ],
        "resources": {"requests": {"cpu": 2}},
        "overhead": {"cpu": "100m"},
        "runtimeClassName": "gvisor",
        "nodeSelector": {"pool": "spot"},
        "tolerations": [{"key": "t", "effect": "NoSchedule"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]},
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
                    ]
                }
            }
        },
    }
    sets = [
        {"name": "a", "count": 2, "minCount": 1, "template": template("500m", **spec), "topologyRequest": {"required": "rack", "podSetSliceSize": 2}},
        {"name": "b", "count": 1, "template": template()},
    ]  # fmt: skip
    first, second = projected_workload(pod_sets=sets).pod_sets
    assert (first.count, first.min_count, first.runtime_class) == (2, 1, "gvisor")
    assert first.init_containers == (objects.Container({}, {"memory": "1Gi"}, sidecar=True), objects.Container())
    assert (first.pod_requests, first.pod_limits, first.overhead) == ({"cpu": "2"}, {}, {"cpu": "100m"})
    assert first.node_selector == {"pool": "spot"}
    assert first.tolerations == (objects.Toleration("t", "Equal", "", "NoSchedule"),)
    assert first.affinity_terms == ((objects.Requirement("k", "In", ("v",)),), ())
    assert first.topology == {"required": "rack", "podSetSliceSize": "2"}
    assert (second.affinity_terms, second.pod_requests, second.topology) == (None, None, {})
    assert first.template_hash != second.template_hash


def test_ports_are_part_of_the_shape() -> None:
    containers = [
        {"name": "c", "ports": [{"containerPort": 80}, {"containerPort": 53, "hostPort": 53, "protocol": "UDP"}]}
    ]
    sets = [{"name": "main", "count": 1, "template": {"spec": {"containers": containers}}}]
    (container,) = projected_workload(pod_sets=sets).pod_sets[0].containers
    assert container.ports == ("0/80/TCP", "53/53/UDP")


def test_template_hashes_look_through_the_order_of_fields_and_at_every_field() -> None:
    assert template_hash(b'{"a":1,"b":{"c":2,"d":[1,2]}}') == template_hash(b'{"b": {"d": [1, 2], "c": 2}, "a": 1}')
    assert template_hash(b'{"d":[1,2]}') != template_hash(b'{"d":[2,1]}')
    plain, other = template(), template()
    other["spec"]["containers"][0]["image"] = "alpine"
    sets = [[{"name": "main", "count": 3, "template": found}] for found in (plain, other)]
    first, second = (projected_workload(pod_sets=found).pod_sets[0].template_hash for found in sets)
    assert first
    assert second
    assert first != second


def test_pod_sets_of_the_same_shape_but_other_counts_are_not_mixed_up() -> None:
    counts = [projected_workload(pod_sets=[{"name": "main", "count": n, "template": template()}]).pod_sets[0].count for n in (1, 2, 1)]  # fmt: skip
    assert counts == [1, 2, 1]


def admitted(**more: Any) -> dict[str, Any]:
    return {
        "conditions": [condition("QuotaReserved", at=TIME)],
        "admission": {
            "clusterQueue": "cq",
            "podSetAssignments": [
                {
                    "name": "main",
                    "flavors": {"cpu": "spot"},
                    "resourceUsage": {"cpu": "1500m", "memory": "1Gi"},
                    "count": 2,
                }
            ],
        },
        **more,
    }


def test_an_admitted_workload_in_base_units() -> None:
    found = projected_workload(status=admitted())
    assert found.admission == objects.Admission(
        "cq",
        (
            objects.PodSetAssignment(
                name="main", count=2, flavors={"cpu": "spot"}, usage={"cpu": 1500, "memory": 2**30}
            ),
        ),
    )


def test_an_assignment_without_a_count_is_for_all_pods() -> None:
    status = admitted()
    del status["admission"]["podSetAssignments"][0]["count"]
    found = projected_workload(status=status)
    assert found.admission is not None
    assert found.admission.pod_sets[0].count == 3


def test_checks_requeueing_reclaimable_pods_and_counters() -> None:
    check = {"name": "c", "state": "Retry", "lastTransitionTime": TIME, "message": "no"}
    found = projected_workload(
        status={
            "admissionChecks": [
                {**check, "requeueAfterSeconds": 5, "retryCount": 2},
                {**check, "name": "d", "state": "Ready", "podSetUpdates": [{"name": "main", "labels": {"a": "b"}}]},
            ],
            "requeueState": {"count": 2, "requeueAt": LATER},
            "reclaimablePods": [{"name": "main", "count": 1}],
            "accumulatedPastExecutionTimeSeconds": 30,
            "schedulingStats": {
                "evictions": [
                    {"reason": "Preempted", "underlyingCause": "", "count": 2},
                    {"reason": "Deactivated", "underlyingCause": "X", "count": 1},
                ]
            },
        }
    )
    assert found.checks == (
        objects.CheckState(name="c", state="Retry", message="no", changed=TIME_S, requeue_after_s=5, retry_count=2),
        objects.CheckState(name="d", state="Ready", message="no", changed=TIME_S, has_updates=True),
    )
    assert (found.requeue_count, found.requeue_at, found.has_requeue_state) == (2, LATER_S, True)
    assert (found.reclaimable, found.past_execution_s, found.evictions) == ({"main": 1}, 30, 3)


def test_a_finished_workload_is_a_stub() -> None:
    finished = condition("Finished", reason="Succeeded")
    status = admitted()
    status["conditions"].append(finished)
    found = projected_workload(version=9, status=status, meta={"finalizers": ["f"]})
    assert found == objects.Workload(
        namespace="team",
        name="w",
        uid="uid-w",
        version=9,
        generation=1,
        created=TIME_S,
        finalizers=("f",),
        queue_name="lq",
        conditions=(objects.Condition("Finished", True, "Succeeded", "", TIME_S),),
        admission=objects.Admission("cq"),
        incarnation=found.incarnation,
        finished=True,
    )


def test_an_amount_that_is_no_quantity_is_an_error_of_this_object() -> None:
    status = admitted()
    status["admission"]["podSetAssignments"][0]["resourceUsage"] = {"cpu": "much"}
    with pytest.raises(ValueError, match="much"):
        projected_workload(status=status)


def test_requests_travel_as_written_even_when_nonsense() -> None:
    sets = [{"name": "main", "count": 1, "template": template("1e3"), }, {"name": "b", "count": 1, "template": template("much")}]  # fmt: skip
    found = projected_workload(pod_sets=sets)
    assert [p.containers[0].requests["cpu"] for p in found.pod_sets] == ["1e3", "much"]


def incarnation(**options: Any) -> str:
    found = read("workload", raw(workload(**options))).object
    assert isinstance(found, Workload)
    assert project_workload(found).incarnation == incarnation_of(found)
    return incarnation_of(found)


def test_the_incarnation_sees_what_makes_an_old_decision_wrong() -> None:
    base = incarnation()
    evicted = [condition("Evicted")]
    requeued = [condition("Requeued")]
    seen = [
        base,
        incarnation(uid="other"),
        incarnation(meta={"generation": 2}),
        incarnation(status=admitted()),
        incarnation(status=admitted(conditions=[condition("QuotaReserved", at=LATER)])),
        incarnation(status={"conditions": evicted}),
        incarnation(status={"conditions": [condition("Evicted", at=LATER)]}),
        incarnation(status={"conditions": [condition("Evicted", "False", at=LATER)]}),
        incarnation(status={"conditions": requeued}),
        incarnation(status={"conditions": [condition("Requeued", "False")]}),
        incarnation(status={"requeueState": {"requeueAt": LATER}}),
        incarnation(
            status={"schedulingStats": {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]}}
        ),
    ]
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(
    "options",
    [
        {"version": 99},
        {"meta": {"labels": {"a": "b"}}},
        {"status": {"conditions": [condition("QuotaReserved", "False", "WaitingForQuota", at=LATER)]}},
        {"status": {"conditions": [condition("PodsReady")]}},
        {"status": {"admission": admitted()["admission"]}},
    ],
)
def test_the_incarnation_does_not_see_what_changes_nothing(options: dict[str, Any]) -> None:
    assert incarnation(**options) == incarnation()


def test_preemption_gates_are_closed_unless_the_status_says_open() -> None:
    found = projected(
        "workload",
        workload(
            preemptionGates=[{"name": "a"}, {"name": "b"}, {"name": "c"}],
            status={
                "preemptionGates": [
                    {"name": "b", "position": "Open", "lastTransitionTime": TIME},
                    {"name": "c", "position": "Closed", "lastTransitionTime": TIME},
                ]
            },
            meta={"annotations": {"kueue.x-k8s.io/workload-slice-replacement-for": "team/old", "other": "x"}},
        ),
    )
    assert isinstance(found, objects.Workload)
    assert found.preemption_gates == (
        objects.PreemptionGate("a"),
        objects.PreemptionGate("b", True, TIME_S),
        objects.PreemptionGate("c", False, TIME_S),
    )
    assert found.annotations == {"kueue.x-k8s.io/workload-slice-replacement-for": "team/old"}
