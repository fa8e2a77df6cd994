"""What can go wrong with one call, and how a test says so. Broken connections are the link's (shared.testing.link)."""

from __future__ import annotations

import msgspec

from shared.kube.resources import Resource


class Call(msgspec.Struct, frozen=True, gc=False):
    """A call that arrived. `verb`: get, list, watch, create, patch, update or delete."""

    verb: str
    resource: Resource
    namespace: str
    name: str
    subresource: str
    user: str


class Refuse(msgspec.Struct, frozen=True, gc=False):
    """Answered with this HTTP status, not carried out. `retry_after` in whole seconds."""

    status: int = 500
    retry_after: int = 0


class TimeOut(msgspec.Struct, frozen=True, gc=False):
    """No answer comes. `committed`: the call was carried out all the same."""

    committed: bool


class Late(msgspec.Struct, frozen=True, gc=False):
    """Carried out only after `delay_s`, whether the caller still waits or not; restarts of the server are survived by nothing."""

    delay_s: float


Fault = Refuse | TimeOut | Late

REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
