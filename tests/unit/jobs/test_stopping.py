from shared.jobs.manifest import JsonObject
from shared.jobs.merge_patch import apply
from shared.jobs.stopping import first_write, is_stopping, unmarked


def test_a_stop_is_marked_from_its_first_write_to_its_last() -> None:
    job: JsonObject = {"metadata": {"name": "j"}, "spec": {"suspend": False}}
    assert not is_stopping(job)
    stopping = apply(job, first_write())
    assert is_stopping(stopping)
    assert unmarked(stopping) == {"metadata": {"name": "j"}, "spec": {"suspend": True}}


def test_other_annotations_stay() -> None:
    job: JsonObject = {"metadata": {"annotations": {"a": "1"}}}
    assert unmarked(apply(job, first_write()))["metadata"] == job["metadata"]
    assert unmarked(job) is job
    assert not is_stopping({"metadata": {"annotations": {"kueue.x-k8s.io/stopping": "false"}}})
