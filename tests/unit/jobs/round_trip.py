"""What must hold for every kind of job that is held back, started and stopped again: nothing of it is left. With the generated parts it takes."""

from itertools import cycle, islice
from typing import Any

from hypothesis import strategies as st

from shared.api.pods import Toleration
from shared.jobs.manifest import JsonObject
from shared.jobs.merge_patch import apply
from shared.jobs.podset_info import PodSetInfo
from shared.jobs.protocol import JobKind, JobPodSet

_NAMES = st.sampled_from(["a", "b", "example.com/c"])
_MAPS = st.dictionaries(_NAMES, st.sampled_from(["", "1", "2"]), max_size=2)
_TOLERATIONS = st.lists(
    st.sampled_from([{"key": "t", "operator": "Exists"}, {"key": "u", "value": "1", "tolerationSeconds": 3}]),
    max_size=2,
    unique_by=str,
)
_GATES = st.lists(st.sampled_from([{"name": "g"}, {"name": "h"}]), max_size=2, unique_by=str)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["c", "d"]), "image": st.sampled_from(["i:1", "i:2"])},
        optional={"resources": st.just({"requests": {"cpu": "1"}}), "unknownField": st.just({"deep": [1, None]})},
    ),
    min_size=1,
    max_size=2,
)
TEMPLATES: st.SearchStrategy[JsonObject] = st.fixed_dictionaries(
    {
        "spec": st.fixed_dictionaries(
            {"containers": CONTAINERS},
            optional={
                "nodeSelector": _MAPS,
                "tolerations": _TOLERATIONS,
                "schedulingGates": _GATES,
                "restartPolicy": st.just("Never"),
            },
        )
    },
    optional={"metadata": st.fixed_dictionaries({}, optional={"labels": _MAPS, "annotations": _MAPS})},
)
"""Pod templates in all the ways in which parts may be absent, empty or there; none has a key of an INFO with another value."""

_SPOT = Toleration(key="spot", operator="Exists", effect="NoSchedule")
_INFOS = st.builds(
    PodSetInfo,
    name=st.just("x"),
    count=st.just(1),
    labels=st.dictionaries(st.sampled_from(["kueue.x-k8s.io/podset", "l"]), st.just("v"), max_size=2),
    annotations=st.dictionaries(st.sampled_from(["kueue.x-k8s.io/workload", "n"]), st.just("v"), max_size=2),
    node_selector=st.dictionaries(st.sampled_from(["type", "zone"]), st.just("v"), max_size=2),
    tolerations=st.sampled_from([(), (_SPOT,)]),
    scheduling_gates=st.sampled_from([(), ("kueue.x-k8s.io/topology",)]),
)
INFO_LISTS = st.lists(_INFOS, min_size=1, max_size=2)
"""Infos for the pod sets of a job; when there are more of these, from the front again."""


def started(kind: JobKind, job: JsonObject, infos: list[PodSetInfo]) -> JsonObject:
    """`job` after all writes of its start; it takes two at most."""
    wanted = tuple(islice(cycle(infos), len(kind.pod_sets(job))))
    for _ in range(2):
        assert kind.suspended(job)
        job = apply(job, kind.start(job, wanted))
        if not kind.suspended(job):
            return job
    raise AssertionError("the job does not start")


def stopped(kind: JobKind, job: JsonObject, restore: tuple[JobPodSet, ...]) -> JsonObject:
    """`job` after all writes of its stop, each of which may be made twice."""
    for _ in range(4):
        step = kind.stop(job, restore)
        if step is None:
            assert kind.suspended(job)
            return job
        job = apply(job, step.patch)
    raise AssertionError("the job does not stop")


def assert_round_trip(kind: JobKind, job: JsonObject, infos: list[PodSetInfo]) -> JsonObject:
    """A job that is held back is the same after a start and a stop. Returns what it was while it ran."""
    pod_sets = kind.pod_sets(job)
    running = started(kind, job, infos)
    assert stopped(kind, running, pod_sets) == job
    # Whoever does not know what it was leaves the templates alone.
    held = stopped(kind, running, ())
    assert kind.suspended(held)
    assert len(kind.pod_sets(held)) == len(pod_sets)
    return running


def container(**requests: str) -> JsonObject:
    """A container that asks for this much."""
    return {"name": "c", "image": "i:1", "resources": {"requests": dict(requests)}}


def template(cpu: str = "1", **annotations: str) -> dict[str, Any]:
    """A pod template with one container and some of our annotations (`podset_group_name` for kueue.x-k8s.io/podset-group-name)."""
    found: dict[str, Any] = {"spec": {"containers": [container(cpu=cpu)]}}
    if annotations:
        found["metadata"] = {
            "annotations": {f"kueue.x-k8s.io/{k.replace('_', '-')}": v for k, v in annotations.items()}
        }
    return found


def requests(pod_set: JobPodSet) -> list[object]:
    """What the containers of a pod set ask for."""
    spec: Any = pod_set.template["spec"]
    return [one.get("resources", {}).get("requests") for one in spec["containers"]]


def shape(kind: JobKind, job: JsonObject) -> list[tuple[str, int]]:
    """(name, count) of its pod sets."""
    return [(pod_set.name, pod_set.count) for pod_set in kind.pod_sets(job)]
