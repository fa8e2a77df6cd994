"""A message nobody could handle, moved aside by our own code, and why."""

from __future__ import annotations

import msgspec

from shared.events.codec import Codec


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t", tag="dead.DeadLetter/1"):
    service: str
    stream: str
    subject: str
    sequence: int
    attempts: int
    error: str
    at_ns: int
    payload: bytes = b""


codec: Codec[DeadLetter] = Codec("dead", DeadLetter)
