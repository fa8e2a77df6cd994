"""Kinds whose pods queue instead of them: Deployment, StatefulSet, LeaderWorkerSet. They are never held back; what they are to a queue stands on their pods.

Such a kind marks its pod templates when it is managed (the webhook writes that), so that its pods are made with a gate. Each pod of a Deployment is a
job of its own; for the others there are workloads for groups of pods, made beforehand, which their pods name. Pure functions of the objects, as with jobs.
"""

from collections.abc import Iterator
from typing import Protocol

import msgspec

from shared.api import names
from shared.api.field_errors import FieldError
from shared.api.meta import ObjectMeta
from shared.jobs.manifest import JsonObject, items, section, text, texts
from shared.jobs.naming import workload_name
from shared.jobs.places import Place, at, put
from shared.jobs.protocol import Circumstances, Gates, JobPodSet

_MAX_LABEL = 63
_GATES = (names.ADMISSION_SCHEDULING_GATE, names.TOPOLOGY_SCHEDULING_GATE)


class GroupWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """A workload that has to be there for a group of pods."""

    name: str
    other_names: tuple[str, ...] = ()
    """Names of earlier versions: a workload that has one of these is used instead."""
    index: str = ""
    """Which group it is for, where there are several."""
    pod_sets: tuple[JobPodSet, ...]


class QueueingParent(Protocol):
    """One kind whose pods queue."""

    group: str
    version: str
    kind: str
    plural: str
    framework: str
    grouped: bool
    """Its pods queue in groups, whose workloads are made beforehand; else each pod has one of its own, and nothing has to be done for it."""

    def foreign(self, parent: JsonObject) -> bool:
        """Its pods belong to something else that queues them: then it is none of our business."""
        ...

    def marked(self, parent: JsonObject, gates: Gates) -> JsonObject:
        """A managed object as it has to be, so that its pods queue."""
        ...

    def workloads(self, parent: JsonObject) -> tuple[GroupWorkload, ...]:
        """What has to be there for its pods now; nothing for a kind each of whose pods has a workload of its own."""
        ...

    def resumed(self, parent: JsonObject, old: JsonObject) -> tuple[str, ...]:
        """Names that its workload may have, which must hold no quota (`Circumstances.unreleased`) for this change of it."""
        ...

    def errors(self, parent: JsonObject, old: JsonObject | None, around: Circumstances) -> Iterator[FieldError]:
        """Faults of an object that is created, or changed from `old`."""
        ...


class GroupedParent(QueueingParent, Protocol):
    """One whose pods queue in groups. They are all made by StatefulSets: it is one, or has some."""

    copies_labels: bool
    """Labels that the configuration names are copied to its workloads."""
    released_stay: bool
    """A pod that is released (see there) becomes one of its group all the same."""
    sheds: bool
    """A workload that it wants no more is deleted; else it is kept, without quota."""

    def set_of(self, pod: ObjectMeta) -> str:
        """Name of the object that a pod with this kind's mark belongs to; empty: it cannot be told."""
        ...

    def controls(self, parent: JsonObject, stateful_set: ObjectMeta) -> bool:
        """Whether pods of this StatefulSet are the parent's."""
        ...

    def kept(self, parent: JsonObject) -> tuple[str, ...]:
        """Names that its workload may have while it wants no quota."""
        ...

    def pod_patch(self, parent: JsonObject, pod: JsonObject, gates: Gates, workload: str = "") -> JsonObject:
        """What the pod lacks to belong to its workload, as a merge patch; empty if nothing or if it cannot be told yet. `workload`: the name that it has, if
        that is an earlier version's."""
        ...

    def released(self, parent: JsonObject | None, stateful_set: JsonObject | None, pod: JsonObject) -> bool:
        """Nobody can admit the pod any more, or it has to run to be replaced: our gates come off. `stateful_set`: the pod's, if that is the parent's."""
        ...


def marks(parent: JsonObject, *keys: str) -> dict[str, str]:
    """Those of its queue and priority labels that are not empty."""
    labels = texts(parent, "metadata", "labels")
    return {key: labels[key] for key in keys if labels.get(key)}


def with_metadata(
    manifest: JsonObject, place: Place, *, labels: dict[str, str], annotations: dict[str, str]
) -> JsonObject:
    """The manifest with these labels and annotations added to the object at `place`."""
    for key, added in (("labels", labels), ("annotations", annotations)):
        if added:
            manifest = put(manifest, (*place, "metadata", key), section(at(manifest, place), "metadata", key) | added)
    return manifest


def uid_of(parent: JsonObject) -> str:
    """The uid that names are made of: on a worker cluster that of the object it mirrors."""
    return text(parent, "metadata", "annotations", names.MULTIKUEUE_ORIGIN_UID) or text(parent, "metadata", "uid")


def group_name(parent: JsonObject, *, kind: str, group: str, index: str = "", uid: str | None = None) -> str:
    """Name of the workload of one of its groups."""
    name = text(parent, "metadata", "name")
    return workload_name(
        kind=kind, group=group, name=f"{name}-{index}" if index else name, uid=uid_of(parent) if uid is None else uid
    )


def mirrored(parent: JsonObject) -> bool:
    """It is a copy on a worker cluster: its workloads are made by the other side."""
    return names.MULTIKUEUE_ORIGIN_LABEL in section(parent, "metadata", "labels")


def owner_annotations(kind: QueueingParent, parent: JsonObject, workload: GroupWorkload) -> dict[str, str]:
    """Annotations that say of a workload which group of which parent it is for."""
    annotations = {
        names.IS_GROUP_WORKLOAD: "true",
        names.JOB_OWNER_GVK: f"{kind.group}/{kind.version}, Kind={kind.kind}",
        names.JOB_OWNER_NAME: text(parent, "metadata", "name"),
    }
    return {**annotations, names.COMPONENT_WORKLOAD_INDEX: workload.index} if workload.index else annotations


def workload_of_pod(pod: JsonObject, gates: Gates) -> str:
    """The group that a pod says it belongs to; empty: none yet."""
    label = text(pod, "metadata", "labels", names.POD_GROUP_NAME)
    annotation = text(pod, "metadata", "annotations", names.POD_GROUP_NAME)
    return (annotation or label) if gates["WorkloadIdentifierAnnotations"] else (label or annotation)


def names_workload(name: str, gates: Gates) -> tuple[dict[str, str], dict[str, str]]:
    """(labels, annotations) of a pod that make it one of the group of this workload (specification 10.5.2)."""
    said = {names.POD_GROUP_NAME: name, names.PREBUILT_WORKLOAD: name}
    return ({}, said) if gates["WorkloadIdentifierAnnotations"] or len(name) > _MAX_LABEL else (said, {})


def pod_patch(labels: dict[str, str], annotations: dict[str, str], pod: JsonObject) -> JsonObject:
    """A merge patch with those that the pod does not have yet."""
    metadata: JsonObject = {}
    for key, wanted in (("labels", labels), ("annotations", annotations)):
        present = texts(pod, "metadata", key)
        if missing := {k: v for k, v in wanted.items() if present.get(k) != v}:
            metadata[key] = missing
    return {"metadata": metadata} if metadata else {}


def ungated(pod: JsonObject) -> JsonObject:
    """A merge patch that takes our gates off a pod, so that whoever owns it can replace or end it; empty if it has none."""
    present = items(pod, "spec", "schedulingGates")
    kept = [gate for gate in present if gate.get("name") not in _GATES]
    return {"spec": {"schedulingGates": kept}} if len(kept) < len(present) else {}


def is_over(pod: JsonObject) -> bool:
    """It has ended, or is about to."""
    return text(pod, "status", "phase") in ("Succeeded", "Failed") or bool(text(pod, "metadata", "deletionTimestamp"))


def is_outdated(stateful_set: JsonObject, pod: JsonObject) -> bool:
    """A rollout is to replace the pod: it must be able to start for that."""
    current, update = (text(stateful_set, "status", f"{which}Revision") for which in ("current", "update"))
    return current != update and text(pod, "metadata", "labels", "controller-revision-hash") == current
