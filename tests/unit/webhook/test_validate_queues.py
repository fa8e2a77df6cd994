"""Refusals of queue objects: each rule with the path that users are shown."""

from __future__ import annotations

from typing import Any

import pytest

from services.webhook.validate_queues import cluster_queue_errors, cohort_errors, resource_flavor_errors
from shared.api.cluster_queue import ClusterQueue
from shared.api.cohort import Cohort
from shared.api.decoding import convert
from shared.api.resource_flavor import ResourceFlavor
from shared.config.feature_gates import DEFAULT_GATES, resolve


def quota(name: str = "cpu", nominal: object = "4", **limits: object) -> dict[str, Any]:
    return {"name": name, "nominalQuota": nominal, **limits}


def group(*flavors: tuple[str, list[dict[str, Any]]], covered: list[str] | None = None) -> dict[str, Any]:
    return {
        "coveredResources": covered or ["cpu"],
        "flavors": [{"name": name, "resources": resources} for name, resources in flavors],
    }


def queue(**spec: Any) -> ClusterQueue:
    return convert(ClusterQueue, {"metadata": {"name": "q"}, "spec": {"namespaceSelector": {}, **spec}})


def cohort(**spec: Any) -> Cohort:
    return convert(Cohort, {"metadata": {"name": "c"}, "spec": spec})


def paths(errors: Any) -> list[tuple[str, str]]:
    return [(e.path, e.kind) for e in errors]


GOOD = group(("spot", [quota()]))
FLAVOR = "spec.resourceGroups[0].flavors[0]"


def test_a_plain_queue_is_accepted() -> None:
    assert paths(cluster_queue_errors(queue(resourceGroups=[GOOD]), None, DEFAULT_GATES)) == []


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"resourceGroups": [group(("spot", [quota("@cpu")]), covered=["@cpu"])]},
            [("spec.resourceGroups[0].coveredResources[0]", "Invalid value")],
        ),
        (
            {"resourceGroups": [GOOD, group(("od", [quota()]))]},
            [("spec.resourceGroups[1].coveredResources[0]", "Duplicate value")],
        ),
        (
            {"resourceGroups": [GOOD, group(("spot", [quota("memory")]), covered=["memory"])]},
            [("spec.resourceGroups[1].flavors[0].name", "Duplicate value")],
        ),
        (
            {"resourceGroups": [group(("spot", [quota("memory")]))]},
            [(f"{FLAVOR}.resources[0].name", "Invalid value")],
        ),
        (
            {"resourceGroups": [group(("spot", [quota(nominal="-1")]))]},
            [(f"{FLAVOR}.resources[0].nominalQuota", "Invalid value")],
        ),
        (
            {"resourceGroups": [group(("spot", [quota(borrowingLimit="1")]))]},
            [(f"{FLAVOR}.resources[0].borrowingLimit", "Invalid value")],
        ),
        (
            {"resourceGroups": [group(("spot", [quota(lendingLimit="1")]))]},
            [(f"{FLAVOR}.resources[0].lendingLimit", "Invalid value")],
        ),
        (
            {"cohortName": "c", "resourceGroups": [group(("spot", [quota(lendingLimit="5")]))]},
            [(f"{FLAVOR}.resources[0].lendingLimit", "Invalid value")],
        ),
        (
            {"cohortName": "c", "resourceGroups": [group(("spot", [quota(borrowingLimit="-1", lendingLimit="-1")]))]},
            [
                (f"{FLAVOR}.resources[0].borrowingLimit", "Invalid value"),
                (f"{FLAVOR}.resources[0].lendingLimit", "Invalid value"),
            ],
        ),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            [("spec.namespaceSelector.matchExpressions[0].values", "Required value")],
        ),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}},
            [("spec.namespaceSelector.matchExpressions[0].values", "Forbidden")],
        ),
        (
            {"namespaceSelector": {"matchExpressions": [{"key": "@", "operator": "Is", "values": ["ok", "not ok"]}]}},
            [
                ("spec.namespaceSelector.matchExpressions[0].operator", "Invalid value"),
                ("spec.namespaceSelector.matchExpressions[0].key", "Invalid value"),
                ("spec.namespaceSelector.matchExpressions[0].values[1]", "Invalid value"),
            ],
        ),
        (
            {"namespaceSelector": {"matchLabels": {"@": "-"}}},
            [("spec.namespaceSelector.matchLabels", "Invalid value")] * 2,
        ),
        (
            {"flavorFungibility": {"preference": "PreemptionOverBorrowing"}},
            [("spec.flavorFungibility.preference", "Invalid value")],
        ),
        (
            {"preemption": {"borrowWithinCohort": {"policy": "LowerPriority"}}},
            [("spec.preemption", "Invalid value")],
        ),
        ({"fairSharing": {"weight": "-1"}}, [("spec.fairSharing", "Invalid value")]),
        ({"fairSharing": {"weight": "1n"}}, [("spec.fairSharing", "Invalid value")]),
        ({"fairSharing": {"weight": "0"}}, []),
        ({"fairSharing": {"weight": "2n"}}, []),
        (
            {
                "resourceGroups": [GOOD],
                "admissionChecksStrategy": {"admissionChecks": [{"name": "ac", "onFlavors": ["nope"]}]},
            },
            [("spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]", "Unsupported value")],
        ),
    ],
)
def test_refusals_of_a_cluster_queue(spec: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert paths(cluster_queue_errors(queue(**spec), None, DEFAULT_GATES)) == expected


def test_too_many_combinations_in_a_group() -> None:
    covered = [f"r{i}" for i in range(64)]
    wide = group(*((f"f{j}", [quota(r) for r in covered]) for j in range(9)), covered=covered)
    assert paths(cluster_queue_errors(queue(resourceGroups=[wide]), None, DEFAULT_GATES)) == [
        ("spec.resourceGroups[0]", "Too many")
    ]


def test_an_unchanged_check_with_unknown_flavors_does_not_block_other_changes() -> None:
    checks = {"admissionChecks": [{"name": "ac", "onFlavors": ["nope"]}]}
    old = queue(resourceGroups=[GOOD], admissionChecksStrategy=checks)
    new = queue(resourceGroups=[GOOD], admissionChecksStrategy=checks, stopPolicy="Hold")
    assert paths(cluster_queue_errors(new, old, DEFAULT_GATES)) == []
    other = queue(resourceGroups=[group(("od", [quota()]))], admissionChecksStrategy=checks)
    assert paths(cluster_queue_errors(other, old, DEFAULT_GATES)) == [
        ("spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]", "Unsupported value")
    ]


def test_a_queue_without_flavors_may_name_those_that_it_will_have() -> None:
    checks = {"admissionChecks": [{"name": "ac", "onFlavors": ["nope"]}]}
    empty = queue(admissionChecksStrategy=checks)
    strict = resolve({"RejectUpdatesToCQWithInvalidOnFlavors": True})
    assert paths(cluster_queue_errors(empty, None, DEFAULT_GATES)) == []
    assert paths(cluster_queue_errors(empty, empty, strict)) == []
    # The first flavors settle it, although the check itself is unchanged.
    filled = queue(resourceGroups=[GOOD], admissionChecksStrategy=checks)
    assert paths(cluster_queue_errors(filled, empty, DEFAULT_GATES)) == [
        ("spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]", "Unsupported value")
    ]


def test_unless_the_gate_says_so() -> None:
    checks = {"admissionChecks": [{"name": "ac", "onFlavors": ["nope"]}]}
    old = queue(resourceGroups=[GOOD], admissionChecksStrategy=checks)
    strict = resolve({"RejectUpdatesToCQWithInvalidOnFlavors": True})
    assert paths(cluster_queue_errors(old, old, strict)) == [
        ("spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]", "Unsupported value")
    ]


MIGRATION = "spec.concurrentAdmissionPolicy.migration.constraints"


@pytest.mark.parametrize(
    ("mode", "last", "spec", "expected"),
    [
        ("TryPreferredFlavors", "spot", {}, []),
        ("TryPreferredFlavors", "od", {}, [(f"{MIGRATION}.lastAcceptableFlavorName", "Invalid value")]),
        ("RetainFirstAdmission", "", {}, []),
        ("RetainFirstAdmission", "spot", {}, [(MIGRATION, "Forbidden")]),
        ("TryPreferredFlavors", "", {"queueingStrategy": "StrictFIFO"}, [("spec.queueingStrategy", "Invalid value")]),
        ("TryPreferredFlavors", "", {"resourceGroups": []}, [("spec.resourceGroups", "Invalid value")]),
        (
            "TryPreferredFlavors",
            "",
            {"resourceGroups": [GOOD, group(("od", [quota("memory")]), covered=["memory"])]},
            [("spec.resourceGroups", "Invalid value")],
        ),
        (
            "TryPreferredFlavors",
            "",
            {"resourceGroups": [group(*((f"f{i}", [quota()]) for i in range(17)))]},
            [("spec.resourceGroups[0].flavors", "Invalid value")],
        ),
    ],
)
def test_concurrent_admission(mode: str, last: str, spec: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    migration: dict[str, Any] = {"mode": mode}
    if last:
        migration["constraints"] = {"lastAcceptableFlavorName": last}
    made = queue(**{"resourceGroups": [GOOD], "concurrentAdmissionPolicy": {"migration": migration}, **spec})
    assert paths(cluster_queue_errors(made, None, resolve({"ConcurrentAdmission": True}))) == expected
    assert paths(cluster_queue_errors(made, None, DEFAULT_GATES)) == []


def test_concurrent_admission_is_immutable() -> None:
    policy = {"migration": {"mode": "TryPreferredFlavors"}}
    errors = cluster_queue_errors(queue(concurrentAdmissionPolicy=policy), queue(), DEFAULT_GATES)
    assert paths(errors) == [("spec.concurrentAdmissionPolicy", "Invalid value")]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"parentName": "root", "resourceGroups": [group(("spot", [quota(lendingLimit="9")]))]}, []),
        (
            {"resourceGroups": [group(("spot", [quota(borrowingLimit="1")]))]},
            [(f"{FLAVOR}.resources[0].borrowingLimit", "Invalid value")],
        ),
        ({"fairSharing": {"weight": "-2"}}, [("spec.fairSharing", "Invalid value")]),
    ],
)
def test_refusals_of_a_cohort(spec: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert paths(cohort_errors(cohort(**spec))) == expected


def test_the_detail_names_the_parent_of_a_cohort() -> None:
    (error,) = cohort_errors(cohort(resourceGroups=[group(("spot", [quota(lendingLimit="1")]))]))
    assert str(error) == f'{FLAVOR}.resources[0].lendingLimit: Invalid value: "1": must be nil when parent is empty'


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"nodeLabels": {"a/b/c": "x"}}, [("spec.nodeLabels", "Invalid value")]),
        ({"nodeLabels": {"a": "not valid"}}, [("spec.nodeLabels", "Invalid value")]),
        ({"nodeTaints": [{"key": "@", "effect": "NoSchedule"}]}, [("spec.nodeTaints[0].key", "Invalid value")]),
        (
            {"nodeTaints": [{"key": "a", "value": "b c", "effect": "NoSchedule"}]},
            [("spec.nodeTaints[0].value", "Invalid value")],
        ),
        (
            {"nodeTaints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "value": "x", "effect": "NoSchedule"}]},
            [("spec.nodeTaints[1]", "Duplicate value")],
        ),
        ({"tolerations": [{"key": "@", "operator": "Exists"}]}, [("spec.tolerations[0].key", "Invalid value")]),
        ({"tolerations": [{"operator": "Exists"}], "nodeLabels": {"zone": "a"}}, []),
    ],
)
def test_refusals_of_a_flavor(spec: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    flavor = convert(ResourceFlavor, {"metadata": {"name": "f"}, "spec": spec})
    assert paths(resource_flavor_errors(flavor)) == expected
