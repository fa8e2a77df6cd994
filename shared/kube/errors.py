"""What a call to the API server can end in, as types that say what to do next.

Refused: the same call will fail again. Conflict, NotFound, Gone: look again. Unavailable: nobody knows whether it was done, so read before
writing again.
"""

from __future__ import annotations

import msgspec

_MAX_TEXT = 500


class ApiError(Exception):
    """An answer other than success. `status` is the HTTP status (0: no answer), `reason` the API's word for it."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{status} {reason}: {message}" if status else f"{reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        """Seconds the server asks to wait; 0 when it did not say."""


class Refused(ApiError):
    """Permanent: the object is invalid, the caller may not, or the request makes no sense."""


class Invalid(Refused):
    """422: the schema, a validation rule or an admission webhook says no."""


class Forbidden(Refused):
    """403: a permission is missing, or an admission plugin forbids it."""


class Unauthorized(Refused):
    """401: the credentials are not, or no longer, good."""


class Conflict(ApiError):
    """409: the object is not in the state that the request was based on."""


class AlreadyExists(Conflict):
    """409 on create: the name is taken."""


class NotFound(ApiError):
    """404: no such object, or no such resource."""


class Gone(ApiError):
    """410: the version or continue token asked for is too old; list again."""


class Unavailable(ApiError):
    """No usable answer: the call may have been carried out or not."""


class TooManyRequests(Unavailable):
    """429: not carried out; `retry_after` says when to come back."""


class ServerTimeout(Unavailable):
    """5xx."""


class Unreachable(Unavailable):
    """No connection, a broken one, or no answer within the time-out."""


class WritesHeld(Unavailable):
    """Not sent: we may not write now (see KubeClient.may_write)."""


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: int = 0


class _Status(msgspec.Struct, rename="camel"):
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}
_decoder = msgspec.json.Decoder(_Status)


def error_of(status: int, body: bytes, retry_after: str = "") -> ApiError:
    """The error for an HTTP answer; `body` is a metav1.Status when the API server wrote it, `retry_after` the header."""
    try:
        told = _decoder.decode(body)
    except msgspec.DecodeError:
        told = _Status(message=body[:_MAX_TEXT].decode(errors="replace").strip())
    kind = _BY_STATUS.get(status, ServerTimeout if status >= 500 else Refused)
    if kind is Conflict and told.reason == "AlreadyExists":
        kind = AlreadyExists
    wait = (
        float(retry_after) if retry_after.isdigit() else float(told.details.retry_after_seconds if told.details else 0)
    )
    return kind(status, told.reason or f"HTTP{status}", told.message[:_MAX_TEXT] or "no message", wait)
