from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config.feature_gates import DEFAULT_GATES
from shared.jobs.app_wrapper import AppWrapper
from shared.jobs.manifest import JsonObject
from shared.jobs.merge_patch import apply
from shared.jobs.podset_info import PermanentError, PodSetInfo
from shared.jobs.protocol import Circumstances, Finished
from tests.unit.jobs.round_trip import INFO_LISTS, TEMPLATES, assert_round_trip, requests, shape, template

KIND = AppWrapper()


def wrapped(api_version: str, kind: str, spec: Any) -> JsonObject:
    return {"apiVersion": api_version, "kind": kind, "spec": spec}


def component(of: JsonObject, *pod_sets: JsonObject) -> JsonObject:
    return {"template": of, "podSets": list(pod_sets)} if pod_sets else {"template": of}


def wrapper(*components: JsonObject, status: JsonObject | None = None, name: str = "aw") -> JsonObject:
    return {
        "metadata": {"name": name},
        "spec": {"suspend": True, "components": list(components)},
        "status": status or {},
    }


DEPLOYMENT = wrapped("apps/v1", "Deployment", {"replicas": 3, "template": template("2")})
HEAD: JsonObject = {"headGroupSpec": {"template": template("1")}}
GROUPS: JsonObject = {
    "workerGroupSpecs": [{"groupName": "g", "replicas": 2, "numOfHosts": 2, "template": template("2")}]
}
JOBSET = {
    "replicatedJobs": [
        {"name": "a", "replicas": 2, "template": {"spec": {"parallelism": 3, "template": template("1")}}},
        {"name": "b", "template": {"spec": {"template": template("2")}}},
    ]
}


@pytest.mark.parametrize(
    ("of", "counts", "cpus"),
    [
        (wrapped("v1", "Pod", template("1")["spec"]), [1], ["1"]),
        (DEPLOYMENT, [3], ["2"]),
        (wrapped("apps/v1", "StatefulSet", {"template": template("2")}), [1], ["2"]),
        (wrapped("batch/v1", "Job", {"parallelism": 5, "completions": 2, "template": template("1")}), [2], ["1"]),
        (wrapped("batch/v1", "Job", {"template": template("1")}), [1], ["1"]),
        (wrapped("jobset.x-k8s.io/v1alpha2", "JobSet", JOBSET), [6, 1], ["1", "2"]),
        (
            wrapped(
                "kubeflow.org/v1",
                "PyTorchJob",
                {
                    "pytorchReplicaSpecs": {
                        "Worker": {"replicas": 4, "template": template("2")},
                        "Master": {"template": template("1")},
                    }
                },
            ),
            [1, 4],
            ["1", "2"],
        ),
        (wrapped("ray.io/v1", "RayCluster", HEAD | GROUPS), [1, 4], ["1", "2"]),
        (wrapped("ray.io/v1", "RayJob", {"rayClusterSpec": HEAD | GROUPS}), [1, 4], ["1", "2"]),
        (wrapped("v1", "ConfigMap", {}), [], []),
        (wrapped("example.com/v1", "Deployment", {"template": template()}), [], []),
    ],
)
def test_pods_are_told_from_the_kind(of: JsonObject, counts: list[int], cpus: list[str]) -> None:
    found = KIND.pod_sets(wrapper(component(of)))
    assert [(pod_set.name, pod_set.count) for pod_set in found] == [(f"aw-{i}", n) for i, n in enumerate(counts)]
    assert [requests(pod_set) for pod_set in found] == [[{"cpu": cpu}] for cpu in cpus]


def test_pod_sets_are_numbered_over_all_components() -> None:
    job = wrapper(component(DEPLOYMENT), component(wrapped("v1", "Service", {})), component(DEPLOYMENT), name="My")
    assert shape(KIND, job) == [("my-0", 3), ("my-1", 3)]


CUSTOM = wrapped("example.com/v1", "Custom", {"parts": [{"pod": template("1")}, {"pod": template("2")}]})


def declared(path: str, replicas: int | None = None, **hints: str) -> JsonObject:
    found: JsonObject = {"path": path}
    if replicas is not None:
        found["replicas"] = replicas
    if hints:
        keys = {f"workload.codeflare.dev.appwrapper/tas-{k.replace('_', '-')}": v for k, v in hints.items()}
        found["annotations"] = keys
    return found


def test_declared_pod_sets() -> None:
    job = wrapper(component(CUSTOM, declared("template.spec.parts[1].pod", 4), declared("template.spec.parts[0].pod")))
    assert shape(KIND, job) == [("aw-0", 4), ("aw-1", 1)]
    assert [requests(pod_set) for pod_set in KIND.pod_sets(job)] == [[{"cpu": "2"}], [{"cpu": "1"}]]


@pytest.mark.parametrize("path", ["spec.template", "", "template..spec", "template.spec[x]", "template.spec[0"])
def test_what_is_no_path(path: str) -> None:
    with pytest.raises(PermanentError, match="path"):
        KIND.pod_sets(wrapper(component(CUSTOM, declared(path))))


def test_the_status_counts_once_it_is_complete() -> None:
    job = wrapper(component(CUSTOM), component(DEPLOYMENT))
    known = {"podSets": [declared("template.spec.parts[0].pod", 7)]}
    assert shape(KIND, apply(job, {"status": {"componentStatus": [known]}})) == [("aw-0", 3)]
    both = [known, {"podSets": [declared("template.spec.template", 9)]}]
    assert shape(KIND, apply(job, {"status": {"componentStatus": both}})) == [("aw-0", 7), ("aw-1", 9)]


def test_hints_about_topology() -> None:
    hints: dict[str, Any] = {"pod_index_label": "index", "sub_group_index_label": "group", "sub_group_count": "3"}
    job = wrapper(component(CUSTOM, declared("template.spec.parts[0].pod", **hints)))
    assert KIND.pod_sets(job)[0].topology_request == {
        "podIndexLabel": "index",
        "subGroupIndexLabel": "group",
        "subGroupCount": 3,
    }
    job = wrapper(component(CUSTOM, declared("template.spec.parts[0].pod", sub_group_count="three")))
    assert KIND.pod_sets(job)[0].topology_request is None


def test_only_what_is_counted_is_kept() -> None:
    """No schema has looked at these templates: the workload would not store what is unknown, and differ for ever."""
    spec: JsonObject = {
        "containers": [
            {"name": "c", "image": "i", "env": [], "resources": {"requests": {"cpu": "1"}}, "bogus": 1, "ports": []}
        ],
        "initContainers": [{"name": "s", "restartPolicy": "Always", "command": ["x"]}],
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "t"}],
        "priorityClassName": "p",
        "hostname": "h",
        "overhead": None,
    }
    metadata = {"name": "n", "labels": {"l": "1"}, "annotations": {}}
    pod: JsonObject = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    (pod_set,) = KIND.pod_sets(wrapper(component(pod)))
    assert pod_set.template == {
        "metadata": {"labels": {"l": "1"}},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
            "initContainers": [{"name": "s", "restartPolicy": "Always"}],
            "nodeSelector": {"a": "b"},
            "tolerations": [{"key": "t"}],
            "priorityClassName": "p",
        },
    }


def test_a_start_hands_the_infos_to_the_controller() -> None:
    jobset = component(wrapped("jobset.x-k8s.io/v1alpha2", "JobSet", JOBSET))
    job = wrapper(component(wrapped("v1", "Service", {})), jobset, component(DEPLOYMENT))
    infos = tuple(PodSetInfo(name=f"aw-{i}", node_selector={"n": str(i)}) for i in range(3))
    patch: Any = KIND.start(job, infos)
    assert patch["spec"]["suspend"] is False
    given = [one.get("podSetInfos") for one in patch["spec"]["components"]]
    assert given == [None, [{"nodeSelector": {"n": "0"}}, {"nodeSelector": {"n": "1"}}], [{"nodeSelector": {"n": "2"}}]]
    full = PodSetInfo(name="x", labels={"l": "1"}, annotations={"a": "1"}, scheduling_gates=("g",))
    patch = KIND.start(wrapper(component(DEPLOYMENT)), (full,))
    assert patch["spec"]["components"][0]["podSetInfos"] == [
        {"labels": {"l": "1"}, "annotations": {"a": "1"}, "schedulingGates": [{"name": "g"}]}
    ]


def test_a_wrong_number_of_infos_can_never_start() -> None:
    with pytest.raises(PermanentError, match="AppWrapper has 1 pod sets, the workload 0"):
        KIND.start(wrapper(component(DEPLOYMENT)), ())


WRAPPERS = st.lists(
    st.builds(
        lambda one, kind: component(wrapped(kind[0], kind[1], {"template": one})),
        TEMPLATES,
        st.sampled_from([("apps/v1", "Deployment"), ("batch/v1", "Job"), ("v1", "Service")]),
    ),
    min_size=1,
    max_size=3,
)


@given(WRAPPERS, INFO_LISTS)
def test_a_stop_leaves_nothing_of_a_start(components: list[JsonObject], infos: list[PodSetInfo]) -> None:
    assert_round_trip(KIND, wrapper(*components), infos)


def test_suspend() -> None:
    job = wrapper()
    assert KIND.suspended(job)
    assert KIND.suspend(job) == {}
    assert KIND.stop(job, ()) is None
    running = apply(job, {"spec": {"suspend": None}})
    assert not KIND.suspended(running)
    assert KIND.suspend(running) == {"spec": {"suspend": True}}


@pytest.mark.parametrize(
    ("phase", "deployed", "success"),
    [
        ("Running", "True", None),
        ("Succeeded", "True", True),
        ("Failed", "True", None),
        ("Failed", "False", False),
        ("Failed", None, False),
    ],
)
def test_finished(phase: str, deployed: str | None, success: bool | None) -> None:
    conditions = [] if deployed is None else [{"type": "ResourcesDeployed", "status": deployed}]
    found = KIND.finished(wrapper(status={"phase": phase, "conditions": conditions}))
    assert (None if found is None else found.success) is success
    assert found is None or isinstance(found, Finished)
    assert found is None or found.message


def test_status() -> None:
    conditions = [{"type": "QuotaReserved", "status": "True"}, {"type": "PodsReady", "status": "False"}]
    job = wrapper(status={"phase": "Running", "conditions": conditions})
    assert KIND.active(job)
    assert not KIND.pods_ready(job)
    assert KIND.held(job) is False
    assert not KIND.active(wrapper())
    assert KIND.held(wrapper()) is None
    assert KIND.held(wrapper(status={"phase": "Suspended"})) is True
    assert KIND.pods_ready(wrapper(status={"conditions": [{"type": "PodsReady", "status": "True"}]}))


def test_it_has_no_rules_of_its_own() -> None:
    assert not list(KIND.errors(wrapper(), None, Circumstances(gates=DEFAULT_GATES)))
    assert not KIND.rechecked
