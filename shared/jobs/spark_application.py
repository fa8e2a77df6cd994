"""sparkoperator.k8s.io/v1beta2 SparkApplication: a driver and executors, which the operator makes pods of; there is no template to count.

So a template is put together of what the application says (`spark_template`); what a start injects goes into the fields for the same purpose of each role.
A node selector for all roles would fight with those of the flavors: a start moves it into the roles, and a stop does not bring it back (specification 13.11).
"""

from collections.abc import Iterator

from shared.api.field_errors import FieldError, invalid
from shared.jobs import merge_patch
from shared.jobs.manifest import JsonObject, number, section, text
from shared.jobs.places import nested, put
from shared.jobs.podset_info import PermanentError, PodSetInfo, merged_template, restored_template
from shared.jobs.protocol import Circumstances, Finished, JobPodSet, KindDefaults, StopStep
from shared.jobs.spark_template import CONTAINERS, as_template, pod_template, with_template
from shared.jobs.topology_request import topology_request
from shared.jobs.topology_rules import TopologyAsked, pod_set_errors

_SUSPEND = ("spec", "suspend")
_ROLES = tuple(CONTAINERS)
_ENDS = ("COMPLETED", "FAILED", "SUBMISSION_FAILED")


class SparkApplication(KindDefaults):
    """See shared.jobs.protocol.JobKind."""

    group = "sparkoperator.k8s.io"
    version = "v1beta2"
    kind = "SparkApplication"
    plural = "sparkapplications"
    framework = "sparkoperator.k8s.io/sparkapplication"
    prebuilt = False
    checked_if_queued = True

    def suspended(self, job: JsonObject) -> bool:
        return section(job, "spec").get("suspend") is True

    def suspend(self, job: JsonObject) -> JsonObject:
        return {} if self.suspended(job) else nested(_SUSPEND, True)

    def pod_sets(self, job: JsonObject) -> tuple[JobPodSet, ...]:
        templates = {role: pod_template(job, role) for role in _ROLES}
        return tuple(
            JobPodSet(name=role, count=_count(job, role), template=found, topology_request=topology_request(found))
            for role, found in templates.items()
        )

    def start(self, job: JsonObject, infos: tuple[PodSetInfo, ...]) -> JsonObject:
        if len(infos) != len(_ROLES):
            raise PermanentError(
                f"invalid pod set infos: the SparkApplication has {len(_ROLES)} pod sets, the workload {len(infos)}"
            )
        started = put(job, _SUSPEND, False)
        for role, info in zip(_ROLES, infos, strict=True):
            started = with_template(started, role, merged_template(as_template(job, role), info))
        return merge_patch.diff(job, put(started, ("spec", "nodeSelector"), None))

    def stop(self, job: JsonObject, restore: tuple[JobPodSet, ...]) -> StopStep | None:
        if self.suspended(job):
            return None
        stopped = put(job, _SUSPEND, True)
        if len(restore) == len(_ROLES):
            stopped = put(stopped, ("spec", "nodeSelector"), None)
            for role, pod_set in zip(_ROLES, restore, strict=True):
                original = pod_set.template
                stopped = with_template(stopped, role, restored_template(as_template(stopped, role), original))
                if role == "executor" and _count(stopped, role) != pod_set.count:
                    stopped = put(stopped, ("spec", role, "instances"), pod_set.count)
        return StopStep(patch=merge_patch.diff(job, stopped), stopped_now=True)

    def finished(self, job: JsonObject) -> Finished | None:
        if _state(job) not in _ENDS:
            return None
        return Finished(_state(job) == "COMPLETED", text(job, "status", "applicationState", "errorMessage"))

    def active(self, job: JsonObject) -> bool:
        return _state(job) == "RUNNING"

    def held(self, job: JsonObject) -> bool | None:
        return {"SUSPENDED": True, "RUNNING": False}.get(_state(job))

    def pods_ready(self, job: JsonObject) -> bool:
        states = section(job, "status", "executorState").values()
        up = sum(state in ("RUNNING", "COMPLETED") for state in states)
        return _state(job) == "RUNNING" and up >= _count(job, "executor")

    def errors(self, job: JsonObject, old: JsonObject | None, around: Circumstances) -> Iterator[FieldError]:
        spec = section(job, "spec")
        if around.manages(job):
            if spec.get("mode") != "cluster":
                yield invalid("spec.mode", spec.get("mode"), "must be 'cluster': other drivers run outside the cluster")
            if section(spec, "dynamicAllocation").get("enabled") is True:
                detail = "an application that changes its number of executors cannot be managed"
                yield invalid("spec.dynamicAllocation.enabled", True, detail)
        asked = [
            TopologyAsked.of(as_template(job, role), _count(job, role), f"spec.{role}.annotations") for role in _ROLES
        ]
        yield from pod_set_errors(asked, around.gates, grouped=False)


def _count(job: JsonObject, role: str) -> int:
    return 1 if role == "driver" else number(job, "spec", role, "instances", default=0)


def _state(job: JsonObject) -> str:
    return text(job, "status", "applicationState", "state")
