"""Starting a job and stopping it again gives the template back exactly, whatever is in it and whatever was injected."""

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from shared.api.pods import Toleration
from shared.jobs.batch_job import BatchJob
from shared.jobs.manifest import JsonObject, section
from shared.jobs.merge_patch import apply
from shared.jobs.podset_info import MergeConflict, PodSetInfo
from shared.jobs.protocol import JobPodSet

KIND = BatchJob()

keys = st.sampled_from(["a", "b", "job-name", "example.com/x", "batch.kubernetes.io/job-name"])
maps = st.dictionaries(keys, st.sampled_from(["1", "2"]), max_size=4)
tolerations = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from(["k", "l"])},
        optional={
            "operator": st.sampled_from(["Exists", "Equal"]),
            "effect": st.just("NoSchedule"),
            "tolerationSeconds": st.integers(0, 9),
        },
    ),
    max_size=3,
)
gates = st.lists(
    st.sampled_from(["g", "h"]).map(lambda name: {"name": name}), max_size=2, unique_by=lambda g: g["name"]
)


def _filled(parts: dict[str, Any]) -> JsonObject:
    return {key: value for key, value in parts.items() if value}


templates = st.builds(
    lambda labels, annotations, selector, tolerated, gated, rest: _filled(
        {
            "metadata": _filled({"labels": labels, "annotations": annotations}),
            "spec": {
                **_filled({"nodeSelector": selector, "tolerations": tolerated, "schedulingGates": gated}),
                "containers": [{"name": "c", "unknown": rest}],
            },
        }
    ),
    maps,
    maps,
    maps,
    tolerations,
    gates,
    st.integers() | st.text(max_size=3),
)
infos = st.builds(
    PodSetInfo,
    name=st.just("main"),
    count=st.integers(1, 9),
    labels=maps,
    annotations=maps,
    node_selector=maps,
    tolerations=st.lists(
        st.builds(Toleration, key=st.sampled_from(["k", "m"]), operator=st.sampled_from(["", "Exists"])), max_size=2
    ).map(tuple),
    scheduling_gates=st.lists(st.sampled_from(["g", "t"]), max_size=2).map(tuple),
)


def _job(template: JsonObject, partial: bool) -> JsonObject:
    annotations = {
        "kueue.x-k8s.io/job-min-parallelism": "1",
        "kueue.x-k8s.io/job-completions-equal-parallelism": "true",
    }
    return {
        "metadata": {"name": "j", "annotations": annotations if partial else {"own": "1"}},
        "spec": {"suspend": True, "parallelism": 5, "completions": 5, "template": template},
    }


def _stopped(job: JsonObject, restore: tuple[JobPodSet, ...]) -> tuple[JsonObject, int]:
    """The job after all steps of a stop, each of them done twice, as after a lost answer."""
    steps = 0
    while (step := KIND.stop(job, restore)) is not None:
        steps += 1
        assert steps <= 3
        job = apply(apply(job, step.patch), step.patch)
    return job, steps


@given(templates, infos, st.booleans(), st.booleans())
def test_start_then_stop_restores_exactly(template: JsonObject, info: PodSetInfo, partial: bool, ran: bool) -> None:
    job = _job(template, partial)
    restore = KIND.pod_sets(job)
    try:
        started = apply(job, KIND.start(job, (info,)))
    except MergeConflict:
        assume(False)
    assert section(started, "spec")["suspend"] is False
    if ran:
        started["status"] = {"startTime": "2026-01-01T00:00:00Z"}
    stopped, steps = _stopped(started, restore)
    assert steps == (3 if ran else 2)
    # Labels that the API server itself writes into a Job's template stay; here only an injected one can have come in.
    own = section(template, "metadata", "labels")
    left = section(stopped, "spec", "template", "metadata", "labels")
    assert {k: v for k, v in left.items() if k not in ("job-name", "batch.kubernetes.io/job-name")} == {
        k: v for k, v in own.items() if k not in ("job-name", "batch.kubernetes.io/job-name")
    }
    for path in (("metadata", "annotations"), ("spec",)):
        assert section(stopped, "spec", "template", *path) == section(template, *path)
    assert {k: v for k, v in section(stopped, "spec").items() if k != "template"} == {
        k: v for k, v in section(job, "spec").items() if k != "template"
    }
    assert stopped["metadata"] == job["metadata"]


@given(templates, infos)
def test_a_second_start_injects_the_same(template: JsonObject, info: PodSetInfo) -> None:
    job = _job(template, partial=False)
    try:
        patch = KIND.start(job, (info,))
    except MergeConflict:
        assume(False)
    started = apply(job, patch)
    stopped, _ = _stopped(started, KIND.pod_sets(job))
    assert apply(stopped, KIND.start(stopped, (info,)))["spec"] == started["spec"]
