"""The one place that makes bytes of messages and messages of bytes.

Internal messages are MessagePack maps with a tag `<family>.<Name>/<version>` under `t`. A field may be added with a default: old readers skip it, old
bytes decode. Anything else is a new Struct with the next version in its tag, and the union of the family holds both.
Times are integers: nanoseconds since the epoch for `*_ns`, whole seconds for Kubernetes times.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()


class MalformedMessage(ValueError):
    """Bytes that are no message of the family that their subject promises; `args[0]` says why and holds no payload."""


class Codec(Generic[T]):
    """Encodes and decodes one family of messages (a Struct, or a union of tagged Structs)."""

    def __init__(self, family: str, type_: object) -> None:
        self.family = family
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(type_)

    def encode(self, message: T) -> bytes:
        """The bytes of one message."""
        return _encoder.encode(message)

    def decode(self, data: bytes) -> T:
        """The message in `data`. Raises MalformedMessage."""
        try:
            return self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise MalformedMessage(f"{self.family}: {error}") from error
