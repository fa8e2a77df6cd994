from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config.feature_gates import DEFAULT_GATES
from shared.jobs.manifest import JsonObject
from shared.jobs.merge_patch import apply
from shared.jobs.podset_info import PermanentError, PodSetInfo
from shared.jobs.protocol import Circumstances, Finished, Reference
from shared.jobs.ray_job import RayJob, RayService
from shared.jobs.referred import with_referred
from tests.unit.jobs.round_trip import INFO_LISTS, TEMPLATES, assert_round_trip, requests, shape, template

RayKinds = RayJob | RayService
JOB, SERVICE = RayJob(), RayService()
AROUND = Circumstances(gates=DEFAULT_GATES, manage_all=True)
ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}
CLUSTER = Reference("ray.io", "v1", "RayCluster", "rayclusters", "made")


def cluster_spec(*groups: tuple[str, int], head: JsonObject | None = None, **rest: Any) -> JsonObject:
    return {
        "headGroupSpec": {"template": head or template()},
        "workerGroupSpecs": [{"groupName": n, "replicas": r, "template": template("2")} for n, r in groups],
        **rest,
    }


def ray_job(
    cluster: JsonObject | None = None,
    *,
    status: JsonObject | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> JsonObject:
    return {
        "metadata": {"name": "j", "generation": 2, "annotations": annotations or {}},
        "spec": {
            "suspend": True,
            "shutdownAfterJobFinishes": True,
            "rayClusterSpec": cluster_spec(("g", 2)) if cluster is None else cluster,
            **spec,
        },
        "status": status or {},
    }


def service(
    cluster: JsonObject | None = None, *, status: JsonObject | None = None, metadata: JsonObject | None = None
) -> JsonObject:
    config = {"suspend": True, **(cluster_spec(("g", 2)) if cluster is None else cluster)}
    return {
        "metadata": {"name": "s", "generation": 2, **(metadata or {})},
        "spec": {"rayClusterConfig": config},
        "status": status or {},
    }


@pytest.mark.parametrize("mode", [None, "K8sJobMode"])
def test_the_submitter_is_the_last_pod_set(mode: str | None) -> None:
    """Acceptance scenario A31."""
    said: dict[str, Any] = {} if mode is None else {"submissionMode": mode}
    job = ray_job(**said)
    assert shape(JOB, job) == [("head", 1), ("g", 2), ("submitter", 1)]
    submitter = JOB.pod_sets(job)[-1]
    assert submitter.template == {
        "spec": {
            "containers": [
                {
                    "name": "ray-job-submitter",
                    "image": "i:1",
                    "resources": {
                        "requests": {"cpu": "500m", "memory": "200Mi"},
                        "limits": {"cpu": "1", "memory": "1Gi"},
                    },
                }
            ],
            "restartPolicy": "Never",
        }
    }


def test_a_submitter_of_the_users_own() -> None:
    job = ray_job(submitterPodTemplate=template("3"))
    assert requests(JOB.pod_sets(job)[-1]) == [{"cpu": "3"}]


def test_a_submitter_beside_the_head() -> None:
    job = ray_job(submissionMode="SidecarMode", submitterPodTemplate=template("3"))
    assert shape(JOB, job) == [("head", 1), ("g", 2)]
    assert requests(JOB.pod_sets(job)[0]) == [{"cpu": "1"}, {"cpu": "500m", "memory": "200Mi"}]


@pytest.mark.parametrize("mode", ["HTTPMode", "InteractiveMode"])
def test_other_ways_to_submit_take_no_pod(mode: str) -> None:
    job = ray_job(submissionMode=mode)
    assert shape(JOB, job) == [("head", 1), ("g", 2)]
    assert requests(JOB.pod_sets(job)[0]) == [{"cpu": "1"}]


def test_a_start_writes_the_submitter_down_and_a_stop_takes_it_away() -> None:
    job = ray_job()
    infos = (PodSetInfo(name="h"), PodSetInfo(name="g"), PodSetInfo(name="s", node_selector={"n": "1"}))
    running: Any = apply(job, JOB.start(job, infos))
    submitter = running["spec"]["submitterPodTemplate"]["spec"]
    assert submitter["nodeSelector"] == {"n": "1"}
    assert submitter["containers"][0]["name"] == "ray-job-submitter"
    step = JOB.stop(running, JOB.pod_sets(job))
    assert step is not None
    assert apply(running, step.patch) == job
    kept = ray_job(submitterPodTemplate=template("3"))
    running = apply(kept, JOB.start(kept, infos))
    step = JOB.stop(running, JOB.pod_sets(kept))
    assert step is not None
    assert apply(running, step.patch) == kept


JOBS = st.builds(
    lambda head, worker, extra: ray_job(
        {**cluster_spec(head=head), "workerGroupSpecs": [{"groupName": "g", "template": worker}]}, **extra
    ),
    TEMPLATES,
    TEMPLATES,
    st.fixed_dictionaries(
        {},
        optional={
            "submissionMode": st.sampled_from(["K8sJobMode", "SidecarMode", "HTTPMode"]),
            "submitterPodTemplate": TEMPLATES,
        },
    ),
)


@given(JOBS, INFO_LISTS)
def test_a_stop_leaves_nothing_of_a_start(job: JsonObject, infos: list[PodSetInfo]) -> None:
    assert_round_trip(JOB, job, infos)


@given(TEMPLATES, TEMPLATES, INFO_LISTS)
def test_of_a_service_neither(head: JsonObject, worker: JsonObject, infos: list[PodSetInfo]) -> None:
    spec = {**cluster_spec(head=head), "workerGroupSpecs": [{"groupName": "g", "template": worker}]}
    assert_round_trip(SERVICE, service(spec), infos)


def test_a_service_is_held_back_in_its_cluster() -> None:
    """Trap 18 of the specification."""
    held = service()
    assert SERVICE.suspended(held)
    running = apply(held, {"spec": {"rayClusterConfig": {"suspend": None}}})
    assert not SERVICE.suspended(running)
    assert SERVICE.suspend(running) == {"spec": {"rayClusterConfig": {"suspend": True}}}
    assert shape(SERVICE, held) == [("head", 1), ("g", 2)]


@pytest.mark.parametrize(
    ("status", "finished"),
    [
        ({}, None),
        ({"jobDeploymentStatus": "Running", "jobStatus": "SUCCEEDED"}, None),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "m"}, Finished(True, "m")),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "FAILED"}, Finished(False, "")),
        ({"jobDeploymentStatus": "Failed", "jobStatus": "STOPPED", "message": "m"}, Finished(False, "m")),
    ],
)
def test_job_finished(status: JsonObject, finished: Finished | None) -> None:
    assert JOB.finished(ray_job(status=status)) == finished


@pytest.mark.parametrize(
    ("deployment", "active", "held", "on_hold"),
    [
        ("", False, None, False),
        ("Initializing", True, False, False),
        ("Suspending", True, False, False),
        ("Suspended", False, True, False),
        ("ValidationFailed", True, False, True),
    ],
)
def test_job_status(deployment: str, active: bool, held: bool | None, on_hold: bool) -> None:
    job = ray_job(status={"jobDeploymentStatus": deployment})
    assert JOB.active(job) is active
    assert JOB.held(job) is held
    assert JOB.on_hold(job) is on_hold
    assert not JOB.pods_ready(job)
    assert JOB.pods_ready(ray_job(status={"rayClusterStatus": {"state": "ready"}}))


def test_service_status() -> None:
    ready = service(status={"conditions": [{"type": "Ready", "status": "True"}]})
    assert SERVICE.active(ready)
    assert SERVICE.pods_ready(ready)
    assert SERVICE.finished(ready) is None
    assert not SERVICE.active(service())
    assert not SERVICE.pods_ready(service())
    assert SERVICE.held(ready) is None
    assert not SERVICE.on_hold(ready)


def test_a_job_on_somebody_elses_cluster_is_left_alone() -> None:
    job = ray_job({}, clusterSelector={"ray.io/cluster": "c"})
    assert JOB.skip(job, DEFAULT_GATES)
    assert JOB.unchecked(job)
    for other in (ray_job(), ray_job(clusterSelector={})):
        assert not JOB.skip(other, DEFAULT_GATES)
        assert not JOB.unchecked(other)


@pytest.mark.parametrize(
    ("deleted", "tolerant", "gate", "skipped"),
    [(True, True, True, True), (True, False, True, False), (False, True, True, False), (True, True, False, False)],
)
def test_a_service_that_goes_keeps_its_quota_until_its_redis_is_clean(
    deleted: bool, tolerant: bool, gate: bool, skipped: bool
) -> None:
    metadata: JsonObject = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}
    found = service(cluster_spec(**({"gcsFaultToleranceOptions": {}} if tolerant else {})), metadata=metadata)
    assert SERVICE.skip(found, {"DeferRayServiceFinalizationForRedisCleanup": gate}) is skipped


def elastic(kind: RayKinds, *, scales: bool = True, annotations: dict[str, str] | None = None) -> JsonObject:
    spec = cluster_spec(("g", 2), ("h", 1), enableInTreeAutoscaling=scales)
    annotations = ELASTIC if annotations is None else annotations
    if kind is JOB:
        status: JsonObject = {"rayClusterName": "made"}
        return ray_job(spec, annotations=annotations, status=status, submissionMode="HTTPMode")
    status = {"activeServiceStatus": {"rayClusterName": "made"}}
    return service(spec, metadata={"annotations": annotations}, status=status)


def made(**replicas: int | None) -> JsonObject:
    groups = [{"groupName": n, **({} if r is None else {"replicas": r})} for n, r in replicas.items()]
    return {"metadata": {"name": "made", "generation": 7}, "spec": {"workerGroupSpecs": groups}}


both = pytest.mark.parametrize("kind", [JOB, SERVICE], ids=["job", "service"])


@both
def test_workers_of_a_cluster_that_scales_itself(kind: RayKinds) -> None:
    job = elastic(kind)
    assert kind.refers_to(job) == (CLUSTER,)
    assert shape(kind, job)[1:] == [("g", 2), ("h", 1)]
    assert shape(kind, with_referred(job, {CLUSTER: None}))[1:] == [("g", 2), ("h", 1)]
    assert shape(kind, with_referred(job, {CLUSTER: made(h=None, g=5)}))[1:] == [("g", 5), ("h", 1)]
    with pytest.raises(PermanentError, match="made has no group of workers 'h'"):
        kind.pod_sets(with_referred(job, {CLUSTER: made(g=5)}))


@both
def test_of_other_clusters_the_job_itself_says(kind: RayKinds) -> None:
    for job in (elastic(kind, scales=False), elastic(kind, annotations={})):
        assert shape(kind, with_referred(job, {CLUSTER: made(g=5, h=5)}))[1:] == [("g", 2), ("h", 1)]
    assert kind.refers_to(elastic(kind, annotations={})) == ()
    assert kind.refers_to(elastic(kind, scales=False)) == (CLUSTER,)


@both
def test_what_was_read_is_in_no_patch(kind: RayKinds) -> None:
    job = with_referred(elastic(kind), {CLUSTER: made(g=5, h=5)})
    infos = tuple(PodSetInfo(name=name) for name, _ in shape(kind, job))
    assert kind.start(job, infos).keys() == {"spec"}


@both
def test_slices_follow_the_generation_of_the_cluster(kind: RayKinds) -> None:
    key = "kueue.x-k8s.io/raycluster-generation"
    job = elastic(kind)
    assert kind.own_annotations(job) == {key: ""}
    assert kind.own_annotations(with_referred(job, {CLUSTER: made(g=1, h=1)})) == {key: "7"}
    assert kind.own_annotations(elastic(kind, annotations={})) == {}
    assert kind.slice_part(job) == "2"
    assert kind.slice_part(elastic(kind, annotations={**ELASTIC, key: "7"})) == "2_7"
    assert kind.slice_part(elastic(kind, annotations={**ELASTIC, key: ""})) == "2"


def test_pods_of_an_elastic_service_are_gated_those_of_a_job_by_its_cluster() -> None:
    gated: Any = SERVICE.prepared(elastic(SERVICE), DEFAULT_GATES)
    gate = [{"name": "kueue.x-k8s.io/elastic-job"}]
    config = gated["spec"]["rayClusterConfig"]
    assert config["headGroupSpec"]["template"]["spec"]["schedulingGates"] == gate
    assert all(g["template"]["spec"]["schedulingGates"] == gate for g in config["workerGroupSpecs"])
    assert JOB.prepared(elastic(JOB), DEFAULT_GATES) == elastic(JOB)


def errors(kind: RayKinds, job: JsonObject, around: Circumstances = AROUND) -> list[str]:
    return [f"{e.path} {e.kind}".replace("kueue.x-k8s.io/", "") for e in kind.errors(job, None, around)]


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (ray_job(), []),
        (ray_job(clusterSelector={"a": "b"}), ["spec.clusterSelector Invalid value"]),
        (ray_job({}), ["spec.rayClusterSpec Required value"]),
        (ray_job(shutdownAfterJobFinishes=False), ["spec.shutdownAfterJobFinishes Invalid value"]),
        (ray_job(shutdownAfterJobFinishes=None), ["spec.shutdownAfterJobFinishes Invalid value"]),
        (
            ray_job(cluster_spec(enableInTreeAutoscaling=True)),
            ["spec.rayClusterSpec.enableInTreeAutoscaling Invalid value"],
        ),
        (ray_job(cluster_spec(("head", 1))), ["spec.rayClusterSpec.workerGroupSpecs[0].groupName Forbidden"]),
        (ray_job(cluster_spec(*((f"g{i}", 1) for i in range(17)))), []),
        (
            ray_job(cluster_spec(*((f"g{i}", 1) for i in range(18)))),
            ["spec.rayClusterSpec.workerGroupSpecs Too many"],
        ),
    ],
)
def test_rules_for_jobs(job: JsonObject, expected: list[str]) -> None:
    assert errors(JOB, job) == expected
    assert errors(JOB, job, Circumstances(gates=DEFAULT_GATES)) == []


@both
def test_a_cluster_of_an_elastic_job_may_scale_itself(kind: RayKinds) -> None:
    assert errors(kind, elastic(kind)) == []


def test_rules_for_services() -> None:
    config = cluster_spec(("head", 1), *((f"g{i}", 1) for i in range(17)), enableInTreeAutoscaling=True)
    assert errors(SERVICE, service(config)) == [
        "spec.rayClusterSpec.enableInTreeAutoscaling Invalid value",
        "spec.rayClusterSpec.workerGroupSpecs Too many",
        "spec.rayClusterSpec.workerGroupSpecs[0].groupName Forbidden",
    ]
    assert errors(SERVICE, service(config), Circumstances(gates=DEFAULT_GATES)) == []


def test_topology_annotations_are_checked_also_without_a_queue() -> None:
    twice = template(podset_required_topology="rack", podset_preferred_topology="rack")
    job = ray_job(cluster_spec(head=twice), submitterPodTemplate=twice)
    assert errors(JOB, job, Circumstances(gates=DEFAULT_GATES)) == [
        "spec.rayClusterSpec.headGroupSpec.template.metadata.annotations Invalid value",
        "spec.submitterPodTemplate.metadata.annotations Invalid value",
    ]
    assert errors(SERVICE, service(cluster_spec(head=twice))) == [
        "spec.rayClusterSpec.headGroupSpec.template.metadata.annotations Invalid value"
    ]
