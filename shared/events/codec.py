"""The one place that makes bytes of messages and messages of bytes.

Internal messages are MessagePack maps with a tag `<family>.<Name>/<version>` under `t`. A field may be added with a default: old readers skip it, old
bytes decode. Anything else is a new Struct with the next version in its tag, and the union of the family holds both: one release reads the new version,
the one after it writes it, so that releases next to each other may run side by side. Who meets a version that it cannot read must not act on what is
left: that is another error than bytes that nobody can read.
Times are integers: nanoseconds since the epoch for `*_ns`, whole seconds for Kubernetes times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import inspect

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()
_TAG = re.compile(r"[a-z]+\.[A-Za-z]+/[0-9]+")


class MalformedMessage(ValueError):
    """Bytes that are no message of the family that their subject promises; `args[0]` says why and holds no payload."""


class UnknownVersion(MalformedMessage):
    """A well-formed message, in whole or in part of a version that this program does not know: another release wrote it. `tag` says which."""

    def __init__(self, family: str, tag: str) -> None:
        super().__init__(f"{family}: {tag} is of another release than this program, which cannot read it")
        self.tag = tag


class Codec(Generic[T]):
    """Encodes and decodes one family of messages (a Struct, or a union of tagged Structs)."""

    def __init__(self, family: str, type_: object) -> None:
        self.family = family
        self._type = type_
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(type_)

    def encode(self, message: T) -> bytes:
        """The bytes of one message."""
        return _encoder.encode(message)

    def decode(self, data: bytes) -> T:
        """The message in `data`. Raises MalformedMessage, of which UnknownVersion is one."""
        try:
            return self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if foreign := self._unknown_tag(data):
                raise UnknownVersion(self.family, foreign) from error
            raise MalformedMessage(f"{self.family}: {error}") from error

    def _unknown_tag(self, data: bytes) -> str:
        """The first tag in these bytes that is a tag, but none of ours; empty if there is none."""
        try:
            message = msgspec.msgpack.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ""
        known = set(_tags_of(inspect.type_info(self._type), set()))
        return next((tag for tag in _tags_in(message) if tag not in known), "")


def _tags_in(value: Any) -> Iterator[str]:
    """Tags of untyped messages and of those within them."""
    if isinstance(value, dict):
        tag = value.get("t")
        if isinstance(tag, str) and _TAG.fullmatch(tag):
            yield tag
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _tags_in(inner)


def _tags_of(type_: inspect.Type, seen: set[type]) -> Iterator[str]:
    """Tags of a type and of those within it."""
    match type_:
        case inspect.StructType():
            if type_.cls in seen:
                return
            seen.add(type_.cls)
            if isinstance(type_.tag, str):
                yield type_.tag
            inner: tuple[inspect.Type, ...] = tuple(field.type for field in type_.fields)
        case inspect.UnionType():
            inner = type_.types
        case inspect.VarTupleType() | inspect.ListType():
            inner = (type_.item_type,)
        case inspect.TupleType():
            inner = type_.item_types
        case inspect.DictType():
            inner = (type_.value_type,)
        case _:
            inner = ()
    for one in inner:
        yield from _tags_of(one, seen)
