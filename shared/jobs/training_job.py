"""The kinds of Kubeflow's training operator, and MPIJob, which has another operator and is built alike: a map of replica specs by type.

The order of the pod sets is that of the types here, not that of the map. kubeflow.org/v1: TFJob, PyTorchJob, XGBoostJob, PaddleJob, JAXJob;
kubeflow.org/v2beta1: MPIJob.
"""

from collections.abc import Iterator

from shared.api import names
from shared.api.field_errors import FieldError
from shared.jobs.manifest import JsonObject, number, section, text
from shared.jobs.places import at, put
from shared.jobs.protocol import Circumstances, Finished, Gates, ManagedBy
from shared.jobs.status_conditions import ended, holds, told
from shared.jobs.templated_kind import Role, TemplatedKind

_INDEX_LABEL = "training.kubeflow.org/replica-index"
_MASTER = ("Master", "Worker")


class TrainingJob(TemplatedKind):
    """See shared.jobs.protocol.JobKind. `types`: the replica types, in the order of the pod sets; `specs`: the field with their map."""

    group = "kubeflow.org"
    version = "v1"
    suspend_path = ("spec", "runPolicy", "suspend")
    managed_by = ManagedBy(("spec", "runPolicy", "managedBy"), "kubeflow.org/training-operator")
    rechecked = False
    operator = ""
    """What its pods have as their operator's name; empty: derived from the kind."""

    def __init__(self, kind: str, specs: str, types: tuple[str, ...], *, prebuilt: bool = True) -> None:
        self.kind = kind
        self.plural = f"{kind.lower()}s"
        self.framework = f"kubeflow.org/{kind.lower()}"
        self.prebuilt = prebuilt
        self._specs = specs
        self._types = types

    def roles(self, job: JsonObject) -> tuple[Role, ...]:
        present = section(job, "spec", self._specs)
        return tuple(
            Role(
                name=type_,
                count=number(section(present, type_), "replicas", default=1),
                place=("spec", self._specs, type_, "template"),
                field=f"spec.{self._specs}[{type_}].template",
                index_label=_INDEX_LABEL,
            )
            for type_ in self._types
            if isinstance(present.get(type_), dict)
        )

    def finished(self, job: JsonObject) -> Finished | None:
        return ended(job, success="Succeeded", failure="Failed")

    def active(self, job: JsonObject) -> bool:
        statuses = section(job, "status", "replicaStatuses")
        return any(number(section(statuses, type_), "active", default=0) != 0 for type_ in statuses)

    def held(self, job: JsonObject) -> bool | None:
        return told(job, "Suspended")

    def pods_ready(self, job: JsonObject) -> bool:
        return holds(job, "Running")

    def priority_class(self, job: JsonObject) -> str | None:
        policy = text(job, "spec", "runPolicy", "schedulingPolicy", "priorityClass")
        templates = (text(at(job, role.place), "spec", "priorityClassName") for role in self.roles(job))
        return policy or next((name for name in templates if name), "")

    def pod_labels(self, name: str) -> dict[str, str]:
        """The labels by which the pods of the job of that name are found."""
        operator = self.operator or f"{self.kind.lower()}-controller"
        return {"training.kubeflow.org/job-name": name, "training.kubeflow.org/operator-name": operator}


class MPIJob(TrainingJob):
    """See TrainingJob. The launcher may work too: then the ranks of the workers begin behind it."""

    version = "v2beta1"
    managed_by = ManagedBy(("spec", "runPolicy", "managedBy"), "kubeflow.org/mpi-operator")
    rechecked = True
    grouped = True
    operator = "mpi-operator"

    def __init__(self) -> None:
        super().__init__("MPIJob", "mpiReplicaSpecs", ("Launcher", "Worker"))

    def prepared(self, job: JsonObject, gates: Gates) -> JsonObject:
        if not gates["TopologyAwareScheduling"] or section(job, "spec").get("runLauncherAsWorker") is not True:
            return job
        roles = {role.name: role for role in self.roles(job)}
        if len(roles) < len(self._types):
            return job
        launcher = section(at(job, roles["Launcher"].place), "metadata", "annotations")
        if names.PODSET_GROUP_NAME in launcher:
            return job
        return put(job, (*roles["Worker"].place, "metadata", "annotations", names.POD_INDEX_OFFSET), "1")

    def errors(self, job: JsonObject, old: JsonObject | None, around: Circumstances) -> Iterator[FieldError]:
        yield from sorted(super().errors(job, old, around), key=lambda error: error.path)


TF_JOB = TrainingJob("TFJob", "tfReplicaSpecs", ("Chief", "Master", "PS", "Worker", "Evaluator"))
PYTORCH_JOB = TrainingJob("PyTorchJob", "pytorchReplicaSpecs", _MASTER)
XGBOOST_JOB = TrainingJob("XGBoostJob", "xgbReplicaSpecs", _MASTER)
PADDLE_JOB = TrainingJob("PaddleJob", "paddleReplicaSpecs", _MASTER)
JAX_JOB = TrainingJob("JAXJob", "jaxReplicaSpecs", ("Worker",), prebuilt=False)
MPI_JOB = MPIJob()
