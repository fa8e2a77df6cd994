from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config.feature_gates import DEFAULT_GATES
from shared.jobs.batch_job import BatchJob
from shared.jobs.manifest import JsonObject
from shared.jobs.merge_patch import apply
from shared.jobs.podset_info import PermanentError, PodSetInfo
from shared.jobs.protocol import Finished, JobPodSet, StopStep
from tests.unit.jobs.round_trip import INFO_LISTS, TEMPLATES, assert_round_trip

KIND = BatchJob()


def job(*, spec: JsonObject | None = None, status: JsonObject | None = None, **annotations: str) -> JsonObject:
    return {
        "metadata": {
            "name": "j",
            "annotations": {f"kueue.x-k8s.io/{k.replace('_', '-')}": v for k, v in annotations.items()},
        },
        "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}, **(spec or {})},
        "status": status or {},
    }


@pytest.mark.parametrize(
    ("suspend", "stopping", "suspended"),
    [(True, "", True), (True, "true", False), (True, "false", True), (False, "", False), (False, "true", False)],
)
def test_suspended(suspend: bool, stopping: str, suspended: bool) -> None:
    assert KIND.suspended(job(spec={"suspend": suspend}, stopping=stopping)) is suspended


def test_suspend_holds_back_only_once() -> None:
    assert KIND.suspend(job()) == {"spec": {"suspend": True}}
    assert KIND.suspend(job(spec={"suspend": True})) == {}


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({}, 1),
        ({"parallelism": 3}, 3),
        ({"parallelism": 3, "completions": 2}, 2),
        ({"completions": 5}, 1),
        ({"parallelism": 0}, 0),
    ],
)
def test_pods(spec: JsonObject, count: int) -> None:
    (pod_set,) = KIND.pod_sets(job(spec=spec))
    assert (pod_set.name, pod_set.count, pod_set.min_count) == ("main", count, None)


def test_labels_of_the_job_controller_are_not_the_users() -> None:
    labels = {
        "mine": "1",
        "job-name": "j",
        "controller-uid": "u",
        "batch.kubernetes.io/controller-uid": "u",
        "batch.kubernetes.io/job-name": "j",
    }
    (pod_set,) = KIND.pod_sets(job(spec={"template": {"metadata": {"labels": labels}, "spec": {"x": 1}}}))
    assert pod_set.template == {
        "metadata": {"labels": {"mine": "1", "batch.kubernetes.io/job-name": "j"}},
        "spec": {"x": 1},
    }


def test_pods_carry_their_index() -> None:
    (pod_set,) = KIND.pod_sets(job())
    assert pod_set.topology_request == {"podIndexLabel": "batch.kubernetes.io/job-completion-index"}
    assert pod_set.manifest()["topologyRequest"] == pod_set.topology_request


@pytest.mark.parametrize(("text", "expected"), [("2", 2), ("x", None), ("0", None), ("-1", None), ("", None)])
def test_min_parallelism(text: str, expected: int | None) -> None:
    (pod_set,) = KIND.pod_sets(job(spec={"parallelism": 4}, job_min_parallelism=text))
    assert pod_set.min_count == expected


INFO = PodSetInfo(name="main", count=2, labels={"l": "1"}, node_selector={"n": "1"})


def test_start_injects_and_lets_run() -> None:
    assert KIND.start(job(spec={"suspend": True, "parallelism": 4}), (INFO,)) == {
        "spec": {
            "suspend": False,
            "template": {"metadata": {"labels": {"l": "1"}}, "spec": {"nodeSelector": {"n": "1"}}},
        }
    }


def test_start_with_fewer_pods() -> None:
    partial = job(spec={"suspend": True, "parallelism": 4, "completions": 4}, job_min_parallelism="1")
    patch: Any = KIND.start(partial, (INFO,))
    assert patch["spec"]["parallelism"] == 2
    assert "completions" not in patch["spec"]
    equal = job(
        spec={"suspend": True, "parallelism": 4, "completions": 4},
        job_min_parallelism="1",
        job_completions_equal_parallelism="true",
    )
    patch = KIND.start(equal, (INFO,))
    assert (patch["spec"]["parallelism"], patch["spec"]["completions"]) == (2, 2)


def test_a_wrong_number_of_infos_can_never_start() -> None:
    for infos in ((), (INFO, INFO)):
        with pytest.raises(PermanentError):
            KIND.start(job(spec={"suspend": True}), infos)


def test_stop_takes_three_writes() -> None:
    original = job(
        spec={
            "suspend": True,
            "parallelism": 4,
            "template": {"metadata": {"labels": {"job-name": "j"}}, "spec": {"a": 1}},
        },
        job_min_parallelism="1",
    )
    restore = KIND.pod_sets(original)
    running = apply(original, KIND.start(original, (INFO,)))
    running["status"] = {"startTime": "2026-01-01T00:00:00Z", "active": 2}

    first = KIND.stop(running, restore)
    assert first == StopStep(
        patch={"spec": {"suspend": True}, "metadata": {"annotations": {"kueue.x-k8s.io/stopping": "true"}}},
        stopped_now=True,
    )
    stopping = apply(running, first.patch)
    assert not KIND.suspended(stopping)
    second = KIND.stop(stopping, restore)
    assert second == StopStep(patch={"status": {"startTime": None}}, status=True)
    cleared = apply(stopping, second.patch)
    third = KIND.stop(cleared, restore)
    assert third is not None
    assert not third.status
    stopped = apply(cleared, third.patch)
    assert stopped["spec"] == original["spec"]
    assert stopped["metadata"] == original["metadata"]
    assert KIND.suspended(stopped)
    assert KIND.stop(stopped, restore) is None


@pytest.mark.parametrize("type_", ["SuccessCriteriaMet", "FailureTarget"])
@pytest.mark.parametrize("stopping", ["", "true"])
def test_a_job_that_ends_is_not_stopped_and_gets_its_start_time_back(type_: str, stopping: str) -> None:
    conditions = [{"type": "Suspended", "status": "False"}, {"type": type_, "status": "True"}]
    ending = job(spec={"suspend": True}, status={"conditions": conditions}, stopping=stopping)
    ending = apply(ending, {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}})
    step = KIND.stop(ending, ())
    assert step == StopStep(patch={"status": {"startTime": "2026-01-01T00:00:00Z"}}, status=True)
    assert KIND.stop(apply(ending, step.patch), ()) is None
    running = apply(ending, {"spec": {"suspend": False}, "status": {"startTime": "2026-01-01T00:00:01Z"}})
    assert KIND.stop(running, ()) is None
    # What was once meant is not meant any more.
    conditions[1]["status"] = "False"
    assert KIND.stop(running, ()) is not None


def test_stop_without_restore_data_leaves_the_template() -> None:
    stopping = job(spec={"suspend": True, "parallelism": 2}, stopping="true", job_min_parallelism="1")
    for restore in ((), (JobPodSet(name="a", count=9, template={}), JobPodSet(name="b", count=9, template={}))):
        step = KIND.stop(stopping, restore)
        assert step is not None
        assert step.patch == {"metadata": {"annotations": {"kueue.x-k8s.io/stopping": None}}}


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], None),
        ([{"type": "Complete", "status": "False"}], None),
        ([{"type": "SuccessCriteriaMet", "status": "True"}], None),
        ([{"type": "Complete", "status": "True", "message": "ok"}], Finished(True, "ok")),
        ([{"type": "Failed", "status": "True", "message": "no"}], Finished(False, "no")),
        ([{"type": "Failed", "status": "True"}, {"type": "Complete", "status": "True"}], Finished(False, "")),
    ],
)
def test_finished(conditions: list[JsonObject], expected: Finished | None) -> None:
    assert KIND.finished(job(status={"conditions": conditions})) == expected


def test_held() -> None:
    assert KIND.held(job()) is None
    for status, held in (("True", True), ("False", False)):
        assert KIND.held(job(status={"conditions": [{"type": "Suspended", "status": status}]})) is held


def test_active_and_ready() -> None:
    assert not KIND.active(job())
    assert KIND.active(job(status={"active": 1, "terminating": None}))
    status: JsonObject = {"ready": 1, "succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["a"]}}
    assert KIND.pods_ready(job(spec={"parallelism": 3}, status=status))
    assert not KIND.pods_ready(job(spec={"parallelism": 4}, status=status))


@pytest.mark.parametrize(
    ("parallelism", "completions", "terminal", "reclaimable"),
    [(3, 3, 1, 1), (3, 5, 2, 0), (3, 5, 3, 1), (1, 5, 4, 0), (4, 4, 0, 0)],
)
def test_reclaimable(parallelism: int, completions: int, terminal: int, reclaimable: int) -> None:
    found = KIND.reclaimable(
        job(spec={"parallelism": parallelism, "completions": completions}, status={"succeeded": terminal})
    )
    assert found == ({"main": reclaimable} if reclaimable else {})


@pytest.mark.parametrize(
    ("pods", "completed", "failed", "reclaimable"),
    [(4, "0-1", "1,3", 3), (2, "0,2-5", "", 1), (4, "x,3-1,2", "", 1), (4, "", "", 0)],
)
def test_reclaimable_by_index(pods: int, completed: str, failed: str, reclaimable: int) -> None:
    spec: JsonObject = {"parallelism": pods, "completions": pods, "completionMode": "Indexed"}
    status: JsonObject = {"completedIndexes": completed, "failedIndexes": failed}
    assert KIND.reclaimable(job(spec=spec, status=status)) == ({"main": reclaimable} if reclaimable else {})


@given(TEMPLATES, INFO_LISTS, st.sampled_from([{}, {"job_min_parallelism": "1"}]))
def test_a_stop_leaves_nothing_of_a_start(
    template: JsonObject, infos: list[PodSetInfo], annotations: dict[str, Any]
) -> None:
    held = job(spec={"suspend": True, "parallelism": 4, "completions": 8, "template": template}, **annotations)
    if not annotations:
        held["metadata"] = {"name": "j"}
    assert_round_trip(KIND, held, infos)


def test_pods_of_an_elastic_job_are_gated() -> None:
    prepared: Any = KIND.prepared(job(elastic_job="true"), DEFAULT_GATES)
    assert prepared["spec"]["template"]["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/elastic-job"}]
    assert KIND.prepared(prepared, DEFAULT_GATES) == prepared
    assert KIND.prepared(job(), DEFAULT_GATES) == job()
    off = {"ElasticJobsViaWorkloadSlices": False}
    assert KIND.prepared(job(elastic_job="true"), off) == job(elastic_job="true")
