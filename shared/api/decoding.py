"""From JSON bytes, or from loaded YAML, to the Structs of this package, and back to JSON.

Unknown fields are ignored. A `null` where the API means "not set" is read as absent. What still does not fit raises
msgspec.ValidationError, whose text names the path.
"""

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

# A decoder costs more to build than to use.
_DECODERS: dict[object, "msgspec.json.Decoder[Any]"] = {}


def decode(type_: type[T], data: bytes) -> T:
    """An API object from JSON. Raises msgspec.ValidationError (wrong shape) or msgspec.DecodeError (not JSON)."""
    try:
        decoded: T = _decoder(type_).decode(data)
    except msgspec.ValidationError:
        # Rare: a field given as null. The API server drops those; where it keeps them (pod templates) we do.
        return convert(type_, msgspec.json.decode(data))
    return decoded


def convert(type_: type[T], loaded: object) -> T:
    """An API object from what a YAML or JSON loader returned. Raises msgspec.ValidationError."""
    # By way of JSON, so that raw pod templates work too.
    converted: T = _decoder(type_).decode(msgspec.json.encode(_without_nulls(loaded)))
    return converted


def encode(obj: msgspec.Struct) -> bytes:
    """JSON in which fields that have their default are left out (see schema_hints.always for the exceptions)."""
    return msgspec.json.encode(obj)


def _decoder(type_: type[T]) -> "msgspec.json.Decoder[Any]":
    decoder = _DECODERS.get(type_)
    if decoder is None:
        decoder = _DECODERS[type_] = msgspec.json.Decoder(type_)
    return decoder


def _without_nulls(loaded: object) -> object:
    if isinstance(loaded, dict):
        return {key: _without_nulls(value) for key, value in loaded.items() if value is not None}
    if isinstance(loaded, list):
        return [_without_nulls(value) for value in loaded if value is not None]
    return loaded
