"""What OBJECTS carries of a workload, and what tells one incarnation of it from the next."""

from typing import Any

import msgspec
import pytest

from services.watcher.kinds import read
from services.watcher.projections import incarnation_of, project, project_workload
from services.watcher.projections_workload import template_hash
from shared.api import names
from shared.api.workload import Workload
from shared.events import objects
from tests.unit.watcher.manifests import LATER, LATER_S, TIME, TIME_S, condition, raw, template, workload


def projected_workload(**options: Any) -> objects.Workload:
    found = project(read("workload", raw(workload(**options))))
    assert isinstance(found, objects.Workload)
    return found


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
    found = projected_workload(
        preemptionGates=[{"name": "a"}, {"name": "b"}, {"name": "c"}],
        status={
            "preemptionGates": [
                {"name": "b", "position": "Open", "lastTransitionTime": TIME},
                {"name": "c", "position": "Closed", "lastTransitionTime": TIME},
            ]
        },
        meta={"annotations": {"kueue.x-k8s.io/workload-slice-replacement-for": "team/old", "other": "x"}},
    )
    assert found.preemption_gates == (
        objects.PreemptionGate("a"),
        objects.PreemptionGate("b", True, TIME_S),
        objects.PreemptionGate("c", False, TIME_S),
    )
    assert found.annotations == {"kueue.x-k8s.io/workload-slice-replacement-for": "team/old"}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, False),
        ({names.CONCURRENT_ADMISSION_PARENT_LABEL: "true"}, True),
        ({names.CONCURRENT_ADMISSION_PARENT_LABEL: "false"}, False),
    ],
)
def test_a_parent_of_variants_is_marked(labels: dict[str, str], expected: bool) -> None:
    assert projected_workload(meta={"labels": labels}).has_variants is expected
