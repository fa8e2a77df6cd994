"""Conversion case by case: what is said where, what an annotation keeps, and what happens to it when somebody changes the object in between."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from services.webhook.convert import ConversionError, converted
from shared.api import names

V1, V2 = names.V1BETA1_GROUP_VERSION, names.GROUP_VERSION
Json = dict[str, Any]


def made(
    version: str, kind: str, spec: Json | None = None, status: Json | None = None, annotations: Json | None = None
) -> Json:
    metadata: Json = {"name": "x"} | ({"annotations": annotations} if annotations else {})
    parts = {"spec": spec, "status": status}
    return {"apiVersion": version, "kind": kind, "metadata": metadata} | {
        k: v for k, v in parts.items() if v is not None
    }


def up(document: Json) -> Json:
    return converted(copy.deepcopy(document), V2)


def down(document: Json) -> Json:
    return converted(copy.deepcopy(document), V1)


def kept(document: Json) -> Json:
    """What the annotation of the other version holds."""
    annotations = document["metadata"].get("annotations", {})
    name = names.V1BETA1_FIELDS if document["apiVersion"] == V2 else names.V1BETA2_FIELDS
    return msgspec.json.decode(annotations[name]) if name in annotations else {}


# ClusterQueue.

RULES = {"admissionChecks": [{"name": "a"}, {"name": "b"}]}
POLICY = {"migration": {"mode": "RetainFirstAdmission"}}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {}),
        ({"cohort": "c"}, {"cohortName": "c"}),
        ({"admissionChecks": ["a", "b"]}, {"admissionChecksStrategy": RULES}),
        ({"admissionChecks": ["a", "b", "a"]}, {"admissionChecksStrategy": RULES}),
        ({"admissionChecks": []}, {}),
        ({"admissionChecksStrategy": RULES}, {"admissionChecksStrategy": RULES}),
        ({"admissionChecks": [], "admissionChecksStrategy": RULES}, {"admissionChecksStrategy": RULES}),
        (
            {"admissionChecks": ["a", "b"], "admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}},
            {"admissionChecksStrategy": RULES},
        ),
        (
            {"flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}},
            {"flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}},
        ),
        (
            {"flavorFungibility": {"whenCanBorrow": "TryNextFlavor"}},
            {"flavorFungibility": {"whenCanBorrow": "TryNextFlavor"}},
        ),
    ],
)
def test_specs_of_cluster_queues(old: Json, new: Json) -> None:
    document = made(V1, "ClusterQueue", old)
    assert up(document)["spec"] == new
    assert down(up(document)) == document


def test_a_strategy_that_changed_is_not_put_aside_for_names() -> None:
    stored = up(made(V1, "ClusterQueue", {"admissionChecks": ["a", "b"]}))
    stored["spec"]["admissionChecksStrategy"]["admissionChecks"][0]["onFlavors"] = ["f"]
    shown = down(stored)
    assert shown["spec"] == stored["spec"]
    assert "annotations" not in shown["metadata"]


def test_an_older_name_comes_back_only_for_what_it_means() -> None:
    stored = up(made(V1, "ClusterQueue", {"flavorFungibility": {"whenCanBorrow": "Borrow"}}))
    stored["spec"]["flavorFungibility"]["whenCanBorrow"] = "TryNextFlavor"
    assert down(stored)["spec"] == {"flavorFungibility": {"whenCanBorrow": "TryNextFlavor"}}


def test_the_policy_of_concurrent_admission_survives_a_writer_of_v1beta1() -> None:
    shown = down(
        made(V2, "ClusterQueue", {"cohortName": "c", "concurrentAdmissionPolicy": POLICY}, annotations={"team": "a"})
    )
    assert shown["spec"] == {"cohort": "c"}
    shown["spec"]["cohort"] = "other"
    assert up(shown)["spec"] == {"cohortName": "other", "concurrentAdmissionPolicy": POLICY}
    assert up(shown)["metadata"]["annotations"] == {"team": "a"}


def test_what_an_annotation_holds_is_looked_at() -> None:
    """Whoever may write v1beta1 may write annotations: they are no way round the schema."""
    text = msgspec.json.encode({"concurrentAdmissionPolicy": {"migration": {"mode": "Anything"}}}).decode()
    document = made(V1, "ClusterQueue", {}, annotations={names.V1BETA2_FIELDS: text})
    assert up(document)["spec"] == {}


def test_an_annotation_about_the_own_version_says_nothing() -> None:
    text = msgspec.json.encode({"admissionChecks": ["a", "b"]}).decode()
    stored = up(made(V1, "ClusterQueue", {"admissionChecksStrategy": RULES}, annotations={names.V1BETA1_FIELDS: text}))
    assert "annotations" not in stored["metadata"]


# Statuses.

OLD_STATUSES = [
    ("ClusterQueue", {"pendingWorkloadsStatus": {"clusterQueuePendingWorkload": []}}),
    ("ClusterQueue", {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": {}}}),
    ("Cohort", {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": {}}}),
    ("LocalQueue", {"flavors": [{"name": "f"}]}),
]


@pytest.mark.parametrize(("kind", "status"), OLD_STATUSES)
def test_what_a_status_had_beside_it_goes_with_that_status(kind: str, status: Json) -> None:
    document = made(V1, kind, None, {"pendingWorkloads": 1, **status})
    stored = up(document)
    assert down(stored) == document
    stored["status"]["pendingWorkloads"] = 2
    assert down(stored)["status"].keys() & status.keys() <= {"fairSharing"}
    assert "admissionFairSharingStatus" not in down(stored)["status"].get("fairSharing", {})


def test_usage_of_local_queues_has_two_names() -> None:
    assert up(made(V1, "LocalQueue", None, {"flavorUsage": [1]}))["status"] == {"flavorsUsage": [1]}
    fair = {"weightedShare": 0, "admissionFairSharingStatus": {"consumedResources": {"cpu": "1"}}}
    shown = down(made(V2, "LocalQueue", None, {"flavorsUsage": [1], "fairSharing": fair}))
    assert shown["status"] == {"flavorUsage": [1], "fairSharing": fair}
    assert kept(shown) == {}


# AdmissionCheck, MultiKueueCluster.


@pytest.mark.parametrize(("minutes", "rest"), [(15, {}), (0, {"retryDelayMinutes": 0}), (7, {"retryDelayMinutes": 7})])
def test_a_delay_that_is_not_the_default_is_kept(minutes: int, rest: Json) -> None:
    document = made(V1, "AdmissionCheck", {"controllerName": "c", "retryDelayMinutes": minutes})
    assert up(document)["spec"] == {"controllerName": "c"}
    assert kept(up(document)) == rest
    assert down(up(document)) == document


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            {"kubeConfig": {"location": "s", "locationType": "Secret"}},
            {"clusterSource": {"kubeConfig": {"location": "s", "locationType": "Secret"}}},
        ),
        (
            {"kubeConfig": {"location": "", "locationType": "Secret"}, "clusterProfileRef": {"name": "p"}},
            {"clusterSource": {"clusterProfileRef": {"name": "p"}}},
        ),
    ],
)
def test_ways_to_a_worker_cluster(old: Json, new: Json) -> None:
    assert up(made(V1, "MultiKueueCluster", old)) == made(V2, "MultiKueueCluster", new)
    assert down(made(V2, "MultiKueueCluster", new)) == made(V1, "MultiKueueCluster", old)


def test_who_sets_the_quota_is_not_lost() -> None:
    config = made(V2, "MultiKueueConfig", {"clusters": ["b", "a"], "quotaManagement": "Automated"})
    older = down(config)
    assert older["spec"] == {"clusters": ["b", "a"]}
    assert up(older) == config
    assert up(made(V1, "MultiKueueConfig", {"clusters": ["a"]})) == made(V2, "MultiKueueConfig", {"clusters": ["a"]})


# Workload.


@pytest.mark.parametrize(
    ("old", "ref"),
    [
        (
            {"priorityClassName": "p", "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"},
            {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "p"},
        ),
        (
            {"priorityClassName": "p", "priorityClassSource": "scheduling.k8s.io/priorityclass"},
            {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "p"},
        ),
        ({"priorityClassName": "p", "priorityClassSource": ""}, None),
        ({"priorityClassSource": "scheduling.k8s.io/priorityclass"}, None),
        ({"priorityClassSource": ""}, None),
    ],
)
def test_priority_classes(old: Json, ref: Json | None) -> None:
    document = made(V1, "Workload", {"priority": 1, **old})
    assert up(document)["spec"] == {"priority": 1} | ({"priorityClassRef": ref} if ref else {})
    assert down(up(document)) == document


def test_a_reference_beats_what_was_kept_from_before() -> None:
    stored = up(made(V1, "Workload", {"priorityClassName": "old", "priorityClassSource": ""}))
    ref = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "new"}
    stored["spec"]["priorityClassRef"] = ref
    assert down(stored)["spec"]["priorityClassName"] == "new"


def test_gates_and_nested_slices_survive_a_writer_of_v1beta1() -> None:
    constraints = [{"topology": "rack", "size": 2}]
    pod_sets: list[Json] = [
        {"name": "a", "topologyRequest": {"required": "block", "podsetSliceRequiredTopologyConstraints": constraints}},
        {"name": "b", "topologyRequest": {"podsetSliceRequiredTopologyConstraints": constraints}},
        {"name": "c"},
    ]
    state = {"name": "g", "position": "Open", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    document = made(
        V2, "Workload", {"preemptionGates": [{"name": "g"}], "podSets": pod_sets}, {"preemptionGates": [state]}
    )
    shown = down(document)
    assert not shown["spec"].keys() & {"preemptionGates"}
    assert shown["spec"]["podSets"] == [
        {"name": "a", "topologyRequest": {"required": "block"}},
        {"name": "b", "topologyRequest": {}},
        {"name": "c"},
    ]
    assert up(shown) == document
    # A pod set that is gone, or asks for no topology any more, takes its slices along.
    del shown["spec"]["podSets"][0]["topologyRequest"]
    del shown["spec"]["podSets"][1]
    assert up(shown)["spec"]["podSets"] == [{"name": "a"}, {"name": "c"}]


def test_the_misspelling() -> None:
    shown = down(made(V2, "Workload", {}, {"accumulatedPastExecutionTimeSeconds": 3}))
    assert shown["status"] == {"accumulatedPastExexcutionTimeSeconds": 3}
    assert up(shown)["status"] == {"accumulatedPastExecutionTimeSeconds": 3}


def assigned(version: str, topology: Json) -> Json:
    assignment = {"name": "main", "count": 2, "topologyAssignment": topology}
    return made(version, "Workload", {}, {"admission": {"clusterQueue": "q", "podSetAssignments": [assignment]}})


@pytest.mark.parametrize(
    ("version", "topology"),
    [
        (V1, {"levels": ["block", "rack"], "domains": [{"values": ["only-one"], "count": 1}]}),
        (V1, {"levels": ["block"], "domains": "none"}),
        (
            V2,
            {
                "levels": ["block"],
                "slices": [
                    {
                        "domainCount": 2,
                        "valuesPerLevel": [{"individual": {"roots": ["a"]}}],
                        "podCounts": {"universal": 1},
                    }
                ],
            },
        ),
    ],
)
def test_a_topology_that_does_not_add_up_is_kept_and_not_shown(version: str, topology: Json) -> None:
    document = assigned(version, topology)
    if version == V1:
        document["spec"]["priorityClassSource"] = ""
    other = (up if version == V1 else down)(document)
    (assignment,) = other["status"]["admission"]["podSetAssignments"]
    assert assignment == {"name": "main", "count": 2}
    assert kept(other)["topologyAssignment"] == {"main": topology}


# What is not converted.


def test_the_wanted_version_stays_as_it_is() -> None:
    document = made(V2, "ClusterQueue", {"cohortName": "c"}, annotations={names.V1BETA1_FIELDS: "{}"})
    assert up(document) == document


@pytest.mark.parametrize(
    ("document", "wanted", "why"),
    [
        ([], V2, "is no object"),
        ({}, V2, "None (without a name): there is no conversion of None from None to kueue.x-k8s.io/v1beta2"),
        (made(V1, "Job"), V2, "Job x: there is no conversion of Job"),
        (made("kueue.x-k8s.io/v1alpha1", "Cohort"), V2, "from kueue.x-k8s.io/v1alpha1"),
        (made(V1, "Cohort"), "kueue.x-k8s.io/v2", "to kueue.x-k8s.io/v2"),
        ({"apiVersion": V1, "kind": "Cohort"}, V2, "has no metadata"),
        (
            {"apiVersion": V1, "kind": "Foo", "metadata": {"namespace": "n", "name": "x"}},
            V2,
            "Foo n/x: there is no conversion",
        ),
    ],
)
def test_errors_name_the_object(document: Any, wanted: str, why: str) -> None:
    with pytest.raises(ConversionError) as raised:
        converted(document, wanted)
    assert why in str(raised.value)
