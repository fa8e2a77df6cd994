"""Defaulting of a plain pod on creation (integration specification 14.2): queue, mark, finalizer, gates and role. Pure.

Pods below a serving kind (they carry the parent marker) are only gated: their parent's controller made them, and our finalizer would be in its way.
"""

from __future__ import annotations

from services.webhook.admission_review import PatchOperation
from services.webhook.default_job import DEFAULT_NAME, Surroundings, operations
from shared.api import names
from shared.config.feature_gates import FeatureGates
from shared.jobs.manifest import JsonObject, items, replaced, section, text, texts
from shared.jobs.pod_role import role_hash

UNDER_PARENT = Surroundings(
    default_queue=False,
    default_priority_class=False,
    owner_managed=True,
    ancestor=False,
    manage_all=False,
    namespace_matches=True,
)
"""Of a pod with the parent marker nothing else matters."""


def has_parent(pod: JsonObject) -> bool:
    """It is a pod of a serving kind, which is held back by its pods."""
    return names.POD_SUSPENDING_PARENT in texts(pod, "metadata", "annotations")


def pod_defaults(pod: JsonObject, around: Surroundings, gates: FeatureGates) -> tuple[PatchOperation, ...]:
    """The changes, none for a pod that is left alone."""
    parent = has_parent(pod)
    if not parent and (around.ancestor or not around.namespace_matches):
        return ()
    labels = texts(pod, "metadata", "labels")
    if not parent:
        if not labels.get(names.QUEUE_NAME_LABEL) and around.default_queue:
            labels[names.QUEUE_NAME_LABEL] = DEFAULT_NAME
        if around.default_priority_class and names.PRIORITY_CLASS_LABEL not in labels and not around.owner_managed:
            labels[names.PRIORITY_CLASS_LABEL] = DEFAULT_NAME
    suspend = parent or bool(labels.get(names.QUEUE_NAME_LABEL)) or around.manage_all
    if suspend and not parent:
        labels[names.MANAGED_LABEL] = "true"
    if suspend and gates["TopologyAwareScheduling"]:
        annotations = texts(pod, "metadata", "annotations")
        if names.POD_GROUP_POD_INDEX_LABEL in annotations:
            labels[names.POD_GROUP_POD_INDEX] = labels.get(annotations[names.POD_GROUP_POD_INDEX_LABEL], "")
    changed = pod if labels == texts(pod, "metadata", "labels") else replaced(pod, ("metadata", "labels"), labels)
    return operations(pod, _held_back(changed, parent, gates) if suspend else changed)


def _held_back(pod: JsonObject, parent: bool, gates: FeatureGates) -> JsonObject:
    changed = pod
    if not parent:
        present = section(pod, "metadata").get("finalizers")
        finalizers = list(present) if isinstance(present, list) else []
        if names.POD_FINALIZER not in finalizers:
            changed = replaced(changed, ("metadata", "finalizers"), [*finalizers, names.POD_FINALIZER])
    held = items(pod, "spec", "schedulingGates")
    wanted = [names.ADMISSION_SCHEDULING_GATE]
    if gates["TopologyAwareScheduling"]:
        wanted.append(names.TOPOLOGY_SCHEDULING_GATE)
    there = {gate.get("name") for gate in held}
    changed = replaced(
        changed, ("spec", "schedulingGates"), [*held, *({"name": name} for name in wanted if name not in there)]
    )
    if not text(pod, "metadata", "annotations", names.ROLE_HASH):
        changed = replaced(changed, ("metadata", "annotations", names.ROLE_HASH), role_hash(pod))
    return changed
