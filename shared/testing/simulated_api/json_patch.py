"""JSON patches (RFC 6902), as clients and mutating webhooks send them. Neither argument is changed."""

from __future__ import annotations

from collections.abc import Sequence

from shared.jobs.manifest import JsonObject


class PatchError(ValueError):
    """The patch is none, points to nothing, or one of its tests fails."""


def apply_json_patch(document: JsonObject, operations: object) -> JsonObject:
    """The document after all operations. Raises PatchError."""
    if not isinstance(operations, list):
        raise PatchError("a JSON patch is a list of operations")
    result: object = document
    for operation in operations:
        result = _step(result, operation)
    if not isinstance(result, dict):
        raise PatchError("the patch leaves no object")
    return result


def _step(document: object, operation: object) -> object:
    if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
        raise PatchError("an operation needs op and path")
    path = _keys(operation["path"])
    match operation.get("op"):
        case "add":
            return _put(document, path, operation.get("value"), insert=True)
        case "replace":
            _at(document, path)
            return _put(document, path, operation.get("value"), insert=False)
        case "remove":
            return _without(document, path)
        case "test":
            if _at(document, path) != operation.get("value"):
                raise PatchError(f"test of {operation['path']} failed")
            return document
        case "copy" | "move" as op:
            source = _keys(str(operation.get("from", "")))
            value = _at(document, source)
            return _put(document if op == "copy" else _without(document, source), path, value, insert=True)
        case op:
            raise PatchError(f"unknown operation {op!r}")


def _keys(pointer: str) -> list[str]:
    """The keys of a JSON pointer (RFC 6901)."""
    if not pointer:
        return []
    if not pointer.startswith("/"):
        raise PatchError(f"{pointer!r} is no pointer")
    return [key.replace("~1", "/").replace("~0", "~") for key in pointer[1:].split("/")]


def _index(holder: list[object], key: str, *, end: int) -> int:
    if key.isdigit() and int(key) < end:
        return int(key)
    raise PatchError(f"no element {key} in a list of {len(holder)}")


def _at(document: object, path: Sequence[str]) -> object:
    for key in path:
        if isinstance(document, dict) and key in document:
            document = document[key]
        elif isinstance(document, list):
            document = document[_index(document, key, end=len(document))]
        else:
            raise PatchError(f"nothing at {key!r}")
    return document


def _put(document: object, path: Sequence[str], value: object, *, insert: bool) -> object:
    if not path:
        return value
    key, *rest = path
    if isinstance(document, dict):
        if rest and key not in document:
            raise PatchError(f"nothing at {key!r}")
        return {**document, key: _put(document.get(key), rest, value, insert=insert)}
    if isinstance(document, list):
        if rest or not insert:
            index = _index(document, key, end=len(document))
            return [*document[:index], _put(document[index], rest, value, insert=insert), *document[index + 1 :]]
        index = len(document) if key == "-" else _index(document, key, end=len(document) + 1)
        return [*document[:index], value, *document[index:]]
    raise PatchError(f"nothing at {key!r}")


def _without(document: object, path: Sequence[str]) -> object:
    if not path:
        raise PatchError("the whole object cannot be removed")
    key, *rest = path
    if isinstance(document, dict) and key in document:
        if rest:
            return {**document, key: _without(document[key], rest)}
        return {kept: value for kept, value in document.items() if kept != key}
    if isinstance(document, list):
        index = _index(document, key, end=len(document))
        inner = [_without(document[index], rest)] if rest else []
        return [*document[:index], *inner, *document[index + 1 :]]
    raise PatchError(f"nothing at {key!r}")
