"""Validation that Deployments, StatefulSets and LeaderWorkerSets share (integration specification 11.1, 11.2 and 15.1.6): they count as held back while none of
their replicas is ready."""

from collections.abc import Iterator

from shared.api import names
from shared.api.field_errors import FieldError, forbidden, immutable, invalid
from shared.api.validation import dns_subdomain_errors
from shared.jobs.elastic import is_elastic
from shared.jobs.manifest import JsonObject, items, number, section, text, texts
from shared.jobs.protocol import Circumstances
from shared.jobs.validate_annotations import gate_change_errors, gate_errors

_QUEUE = f"metadata.labels[{names.QUEUE_NAME_LABEL}]"
_PRIORITY = f"metadata.labels[{names.PRIORITY_CLASS_LABEL}]"
_ELASTIC = f"metadata.annotations[{names.ELASTIC_JOB}]"
_SHAPE = (
    "affinity",
    "nodeSelector",
    "overhead",
    "priority",
    "resourceClaims",
    "runtimeClassName",
    "tolerations",
    "topologySpreadConstraints",
)
"""What makes the role of a pod, besides its containers."""


def common_errors(parent: JsonObject, old: JsonObject | None, around: Circumstances) -> Iterator[FieldError]:
    """Faults of labels and annotations of such an object that is created, or changed from `old`."""
    labels, annotations = (texts(parent, "metadata", key) for key in ("labels", "annotations"))
    if names.QUEUE_NAME_LABEL in labels:
        queue = labels[names.QUEUE_NAME_LABEL]
        yield from (invalid(_QUEUE, queue, detail) for detail in dns_subdomain_errors(queue))
    if is_elastic(parent, around.gates):
        yield forbidden(_ELASTIC, "this kind cannot be elastic")
    if around.gates["AdmissionGatedBy"]:
        yield from gate_errors(annotations)
    if old is None:
        return
    ready = number(old, "status", "readyReplicas", default=0) > 0
    yield from _label_changes(labels, texts(old, "metadata", "labels"), ready)
    if around.gates["AdmissionGatedBy"]:
        yield from gate_change_errors(annotations, texts(old, "metadata", "annotations"))


def _label_changes(labels: dict[str, str], before: dict[str, str], ready: bool) -> Iterator[FieldError]:
    queue = labels.get(names.QUEUE_NAME_LABEL, "")
    if queue != before.get(names.QUEUE_NAME_LABEL, "") and (ready or not queue):
        yield immutable(_QUEUE, queue)
    new, old = (found.get(names.PRIORITY_CLASS_LABEL, "") for found in (labels, before))
    if (old and not new) or (new and not old and ready):
        yield immutable(_PRIORITY, new)


def shape_errors(path: str, spec: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Faults of a change of a pod template whose pods are to stay one role (11.4). `path`: of the pod spec."""
    for key in _SHAPE:
        if _given(spec.get(key)) != _given(old.get(key)):
            yield immutable(f"{path}.{key}", spec.get(key))
    if section(spec, "resources").get("requests") != section(old, "resources").get("requests"):
        yield immutable(f"{path}.resources.requests", section(spec, "resources").get("requests"))
    for key in ("initContainers", "containers"):
        yield from _container_errors(f"{path}.{key}", items(spec, key), items(old, key))


def _container_errors(path: str, found: list[JsonObject], before: list[JsonObject]) -> Iterator[FieldError]:
    if len(found) != len(before):
        yield immutable(path, [text(container, "name") for container in found])
        return
    for i, (container, old) in enumerate(zip(found, before, strict=True)):
        if _given(container.get("ports")) != _given(old.get("ports")):
            yield immutable(f"{path}[{i}].ports", container.get("ports"))
        requests = section(container, "resources").get("requests")
        if _given(requests) != _given(section(old, "resources").get("requests")):
            yield immutable(f"{path}[{i}].resources.requests", requests)


def _given(value: object) -> object:
    """None for what is empty."""
    return None if value in ({}, []) else value
