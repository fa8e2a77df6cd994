"""The topology request of a pod set, read from the annotations of its pod template (job specification 7.5).

Only reading: whether the values make sense is checked by the webhook before a job gets here.
"""

import msgspec

from shared.api import names
from shared.jobs.manifest import JsonObject, texts
from shared.jobs.podset_info import PermanentError

TRUE = ("1", "t", "T", "true", "TRUE", "True")
FALSE = ("0", "f", "F", "false", "FALSE", "False")


class SliceConstraint(msgspec.Struct, frozen=True):
    topology: str
    size: int


def topology_request(
    template: JsonObject, *, index_label: str = "", subgroup_label: str = "", subgroup_count: int | None = None
) -> JsonObject | None:
    """`spec.podSets[].topologyRequest`, or None when neither the template nor the kind asks for one. Raises PermanentError on values that cannot be read."""
    annotations = texts(template, "metadata", "annotations")
    request: JsonObject = {}
    if required := annotations.get(names.PODSET_REQUIRED_TOPOLOGY):
        request["required"] = required
    elif preferred := annotations.get(names.PODSET_PREFERRED_TOPOLOGY):
        request["preferred"] = preferred
    elif names.PODSET_UNCONSTRAINED_TOPOLOGY in annotations:
        request["unconstrained"] = _boolean(annotations[names.PODSET_UNCONSTRAINED_TOPOLOGY])
    if (group := annotations.get(names.PODSET_GROUP_NAME)) and ("required" in request or "preferred" in request):
        request["podSetGroupName"] = group
    request |= _slices(annotations)
    if index_label:
        request["podIndexLabel"] = index_label
    if subgroup_label:
        request["subGroupIndexLabel"] = subgroup_label
    if subgroup_count is not None:
        request["subGroupCount"] = subgroup_count
    return request or None


def _slices(annotations: dict[str, str]) -> JsonObject:
    if names.PODSET_SLICE_CONSTRAINTS in annotations:
        try:
            constraints = msgspec.json.decode(annotations[names.PODSET_SLICE_CONSTRAINTS], type=list[SliceConstraint])
        except msgspec.DecodeError as error:
            raise PermanentError(f"annotation {names.PODSET_SLICE_CONSTRAINTS}: {error}") from error
        if not 1 <= len(constraints) <= 3:
            raise PermanentError(f"annotation {names.PODSET_SLICE_CONSTRAINTS}: must have 1 to 3 entries")
        return {"podsetSliceRequiredTopologyConstraints": [msgspec.to_builtins(c) for c in constraints]}
    if names.PODSET_SLICE_TOPOLOGY in annotations and names.PODSET_SLICE_SIZE in annotations:
        try:
            size = int(annotations[names.PODSET_SLICE_SIZE])
        except ValueError as error:
            raise PermanentError(
                f"annotation {names.PODSET_SLICE_SIZE}: {annotations[names.PODSET_SLICE_SIZE]!r} is not an integer"
            ) from error
        return {"podSetSliceRequiredTopology": annotations[names.PODSET_SLICE_TOPOLOGY], "podSetSliceSize": size}
    return {}


def _boolean(value: str) -> bool:
    if value in TRUE:
        return True
    if value in FALSE:
        return False
    raise PermanentError(f"annotation {names.PODSET_UNCONSTRAINED_TOPOLOGY}: {value!r} is not a boolean")
