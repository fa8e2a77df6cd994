"""The moves that conversions are made of: renamed fields, restored ones, and a status that only one version has. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from shared.jobs.manifest import JsonObject, section

Path = tuple[str, ...]
_STATUS, _STATUS_OF = "status", "statusOf"


def renamed(part: JsonObject, old: str, new: str) -> None:
    """The field by its other name."""
    if old in part:
        part[new] = part.pop(old)


def fits(value: object, type_: object) -> bool:
    """Whether a value out of an annotation, which its owner can write as he likes, is of that type."""
    try:
        msgspec.convert(value, type_)
    except msgspec.ValidationError:
        return False
    return True


def take_status(document: JsonObject, paths: Sequence[Path]) -> JsonObject:
    """Take fields out of the status that the other version lacks, and what they were beside: none of them outlives the next status."""
    status = section(document, "status")
    taken: dict[str, object] = {}
    for path in paths:
        part = section(status, *path[:-1])
        if path[-1] in part:
            taken[".".join(path)] = part.pop(path[-1])
    return {_STATUS: taken, _STATUS_OF: _digest(status)} if taken else {}


def restore_status(document: JsonObject, kept: JsonObject, types: Mapping[Path, object]) -> None:
    """Put such fields back, if the status is still the one they were taken from. To be called before the status is changed otherwise."""
    status = section(document, "status")
    values = section(kept, _STATUS)
    if not values or kept.get(_STATUS_OF) != _digest(status):
        return
    for path, type_ in types.items():
        value = values.get(".".join(path))
        if value is not None and fits(value, type_):
            section(document, "status", *path[:-1])[path[-1]] = value


def _digest(status: JsonObject) -> str:
    return hashlib.blake2s(msgspec.json.encode(status, order="deterministic"), digest_size=8).hexdigest()
