"""The Workload of a job, field by field."""

from typing import Any

import pytest

from services.watcher.build_workload import (
    Priority,
    build_workload,
    max_execution_seconds,
    pod_sets_of_job,
    pod_sets_of_workload,
)
from shared.jobs.batch_job import BatchJob
from shared.jobs.podset_info import PermanentError
from shared.jobs.protocol import JobPodSet
from tests.unit.watcher.manifests import raw, template, workload
from tests.unit.watcher.world import queued_job

KIND = BatchJob()


class ManySets(BatchJob):
    def pod_sets(self, job: dict[str, object]) -> tuple[JobPodSet, ...]:
        return super().pod_sets(job) * 19


def test_labels_are_copied_where_configured() -> None:
    job = queued_job(labels={"team": "a", "other": "b"})
    found: Any = build_workload(KIND, job, Priority(), label_keys_to_copy=("team", "absent"))
    assert found["metadata"]["labels"] == {"team": "a", "kueue.x-k8s.io/job-uid": "uid-j"}


def test_a_uid_that_is_no_label_is_left_out() -> None:
    found: Any = build_workload(KIND, queued_job(uid="not/a/label"), Priority())
    assert found["metadata"]["labels"] == {}
    assert found["metadata"]["ownerReferences"][0]["uid"] == "not/a/label"


@pytest.mark.parametrize(("gates", "expected"), [("a.b/c", {"kueue.x-k8s.io/admission-gated-by": "a.b/c"}), ("", None)])
def test_admission_gates_come_along(gates: str, expected: dict[str, str] | None) -> None:
    job = queued_job(annotations={"kueue.x-k8s.io/admission-gated-by": gates})
    found: Any = build_workload(KIND, job, Priority())
    assert found["metadata"].get("annotations") == expected


def test_the_class_of_the_priority_is_named() -> None:
    found: Any = build_workload(KIND, queued_job(), Priority(7, "kueue.x-k8s.io", "WorkloadPriorityClass", "high"))
    assert found["spec"]["priority"] == 7
    assert found["spec"]["priorityClassRef"]["name"] == "high"
    assert "priorityClassRef" not in build_workload(KIND, queued_job(), Priority())["spec"]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60", 60), ("0", None), ("-1", None), ("x", None), (str(2**31), None), (str(2**31 - 1), 2**31 - 1)],
)
def test_longest_run_time(text: str, seconds: int | None) -> None:
    assert max_execution_seconds(queued_job(labels={"kueue.x-k8s.io/max-exec-time-seconds": text})) == seconds


def test_too_many_pod_sets_are_no_workload() -> None:
    with pytest.raises(PermanentError, match="1 to 18 pod sets"):
        pod_sets_of_job(ManySets(), queued_job())


def test_a_variable_that_is_named_twice_counts_once() -> None:
    job = queued_job()
    job["spec"]["template"]["spec"]["containers"][0]["env"] *= 2
    (pod_set,) = pod_sets_of_job(KIND, job)
    assert pod_set.template == template()


def test_pod_sets_of_a_stored_workload_are_whole() -> None:
    (pod_set,) = pod_sets_of_workload(raw(workload()))
    assert (pod_set.name, pod_set.count, pod_set.min_count) == ("main", 3, None)
    assert pod_set.template == template()
    assert pod_sets_of_workload(b"") == ()
