"""Validation of the topology annotations of a pod template (integration specification 11.3, rules T1 to T7). Pure.

Whether the levels exist, and which is the wider one, is not looked at: topologies come and go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from shared.api import names
from shared.api.field_errors import FieldError, forbidden, invalid, required
from shared.api.validate_labels import name_errors
from shared.jobs.topology_request import FALSE, TRUE, SliceConstraint

_ONE_OF = (names.PODSET_REQUIRED_TOPOLOGY, names.PODSET_PREFERRED_TOPOLOGY, names.PODSET_UNCONSTRAINED_TOPOLOGY)
_LEVELS = (names.PODSET_REQUIRED_TOPOLOGY, names.PODSET_PREFERRED_TOPOLOGY, names.PODSET_SLICE_TOPOLOGY)
_SLICES = (names.PODSET_SLICE_SIZE, names.PODSET_SLICE_TOPOLOGY, names.PODSET_SLICE_CONSTRAINTS)
_MAX_CONSTRAINTS = 3
_MAX_INT32 = 2**31 - 1


def topology_errors(at: str, annotations: Mapping[str, str], pods: int, *, layers: bool) -> Iterator[FieldError]:
    """Faults of the annotations at path `at` of a set of `pods` pods. `layers`: slices inside slices are allowed."""
    asked = [key for key in _ONE_OF if key in annotations]
    if len(asked) > 1:
        yield invalid(at, asked, "must not contain more than one of these annotations")
    for key in _LEVELS:
        if key in annotations:
            yield from name_errors(f"{at}[{key}]", annotations[key])
    unconstrained = annotations.get(names.PODSET_UNCONSTRAINED_TOPOLOGY)
    if unconstrained is not None and unconstrained not in (*TRUE, *FALSE):
        yield invalid(f"{at}[{names.PODSET_UNCONSTRAINED_TOPOLOGY}]", unconstrained, "must be true or false")
    yield from _size_errors(at, annotations, pods)
    yield from _group_errors(at, annotations)
    if names.PODSET_SLICE_CONSTRAINTS in annotations:
        yield from _layer_errors(at, annotations, pods, layers)


def _size_errors(at: str, annotations: Mapping[str, str], pods: int) -> Iterator[FieldError]:
    path = f"{at}[{names.PODSET_SLICE_SIZE}]"
    value = annotations.get(names.PODSET_SLICE_SIZE)
    sliced = names.PODSET_SLICE_TOPOLOGY in annotations
    if value is None:
        if sliced:
            yield required(path, f"must be set with {names.PODSET_SLICE_TOPOLOGY}")
        return
    if not sliced:
        yield forbidden(path, f"may only be set with {names.PODSET_SLICE_TOPOLOGY}")
    size = int(value) if re.fullmatch(r"[+-]?[0-9]{1,10}", value) else None
    if size is None or size > _MAX_INT32:
        yield invalid(path, value, "must be a 32-bit integer")
    elif size < 1:
        yield invalid(path, value, "must be greater than or equal to 1")
    elif size > pods:
        yield invalid(path, value, f"must not be greater than the number of pods, {pods}")


def _group_errors(at: str, annotations: Mapping[str, str]) -> Iterator[FieldError]:
    if names.PODSET_GROUP_NAME not in annotations:
        return
    path, value = f"{at}[{names.PODSET_GROUP_NAME}]", annotations[names.PODSET_GROUP_NAME]
    if re.fullmatch(r"[0-9]+", value):
        yield invalid(path, value, "must not be a number")
    for key in _SLICES:
        if key in annotations:
            yield forbidden(path, f"may not be set together with {key}")
    if names.PODSET_REQUIRED_TOPOLOGY not in annotations and names.PODSET_PREFERRED_TOPOLOGY not in annotations:
        keys = f"{names.PODSET_REQUIRED_TOPOLOGY} or {names.PODSET_PREFERRED_TOPOLOGY}"
        yield forbidden(path, f"may only be set with {keys}")


def _layer_errors(at: str, annotations: Mapping[str, str], pods: int, layers: bool) -> Iterator[FieldError]:
    path, value = f"{at}[{names.PODSET_SLICE_CONSTRAINTS}]", annotations[names.PODSET_SLICE_CONSTRAINTS]
    if not layers:
        yield forbidden(path, "the feature gate TASMultiLayerTopology is off")
        return
    for key in (names.PODSET_SLICE_TOPOLOGY, names.PODSET_SLICE_SIZE):
        if key in annotations:
            yield forbidden(path, f"may not be set together with {key}")
    try:
        constraints = msgspec.json.decode(value, type=list[SliceConstraint])
    except msgspec.DecodeError as error:
        yield invalid(path, value, str(error))
        return
    if not 1 <= len(constraints) <= _MAX_CONSTRAINTS:
        yield invalid(path, value, f"must have 1 to {_MAX_CONSTRAINTS} entries")
    for i, constraint in enumerate(constraints):
        yield from name_errors(f"{path}[{i}].topology", constraint.topology)
        if constraint.topology in {other.topology for other in constraints[:i]}:
            yield invalid(f"{path}[{i}].topology", constraint.topology, "must be there once")
        if constraint.size < 1:
            yield invalid(f"{path}[{i}].size", constraint.size, "must be greater than or equal to 1")
        elif i and constraints[i - 1].size % constraint.size:
            yield invalid(
                f"{path}[{i}].size", constraint.size, f"must divide {constraints[i - 1].size}, the size before"
            )
    if constraints and constraints[0].size > pods:
        yield invalid(f"{path}[0].size", constraints[0].size, f"must not be greater than the number of pods, {pods}")
