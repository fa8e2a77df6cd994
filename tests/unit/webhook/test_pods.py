"""Defaulting and refusals of pods: the order and the conditions of the integration specification, 14.2 and 14.13."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from services.webhook.admission_review import Request, decode
from services.webhook.default_job import Surroundings
from services.webhook.default_pod import UNDER_PARENT, pod_defaults
from services.webhook.validate_pod import owner_warnings, pod_errors
from shared.api.meta import OwnerReference
from shared.config.configuration import Integrations
from shared.config.feature_gates import DEFAULT_GATES, FeatureGates
from shared.jobs.pod_role import role_hash
from tests.unit.webhook.test_default_job import near
from tests.unit.webhook.test_handlers import handlers

K = "kueue.x-k8s.io/"
ADMISSION, TOPOLOGY = {"name": f"{K}admission"}, {"name": f"{K}topology"}
QUEUED = {f"{K}queue-name": "q"}


def pod(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    metadata = {"name": "p", "labels": labels or {}, "annotations": annotations or {}, **more.pop("metadata", {})}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c"}], **more}}


def changed(made: dict[str, Any], around: Surroundings, gates: Any = DEFAULT_GATES) -> dict[str, Any]:
    """Path without our group -> value."""
    return {p.path.replace("kueue.x-k8s.io~1", ""): p.value for p in pod_defaults(made, around, gates)}


def test_a_queued_pod_is_held_back_marked_and_kept() -> None:
    made = pod(QUEUED)
    assert changed(made, near()) == {
        "/metadata/labels/managed": "true",
        "/metadata/finalizers": [f"{K}managed"],
        "/metadata/annotations/role-hash": role_hash(made),
        "/spec/schedulingGates": [ADMISSION, TOPOLOGY],
    }


def test_without_topology_there_is_no_gate_for_it() -> None:
    found = changed(pod(QUEUED), near(), FeatureGates(DEFAULT_GATES.states | {"TopologyAwareScheduling": False}))
    assert found["/spec/schedulingGates"] == [ADMISSION]


def test_what_is_there_already_stays() -> None:
    made = pod(
        {**QUEUED, f"{K}managed": "true"},
        {f"{K}role-hash": "main"},
        metadata={"finalizers": ["other", f"{K}managed"]},
        schedulingGates=[{"name": "mine"}, ADMISSION],
    )
    assert changed(made, near()) == {"/spec/schedulingGates": [{"name": "mine"}, ADMISSION, TOPOLOGY]}


@pytest.mark.parametrize(
    ("labels", "around", "held"),
    [
        ({}, near(), False),
        (QUEUED, near(ancestor=True), False),
        (QUEUED, near(namespace_matches=False), False),
        ({}, near(manage_all=True), True),
        ({}, near(manage_all=True, namespace_matches=False), False),
        ({}, near(default_queue=True), True),
    ],
)
def test_which_pods_are_held_back(labels: dict[str, str], around: Surroundings, held: bool) -> None:
    found = changed(pod(labels), around)
    assert ("/spec/schedulingGates" in found) is held
    assert (found.get("/metadata/labels/managed") == "true") is held


def test_the_default_queue_and_class() -> None:
    found = changed(pod(), near(default_queue=True, default_priority_class=True))
    assert found["/metadata/labels/queue-name"] == "default"
    assert found["/metadata/labels/priority-class"] == "default"


def test_a_pod_below_a_serving_kind_is_only_gated() -> None:
    made = pod(annotations={f"{K}pod-suspending-parent": ""})
    assert changed(made, UNDER_PARENT) == {
        "/metadata/annotations/role-hash": role_hash(made),
        "/spec/schedulingGates": [ADMISSION, TOPOLOGY],
    }


def test_the_index_is_copied_from_the_label_that_is_named() -> None:
    named = {f"{K}pod-group-pod-index-label": "index"}
    assert changed(pod({**QUEUED, "index": "3"}, named), near())["/metadata/labels/pod-group-pod-index"] == "3"
    assert changed(pod(QUEUED, named), near())["/metadata/labels/pod-group-pod-index"] == ""


GROUP = {f"{K}pod-group-name": "g", f"{K}pod-group-total-count": "2"}
NAME, TOTAL = "metadata.annotations[pod-group-name]", "metadata.annotations[pod-group-total-count]"


def faults(made: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    return [f"{e.path.replace(K, '')} {e.kind}" for e in pod_errors(made, old, DEFAULT_GATES)]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (pod(QUEUED, GROUP), []),
        (pod({f"{K}pod-group-name": "g"}, {f"{K}pod-group-total-count": "2"}), []),
        (pod({f"{K}managed": "false"}), ["metadata.labels[managed] Forbidden"]),
        (pod({}, {f"{K}pod-group-name": "g"}), [f"{TOTAL} Required value"]),
        (pod({}, {f"{K}pod-group-total-count": "2"}), [f"{NAME} Required value"]),
        (pod({}, {**GROUP, f"{K}pod-group-total-count": "0"}), [f"{TOTAL} Invalid value"]),
        (pod({}, {**GROUP, f"{K}pod-group-total-count": "two"}), [f"{TOTAL} Invalid value"]),
        (pod({}, {**GROUP, f"{K}pod-group-total-count": "9" * 20}), [f"{TOTAL} Invalid value"]),
        (pod({}, {**GROUP, f"{K}pod-group-total-count": "9" * 5000}), [f"{TOTAL} Invalid value"]),
        (pod({}, {**GROUP, f"{K}pod-group-name": "G_"}), [f"{NAME} Invalid value"]),
        (pod({}, {**GROUP, f"{K}prebuilt-workload-name": "other"}), [f"{NAME} Invalid value"]),
        (pod({}, {**GROUP, f"{K}prebuilt-workload-name": "g"}), []),
        (
            pod({}, {f"{K}podset-required-topology": "a", f"{K}podset-preferred-topology": "b"}),
            ["metadata.annotations Invalid value"],
        ),
        (pod({}, {f"{K}podset-required-topology": "cloud.com/rack"}), []),
    ],
)
def test_what_is_refused_at_creation(made: dict[str, Any], expected: list[str]) -> None:
    assert faults(made) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({}, GROUP, []),
        (GROUP, {**GROUP, f"{K}pod-group-name": "h"}, [f"{NAME} Invalid value"]),
        (GROUP, {}, [f"{NAME} Invalid value"]),
        (GROUP, {**GROUP, f"{K}retriable-in-group": "false"}, []),
        ({**GROUP, f"{K}retriable-in-group": "false"}, GROUP, ["metadata.annotations[retriable-in-group] Forbidden"]),
    ],
)
def test_what_is_refused_in_a_change(old: dict[str, str], new: dict[str, str], expected: list[str]) -> None:
    assert faults(pod({}, new), pod({}, old)) == expected


def review(made: dict[str, Any], namespace: str = "team") -> Request:
    request = {"uid": "u", "operation": "CREATE", "namespace": namespace, "name": "p", "object": made}
    return decode(msgspec.json.encode({"request": request}))


async def test_pods_are_looked_at_only_when_their_integration_is_enabled() -> None:
    off, on = handlers(), handlers(integrations=Integrations(frameworks=("pod",)))
    assert (await off.routes()["/mutate--v1-pod"](review(pod(QUEUED)))).patch == ()
    assert (await on.routes()["/mutate--v1-pod"](review(pod(QUEUED)))).patch
    assert (await on.routes()["/mutate--v1-pod"](review(pod(QUEUED), "kube-system"))).patch == ()
    wrong = review(pod({f"{K}managed": "no"}))
    assert (await off.routes()["/validate--v1-pod"](wrong)).errors == ()
    assert (await on.routes()["/validate--v1-pod"](wrong)).errors


async def test_a_pod_with_the_parent_marker_is_gated_in_any_namespace() -> None:
    on = handlers(integrations=Integrations(frameworks=("pod",)))
    made = pod(annotations={f"{K}pod-suspending-parent": "deployment"})
    assert (await on.routes()["/mutate--v1-pod"](review(made, "kube-system"))).patch


def deployment(**labels: str) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c"}]}}
    return {"metadata": {"name": "d", "labels": labels}, "spec": {"template": template}}


async def test_pods_of_a_managed_deployment_are_marked() -> None:
    on = handlers(integrations=Integrations(frameworks=("deployment",)))
    verdict = await on.routes()["/mutate-apps-v1-deployment"](review(deployment(**QUEUED)))
    found = {p.path.replace("kueue.x-k8s.io~1", ""): p.value for p in verdict.patch}
    assert found == {
        "/spec/template/metadata/labels/managed": "true",
        "/spec/template/metadata/labels/queue-name": "q",
        "/spec/template/metadata/annotations": {f"{K}pod-suspending-parent": "deployment"},
    }
    assert (await on.routes()["/mutate-apps-v1-deployment"](review(deployment()))).patch == ()
    assert (await handlers().routes()["/mutate-apps-v1-deployment"](review(deployment(**QUEUED)))).patch == ()
    # Its pods are gated though the integration of plain pods is off.
    assert (await on.routes()["/mutate--v1-pod"](review(pod(annotations={f"{K}pod-suspending-parent": "x"})))).patch
    wrong = review(deployment(**{f"{K}queue-name": "Q_"}))
    assert (await on.routes()["/validate-apps-v1-deployment"](wrong)).errors


@pytest.mark.parametrize(
    ("before", "after", "kept", "expected"),
    [
        ({f"{K}managed": "true"}, {}, True, ["metadata.labels[managed] Invalid value"]),
        ({f"{K}managed": "true"}, {f"{K}managed": "true"}, True, []),
        ({f"{K}managed": "true"}, {}, False, []),
        ({}, {}, True, []),
    ],
)
def test_who_holds_quota_stays_in_sight(
    before: dict[str, str], after: dict[str, str], kept: bool, expected: list[str]
) -> None:
    old, made = pod(before), pod(after)
    for one in (old, made):
        one["metadata"]["finalizers"] = [f"{K}managed"] if kept else []
    assert faults(made, old) == expected


OWNER = OwnerReference(api_version="batch/v1", kind="Job", name="j", controller=True)
MANAGED, PARENT = {f"{K}managed": "true"}, {f"{K}pod-suspending-parent": "statefulset"}


@pytest.mark.parametrize(
    ("made", "owner", "change", "warned"),
    [
        (pod(MANAGED), OWNER, False, True),
        (pod(MANAGED), OWNER, True, True),
        (pod(MANAGED), None, False, False),
        (pod(), OWNER, False, False),
        (pod(MANAGED, PARENT), OWNER, False, True),
        (pod(MANAGED, PARENT), OWNER, True, False),
    ],
)
def test_a_marked_pod_of_a_managed_owner_is_warned_of(
    made: dict[str, Any], owner: OwnerReference | None, change: bool, warned: bool
) -> None:
    assert bool(owner_warnings(made, owner, changed=change)) is warned


async def test_the_warning_is_in_the_answer() -> None:
    made = handlers(integrations=Integrations(frameworks=("batch/job", "pod")))
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    request = {"uid": "u", "namespace": "team", "object": pod(MANAGED, metadata={"ownerReferences": [reference]})}
    verdict = await made.routes()["/validate--v1-pod"](decode(msgspec.json.encode({"request": request})))
    assert not verdict.errors
    (warning,) = verdict.warnings
    assert "Job j" in warning
