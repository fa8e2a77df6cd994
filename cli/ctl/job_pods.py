"""Which pods are a job's: the labels that each kind's controller puts on them."""

from __future__ import annotations

from cli.ctl.cluster import CommandError, Json
from shared.api import names
from shared.kube.resources import Resource

_BY_NAME = {
    "Job.batch": "batch.kubernetes.io/job-name",
    "JobSet.jobset.x-k8s.io": "jobset.sigs.k8s.io/jobset-name",
    "MPIJob.kubeflow.org": "training.kubeflow.org/job-name",
    "PyTorchJob.kubeflow.org": "training.kubeflow.org/job-name",
    "TFJob.kubeflow.org": "training.kubeflow.org/job-name",
    "XGBoostJob.kubeflow.org": "training.kubeflow.org/job-name",
    "PaddleJob.kubeflow.org": "training.kubeflow.org/job-name",
    "JAXJob.kubeflow.org": "training.kubeflow.org/job-name",
    "TrainJob.trainer.kubeflow.org": "jobset.sigs.k8s.io/jobset-name",
    "RayCluster.ray.io": "ray.io/cluster",
    "LeaderWorkerSet.leaderworkerset.x-k8s.io": "leaderworkerset.sigs.k8s.io/name",
}
"""kind.group -> the label that holds the job's name."""


def pod_selector(resource: Resource, job: Json) -> str:
    """A label selector. Raises CommandError for kinds whose pods cannot be told."""
    name = job["metadata"]["name"]
    if label := _BY_NAME.get(f"{resource.kind}.{resource.group}"):
        return f"{label}={name}"
    if resource.kind in ("RayJob", "RayService") and resource.group == "ray.io":
        cluster = (job.get("status") or {}).get("rayClusterName", "")
        return f"ray.io/cluster={cluster}"
    labels = job["metadata"].get("labels") or {}
    if resource.kind == "Pod" and (group := labels.get(names.POD_GROUP_NAME)):
        return f"{names.POD_GROUP_NAME}={group}"
    raise CommandError(f"unsupported kind: {resource.kind}")
