"""Places deep inside a manifest, through maps and lists: reading and replacing what stands there. Nothing is changed in place."""

from collections.abc import Sequence
from typing import overload

from shared.jobs.manifest import JsonObject

Place = tuple[str | int, ...]
"""Keys of maps and positions in lists, from the outside in."""


def at(manifest: JsonObject, place: Place) -> JsonObject:
    """The object at `place`, or an empty one where there is none."""
    here: object = manifest
    for step in place:
        if isinstance(here, list) and isinstance(step, int):
            here = here[step] if 0 <= step < len(here) else None
        elif isinstance(here, dict) and isinstance(step, str):
            here = here.get(step)
        else:
            return {}
    return here if isinstance(here, dict) else {}


@overload
def put(manifest: JsonObject, place: Place, value: object) -> JsonObject: ...
@overload
def put(manifest: list[object], place: Place, value: object) -> list[object]: ...
def put(manifest: JsonObject | list[object], place: Place, value: object) -> JsonObject | list[object]:
    """A copy with `value` at `place`, None removes the key; maps on the way are made, items of lists must be there (IndexError)."""
    step, rest = place[0], place[1:]
    if isinstance(manifest, list) or isinstance(step, int):
        if not isinstance(manifest, list) or not isinstance(step, int):
            raise TypeError(f"no list of items at {step!r}")
        items = list(manifest)
        items[step] = _inner(items[step], rest, value) if rest else value
        return items
    copy = dict(manifest)
    if rest:
        copy[step] = _inner(manifest.get(step), rest, value)
    elif value is None:
        copy.pop(step, None)
    else:
        copy[step] = value
    return copy


def _inner(inner: object, rest: Place, value: object) -> object:
    return put(inner if isinstance(inner, dict | list) else {}, rest, value)


def nested(path: Sequence[str], value: object) -> JsonObject:
    """`{a: {b: value}}` for the path (a, b)."""
    result: object = value
    for key in reversed(path):
        result = {key: result}
    if not isinstance(result, dict):
        raise ValueError("a path has at least one key")
    return result
