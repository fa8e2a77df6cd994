"""Defaulting of Jobs: the order and the conditions of the integration specification, section 5."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from services.webhook.default_job import Surroundings, defaults
from shared.api.decoding import convert
from shared.api.meta import ObjectMeta
from shared.config.feature_gates import DEFAULT_GATES
from shared.jobs.batch_job import BatchJob

ALONE = Surroundings(
    default_queue=False,
    default_priority_class=False,
    owner_managed=False,
    ancestor=False,
    manage_all=False,
    namespace_matches=True,
)
QUEUED = {"kueue.x-k8s.io/queue-name": "q"}
SUSPEND = [("/spec/suspend", True)]


def changes(labels: dict[str, str], around: Surroundings, **rest: Any) -> list[tuple[str, Any]]:
    metadata = {"name": "j", "labels": labels, **rest.pop("metadata", {})}
    job: dict[str, Any] = {"metadata": metadata, "spec": rest}
    return [(p.path, p.value) for p in defaults(BatchJob(), job, convert(ObjectMeta, metadata), around, DEFAULT_GATES)]


def near(**changed: bool) -> Surroundings:
    return msgspec.structs.replace(ALONE, **changed)


@pytest.mark.parametrize(
    ("labels", "around", "expected"),
    [
        ({}, ALONE, []),
        (QUEUED, ALONE, SUSPEND),
        (QUEUED, near(ancestor=True), []),
        (QUEUED, near(namespace_matches=False), SUSPEND),
        ({}, near(manage_all=True), SUSPEND),
        ({}, near(manage_all=True, namespace_matches=False), []),
        ({}, near(default_queue=True), [("/metadata/labels/kueue.x-k8s.io~1queue-name", "default"), *SUSPEND]),
        ({"a": "b"}, near(default_queue=True), [("/metadata/labels/kueue.x-k8s.io~1queue-name", "default"), *SUSPEND]),
        ({}, near(default_queue=True, owner_managed=True), []),
        ({}, near(default_queue=True, namespace_matches=False), []),
        (QUEUED, near(default_queue=True), SUSPEND),
        (
            QUEUED,
            near(default_priority_class=True),
            [("/metadata/labels/kueue.x-k8s.io~1priority-class", "default"), *SUSPEND],
        ),
        ({}, near(default_priority_class=True), [("/metadata/labels/kueue.x-k8s.io~1priority-class", "default")]),
    ],
)
def test_defaults(labels: dict[str, str], around: Surroundings, expected: list[tuple[str, Any]]) -> None:
    assert changes(labels, around) == expected


def test_labels_that_are_not_there_yet() -> None:
    job: dict[str, Any] = {"metadata": {"name": "j"}, "spec": {"suspend": True}}
    around = near(default_queue=True)
    found = defaults(BatchJob(), job, convert(ObjectMeta, job["metadata"]), around, DEFAULT_GATES)
    assert [(p.path, p.value) for p in found] == [("/metadata/labels", {"kueue.x-k8s.io/queue-name": "default"})]


def test_a_suspended_job_stays_as_it_is() -> None:
    assert changes(QUEUED, ALONE, suspend=True) == []


def test_a_job_that_is_being_deleted_is_not_suspended() -> None:
    assert changes(QUEUED, ALONE, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}) == []


MULTIKUEUE = ("/spec/managedBy", "kueue.x-k8s.io/multikueue")


@pytest.mark.parametrize(
    ("manager", "expected"),
    [
        ({}, [MULTIKUEUE]),
        ({"managedBy": "kubernetes.io/job-controller"}, [MULTIKUEUE]),
        ({"managedBy": "example.com/mine"}, []),
    ],
)
def test_jobs_of_other_clusters_are_not_run_here(manager: dict[str, str], expected: list[tuple[str, Any]]) -> None:
    assert changes(QUEUED, near(dispatched=True), suspend=True, **manager) == expected
    assert changes(QUEUED, ALONE, suspend=True, **manager) == []


def test_the_queue_that_a_job_will_have() -> None:
    assert ALONE.queue(QUEUED) == "q"
    assert ALONE.queue({}) == ""
    assert near(default_queue=True).queue({}) == "default"
    assert near(default_queue=True).queue(QUEUED) == "q"
    assert near(default_queue=True, owner_managed=True).queue({}) == ""
