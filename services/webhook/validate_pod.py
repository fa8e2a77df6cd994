"""Validation of what only pods carry for us (integration specification 14.13). Pure."""

from __future__ import annotations

from collections.abc import Iterator

from shared.api import names
from shared.api.field_errors import FieldError, forbidden, immutable, invalid, required
from shared.api.meta import OwnerReference
from shared.api.validation import dns_subdomain_errors, int32
from shared.config.feature_gates import FeatureGates
from shared.jobs.manifest import JsonObject, section, texts
from shared.jobs.prebuilt import prebuilt_name
from shared.jobs.validate_topology import topology_errors

_MANAGED = f"metadata.labels[{names.MANAGED_LABEL}]"
_GROUP = f"metadata.annotations[{names.POD_GROUP_NAME}]"
_TOTAL = f"metadata.annotations[{names.POD_GROUP_TOTAL_COUNT}]"
_RETRIABLE = f"metadata.annotations[{names.RETRIABLE_IN_GROUP}]"


def pod_errors(pod: JsonObject, old: JsonObject | None, gates: FeatureGates) -> Iterator[FieldError]:
    """Faults of a pod that is created, or changed from `old`."""
    labels, annotations = texts(pod, "metadata", "labels"), texts(pod, "metadata", "annotations")
    managed = labels.get(names.MANAGED_LABEL)
    if managed not in (None, "true"):
        yield forbidden(_MANAGED, "managed label value can only be 'true'")
    elif managed is None and old is not None and _was_managed(old) and _has_finalizer(pod):
        # Nobody would see it any more: neither that it runs on, nor that it ends.
        yield immutable(_MANAGED, "")
    group, total = _group(pod), annotations.get(names.POD_GROUP_TOTAL_COUNT)
    if group:
        yield from (invalid(_GROUP, group, detail) for detail in dns_subdomain_errors(group))
        if total is None:
            yield required(_TOTAL, "a pod of a group says how many pods the group has")
    if total is not None:
        if not group:
            yield required(_GROUP, "a pod that counts its group names it")
        if (int32(total) or 0) <= 0:
            yield invalid(_TOTAL, total, "must be an integer greater than 0")
    if gates["TopologyAwareScheduling"]:
        pods = (int32(total) if total is not None else None) or 1
        yield from topology_errors("metadata.annotations", annotations, pods, layers=gates["TASMultiLayerTopology"])
    prebuilt = prebuilt_name(pod, annotation_first=gates["WorkloadIdentifierAnnotations"])
    if group and prebuilt and group != prebuilt:
        yield invalid(_GROUP, group, f"must equal the name of the prebuilt workload, {prebuilt}")
    if old is not None:
        before = _group(old)
        if before and before != group:
            yield immutable(_GROUP, group)
        was = texts(old, "metadata", "annotations").get(names.RETRIABLE_IN_GROUP)
        if before and was == "false" and annotations.get(names.RETRIABLE_IN_GROUP) != "false":
            yield forbidden(_RETRIABLE, "a group that cannot be retried stays so")


def owner_warnings(pod: JsonObject, owner: OwnerReference | None, *, changed: bool) -> tuple[str, ...]:
    """What its user should know, if not enough to refuse it. `owner`: the pod's direct one, if that is of a kind that is managed."""
    if owner is None or texts(pod, "metadata", "labels").get(names.MANAGED_LABEL) != "true":
        return ()
    if changed and names.POD_SUSPENDING_PARENT in texts(pod, "metadata", "annotations"):
        return ()
    return (f"{_MANAGED}: the pod is owned by {owner.kind} {owner.name}, which is managed itself: leave the label out",)


def _was_managed(pod: JsonObject) -> bool:
    return texts(pod, "metadata", "labels").get(names.MANAGED_LABEL) == "true"


def _has_finalizer(pod: JsonObject) -> bool:
    """It has not ended, or its end has not been told yet."""
    finalizers = section(pod, "metadata").get("finalizers")
    return isinstance(finalizers, list) and names.POD_FINALIZER in finalizers


def _group(pod: JsonObject) -> str:
    return texts(pod, "metadata", "annotations").get(names.POD_GROUP_NAME) or texts(pod, "metadata", "labels").get(
        names.POD_GROUP_NAME, ""
    )
