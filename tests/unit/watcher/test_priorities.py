"""Where a job's priority comes from, in the order of the sources."""

from typing import Any

import pytest

from services.watcher.build_workload import Priority
from services.watcher.priorities import MissingPriorityClass, resolve
from services.watcher.store import Store
from shared.jobs.batch_job import BatchJob
from shared.jobs.manifest import JsonObject
from tests.unit.watcher.manifests import metadata, raw

KIND = BatchJob()


def store(*classes: tuple[str, str, int, bool]) -> Store:
    made = Store()
    for version, (kind, name, value, default) in enumerate(classes, start=1):
        document = {"metadata": metadata(name, version=version), "value": value, "globalDefault": default}
        made.upsert(kind, raw(document))
    return made


def job(label: str = "", pods: str = "") -> JsonObject:
    labels = {"kueue.x-k8s.io/priority-class": label} if label else {}
    spec: dict[str, Any] = {"priorityClassName": pods} if pods else {}
    return {"metadata": {"name": "j", "labels": labels}, "spec": {"template": {"spec": spec}}}


CLASSES = (
    ("workloadpriorityclass", "team", 100, False),
    ("priorityclass", "pods", 7, False),
    ("priorityclass", "default-high", 50, True),
    ("priorityclass", "default-low", 5, True),
)


@pytest.mark.parametrize(
    ("label", "pods", "expected"),
    [
        ("team", "pods", Priority(100, "kueue.x-k8s.io", "WorkloadPriorityClass", "team")),
        ("", "pods", Priority(7, "scheduling.k8s.io", "PriorityClass", "pods")),
        ("", "", Priority(5, "scheduling.k8s.io", "PriorityClass", "default-low")),
    ],
)
def test_sources(label: str, pods: str, expected: Priority) -> None:
    found = job(label, pods)
    assert resolve(store(*CLASSES), KIND, found, KIND.pod_sets(found)) == expected


def test_without_any_class_it_is_zero() -> None:
    assert resolve(store(), KIND, job(), KIND.pod_sets(job())) == Priority()


@pytest.mark.parametrize(
    ("label", "pods", "kind"), [("x", "pods", "WorkloadPriorityClass"), ("", "x", "PriorityClass")]
)
def test_a_missing_class_has_no_fallback(label: str, pods: str, kind: str) -> None:
    found = job(label, pods)
    with pytest.raises(MissingPriorityClass, match=f"{kind} 'x' does not exist"):
        resolve(store(*CLASSES), KIND, found, KIND.pod_sets(found))
