"""trainer.kubeflow.org/v1alpha1 TrainJob. Its pods are described by a runtime it names, so that must be read to tell them (`refers_to`).

What a start injects goes into an entry of the job's `runtimePatches` which is ours and which the webhook has put there. The Trainer takes changes of
patches only while the job is suspended, so a start is two writes; and a stop has to wait, between its two, until the pods are gone. The annotation
`stopping` says meanwhile that the job, suspended already, is still being stopped.
"""

from collections.abc import Iterator

from shared.api import names
from shared.api.field_errors import FieldError, invalid
from shared.jobs import merge_patch
from shared.jobs.jobset import jobs_active, jobs_ready, jobs_reclaimable, replicated_roles
from shared.jobs.manifest import JsonObject, items, section, text
from shared.jobs.places import at, put
from shared.jobs.podset_info import PermanentError, PodSetInfo, info_fields
from shared.jobs.protocol import (
    Circumstances,
    Finished,
    Gates,
    JobPodSet,
    KindDefaults,
    ManagedBy,
    Reference,
    StopStep,
)
from shared.jobs.referred import referred
from shared.jobs.status_conditions import ended, told
from shared.jobs.stopping import first_write, is_stopping, unmarked
from shared.jobs.topology_rules import TopologyAsked, pod_set_errors
from shared.jobs.training_runtime import jobset_spec

_OURS = names.RUNTIME_PATCH_MANAGER
_GROUP, _VERSION = "trainer.kubeflow.org", "v1alpha1"


class TrainJob(KindDefaults):
    """See shared.jobs.protocol.JobKind."""

    group = _GROUP
    version = _VERSION
    kind = "TrainJob"
    plural = "trainjobs"
    framework = "trainer.kubeflow.org/trainjob"
    managed_by = ManagedBy(("spec", "managedBy"), "trainer.kubeflow.org/trainjob-controller")

    def refers_to(self, job: JsonObject) -> tuple[Reference, ...]:
        return (_runtime(job),)

    def suspended(self, job: JsonObject) -> bool:
        return _is_suspended(job) and not is_stopping(job)

    def suspend(self, job: JsonObject) -> JsonObject:
        return {} if _is_suspended(job) else {"spec": {"suspend": True}}

    def pod_sets(self, job: JsonObject) -> tuple[JobPodSet, ...]:
        child: JsonObject = {"spec": _child(job)}
        return tuple(role.pod_set(child) for role in replicated_roles(section(child, "spec"), at="spec"))

    def start(self, job: JsonObject, infos: tuple[PodSetInfo, ...]) -> JsonObject:
        jobs = items(_child(job), "replicatedJobs")
        if len(infos) != len(jobs):
            raise PermanentError(
                f"invalid pod set infos: the TrainJob has {len(jobs)} pod sets, the workload {len(infos)}"
            )
        wanted = [_injected(one, info) for one, info in zip(jobs, infos, strict=True)]
        if not any(_is_ours(entry) for entry in items(job, "spec", "runtimePatches")):
            raise PermanentError(f"the TrainJob has no runtime patch of manager {_OURS}")
        filled = _with_patch(job, wanted)
        return merge_patch.diff(job, filled if filled != job else put(job, ("spec", "suspend"), False))

    def stop(self, job: JsonObject, restore: tuple[JobPodSet, ...]) -> StopStep | None:
        if not _is_suspended(job):
            return StopStep(patch=first_write(), stopped_now=True)
        if self.active(job):
            # The Trainer refuses changes of patches while there are pods; their end brings the next look.
            return None
        emptied = unmarked(_with_patch(job, []))
        return StopStep(patch=merge_patch.diff(job, emptied)) if emptied != job else None

    def finished(self, job: JsonObject) -> Finished | None:
        return ended(job, success="Complete", failure="Failed")

    def active(self, job: JsonObject) -> bool:
        return jobs_active(job, "jobsStatus")

    def held(self, job: JsonObject) -> bool | None:
        return told(job, "Suspended")

    def pods_ready(self, job: JsonObject) -> bool:
        # Without its runtime nobody can tell how many it will be.
        return _known(job) and jobs_ready(_child(job), job, "jobsStatus")

    def reclaimable(self, job: JsonObject) -> dict[str, int]:
        return jobs_reclaimable(_child(job), job, "jobsStatus") if _known(job) else {}

    def prepared(self, job: JsonObject, gates: Gates) -> JsonObject:
        patches = items(job, "spec", "runtimePatches")
        if any(_is_ours(entry) for entry in patches):
            return job
        ours: JsonObject = {"manager": _OURS, "trainingRuntimeSpec": {"template": {"spec": {}}}}
        return put(job, ("spec", "runtimePatches"), [*patches, ours])

    def errors(self, job: JsonObject, old: JsonObject | None, around: Circumstances) -> Iterator[FieldError]:
        if not around.gates["TopologyAwareScheduling"]:
            return
        try:
            child: JsonObject = {"spec": _child(job)}
        except PermanentError as error:
            # One that is there already must stay changeable when its runtime goes first: its finalizers have to be taken off.
            if old is None or _runtime(old) != _runtime(job):
                yield invalid("spec.runtimeRef", _runtime(job).name, str(error))
            return
        asked = [
            TopologyAsked.of(at(child, role.place), role.count, f"job[{role.name.lower()}].annotations")
            for role in replicated_roles(section(child, "spec"), at="spec")
        ]
        yield from pod_set_errors(asked, around.gates, grouped=False)


def _runtime(job: JsonObject) -> Reference:
    kind = text(job, "spec", "runtimeRef", "kind") or "ClusterTrainingRuntime"
    name = text(job, "spec", "runtimeRef", "name")
    return Reference(_GROUP, _VERSION, kind, f"{kind.lower()}s", name, namespaced=kind == "TrainingRuntime")


def _known(job: JsonObject) -> bool:
    return referred(job, _runtime(job)) is not None


def _child(job: JsonObject) -> JsonObject:
    """The spec of its JobSet. Our own patch counts only while the job runs: what a start has left there otherwise is of no more use."""
    reference = _runtime(job)
    runtime = referred(job, reference)
    if runtime is None:
        raise PermanentError(f"{reference.kind} {reference.name!r} does not exist")
    return jobset_spec(job, runtime, without=_OURS if _is_suspended(job) else "")


def _injected(replicated_job: JsonObject, info: PodSetInfo) -> JsonObject:
    metadata, spec = info_fields(info)
    own = section(replicated_job, "template", "spec", "template", "spec").get("tolerations")
    added = spec.get("tolerations")
    if isinstance(own, list) and isinstance(added, list):
        # A patch replaces this list as a whole.
        spec["tolerations"] = [*own, *(toleration for toleration in added if toleration not in own)]
    template = {key: part for key, part in (("metadata", metadata), ("spec", spec)) if part}
    return {"name": replicated_job["name"], "template": {"spec": {"template": template}}}


def _with_patch(job: JsonObject, replicated_jobs: list[JsonObject]) -> JsonObject:
    """The job with these in our runtime patch; none: with an empty patch."""
    for i, entry in enumerate(items(job, "spec", "runtimePatches")):
        if _is_ours(entry):
            place = ("spec", "runtimePatches", i, "trainingRuntimeSpec", "template", "spec", "replicatedJobs")
            return put(job, place, replicated_jobs or None)
    return job


def _is_ours(entry: JsonObject) -> bool:
    return entry.get("manager") == _OURS


def _is_suspended(job: JsonObject) -> bool:
    return section(job, "spec").get("suspend") is True
