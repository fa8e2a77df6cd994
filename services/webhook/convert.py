"""Objects of v1beta1 to v1beta2 and back, without loss in either direction. Pure.

1. What the wanted version can say, it says (`convert_queues`, `convert_workload`).
2. What it cannot say goes, as JSON, into an annotation named after the version that can (`names.V1BETA1_FIELDS`, `V1BETA2_FIELDS`).
3. On the way back what the annotation holds is restored where it still fits what the object says by then, and the annotation goes.

Fields that nobody here knows are carried over, and so are parts of a shape that no schema of ours allows: the API server refuses them where they
are written, with their path, and must be able to read them where they are stored. For the same reason an annotation that somebody spoilt is no error;
it counts as not there.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from services.webhook import convert_queues, convert_workload
from shared.api import names
from shared.jobs.manifest import JsonObject, section

Conversion = Callable[[JsonObject, JsonObject], JsonObject]
"""Changes an object in place. Given what the wanted version can say beyond the object; returns what it cannot say of it."""

_TO_V1BETA2: dict[str, Conversion] = {
    names.ADMISSION_CHECK: convert_queues.admission_check_to_v1beta2,
    names.CLUSTER_QUEUE: convert_queues.cluster_queue_to_v1beta2,
    names.COHORT: convert_queues.cohort_to_v1beta2,
    names.LOCAL_QUEUE: convert_queues.local_queue_to_v1beta2,
    names.MULTIKUEUE_CLUSTER: convert_queues.multikueue_cluster_to_v1beta2,
    names.MULTIKUEUE_CONFIG: convert_queues.multikueue_config_to_v1beta2,
    names.WORKLOAD: convert_workload.to_v1beta2,
}
_TO_V1BETA1: dict[str, Conversion] = {
    names.ADMISSION_CHECK: convert_queues.admission_check_to_v1beta1,
    names.CLUSTER_QUEUE: convert_queues.cluster_queue_to_v1beta1,
    names.COHORT: convert_queues.cohort_to_v1beta1,
    names.LOCAL_QUEUE: convert_queues.local_queue_to_v1beta1,
    names.MULTIKUEUE_CLUSTER: convert_queues.multikueue_cluster_to_v1beta1,
    names.MULTIKUEUE_CONFIG: convert_queues.multikueue_config_to_v1beta1,
    names.WORKLOAD: convert_workload.to_v1beta1,
}
_FIELDS = {names.V1BETA1_GROUP_VERSION: names.V1BETA1_FIELDS, names.GROUP_VERSION: names.V1BETA2_FIELDS}


class ConversionError(ValueError):
    """Why an object cannot be converted, for people."""


def converted(document: object, wanted: str) -> JsonObject:
    """The object in API version `wanted` (`group/version`); it is changed in place. Raises ConversionError."""
    if not isinstance(document, dict):
        raise ConversionError("is no object")
    kind, version = document.get("kind"), document.get("apiVersion")
    conversion = (_TO_V1BETA2 if wanted == names.GROUP_VERSION else _TO_V1BETA1).get(str(kind))
    if wanted not in _FIELDS or version not in _FIELDS or conversion is None:
        raise ConversionError(f"{_named(document)}: there is no conversion of {kind} from {version} to {wanted}")
    if version == wanted:
        return document
    if not isinstance(document.get("metadata"), dict):
        raise ConversionError(f"{_named(document)}: has no metadata")
    rest = conversion(document, _taken(document, _FIELDS[wanted]))
    _taken(document, _FIELDS[version])
    if rest:
        metadata = section(document, "metadata")
        annotations = {**section(metadata, "annotations"), _FIELDS[version]: msgspec.json.encode(rest).decode()}
        metadata["annotations"] = annotations
    document["apiVersion"] = wanted
    return document


def _taken(document: JsonObject, annotation: str) -> JsonObject:
    """What an annotation of ours holds; it is gone afterwards."""
    annotations = section(document, "metadata", "annotations")
    if annotation not in annotations:
        return {}
    text = annotations.pop(annotation)
    if not annotations:
        section(document, "metadata").pop("annotations")
    try:
        kept = msgspec.json.decode(text if isinstance(text, str) else b"")
    except msgspec.DecodeError:
        return {}
    return kept if isinstance(kept, dict) else {}


def _named(document: JsonObject) -> str:
    metadata = section(document, "metadata")
    name = "/".join(str(metadata[key]) for key in ("namespace", "name") if metadata.get(key))
    return f"{document.get('kind')} {name or '(without a name)'}"
