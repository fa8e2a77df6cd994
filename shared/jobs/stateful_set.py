"""apps/v1 StatefulSet: one workload for all of its pods, which is there before them. Without replicas it gives its quota back and keeps its place."""

from collections.abc import Iterator

from shared.api import names
from shared.api.field_errors import FieldError, forbidden
from shared.api.meta import ObjectMeta
from shared.jobs.manifest import JsonObject, number, section, text
from shared.jobs.protocol import Circumstances, Gates, JobPodSet
from shared.jobs.queueing_parent import (
    GroupWorkload,
    group_name,
    is_outdated,
    is_over,
    marks,
    names_workload,
    pod_patch,
    with_metadata,
    workload_of_pod,
)
from shared.jobs.serving_rules import common_errors, shape_errors
from shared.jobs.topology_request import topology_request

POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"


class StatefulSet:
    """See shared.jobs.queueing_parent.GroupedParent."""

    group = "apps"
    version = "v1"
    kind = "StatefulSet"
    plural = "statefulsets"
    framework = "statefulset"
    grouped = True
    copies_labels = False
    released_stay = True
    sheds = False

    def foreign(self, parent: JsonObject) -> bool:
        marker = text(parent, "spec", "template", "metadata", "annotations", names.POD_SUSPENDING_PARENT)
        present = names.POD_SUSPENDING_PARENT in section(parent, "spec", "template", "metadata", "annotations")
        return present and marker != self.framework

    def marked(self, parent: JsonObject, gates: Gates) -> JsonObject:
        annotations = {names.POD_SUSPENDING_PARENT: self.framework}
        return with_metadata(parent, ("spec", "template"), labels={}, annotations=annotations)

    def workloads(self, parent: JsonObject) -> tuple[GroupWorkload, ...]:
        count = replicas(parent)
        if count < 1:
            return ()
        template = section(parent, "spec", "template")
        pod_set = JobPodSet(
            name=names.DEFAULT_PODSET,
            count=count,
            template={"spec": section(template, "spec")},
            topology_request=topology_request(template, index_label=POD_INDEX_LABEL),
        )
        name, *others = self._names(parent)
        return (GroupWorkload(name=name, other_names=tuple(others), pod_sets=(pod_set,)),)

    def set_of(self, pod: ObjectMeta) -> str:
        owner = pod.controller_owner()
        return owner.name if owner is not None and (owner.api_version, owner.kind) == ("apps/v1", self.kind) else ""

    def controls(self, parent: JsonObject, stateful_set: ObjectMeta) -> bool:
        return stateful_set.uid == text(parent, "metadata", "uid")

    def kept(self, parent: JsonObject) -> tuple[str, ...]:
        # Scaled to zero: its workload is put on hold, and queues again when there are replicas.
        return self._names(parent) if replicas(parent) == 0 else ()

    def pod_patch(self, parent: JsonObject, pod: JsonObject, gates: Gates, workload: str = "") -> JsonObject:
        if is_over(pod):
            return {}
        name = workload or self._name(parent)
        queue = marks(parent, names.QUEUE_NAME_LABEL)
        if workload_of_pod(pod, gates) == name:
            return pod_patch(queue, {}, pod)
        labels, annotations = names_workload(name, gates)
        labels = {names.MANAGED_LABEL: "true", **queue, **marks(parent, names.PRIORITY_CLASS_LABEL), **labels}
        # Fast admission: of a set whose pods are made one after the other, one is there when it is admitted.
        annotations |= {
            names.POD_GROUP_TOTAL_COUNT: str(replicas(parent)),
            names.POD_GROUP_FAST_ADMISSION: "true",
            names.POD_GROUP_SERVING: "true",
            names.POD_GROUP_POD_INDEX_LABEL: POD_INDEX_LABEL,
            names.ROLE_HASH: names.DEFAULT_PODSET,
        }
        return pod_patch(labels, annotations, pod)

    def released(self, parent: JsonObject | None, stateful_set: JsonObject | None, pod: JsonObject) -> bool:
        return stateful_set is not None and is_outdated(stateful_set, pod)

    def resumed(self, parent: JsonObject, old: JsonObject) -> tuple[str, ...]:
        return self._names(parent) if replicas(parent) and not replicas(old) else ()

    def errors(self, parent: JsonObject, old: JsonObject | None, around: Circumstances) -> Iterator[FieldError]:
        if self.foreign(parent):
            return
        yield from common_errors(parent, old, around)
        if old is None or not around.managed:
            return
        template, before = (section(one, "spec", "template", "spec") for one in (parent, old))
        yield from shape_errors("spec.template.spec", template, before)
        count, was = replicas(parent), replicas(old)
        if count == was:
            return
        if count and was:
            yield forbidden("spec.replicas", "may only change from 0 or to 0 while the set is managed")
        elif count and (number(parent, "status", "replicas", default=0) > 0 or around.unreleased):
            yield forbidden("spec.replicas", "scaling down has not come to its end yet")

    def _names(self, parent: JsonObject) -> tuple[str, str]:
        """That of its workload, and that of an earlier version."""
        return self._name(parent), group_name(parent, kind=self.kind, group=self.group, uid="")

    def _name(self, parent: JsonObject) -> str:
        return group_name(parent, kind=self.kind, group=self.group)


def replicas(parent: JsonObject) -> int:
    """How many pods a StatefulSet, or groups a LeaderWorkerSet, is to have."""
    return number(parent, "spec", "replicas", default=1)
