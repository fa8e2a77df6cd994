"""ray.io/v1 RayJob and RayService: they make a RayCluster of their own, for one run and for as long as the service is wanted.

While such a cluster scales itself, how many workers it has is read from the RayCluster (`refers_to`).
"""

from collections.abc import Iterator

from shared.api import names
from shared.api.field_errors import FieldError, invalid, required
from shared.jobs.elastic import says_elastic
from shared.jobs.manifest import JsonObject, items, number, section, text
from shared.jobs.places import put
from shared.jobs.podset_info import PermanentError
from shared.jobs.protocol import Circumstances, Finished, Gates, Reference
from shared.jobs.ray_cluster import RayKind, fault_tolerant, with_container
from shared.jobs.referred import referred
from shared.jobs.status_conditions import holds
from shared.jobs.templated_kind import Role

_SUBMITTER = "ray-job-submitter"
_SUBMITTER_RESOURCES: JsonObject = {
    "requests": {"cpu": "500m", "memory": "200Mi"},
    "limits": {"cpu": "1", "memory": "1Gi"},
}


class ClusterOwner(RayKind):
    """See RayKind. `cluster_status`: the part of the status with the name of the RayCluster."""

    cluster_status: tuple[str, ...] = ("status",)

    def refers_to(self, job: JsonObject) -> tuple[Reference, ...]:
        name = text(job, *self.cluster_status, "rayClusterName")
        if not name or not says_elastic(job):
            return ()
        return (Reference("ray.io", "v1", "RayCluster", "rayclusters", name),)

    def own_annotations(self, job: JsonObject) -> dict[str, str]:
        if not says_elastic(job):
            return {}
        cluster = self._cluster(job)
        generation = "" if cluster is None else str(number(cluster, "metadata", "generation", default=0))
        return {names.RAYCLUSTER_GENERATION: generation}

    def slice_part(self, job: JsonObject) -> str:
        of_cluster = text(job, "metadata", "annotations", names.RAYCLUSTER_GENERATION)
        return "_".join(filter(None, (super().slice_part(job), of_cluster)))

    def replicas(self, job: JsonObject, group: JsonObject) -> int:
        wanted = super().replicas(job, group)
        if self.cluster_spec(job).get("enableInTreeAutoscaling") is not True or not says_elastic(job):
            return wanted
        cluster = self._cluster(job)
        if cluster is None:
            return wanted
        name = text(group, "groupName")
        for found in items(cluster, "spec", "workerGroupSpecs"):
            if text(found, "groupName") == name:
                return number(found, "replicas", default=wanted)
        raise PermanentError(f"RayCluster {text(cluster, 'metadata', 'name')} has no group of workers {name!r}")

    def _cluster(self, job: JsonObject) -> JsonObject | None:
        return next((referred(job, reference) for reference in self.refers_to(job)), None)


class RayJob(ClusterOwner):
    """See ClusterOwner. What submits the job to the cluster is a pod of its own, or a container of the head."""

    kind = "RayJob"
    plural = "rayjobs"
    framework = "ray.io/rayjob"
    cluster = ("spec", "rayClusterSpec")
    cluster_field = "spec.rayClusterSpec"

    def roles(self, job: JsonObject) -> tuple[Role, ...]:
        roles = super().roles(job)
        if _mode(job) != "K8sJobMode":
            return roles
        own = section(job, "spec", "submitterPodTemplate")
        submitter = Role(
            name="submitter",
            count=1,
            place=("spec", "submitterPodTemplate"),
            field="spec.submitterPodTemplate",
            template=own or self._submitter(job),
        )
        return (*roles, submitter)

    def head_template(self, job: JsonObject) -> JsonObject:
        template = super().head_template(job)
        return with_container(template, self._submitter_container(job)) if _mode(job) == "SidecarMode" else template

    def filled(self, job: JsonObject) -> JsonObject:
        if _mode(job) != "K8sJobMode" or section(job, "spec", "submitterPodTemplate"):
            return job
        return put(job, ("spec", "submitterPodTemplate"), self._submitter(job))

    def emptied(self, job: JsonObject) -> JsonObject:
        if section(job, "spec", "submitterPodTemplate") != self._submitter(job):
            return job
        return put(job, ("spec", "submitterPodTemplate"), None)

    def finished(self, job: JsonObject) -> Finished | None:
        if _deployment(job) not in ("Failed", "Complete"):
            return None
        return Finished(text(job, "status", "jobStatus") == "SUCCEEDED", text(job, "status", "message"))

    def active(self, job: JsonObject) -> bool:
        return _deployment(job) not in ("", "Suspended")

    def held(self, job: JsonObject) -> bool | None:
        return _deployment(job) == "Suspended" if _deployment(job) else None

    def pods_ready(self, job: JsonObject) -> bool:
        return text(job, "status", "rayClusterStatus", "state") == "ready"

    def skip(self, job: JsonObject, gates: Gates) -> bool:
        return bool(section(job, "spec", "clusterSelector"))

    def on_hold(self, job: JsonObject) -> bool:
        return _deployment(job) == "ValidationFailed"

    def unchecked(self, job: JsonObject) -> bool:
        return bool(section(job, "spec", "clusterSelector")) and not self.cluster_spec(job)

    def errors(self, job: JsonObject, old: JsonObject | None, around: Circumstances) -> Iterator[FieldError]:
        spec = section(job, "spec")
        if around.manages(job):
            if section(spec, "clusterSelector") and self.cluster_spec(job):
                detail = "may not be set together with spec.rayClusterSpec"
                yield invalid("spec.clusterSelector", spec["clusterSelector"], detail)
            elif not self.cluster_spec(job):
                yield required("spec.rayClusterSpec", "a job that is managed brings its own cluster")
            if spec.get("shutdownAfterJobFinishes") is not True:
                detail = "a job that is managed must give its cluster back"
                yield invalid("spec.shutdownAfterJobFinishes", spec.get("shutdownAfterJobFinishes", False), detail)
            yield from self.cluster_errors(job, around)
        yield from self.topology_errors(job, around)

    def _submitter(self, job: JsonObject) -> JsonObject:
        """The pod that KubeRay submits with when the user gives none."""
        return {"spec": {"containers": [self._submitter_container(job)], "restartPolicy": "Never"}}

    def _submitter_container(self, job: JsonObject) -> JsonObject:
        head = items(self.cluster_spec(job), "headGroupSpec", "template", "spec", "containers")
        image = text(head[0], "image") if head else ""
        container: JsonObject = {"name": _SUBMITTER, "resources": _SUBMITTER_RESOURCES}
        return {**container, "image": image} if image else container


class RayService(ClusterOwner):
    """See ClusterOwner. It never finishes."""

    kind = "RayService"
    plural = "rayservices"
    framework = "ray.io/rayservice"
    cluster = ("spec", "rayClusterConfig")
    cluster_field = "spec.rayClusterSpec"
    cluster_status = ("status", "activeServiceStatus")
    suspend_path = ("spec", "rayClusterConfig", "suspend")

    def finished(self, job: JsonObject) -> Finished | None:
        return None

    def active(self, job: JsonObject) -> bool:
        return holds(job, "Ready")

    def pods_ready(self, job: JsonObject) -> bool:
        return holds(job, "Ready")

    def skip(self, job: JsonObject, gates: Gates) -> bool:
        # Its operator cleans up with a Job that is its child: who finalized it now would suspend that.
        return (
            gates["DeferRayServiceFinalizationForRedisCleanup"]
            and bool(text(job, "metadata", "deletionTimestamp"))
            and fault_tolerant(job, self.cluster_spec(job))
        )

    def prepared(self, job: JsonObject, gates: Gates) -> JsonObject:
        return self.with_gates(job, gates)

    def errors(self, job: JsonObject, old: JsonObject | None, around: Circumstances) -> Iterator[FieldError]:
        if around.manages(job):
            yield from self.cluster_errors(job, around)
        yield from self.topology_errors(job, around)


def _mode(job: JsonObject) -> str:
    return text(job, "spec", "submissionMode") or "K8sJobMode"


def _deployment(job: JsonObject) -> str:
    return text(job, "status", "jobDeploymentStatus")
