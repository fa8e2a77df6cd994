"""v1 Pod as a job: one that stands alone (`PlainPod`), and a group of them (`PodGroup`) as one job composed of many objects.

A pod is held back by a scheduling gate and never stopped but by its deletion; who does that is the gateway (`services.watcher.pod_control`). The
manifest of a group is the metadata of its eldest pod with its pods (`members`, as `pod_view.Pod`) and the time (`now`) besides; see `group_manifest`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import cast

import msgspec

from shared.api import names
from shared.jobs import merge_patch, pod_group
from shared.jobs.manifest import JsonObject, items, replaced, section, text
from shared.jobs.pod_view import Pod
from shared.jobs.podset_info import PermanentError, PodSetInfo, merged_template
from shared.jobs.protocol import Finished, JobPodSet, KindDefaults, StopStep
from shared.jobs.topology_request import topology_request

MEMBERS, NOW, TEMPLATES, FAST_RELEASE = "members", "now", "templates", "fastRelease"
_GATES = "schedulingGates"


class PlainPod(KindDefaults):
    """See shared.jobs.protocol.JobKind."""

    group = ""
    version = "v1"
    kind = "Pod"
    plural = "pods"
    framework = "pod"

    def suspended(self, job: JsonObject) -> bool:
        return _is_gated(job) or text(job, "status", "phase") in ("Succeeded", "Failed")

    def suspend(self, job: JsonObject) -> JsonObject:
        # Gates can be given at creation only, which is the webhook's.
        return {}

    def pod_sets(self, job: JsonObject) -> tuple[JobPodSet, ...]:
        return (
            JobPodSet(
                name=names.DEFAULT_PODSET,
                count=1,
                template=_template(job),
                topology_request=topology_request(job, index_label=names.POD_GROUP_POD_INDEX),
            ),
        )

    def start(self, job: JsonObject, infos: tuple[PodSetInfo, ...]) -> JsonObject:
        if len(infos) != 1:
            raise PermanentError(f"invalid pod set infos: a Pod has 1 pod set, the workload {len(infos)}")
        return ungated(job, infos[0])

    def stop(self, job: JsonObject, restore: tuple[JobPodSet, ...]) -> StopStep | None:
        return None

    def finished(self, job: JsonObject) -> Finished | None:
        phase = text(job, "status", "phase")
        if phase not in ("Succeeded", "Failed"):
            return None
        return Finished(success=phase == "Succeeded", message=text(job, "status", "message"))

    def active(self, job: JsonObject) -> bool:
        return False

    def pods_ready(self, job: JsonObject) -> bool:
        return any(
            condition.get("type") == "Ready" and condition.get("status") == "True"
            for condition in items(job, "status", "conditions")
        )


class PodGroup(PlainPod):
    """See shared.jobs.protocol.JobKind; the group has no object of its own."""

    def suspended(self, job: JsonObject) -> bool:
        return pod_group.is_suspended(members(job))

    def pod_sets(self, job: JsonObject) -> tuple[JobPodSet, ...]:
        templates = cast("Mapping[str, JsonObject]", job[TEMPLATES])
        found = []
        for name, (first, count) in pod_group.roles(members(job)).items():
            pod = templates[first.metadata.name]
            request = topology_request(pod, index_label=names.POD_GROUP_POD_INDEX)
            found.append(JobPodSet(name=name, count=count, template=_template(pod), topology_request=request))
        return tuple(found)

    def start(self, job: JsonObject, infos: tuple[PodSetInfo, ...]) -> JsonObject:
        # Its pods are started one by one.
        return {}

    def finished(self, job: JsonObject) -> Finished | None:
        message = pod_group.finished(members(job))
        return None if message is None else Finished(success=True, message=message)

    def active(self, job: JsonObject) -> bool:
        return pod_group.active(members(job), cast(datetime, job[NOW]), fast_release=job.get(FAST_RELEASE) is True)

    def pods_ready(self, job: JsonObject) -> bool:
        return pod_group.ready(members(job))

    def reclaimable(self, job: JsonObject) -> dict[str, int]:
        return pod_group.reclaimable(members(job))


def group_manifest(
    pods: Sequence[Pod], now: datetime, templates: Mapping[str, JsonObject], *, fast_release: bool = False
) -> JsonObject:
    """The job that the pods are together. `templates`: complete manifests by the names of pods, of those that are looked at. `fast_release`: pods that
    are being deleted hold no quota."""
    eldest = pods[0].metadata
    metadata = {"labels": eldest.labels, "annotations": eldest.annotations, "namespace": eldest.namespace}
    return {"metadata": metadata, MEMBERS: tuple(pods), NOW: now, TEMPLATES: templates, FAST_RELEASE: fast_release}


def members(job: JsonObject) -> tuple[Pod, ...]:
    """The pods of a group, the eldest first."""
    return cast("tuple[Pod, ...]", job[MEMBERS])


def ungated(pod: JsonObject, info: PodSetInfo) -> JsonObject:
    """The patch that lets a gated pod run where it was admitted; empty for any other. Raises MergeConflict."""
    if not _is_gated(pod):
        return {}
    dropped = {names.ADMISSION_SCHEDULING_GATE, names.TOPOLOGY_SCHEDULING_GATE} - set(info.scheduling_gates)
    merged = merged_template(pod, info)
    gates = [gate for gate in items(merged, "spec", _GATES) if gate.get("name") not in dropped]
    return merge_patch.diff(pod, replaced(merged, ("spec", _GATES), gates))


def _is_gated(pod: JsonObject) -> bool:
    return any(gate.get("name") == names.ADMISSION_SCHEDULING_GATE for gate in items(pod, "spec", _GATES))


def _template(pod: JsonObject) -> JsonObject:
    return {"spec": section(pod, "spec")}


def pod_of(raw: bytes) -> JsonObject:
    """The complete manifest of a pod."""
    return msgspec.json.decode(raw, type=dict[str, object])
