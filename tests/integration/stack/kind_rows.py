"""The table of job kinds for test_kinds.py: how an object of each is made, and what its controller would write into its status.

A row knows no more than the API of its kind. Definitions are the published ones where they are at hand, else permissive ones of our own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from shared.jobs.app_wrapper import AppWrapper
from shared.jobs.jobset import JobSet
from shared.jobs.protocol import JobKind
from shared.jobs.ray_cluster import RayCluster
from shared.jobs.ray_job import RayJob, RayService
from shared.jobs.spark_application import SparkApplication
from shared.jobs.train_job import TrainJob
from shared.jobs.training_job import JAX_JOB, MPI_JOB, PADDLE_JOB, PYTORCH_JOB, TF_JOB, XGBOOST_JOB, TrainingJob
from shared.kube.resources import Resource
from tests.integration.stack.manifests import Manifest

PUBLISHED = Path(__file__).resolve().parents[4] / "shared" / "crds"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One kind. `pod_sets`: of the object that `spec` makes, `{name}` is its own; `templates`: where a start injects something; `running` to `failed`:
    what its controller tells. Kinds that never end have no `succeeded` and no `failed`: they free their quota when they are deleted."""

    kind: JobKind
    spec: Manifest
    pod_sets: dict[str, int]
    suspended: tuple[str, ...] = ("spec", "suspend")
    templates: Callable[[Manifest], list[Manifest]]
    running: Manifest
    stopped: Manifest
    succeeded: Manifest | None = None
    failed: Manifest | None = None
    restored_at_once: bool = True
    """In the write that stops it; else once its pods are gone."""
    needs: tuple[tuple[Resource, Manifest], ...] = ()
    """Objects that have to be there, and of which kind each is."""

    def __str__(self) -> str:
        return self.kind.kind

    def made(self, name: str, queue: str) -> Manifest:
        """An object that wants to run at once."""
        labels = {"kueue.x-k8s.io/queue-name": queue}
        return {
            "apiVersion": f"{self.kind.group}/{self.kind.version}",
            "kind": self.kind.kind,
            "metadata": {"name": name, "namespace": "default", "labels": labels},
            "spec": copy.deepcopy(self.spec),
        }


def definition(kind: JobKind | Resource) -> Manifest:
    """Its CustomResourceDefinition."""
    published = PUBLISHED / f"{kind.group}_{kind.plural}.yaml"
    if published.exists():
        loaded: Manifest = yaml.safe_load(published.read_text())
        return loaded
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}},
    }
    scope = "Namespaced" if not isinstance(kind, Resource) or kind.namespaced else "Cluster"
    names = {"plural": kind.plural, "singular": kind.kind.lower(), "kind": kind.kind}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {"group": kind.group, "scope": scope, "names": names, "versions": [version]},
    }


def pod_spec(cpu: str = "1") -> Manifest:
    container = {"name": "c", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": cpu}}}
    return {"restartPolicy": "Never", "containers": [container]}


def _condition(type_: str, message: str) -> dict[str, Any]:
    return {
        "type": type_,
        "status": "True",
        "reason": type_,
        "message": message,
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }


def _replicated(name: str, replicas: int, parallelism: int) -> Manifest:
    job = {"parallelism": parallelism, "completions": parallelism, "template": {"spec": pod_spec()}}
    return {"name": name, "replicas": replicas, "template": {"spec": job}}


def _jobs(**active: int) -> Manifest:
    zero = {"ready": 0, "succeeded": 0, "failed": 0, "suspended": 0}
    return {"replicatedJobsStatus": [{"name": name, "active": count, **zero} for name, count in active.items()]}


def _training(kind: TrainingJob, specs: str, **pods: int) -> Row:
    """A kind of a training operator, with replicas by type."""
    templates = {type_: {"replicas": count, "template": {"spec": pod_spec()}} for type_, count in pods.items()}

    def status(active: bool, condition: str) -> Manifest:
        replicas = {type_: {"active": count if active else 0} for type_, count in pods.items()}
        return {"replicaStatuses": replicas, "conditions": [_condition(condition, condition.lower())]}

    return Row(
        kind=kind,
        spec={"runPolicy": {}, specs: templates},
        pod_sets={type_.lower(): count for type_, count in pods.items()},
        suspended=("spec", "runPolicy", "suspend"),
        templates=lambda job: [job["spec"][specs][type_]["template"] for type_ in pods],
        running=status(True, "Running"),
        stopped=status(False, "Suspended"),
        succeeded=status(False, "Succeeded"),
        failed=status(False, "Failed"),
    )


def _ray_cluster(worker: str) -> Manifest:
    """Of a head and two workers."""
    template = {"spec": {"containers": pod_spec()["containers"]}}
    return {
        "rayVersion": "2.9.0",
        "headGroupSpec": {"rayStartParams": {}, "template": template},
        "workerGroupSpecs": [
            {
                "groupName": worker,
                "replicas": 2,
                "minReplicas": 2,
                "maxReplicas": 2,
                "rayStartParams": {},
                "template": template,
            }
        ],
    }


def _ray_templates(cluster: Manifest) -> list[Manifest]:
    return [cluster["headGroupSpec"]["template"], *(group["template"] for group in cluster["workerGroupSpecs"])]


def _ray_job(deployment: str, job: str, cluster: str) -> Manifest:
    return {"jobDeploymentStatus": deployment, "jobStatus": job, "rayClusterStatus": {"state": cluster}}


_RUNTIMES = Resource(
    "trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes", "ClusterTrainingRuntime", namespaced=False
)
_RUNTIME: Manifest = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "kind-rows", "labels": {"trainer.kubeflow.org/framework": "plain"}},
    "spec": {
        "mlPolicy": {"numNodes": 1},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                            "spec": {
                                "template": {"spec": {"containers": [{**pod_spec()["containers"][0], "name": "node"}]}}
                            },
                        },
                    }
                ]
            }
        },
    },
}


def _train(active: int, condition: str = "") -> Manifest:
    told = {"name": "node", "active": active, "ready": 0, "succeeded": 0, "failed": 0, "suspended": 0}
    return {"jobsStatus": [told], "conditions": [_condition(condition, condition.lower())] if condition else []}


def _train_templates(job: Manifest) -> list[Manifest]:
    patches = [entry["trainingRuntimeSpec"]["template"]["spec"] for entry in job["spec"]["runtimePatches"]]
    return [one["template"]["spec"]["template"] for patch in patches for one in patch.get("replicatedJobs", ())]


def _wrapped(name: str, pods: int) -> Manifest:
    spec = {"parallelism": pods, "completions": pods, "template": {"spec": pod_spec()}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
    return {"template": job, "podSets": [{"replicas": pods, "path": "template.spec.template"}]}


def _wrapper(phase: str, **conditions: bool) -> Manifest:
    told = [{**_condition(type_, phase), "status": str(holds)} for type_, holds in conditions.items()]
    return {"phase": phase, "conditions": told}


def _spark(state: str, executors: str = "") -> Manifest:
    told = {f"exec-{i}": executors for i in range(2)} if executors else None
    return {"applicationState": {"state": state}, "driverInfo": {}, "executorState": told}


ROWS: tuple[Row, ...] = (
    Row(
        kind=JobSet(),
        spec={"replicatedJobs": [_replicated("driver", 1, 1), _replicated("workers", 2, 2)]},
        pod_sets={"driver": 1, "workers": 4},
        templates=lambda job: [j["template"]["spec"]["template"] for j in job["spec"]["replicatedJobs"]],
        running=_jobs(driver=1, workers=2),
        stopped={**_jobs(driver=0, workers=0), "conditions": [_condition("Suspended", "held back")]},
        succeeded={**_jobs(driver=0, workers=0), "conditions": [_condition("Completed", "all done")]},
        failed={**_jobs(driver=0, workers=0), "conditions": [_condition("Failed", "it broke")]},
    ),
    _training(PYTORCH_JOB, "pytorchReplicaSpecs", Master=1, Worker=2),
    _training(TF_JOB, "tfReplicaSpecs", Chief=1, PS=1, Worker=2),
    _training(XGBOOST_JOB, "xgbReplicaSpecs", Master=1, Worker=1),
    _training(PADDLE_JOB, "paddleReplicaSpecs", Master=1, Worker=1),
    _training(JAX_JOB, "jaxReplicaSpecs", Worker=2),
    _training(MPI_JOB, "mpiReplicaSpecs", Launcher=1, Worker=2),
    Row(
        kind=TrainJob(),
        spec={"runtimeRef": {"name": "kind-rows"}, "trainer": {"numNodes": 2}},
        pod_sets={"node": 2},
        templates=_train_templates,
        running=_train(1),
        stopped=_train(0, "Suspended"),
        succeeded=_train(0, "Complete"),
        failed=_train(0, "Failed"),
        restored_at_once=False,
        needs=((_RUNTIMES, _RUNTIME),),
    ),
    Row(
        kind=RayJob(),
        spec={"entrypoint": "true", "shutdownAfterJobFinishes": True, "rayClusterSpec": _ray_cluster("small")},
        pod_sets={"head": 1, "small": 2, "submitter": 1},
        templates=lambda job: [
            *_ray_templates(job["spec"]["rayClusterSpec"]),
            *(template for template in [job["spec"].get("submitterPodTemplate")] if template),
        ],
        running=_ray_job("Running", "RUNNING", "ready"),
        stopped=_ray_job("Suspended", "STOPPED", "suspended"),
        succeeded=_ray_job("Complete", "SUCCEEDED", "ready"),
        failed=_ray_job("Failed", "FAILED", "ready"),
    ),
    Row(
        kind=RayCluster(),
        spec=_ray_cluster("small"),
        pod_sets={"head": 1, "small": 2},
        templates=lambda job: _ray_templates(job["spec"]),
        running={"state": "ready"},
        stopped={"state": "suspended"},
    ),
    Row(
        kind=RayService(),
        spec={"serveConfigV2": "applications: []", "rayClusterConfig": _ray_cluster("small")},
        pod_sets={"head": 1, "small": 2},
        suspended=("spec", "rayClusterConfig", "suspend"),
        templates=lambda job: _ray_templates(job["spec"]["rayClusterConfig"]),
        running={"conditions": [_condition("Ready", "serves")]},
        stopped={"conditions": [{**_condition("Ready", "held back"), "status": "False"}]},
    ),
    Row(
        kind=AppWrapper(),
        spec={"components": [_wrapped("first", 1), _wrapped("second", 2)]},
        pod_sets={"{name}-0": 1, "{name}-1": 2},
        templates=lambda job: [
            {"spec": info} for component in job["spec"]["components"] for info in component.get("podSetInfos", ())
        ],
        running=_wrapper("Running", QuotaReserved=True, ResourcesDeployed=True, PodsReady=True),
        stopped=_wrapper("Suspended", QuotaReserved=False, ResourcesDeployed=False, PodsReady=False),
        succeeded=_wrapper("Succeeded", QuotaReserved=False, ResourcesDeployed=True),
        failed=_wrapper("Failed", QuotaReserved=False, ResourcesDeployed=False),
    ),
    Row(
        kind=SparkApplication(),
        spec={
            "type": "Scala",
            "mode": "cluster",
            "sparkVersion": "4.0.0",
            "mainApplicationFile": "local:///examples.jar",
            "driver": {"coreRequest": "1", "memory": "1g"},
            "executor": {"instances": 2, "coreRequest": "1", "memory": "1g"},
        },
        pod_sets={"driver": 1, "executor": 2},
        templates=lambda job: [{"spec": job["spec"][role]} for role in ("driver", "executor")],
        running=_spark("RUNNING", "RUNNING"),
        stopped=_spark("SUSPENDED"),
        succeeded=_spark("COMPLETED", "COMPLETED"),
        failed=_spark("FAILED"),
    ),
)
