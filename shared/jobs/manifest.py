"""Raw Kubernetes objects as the API server sent them, read through small typed views.

A job or a pod template must be written back without losing a field that we do not know, so it stays a plain JSON object; what is looked at is
decoded into a Struct. Nothing here knows a kind.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from shared.api.decoding import convert

JsonObject = dict[str, object]
"""A JSON object; its values are what `json` makes of JSON."""

T = TypeVar("T")


def section(manifest: JsonObject, *path: str) -> JsonObject:
    """The object at `path`, or an empty one where it is absent, null or something else."""
    here: object = manifest
    for key in path:
        here = here.get(key) if isinstance(here, dict) else None
    return here if isinstance(here, dict) else {}


def view(manifest: JsonObject, type_: type[T], *path: str) -> T:
    """The section at `path` as a Struct; JSON nulls count as absent. Raises msgspec.ValidationError."""
    found = section(manifest, *path)
    try:
        return msgspec.convert(found, type_)
    except msgspec.ValidationError:
        # Rare: a field given as null, or a raw part.
        return convert(type_, found)


def text(manifest: JsonObject, *path: str) -> str:
    """The text at `path`, else an empty one."""
    value = section(manifest, *path[:-1]).get(path[-1])
    return value if isinstance(value, str) else ""


def texts(manifest: JsonObject, *path: str) -> dict[str, str]:
    """A map of texts (labels, annotations, selectors) at `path`; values that are no text are left out."""
    return {key: value for key, value in section(manifest, *path).items() if isinstance(value, str)}


def number(manifest: JsonObject, *path: str, default: int) -> int:
    """The whole number at `path`, else `default`."""
    value = section(manifest, *path[:-1]).get(path[-1])
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def items(manifest: JsonObject, *path: str) -> list[JsonObject]:
    """The list of objects at `path`, without what is no object."""
    value = section(manifest, *path[:-1]).get(path[-1])
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def replaced(manifest: JsonObject, path: Sequence[str], value: object) -> JsonObject:
    """A copy with `value` at `path`; an empty map or list, or None, removes the key. What is not on the path is shared, not copied."""
    key, *rest = path
    copy = dict(manifest)
    if rest:
        inner = manifest.get(key)
        value = replaced(inner if isinstance(inner, dict) else {}, rest, value)
        if value == {} and not isinstance(inner, dict):
            return copy
        copy[key] = value
    elif value is None or value in ({}, []):
        copy.pop(key, None)
    else:
        copy[key] = value
    return copy
