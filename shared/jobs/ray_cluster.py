"""ray.io/v1 RayCluster, and what all Ray kinds share: each describes a cluster of a head and groups of workers, at another place of its object.

What the head's pod will really hold is more than its template says: KubeRay adds containers and raises requests, which has to be counted.
A RayCluster never finishes: it holds its quota until it is deleted.
"""

from collections.abc import Iterator

from shared.api import names
from shared.api.field_errors import FieldError, forbidden, invalid, too_many
from shared.api.quantity import parse
from shared.jobs.elastic import gated, is_elastic, is_gated
from shared.jobs.manifest import JsonObject, items, number, section, text
from shared.jobs.places import at, put
from shared.jobs.podset_info import PermanentError
from shared.jobs.protocol import Circumstances, Finished, Gates, ManagedBy
from shared.jobs.templated_kind import Role, TemplatedKind

HEAD = "head"
_MAX_POD_SETS = 18
_FAULT_TOLERANT = "ray.io/ft-enabled"
_FAULT_TOLERANT_LEAST = {"cpu": "200m", "memory": "256Mi"}
_AUTOSCALER = {"cpu": "500m", "memory": "512Mi"}


class RayKind(TemplatedKind):
    """See shared.jobs.protocol.JobKind. `cluster`: where the spec of the cluster stands; `cluster_field`: what messages call that."""

    group = "ray.io"
    version = "v1"
    managed_by = ManagedBy(("spec", "managedBy"), "ray.io/kuberay-operator")
    grouped = True
    may_be_elastic = True
    checked_if_queued = True
    cluster: tuple[str, ...] = ("spec",)
    cluster_field = "spec"

    def cluster_spec(self, job: JsonObject) -> JsonObject:
        """What the cluster is to be like."""
        return section(job, *self.cluster)

    def roles(self, job: JsonObject) -> tuple[Role, ...]:
        return (
            Role(
                name=HEAD,
                count=1,
                place=(*self.cluster, "headGroupSpec", "template"),
                field=f"{self.cluster_field}.headGroupSpec.template",
                template=self.head_template(job),
            ),
            *(
                Role(
                    name=text(group, "groupName"),
                    count=self.replicas(job, group) * max(number(group, "numOfHosts", default=1), 1),
                    place=(*self.cluster, "workerGroupSpecs", i, "template"),
                    field=f"{self.cluster_field}.workerGroupSpecs[{i}].template",
                )
                for i, group in enumerate(items(self.cluster_spec(job), "workerGroupSpecs"))
            ),
        )

    def replicas(self, job: JsonObject, group: JsonObject) -> int:
        """How many replicas a group of workers has."""
        return number(group, "replicas", default=1)

    def head_template(self, job: JsonObject) -> JsonObject:
        """The template of the head with all that KubeRay makes of it. Raises PermanentError when that cannot be told."""
        spec = self.cluster_spec(job)
        template = section(spec, "headGroupSpec", "template")
        if fault_tolerant(job, spec):
            template = _with_least(template)
        if spec.get("enableInTreeAutoscaling") is True:
            own = section(spec, "autoscalerOptions", "resources")
            template = with_container(
                template, {"name": "autoscaler", "resources": own or {"requests": _AUTOSCALER, "limits": _AUTOSCALER}}
            )
        return template

    def cluster_errors(self, job: JsonObject, around: Circumstances) -> Iterator[FieldError]:
        """Faults of the cluster of a job that is managed."""
        spec = self.cluster_spec(job)
        groups = items(spec, "workerGroupSpecs")
        if spec.get("enableInTreeAutoscaling") is True and not is_elastic(job, around.gates):
            path = f"{self.cluster_field}.enableInTreeAutoscaling"
            yield invalid(path, True, "a cluster that scales itself cannot be managed unless its job is elastic")
        if len(groups) >= _MAX_POD_SETS:
            yield too_many(f"{self.cluster_field}.workerGroupSpecs", len(groups), _MAX_POD_SETS - 1)
        for i, group in enumerate(groups):
            if text(group, "groupName") == HEAD:
                path = f"{self.cluster_field}.workerGroupSpecs[{i}].groupName"
                yield forbidden(path, f"{HEAD!r} is the name of the head's pod set")

    def with_gates(self, job: JsonObject, gates: Gates) -> JsonObject:
        """An elastic job whose pods wait for quota each for itself."""
        if is_elastic(job, gates):
            for role in self.roles(job):
                job = put(job, role.place, gated(at(job, role.place)))
        return job


class RayCluster(RayKind):
    """See RayKind."""

    kind = "RayCluster"
    plural = "rayclusters"
    framework = "ray.io/raycluster"

    def finished(self, job: JsonObject) -> Finished | None:
        return None

    def active(self, job: JsonObject) -> bool:
        return text(job, "status", "state") == "ready"

    def held(self, job: JsonObject) -> bool | None:
        return {"suspended": True, "ready": False}.get(text(job, "status", "state"))

    def pods_ready(self, job: JsonObject) -> bool:
        return self.active(job)

    def prepared(self, job: JsonObject, gates: Gates) -> JsonObject:
        return self.with_gates(job, gates)

    def errors(self, job: JsonObject, old: JsonObject | None, around: Circumstances) -> Iterator[FieldError]:
        if around.manages(job):
            if is_elastic(job, around.gates):
                yield from self._elastic_errors(job)
            yield from self.cluster_errors(job, around)
        yield from self.topology_errors(job, around)

    def _elastic_errors(self, job: JsonObject) -> Iterator[FieldError]:
        for role in self.roles(job):
            if not is_gated(template := at(job, role.place)):
                path = f"{role.field}.spec.schedulingGates"
                yield invalid(path, items(template, "spec", "schedulingGates"), f"must have {names.ELASTIC_JOB}")
        spec = self.cluster_spec(job)
        if spec.get("enableInTreeAutoscaling") is True and spec.get("managedBy") == names.MULTIKUEUE_CONTROLLER:
            yield forbidden("spec.enableInTreeAutoscaling", "a cluster that runs elsewhere cannot scale itself")


def fault_tolerant(job: JsonObject, spec: JsonObject) -> bool:
    """The cluster's global control store outlives its head."""
    if text(job, "metadata", "annotations", _FAULT_TOLERANT).lower() == "true":
        return True
    return isinstance(spec.get("gcsFaultToleranceOptions"), dict)


def with_container(template: JsonObject, container: JsonObject) -> JsonObject:
    """The pod template with one container more."""
    return put(template, ("spec", "containers"), [*items(template, "spec", "containers"), container])


def _with_least(template: JsonObject) -> JsonObject:
    """The head with what it needs to be fault tolerant; more stays more."""
    containers = items(template, "spec", "containers")
    if not containers:
        raise PermanentError("the head has no container")
    requests = section(containers[0], "resources", "requests")
    raised = requests | {
        name: least for name, least in _FAULT_TOLERANT_LEAST.items() if _less(requests.get(name), least)
    }
    return put(template, ("spec", "containers", 0, "resources", "requests"), raised)


def _less(amount: object, least: str) -> bool:
    return not isinstance(amount, str | int | float) or parse(amount).nano < parse(least).nano
