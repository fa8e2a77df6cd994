from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.api.pods import Toleration
from shared.config.feature_gates import DEFAULT_GATES
from shared.jobs.manifest import JsonObject
from shared.jobs.merge_patch import apply
from shared.jobs.podset_info import PermanentError, PodSetInfo
from shared.jobs.protocol import Circumstances, Finished, Reference
from shared.jobs.referred import with_referred
from shared.jobs.train_job import TrainJob
from tests.unit.jobs.round_trip import INFO_LISTS, TEMPLATES, assert_round_trip, requests, shape, started, template

KIND = TrainJob()
AROUND = Circumstances(gates=DEFAULT_GATES)
OURS = "kueue.x-k8s.io/manager"
EMPTY: JsonObject = {"manager": OURS, "trainingRuntimeSpec": {"template": {"spec": {}}}}
CLUSTER_RUNTIME = Reference(
    "trainer.kubeflow.org", "v1alpha1", "ClusterTrainingRuntime", "clustertrainingruntimes", "torch", namespaced=False
)


def named(name: str, cpu: str = "1", **more: Any) -> JsonObject:
    return {"spec": {"containers": [{"name": name, "image": "i", "resources": {"requests": {"cpu": cpu}}, **more}]}}


def replicated(name: str, step: str = "", template_: JsonObject | None = None, **rest: Any) -> JsonObject:
    labels = {"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": step}}} if step else {}
    spec = {**rest.pop("spec", {}), "template": template_ if template_ is not None else named("node")}
    return {"name": name, "template": {**labels, "spec": spec}, **rest}


def runtime(*jobs: JsonObject, **policy: Any) -> JsonObject:
    found = list(jobs) or [replicated("node", "trainer")]
    return {"spec": {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": found, "network": {}}}}}


def train_job(
    runtime_: JsonObject | None = None,
    *,
    patches: list[JsonObject] | None = None,
    status: JsonObject | None = None,
    suspend: bool = True,
    **spec: Any,
) -> JsonObject:
    job: JsonObject = {
        "metadata": {"name": "t"},
        "spec": {
            "suspend": suspend,
            "runtimeRef": {"name": "torch"},
            "runtimePatches": [EMPTY] if patches is None else patches,
            **spec,
        },
        "status": status or {},
    }
    return with_referred(job, {CLUSTER_RUNTIME: runtime_ or runtime()})


def test_it_refers_to_its_runtime() -> None:
    assert KIND.refers_to(train_job()) == (CLUSTER_RUNTIME,)
    (found,) = KIND.refers_to({"spec": {"runtimeRef": {"name": "r", "kind": "TrainingRuntime"}}})
    assert (found.plural, found.namespaced) == ("trainingruntimes", True)


def test_without_its_runtime_nothing_can_be_told() -> None:
    job: JsonObject = {"spec": {"runtimeRef": {"name": "torch"}}}
    with pytest.raises(PermanentError, match="ClusterTrainingRuntime 'torch' does not exist"):
        KIND.pod_sets(job)
    assert not KIND.pods_ready(job)
    assert KIND.reclaimable(job) == {}


def test_a_job_whose_runtime_is_not_there_is_refused_but_stays_changeable() -> None:
    job: JsonObject = {"spec": {"runtimeRef": {"name": "torch"}}}
    other: JsonObject = {"spec": {"runtimeRef": {"name": "jax"}}}

    def paths(job: JsonObject, old: JsonObject | None, around: Circumstances = AROUND) -> list[str]:
        return [error.path for error in KIND.errors(job, old, around)]

    assert paths(job, None) == ["spec.runtimeRef"]
    assert paths(job, other) == ["spec.runtimeRef"]
    assert paths(job, job) == []
    # Its pods are asked for the sake of their topology only.
    assert paths(job, None, Circumstances(gates={"TopologyAwareScheduling": False})) == []


@pytest.mark.parametrize(
    ("trainer", "policy", "count"),
    [({}, {}, 1), ({}, {"numNodes": 3}, 3), ({"numNodes": 5}, {"numNodes": 3}, 5), ({"numNodes": 2}, {}, 2)],
)
def test_nodes(trainer: JsonObject, policy: JsonObject, count: int) -> None:
    job = train_job(runtime(replicated("node", "trainer", replicas=4), **policy), trainer=trainer)
    assert shape(KIND, job) == [("node", count)]


def test_pod_sets_are_those_of_the_jobset_it_becomes() -> None:
    found = runtime(
        replicated("dataset-initializer", "dataset-initializer", named("dataset-initializer"), replicas=3),
        replicated("Model", "model-initializer", named("model-initializer")),
        replicated("launcher", spec={"parallelism": 2}, replicas=2),
        replicated("node", "trainer"),
        numNodes=4,
    )
    job = train_job(found)
    assert shape(KIND, job) == [("dataset-initializer", 1), ("model", 1), ("launcher", 4), ("node", 4)]
    assert KIND.pod_sets(job)[2].topology_request == {
        "podIndexLabel": "batch.kubernetes.io/job-completion-index",
        "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index",
        "subGroupCount": 2,
    }


def test_resources_of_the_nodes() -> None:
    per_node = {"requests": {"gpu": 2}, "limits": {"gpu": 2}}
    containers = [*named("node")["spec"]["containers"], {"name": "other"}]  # type: ignore[index]
    found = runtime(replicated("node", "trainer", {"spec": {"containers": containers}}), replicated("launcher"))
    job = train_job(found, trainer={"resourcesPerNode": per_node, "image": "mine", "args": ["a"]})
    node, launcher = KIND.pod_sets(job)
    assert requests(node) == [{"cpu": "1", "gpu": 2}, None]
    spec: Any = node.template["spec"]
    assert (spec["containers"][0]["image"], spec["containers"][0]["args"]) == ("mine", ["a"])
    assert requests(launcher) == [{"cpu": "1"}]


@pytest.mark.parametrize(("as_node", "expected"), [(True, {"cpu": "1", "gpu": 2}), (False, {"cpu": "1"})])
def test_resources_of_nodes_beside_a_launcher_that_trains(as_node: bool, expected: JsonObject) -> None:
    found = runtime(replicated("launcher", "trainer"), replicated("node"), mpi={"runLauncherAsNode": as_node})
    job = train_job(found, trainer={"resourcesPerNode": {"requests": {"gpu": 2}}})
    launcher, node = KIND.pod_sets(job)
    assert requests(launcher) == [{"cpu": "1", "gpu": 2}]
    assert requests(node) == [expected]


def test_variables_of_an_initializer() -> None:
    found = runtime(replicated("dataset", "dataset-initializer", named("dataset-initializer", env=[{"name": "A"}])))
    job = train_job(found, initializer={"dataset": {"env": [{"name": "B", "value": "1"}]}})
    spec: Any = KIND.pod_sets(job)[0].template["spec"]
    assert spec["containers"][0]["env"] == [{"name": "A"}, {"name": "B", "value": "1"}]


def patch_of(manager: str, name: str, spec: JsonObject) -> JsonObject:
    found = {"name": name, "template": {"spec": {"template": {"spec": spec}}}}
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [found]}}}}


def test_patches_of_the_runtime_keep_the_order() -> None:
    found = runtime(replicated("a"), replicated("node", "trainer"))
    resources: JsonObject = {"containers": [{"name": "node", "resources": {"requests": {"cpu": "8"}}}]}
    patches = [patch_of("x", "node", resources), patch_of("y", "unknown", resources), EMPTY]
    job = train_job(found, patches=patches)
    assert shape(KIND, job) == [("a", 1), ("node", 1)]
    assert [requests(pod_set) for pod_set in KIND.pod_sets(job)] == [[{"cpu": "1"}], [{"cpu": "8"}]]


INFOS = (PodSetInfo(name="node", node_selector={"n": "1"}, labels={"l": "1"}),)


def test_a_start_takes_two_writes_the_second_lets_it_run() -> None:
    job = train_job()
    first: Any = KIND.start(job, INFOS)
    (ours,) = first["spec"]["runtimePatches"]
    assert ours["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"] == [
        {
            "name": "node",
            "template": {
                "spec": {"template": {"metadata": {"labels": {"l": "1"}}, "spec": {"nodeSelector": {"n": "1"}}}}
            },
        }
    ]
    assert "suspend" not in first["spec"]
    filled = apply(job, first)
    assert KIND.suspended(filled)
    assert KIND.start(filled, INFOS) == {"spec": {"suspend": False}}
    running = apply(filled, {"spec": {"suspend": False}})
    spec: Any = KIND.pod_sets(running)[0].template["spec"]
    assert spec["nodeSelector"] == {"n": "1"}
    # Held back it is what its user wrote, whatever a start has left there.
    assert KIND.pod_sets(filled) == KIND.pod_sets(job)


def test_tolerations_of_the_runtime_are_not_lost() -> None:
    own = {"key": "a", "operator": "Exists"}
    found = runtime(replicated("node", "trainer", {"spec": {"containers": [], "tolerations": [own]}}))
    tolerant = PodSetInfo(name="node", tolerations=(Toleration(key="spot", operator="Exists"),))
    running = started(KIND, train_job(found), [tolerant])
    spec: Any = KIND.pod_sets(running)[0].template["spec"]
    assert [toleration["key"] for toleration in spec["tolerations"]] == ["a", "spot"]


def test_what_can_never_start() -> None:
    with pytest.raises(PermanentError, match="TrainJob has 1 pod sets, the workload 0"):
        KIND.start(train_job(), ())
    with pytest.raises(PermanentError, match=f"no runtime patch of manager {OURS}"):
        KIND.start(train_job(patches=[]), INFOS)


JOBS = st.builds(
    lambda templates, others: train_job(
        runtime(*(replicated(f"r{i}", template_=one) for i, one in enumerate(templates))), patches=[*others, EMPTY]
    ),
    st.lists(TEMPLATES, min_size=1, max_size=3),
    st.sampled_from([[], [patch_of("x", "r0", {"nodeSelector": {"own": "1"}})]]),
)


@given(JOBS, INFO_LISTS)
def test_a_stop_leaves_nothing_of_a_start(job: JsonObject, infos: list[PodSetInfo]) -> None:
    if all(info == PodSetInfo(name="x", count=1) for info in infos):
        infos = [PodSetInfo(name="x", labels={"l": "v"})]
    assert_round_trip(KIND, job, infos)


def test_a_stop_waits_for_the_pods_to_go() -> None:
    job = train_job()
    running = apply(started(KIND, job, list(INFOS)), {"status": {"jobsStatus": [{"name": "node", "active": 1}]}})
    first = KIND.stop(running, ())
    assert first is not None
    assert first.stopped_now
    assert first.patch["spec"] == {"suspend": True}
    stopping = apply(running, first.patch)
    assert not KIND.suspended(stopping)
    assert KIND.suspend(stopping) == {}
    assert KIND.stop(stopping, ()) is None
    gone = apply(stopping, {"status": {"jobsStatus": None}})
    second = KIND.stop(gone, ())
    assert second is not None
    assert not second.stopped_now
    assert apply(gone, second.patch) == job
    assert KIND.stop(job, ()) is None


def test_a_start_that_came_half_way_is_taken_back() -> None:
    filled = apply(train_job(), KIND.start(train_job(), INFOS))
    step = KIND.stop(filled, ())
    assert step is not None
    assert not step.stopped_now
    assert apply(filled, step.patch) == train_job()


def test_suspend() -> None:
    assert KIND.suspended(train_job())
    assert not KIND.suspended(train_job(suspend=False))
    assert KIND.suspend(train_job(suspend=False)) == {"spec": {"suspend": True}}
    assert KIND.suspend(train_job()) == {}


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], None),
        ([{"type": "Complete", "status": "True", "message": "m"}], Finished(True, "m")),
        ([{"type": "Failed", "status": "True", "message": "m"}], Finished(False, "m")),
        ([{"type": "Suspended", "status": "True"}], None),
    ],
)
def test_finished(conditions: list[JsonObject], expected: Finished | None) -> None:
    assert KIND.finished(train_job(status={"conditions": conditions})) == expected


@pytest.mark.parametrize(
    ("one", "active", "ready", "reclaimable"),
    [
        ({}, False, False, {}),
        ({"active": 1}, True, False, {}),
        ({"active": 1, "ready": 1}, True, True, {}),
        ({"succeeded": 1}, False, True, {"node": 4}),
    ],
)
def test_status(one: JsonObject, active: bool, ready: bool, reclaimable: dict[str, int]) -> None:
    job = train_job(trainer={"numNodes": 4}, status={"jobsStatus": [{"name": "node", **one}]})
    assert KIND.active(job) is active
    assert KIND.pods_ready(job) is ready
    assert KIND.reclaimable(job) == reclaimable


def test_held() -> None:
    assert KIND.held(train_job()) is None
    assert KIND.held(train_job(status={"conditions": [{"type": "Suspended", "status": "True"}]})) is True


def test_every_job_gets_a_runtime_patch_of_ours() -> None:
    other = patch_of("x", "node", {})
    prepared: Any = KIND.prepared(train_job(patches=[other]), DEFAULT_GATES)
    assert prepared["spec"]["runtimePatches"] == [other, EMPTY]
    assert KIND.prepared(prepared, DEFAULT_GATES) == prepared
    del prepared["spec"]["runtimePatches"]
    again: Any = KIND.prepared(prepared, DEFAULT_GATES)
    assert again["spec"]["runtimePatches"] == [EMPTY]


def test_topology_annotations_are_checked() -> None:
    twice = template(podset_required_topology="rack", podset_preferred_topology="rack")
    job = train_job(runtime(replicated("Node", "trainer", twice)))
    assert [f"{e.path} {e.kind}" for e in KIND.errors(job, None, AROUND)] == ["job[node].annotations Invalid value"]
