from itertools import cycle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config.feature_gates import DEFAULT_GATES, resolve
from shared.jobs.jobset import JobSet
from shared.jobs.manifest import JsonObject
from shared.jobs.podset_info import MergeConflict, PermanentError, PodSetInfo
from shared.jobs.protocol import Circumstances, Finished, StopStep
from tests.unit.jobs.round_trip import INFO_LISTS, TEMPLATES, assert_round_trip, shape, template

KIND = JobSet()
AROUND = Circumstances(gates=DEFAULT_GATES)


def replicated(name: str, template_: JsonObject | None = None, replicas: int | None = None, **spec: Any) -> JsonObject:
    found: JsonObject = {"name": name, "template": {"spec": {**spec, "template": template_ or template()}}}
    return found if replicas is None else {**found, "replicas": replicas}


def jobset(*jobs: JsonObject, suspend: bool | None = True, status: JsonObject | None = None) -> JsonObject:
    spec: JsonObject = {"replicatedJobs": list(jobs), "network": {"subdomain": "s"}}
    if suspend is not None:
        spec["suspend"] = suspend
    return {"metadata": {"name": "j"}, "spec": spec, "status": status or {}}


@pytest.mark.parametrize(("suspend", "suspended"), [(True, True), (False, False), (None, False)])
def test_suspended(suspend: bool | None, suspended: bool) -> None:
    job = jobset(replicated("a"), suspend=suspend)
    assert KIND.suspended(job) is suspended
    assert KIND.suspend(job) == ({} if suspended else {"spec": {"suspend": True}})


@pytest.mark.parametrize(
    ("job", "count"),
    [
        (replicated("a"), 1),
        (replicated("a", replicas=3), 3),
        (replicated("a", replicas=3, parallelism=2), 6),
        (replicated("a", replicas=3, parallelism=4, completions=2), 6),
        (replicated("a", replicas=2, completions=5), 2),
        (replicated("a", replicas=0, parallelism=5), 0),
    ],
)
def test_pods_of_a_replicated_job(job: JsonObject, count: int) -> None:
    assert shape(KIND, jobset(job)) == [("a", count)]


def test_a_pod_set_for_each_replicated_job_in_their_order() -> None:
    job = jobset(replicated("Workers", replicas=2), replicated("driver"))
    assert shape(KIND, job) == [("workers", 2), ("driver", 1)]
    first, second = KIND.pod_sets(job)
    assert first.topology_request == {
        "podIndexLabel": "batch.kubernetes.io/job-completion-index",
        "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index",
        "subGroupCount": 2,
    }
    assert second.topology_request is not None
    assert second.topology_request["subGroupCount"] == 1


def test_topology_annotations_of_the_template() -> None:
    (pod_set,) = KIND.pod_sets(jobset(replicated("a", template(podset_required_topology="rack"))))
    assert pod_set.topology_request is not None
    assert pod_set.topology_request["required"] == "rack"
    with pytest.raises(PermanentError, match="not a boolean"):
        KIND.pod_sets(jobset(replicated("a", template(podset_unconstrained_topology="x"))))


def test_start_injects_by_position_in_one_write() -> None:
    job = jobset(replicated("a"), replicated("b"))
    infos = (PodSetInfo(name="a", node_selector={"n": "1"}), PodSetInfo(name="b", labels={"l": "2"}))
    patch: Any = KIND.start(job, infos)
    assert patch["spec"]["suspend"] is False
    one, two = (found["template"]["spec"]["template"] for found in patch["spec"]["replicatedJobs"])
    assert one["spec"]["nodeSelector"] == {"n": "1"}
    assert two["metadata"] == {"labels": {"l": "2"}}
    assert patch.keys() == {"spec"}
    assert patch["spec"].keys() == {"suspend", "replicatedJobs"}


def test_what_can_never_start() -> None:
    job = jobset(replicated("a", {"metadata": {"labels": {"l": "1"}}}))
    with pytest.raises(MergeConflict, match="labels"):
        KIND.start(job, (PodSetInfo(name="a", labels={"l": "2"}),))
    for infos in ((), (PodSetInfo(name="a"), PodSetInfo(name="b"))):
        with pytest.raises(PermanentError, match="JobSet has 1 pod sets"):
            KIND.start(job, infos)


JOBSETS = st.lists(st.builds(replicated, st.sampled_from(["a", "b"]), TEMPLATES), min_size=1, max_size=3)


@given(JOBSETS, INFO_LISTS)
def test_a_stop_leaves_nothing_of_a_start(jobs: list[JsonObject], infos: list[PodSetInfo]) -> None:
    running: Any = assert_round_trip(KIND, jobset(*jobs), infos)
    for found, info in zip(running["spec"]["replicatedJobs"], cycle(infos), strict=False):
        selector = found["template"]["spec"]["template"]["spec"].get("nodeSelector", {})
        assert info.node_selector.items() <= selector.items()


def test_stop_tells_of_itself_once() -> None:
    job = jobset(replicated("a"), suspend=False)
    step = KIND.stop(job, ())
    assert step == StopStep(patch={"spec": {"suspend": True}}, stopped_now=True)
    assert KIND.stop(jobset(replicated("a")), ()) is None


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], None),
        ([{"type": "Completed", "status": "False"}], None),
        ([{"type": "Suspended", "status": "True"}], None),
        ([{"type": "Completed", "status": "True", "message": "all"}], Finished(True, "all")),
        ([{"type": "Failed", "status": "True", "message": "one"}], Finished(False, "one")),
        ([{"type": "Failed", "status": "True"}, {"type": "Completed", "status": "True"}], Finished(True, "")),
    ],
)
def test_finished(conditions: list[JsonObject], expected: Finished | None) -> None:
    assert KIND.finished(jobset(replicated("a"), status={"conditions": conditions})) == expected


def status(*found: tuple[str, int, int, int]) -> JsonObject:
    """Of (name, active, ready, succeeded)."""
    keys = ("name", "active", "ready", "succeeded")
    return {"replicatedJobsStatus": [dict(zip(keys, one, strict=True)) for one in found]}


@pytest.mark.parametrize(
    ("found", "active", "ready"),
    [
        ({}, False, False),
        (status(("a", 1, 0, 0)), True, False),
        (status(("a", 2, 2, 0), ("b", 0, 0, 0)), True, False),
        (status(("a", 2, 2, 0), ("b", 1, 1, 0)), True, True),
        (status(("a", 0, 0, 2), ("b", 1, 1, 0)), True, True),
        (status(("a", 0, 0, 2), ("b", 0, 0, 1)), False, True),
    ],
)
def test_jobs_are_counted_not_pods(found: JsonObject, active: bool, ready: bool) -> None:
    """Trap 22 of the specification."""
    job = jobset(replicated("a", replicas=2, parallelism=3), replicated("b"), status=found)
    assert KIND.active(job) is active
    assert KIND.pods_ready(job) is ready


@pytest.mark.parametrize(
    ("succeeded", "expected"), [(0, {}), (1, {"a": 3}), (2, {"a": 6}), (3, {})], ids=["none", "one", "all", "too-many"]
)
def test_reclaimable(succeeded: int, expected: dict[str, int]) -> None:
    job = jobset(
        replicated("A", replicas=2, parallelism=3),
        replicated("b"),
        status=status(("A", 0, 0, succeeded), ("c", 0, 0, 1)),
    )
    assert KIND.reclaimable(job) == expected


@pytest.mark.parametrize(("conditions", "held"), [([], None), (["False"], False), (["True"], True)])
def test_held(conditions: list[str], held: bool | None) -> None:
    job = jobset(status={"conditions": [{"type": "Suspended", "status": s} for s in conditions]})
    assert KIND.held(job) is held


AT = "spec.replicatedJobs[{}].template.spec.template.metadata.annotations"


def errors(*jobs: JsonObject, around: Circumstances = AROUND) -> list[str]:
    return [f"{e.path} {e.kind}".replace("kueue.x-k8s.io/", "") for e in KIND.errors(jobset(*jobs), None, around)]


def test_topology_annotations_are_checked_in_each_template() -> None:
    twice = template(podset_required_topology="rack", podset_preferred_topology="rack")
    large = template(podset_slice_required_topology="rack", podset_slice_size="4")
    assert errors(replicated("a", twice), replicated("b", large, replicas=3)) == [
        f"{AT.format(0)} Invalid value",
        f"{AT.format(1)}[podset-slice-size] Invalid value",
    ]
    assert errors(replicated("b", large, replicas=4)) == []
    off = Circumstances(gates=resolve({"TopologyAwareScheduling": False, "TASMultiLayerTopology": False} | _OFF))
    assert errors(replicated("a", twice), around=off) == []


_OFF = {name: False for name, on in DEFAULT_GATES if on and name.startswith("TAS")}


def grouped(*, group: str = "g", rack: str = "rack", replicas: int = 1) -> JsonObject:
    return replicated("a", template(podset_group_name=group, podset_required_topology=rack), replicas=replicas)


@pytest.mark.parametrize(
    ("jobs", "faults"),
    [
        ((grouped(), grouped(replicas=4)), 0),
        ((grouped(),), 1),
        ((grouped(), grouped(), grouped()), 3),
        ((grouped(), grouped(), grouped(group="h"), grouped(group="h")), 0),
        ((grouped(replicas=2), grouped(replicas=2)), 2),
        ((grouped(), grouped(rack="block")), 2),
    ],
    ids=["a-leader", "alone", "three", "two-groups", "no-single", "other-level"],
)
def test_groups_of_pod_sets(jobs: tuple[JsonObject, ...], faults: int) -> None:
    found = errors(*jobs)
    assert len(found) == faults
    assert all(one.endswith("[podset-group-name] Invalid value") for one in found)
