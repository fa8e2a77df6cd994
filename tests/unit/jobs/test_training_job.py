from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config.feature_gates import DEFAULT_GATES
from shared.jobs.manifest import JsonObject
from shared.jobs.podset_info import PermanentError, PodSetInfo
from shared.jobs.protocol import Circumstances, Finished
from shared.jobs.training_job import (
    JAX_JOB,
    MPI_JOB,
    PADDLE_JOB,
    PYTORCH_JOB,
    TF_JOB,
    XGBOOST_JOB,
    TrainingJob,
)
from tests.unit.jobs.round_trip import INFO_LISTS, TEMPLATES, assert_round_trip, shape, template

ALL = (TF_JOB, PYTORCH_JOB, XGBOOST_JOB, PADDLE_JOB, JAX_JOB, MPI_JOB)
SPECS = {
    "TFJob": "tfReplicaSpecs",
    "PyTorchJob": "pytorchReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
}
TYPES = {
    "TFJob": ["Chief", "Master", "PS", "Worker", "Evaluator"],
    "PyTorchJob": ["Master", "Worker"],
    "XGBoostJob": ["Master", "Worker"],
    "PaddleJob": ["Master", "Worker"],
    "JAXJob": ["Worker"],
    "MPIJob": ["Launcher", "Worker"],
}
AROUND = Circumstances(gates=DEFAULT_GATES)
of_each_kind = pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.kind)


def job(
    kind: TrainingJob,
    replicas: dict[str, JsonObject],
    *,
    policy: JsonObject | None = None,
    status: JsonObject | None = None,
    **spec: Any,
) -> JsonObject:
    return {
        "metadata": {"name": "j"},
        "spec": {SPECS[kind.kind]: replicas, "runPolicy": {"suspend": True, **(policy or {})}, **spec},
        "status": status or {},
    }


def replica(template_: JsonObject | None = None, **rest: Any) -> JsonObject:
    return {"template": template_ if template_ is not None else template(), **rest}


@of_each_kind
def test_names(kind: TrainingJob) -> None:
    assert kind.framework == f"kubeflow.org/{kind.kind.lower()}"
    assert (kind.group, kind.plural) == ("kubeflow.org", f"{kind.kind.lower()}s")
    assert kind.version == ("v2beta1" if kind is MPI_JOB else "v1")
    assert kind.prebuilt is (kind is not JAX_JOB)
    assert kind.managed_by is not None
    operator = "mpi-operator" if kind is MPI_JOB else "training-operator"
    assert kind.managed_by.own == f"kubeflow.org/{operator}"
    assert kind.managed_by.path == ("spec", "runPolicy", "managedBy")


@of_each_kind
def test_pod_sets_have_the_order_of_the_types_not_of_the_map(kind: TrainingJob) -> None:
    """Trap 19 of the specification."""
    types = TYPES[kind.kind]
    backwards = {type_: replica(replicas=i + 2) for i, type_ in reversed(list(enumerate(types)))}
    assert shape(kind, job(kind, backwards)) == [(type_.lower(), i + 2) for i, type_ in enumerate(types)]


@of_each_kind
def test_types_may_be_absent_and_unknown(kind: TrainingJob) -> None:
    found = job(kind, {"Worker": replica(), "Other": replica()})
    assert shape(kind, found) == [("worker", 1)]
    (pod_set,) = kind.pod_sets(found)
    assert pod_set.topology_request == {"podIndexLabel": "training.kubeflow.org/replica-index"}
    assert pod_set.template == template()
    assert kind.pod_sets(job(kind, {"Worker": {"replicas": 0}}))[0].count == 0
    assert kind.pod_sets({}) == ()


@of_each_kind
def test_suspension_is_in_the_run_policy(kind: TrainingJob) -> None:
    held = job(kind, {"Worker": replica()})
    assert kind.suspended(held)
    assert kind.suspend(held) == {}
    running = job(kind, {"Worker": replica()}, policy={"suspend": False})
    assert not kind.suspended(running)
    assert kind.suspend(running) == {"spec": {"runPolicy": {"suspend": True}}}
    assert kind.suspend({"spec": {}}) == {"spec": {"runPolicy": {"suspend": True}}}


@of_each_kind
def test_start(kind: TrainingJob) -> None:
    patch = kind.start(job(kind, {"Worker": replica()}), (PodSetInfo(name="worker", node_selector={"n": "1"}),))
    specs = {SPECS[kind.kind]: {"Worker": {"template": {"spec": {"nodeSelector": {"n": "1"}}}}}}
    assert patch == {"spec": {**specs, "runPolicy": {"suspend": False}}}
    with pytest.raises(PermanentError, match=f"{kind.kind} has 1 pod sets, the workload 0"):
        kind.start(job(kind, {"Worker": replica()}), ())


@of_each_kind
@given(st.lists(TEMPLATES, min_size=5, max_size=5), INFO_LISTS)
def test_a_stop_leaves_nothing_of_a_start(
    kind: TrainingJob, templates: list[JsonObject], infos: list[PodSetInfo]
) -> None:
    replicas = {type_: replica(found) for type_, found in zip(TYPES[kind.kind], templates, strict=False)}
    assert_round_trip(kind, job(kind, replicas), infos)


@of_each_kind
@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], None),
        ([("Running", "True", "")], None),
        ([("Succeeded", "False", "")], None),
        ([("Succeeded", "True", "done")], Finished(True, "done")),
        ([("Running", "False", ""), ("Failed", "True", "lost")], Finished(False, "lost")),
    ],
)
def test_finished(kind: TrainingJob, conditions: list[tuple[str, str, str]], expected: Finished | None) -> None:
    found = [{"type": type_, "status": status, "message": message} for type_, status, message in conditions]
    assert kind.finished(job(kind, {}, status={"conditions": found})) == expected


@of_each_kind
def test_ready_active_held(kind: TrainingJob) -> None:
    assert not kind.pods_ready(job(kind, {}))
    assert not kind.active(job(kind, {}))
    assert kind.held(job(kind, {})) is None
    conditions = [{"type": "Running", "status": "True"}, {"type": "Suspended", "status": "False"}]
    statuses = {"Worker": {"active": 0, "succeeded": 1}, "Master": {"active": 1}}
    running = job(kind, {}, status={"conditions": conditions, "replicaStatuses": statuses})
    assert kind.pods_ready(running)
    assert kind.active(running)
    assert kind.held(running) is False
    assert not kind.active(job(kind, {}, status={"replicaStatuses": {"Worker": {"succeeded": 3}, "Master": {}}}))
    assert kind.reclaimable(running) == {}


def prioritized(name: str) -> JsonObject:
    return replica({"spec": {"priorityClassName": name}})


@of_each_kind
def test_the_scheduling_policy_names_the_priority_class(kind: TrainingJob) -> None:
    policy: JsonObject = {"schedulingPolicy": {"priorityClass": "policy"}}
    assert kind.priority_class(job(kind, {"Worker": prioritized("worker")}, policy=policy)) == "policy"
    assert kind.priority_class(job(kind, {"Worker": prioritized("worker")})) == "worker"
    # An empty one counts too: the pods of the workload are not asked.
    assert kind.priority_class(job(kind, {"Worker": replica()})) == ""


@pytest.mark.parametrize("kind", [TF_JOB, PYTORCH_JOB, XGBOOST_JOB, PADDLE_JOB, MPI_JOB], ids=lambda kind: kind.kind)
def test_else_the_first_type_with_one_does(kind: TrainingJob) -> None:
    first, *_, last = TYPES[kind.kind]
    assert kind.priority_class(job(kind, {last: prioritized("last"), first: prioritized("first")})) == "first"
    assert kind.priority_class(job(kind, {last: prioritized("last"), first: replica()})) == "last"


def test_pods_are_found_by_labels() -> None:
    assert PYTORCH_JOB.pod_labels("j") == {
        "training.kubeflow.org/job-name": "j",
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
    }
    assert MPI_JOB.pod_labels("j")["training.kubeflow.org/operator-name"] == "mpi-operator"


def errors(kind: TrainingJob, replicas: dict[str, JsonObject]) -> list[str]:
    found = kind.errors(job(kind, replicas), None, AROUND)
    return [f"{e.path} {e.kind}".replace("kueue.x-k8s.io/", "") for e in found]


@of_each_kind
def test_topology_annotations_are_checked(kind: TrainingJob) -> None:
    twice = template(podset_required_topology="rack", podset_preferred_topology="rack")
    path = f"spec.{SPECS[kind.kind]}[Worker].template.metadata.annotations"
    assert errors(kind, {"Worker": replica(twice)}) == [f"{path} Invalid value"]
    assert errors(kind, {"Worker": replica(template(podset_required_topology="rack"))}) == []


def test_only_mpi_jobs_group_pod_sets() -> None:
    alone = {"Worker": replica(template(podset_group_name="g", podset_required_topology="rack"))}
    assert errors(PYTORCH_JOB, alone) == []
    path = "spec.mpiReplicaSpecs[Worker].template.metadata.annotations[podset-group-name]"
    assert errors(MPI_JOB, alone) == [f"{path} Invalid value"]
    assert errors(MPI_JOB, {**alone, "Launcher": alone["Worker"]}) == []


def test_errors_of_mpi_jobs_are_sorted_by_field() -> None:
    bad = replica(template(podset_required_topology="rack/", podset_slice_size="0"))
    found = errors(MPI_JOB, {"Launcher": bad, "Worker": bad})
    assert len(found) > 4
    assert found == sorted(found)


OFFSET = "kueue.x-k8s.io/pod-index-offset"


@pytest.mark.parametrize(
    ("as_worker", "launcher", "worker", "offset"),
    [
        (True, replica(), replica(), True),
        (True, replica(template(podset_group_name="g")), replica(), False),
        (True, None, replica(), False),
        (True, replica(), None, False),
        (False, replica(), replica(), False),
        (None, replica(), replica(), False),
    ],
)
def test_ranks_of_workers_begin_behind_a_launcher_that_works(
    as_worker: bool | None, launcher: JsonObject | None, worker: JsonObject | None, offset: bool
) -> None:
    replicas = {k: v for k, v in (("Launcher", launcher), ("Worker", worker)) if v is not None}
    says: dict[str, Any] = {} if as_worker is None else {"runLauncherAsWorker": as_worker}
    made = job(MPI_JOB, replicas, **says)
    prepared: Any = MPI_JOB.prepared(made, DEFAULT_GATES)
    if not offset:
        assert prepared == made
        return
    annotations = prepared["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["metadata"]["annotations"]
    assert annotations == {OFFSET: "1"}
    assert MPI_JOB.prepared(made, {"TopologyAwareScheduling": False}) == made
    assert TF_JOB.prepared(made, DEFAULT_GATES) == made
