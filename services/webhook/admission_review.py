"""AdmissionReview v1: what the API server asks, and the answer it understands. Source: admission.k8s.io/v1."""

from __future__ import annotations

import base64

import msgspec

from shared.api.field_errors import FieldError, joined


class GroupVersionKind(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """What is asked; `object` and `old_object` are JSON, or empty."""

    uid: str
    kind: GroupVersionKind = GroupVersionKind()
    name: str = ""
    namespace: str = ""
    operation: str = ""
    sub_resource: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def has_old(self) -> bool:
        """Whether there is a state before the change."""
        return bytes(self.old_object) not in (b"", b"null")


class Review(msgspec.Struct, frozen=True):
    request: Request


class PatchOperation(msgspec.Struct, frozen=True):
    """One step of a JSON patch (RFC 6902)."""

    op: str
    path: str
    value: object


class Verdict(msgspec.Struct, frozen=True):
    """The answer of a handler: changes, faults (any refuses), warnings that the user sees."""

    patch: tuple[PatchOperation, ...] = ()
    errors: tuple[FieldError, ...] = ()
    warnings: tuple[str, ...] = ()


_decoder = msgspec.json.Decoder(Review)
_encoder = msgspec.json.Encoder()


def decode(body: bytes) -> Request:
    """The request in a review. Raises msgspec.DecodeError."""
    return _decoder.decode(body).request


def encode(request: Request, verdict: Verdict) -> bytes:
    """The answer to `request`."""
    response: dict[str, object] = {"uid": request.uid, "allowed": not verdict.errors}
    if verdict.errors:
        message = joined(list(verdict.errors))
        response["status"] = {"status": "Failure", "message": message, "reason": "Forbidden", "code": 403}
    elif verdict.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(_encoder.encode(verdict.patch)).decode()
    if verdict.warnings:
        response["warnings"] = verdict.warnings
    return _encoder.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})


def refuse(uid: str, code: int, message: str) -> bytes:
    """An answer to a review that could not be handled."""
    status = {"status": "Failure", "message": message, "code": code}
    response = {"uid": uid, "allowed": False, "status": status}
    return _encoder.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})


def pointer(*keys: str) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)
