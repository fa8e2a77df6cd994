"""What a write makes of an object: from a request and the present state to the next one, or to the error that the API server answers with.

1. `new_object` or `proposal`: the object as the request would have it. A version that the request names and that is not the present one is a Conflict.
2. Between the two, admission may change it.
3. `settled`: generation and rules.

Pure functions over documents; storing them is the server's part. managedFields are neither kept nor made, unknown fields are not pruned.
"""

from __future__ import annotations

import msgspec

from shared.api.validation import dns_subdomain_errors
from shared.jobs.manifest import JsonObject, section
from shared.jobs.merge_patch import apply
from shared.kube import client
from shared.kube.errors import Conflict, Invalid, Refused, ServerTimeout
from shared.kube.resources import Resource
from shared.kube.transport import Request
from shared.testing.simulated_api.json_patch import PatchError, apply_json_patch
from shared.testing.simulated_api.kinds import Kind
from shared.testing.simulated_api.server_side_apply import AppliedManifests

_OURS = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
"""Metadata that no update changes."""
_NEVER = ("managedFields", "selfLink")
_ROLES = "rbac.authorization.k8s.io"

_decode = msgspec.json.Decoder().decode


def decoded(body: bytes | None) -> JsonObject:
    """A body that has to be an object. Raises Refused."""
    try:
        found = _decode(body or b"")
    except msgspec.DecodeError as error:
        raise Refused(400, "BadRequest", f"the object provided is unrecognized: {error}") from error
    if not isinstance(found, dict):
        raise Refused(400, "BadRequest", "the object provided is unrecognized: not an object")
    return found


def new_object(kind: Kind, request: Request, *, uid: str, at: str, suffix: str) -> JsonObject:
    """The object that a create asks for. `at`: its creation time; `suffix`: ends a name that is to be generated. Raises Refused."""
    resource = request.resource
    document = decoded(request.body)
    for field, wanted in (("apiVersion", resource.api_version), ("kind", resource.kind)):
        if document.get(field, wanted) != wanted:
            why = f"{field}: Invalid value: {document[field]!r}: must be {wanted}"
            raise Invalid(422, "Invalid", why) if kind.custom and field == "kind" else Refused(400, "BadRequest", why)
    given = section(document, "metadata")
    if given.get("resourceVersion"):
        raise ServerTimeout(500, "InternalError", "resourceVersion should not be set on objects to be created")
    metadata: JsonObject = {key: value for key, value in given.items() if key not in _OURS and key not in _NEVER}
    name = given.get("name") or (f"{given['generateName']}{suffix}" if given.get("generateName") else "")
    if not name:
        raise Invalid(422, "Invalid", "metadata.name: Required value: name or generateName is required")
    faults = [] if resource.group == _ROLES else dns_subdomain_errors(str(name))
    if faults:
        raise Invalid(422, "Invalid", f"metadata.name: Invalid value: {name!r}: {'; '.join(faults)}")
    metadata["name"] = name
    if given.get("generateName"):
        metadata["generateName"] = given["generateName"]
    if resource.namespaced:
        if given.get("namespace", request.namespace) != request.namespace:
            raise Refused(
                400,
                "BadRequest",
                "the namespace of the provided object does not match the namespace sent on the request",
            )
        metadata["namespace"] = request.namespace
    metadata["uid"] = uid
    metadata["creationTimestamp"] = at
    if kind.generation:
        metadata["generation"] = 1
    rest = {key: value for key, value in document.items() if key not in ("apiVersion", "kind", "metadata")}
    if kind.status:
        rest.pop("status", None)
    made = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **rest}
    return kind.complete(kind.fill(made, None))


def proposal(kind: Kind, old: JsonObject, request: Request, applied: AppliedManifests) -> JsonObject:
    """The object as a patch or put would have it; `old` itself when it asks for no change. Raises Conflict, Invalid, Refused."""
    new = {**_wanted(old, request, applied), "apiVersion": old["apiVersion"], "kind": old["kind"]}
    before, after = section(old, "metadata"), section(new, "metadata")
    if after == before:
        new["metadata"] = before
    else:
        _check_version(kind, before, after, request)
        if after.get("name", before["name"]) != before["name"]:
            raise Refused(400, "BadRequest", "the name of the object does not match the name on the URL")
        # Of a custom object's status nothing but the status and the version is looked at.
        if not (request.subresource and kind.custom):
            _check_identity(before, after, request)
        kept: JsonObject = {key: value for key, value in after.items() if key not in _OURS and key not in _NEVER}
        kept.update((key, before[key]) for key in _OURS if key in before)
        new = {**new, "metadata": before if kept == before else kept}
    if request.subresource:
        new = _status_only(kind, old, new)
    elif kind.status:
        new = _with_part(new, "status", old)
    return old if new == old else kind.fill(new, old)


def settled(kind: Kind, old: JsonObject | None, new: JsonObject) -> JsonObject:
    """The object to store: what admission made of a proposal, with its generation; `old` itself if nothing changed. Raises Invalid."""
    if old is not None:
        if new == old:
            return old
        if kind.generation and _differs(kind, old, new):
            new = with_next_generation(new)
        _check_finalizers(old, new)
    fault = kind.refuses(old, new)
    if fault:
        raise Invalid(422, "Invalid", f"{new['kind']} {section(new, 'metadata').get('name')!r} is invalid: {fault}")
    return new


def with_next_generation(document: JsonObject) -> JsonObject:
    """A kind that counts no generations stays as it is."""
    metadata = section(document, "metadata")
    generation = metadata.get("generation")
    if not isinstance(generation, int):
        return document
    return {**document, "metadata": {**metadata, "generation": generation + 1}}


def names_a_version(request: Request) -> bool:
    """Whether the write is for one state of the object only."""
    if request.content_type not in (client.MERGE_PATCH, "application/json"):
        return False
    return bool(section(decoded(request.body), "metadata").get("resourceVersion"))


def not_found(resource: Resource, name: str) -> str:
    """The API server's text."""
    where = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    return f'{where} "{name}" not found'


def _wanted(old: JsonObject, request: Request, applied: AppliedManifests) -> JsonObject:
    if request.verb == "update":
        return decoded(request.body)
    match request.content_type:
        case client.MERGE_PATCH:
            return apply(old, decoded(request.body))
        case client.JSON_PATCH:
            try:
                return apply_json_patch(old, _decode(request.body or b""))
            except PatchError as error:
                raise Invalid(
                    422, "Invalid", f"the server rejected our request due to an error in our request: {error}"
                ) from error
            except msgspec.DecodeError as error:
                raise Refused(400, "BadRequest", str(error)) from error
        case client.APPLY_PATCH:
            return applied.merged(old, manifest_of(request), request.query.get("fieldManager", ""))
        case other:
            raise Refused(415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {other}")


def manifest_of(request: Request) -> JsonObject:
    """The manifest of an apply: YAML, of which JSON is a part. Raises Refused."""
    try:
        found = msgspec.yaml.decode(request.body or b"")
    except msgspec.DecodeError as error:
        raise Refused(400, "BadRequest", f"error decoding YAML: {error}") from error
    if not isinstance(found, dict):
        raise Refused(400, "BadRequest", "error decoding YAML: not an object")
    return found


def _check_version(kind: Kind, before: JsonObject, after: JsonObject, request: Request) -> None:
    version = after.get("resourceVersion")
    if version == before["resourceVersion"]:
        return
    if version:
        raise Conflict(
            409,
            "Conflict",
            f"Operation cannot be fulfilled on {request.resource.plural} {request.name!r}: the object has been modified; "
            "please apply your changes to the latest version and try again",
        )
    if request.verb == "update" and not kind.unconditional:
        raise Invalid(422, "Invalid", "metadata.resourceVersion: Invalid value: 0: must be specified for an update")


def _check_identity(before: JsonObject, after: JsonObject, request: Request) -> None:
    if (after.get("uid") or before["uid"]) != before["uid"]:
        if request.verb == "update":
            why = f"Precondition failed: UID in precondition: {after['uid']}, UID in object meta: {before['uid']}"
            raise Conflict(
                409, "Conflict", f"Operation cannot be fulfilled on {request.resource.plural} {request.name!r}: {why}"
            )
        raise Invalid(422, "Invalid", f"metadata.uid: Invalid value: {after['uid']!r}: field is immutable")
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        if after.get(field, before.get(field)) != before.get(field):
            raise Invalid(422, "Invalid", f"metadata.{field}: Invalid value: {after[field]!r}: field is immutable")


def _status_only(kind: Kind, old: JsonObject, new: JsonObject) -> JsonObject:
    if kind.custom:
        return _with_part(old, "status", new)
    kept = {**old, "metadata": new["metadata"]} if "metadata" in new else old
    return _with_part(kept, "status", new)


def _with_part(document: JsonObject, part: str, source: JsonObject) -> JsonObject:
    """The document with one part taken from another, where it may be missing."""
    if part in source:
        return document if document.get(part) is source[part] else {**document, part: source[part]}
    return {key: value for key, value in document.items() if key != part} if part in document else document


def _differs(kind: Kind, old: JsonObject, new: JsonObject) -> bool:
    """Whether anything changed that counts for the generation."""
    apart = ("metadata", "status") if kind.status else ("metadata",)
    for key, value in new.items():
        before = old.get(key)
        if before is not value and key not in apart and before != value:
            return True
    return any(key not in new and key not in apart for key in old)


def _check_finalizers(old: JsonObject, new: JsonObject) -> None:
    before, after = section(old, "metadata"), section(new, "metadata")
    if "deletionTimestamp" not in before or before is after:
        return
    added = [one for one in _texts(after.get("finalizers")) if one not in _texts(before.get("finalizers"))]
    if added:
        raise Invalid(
            422,
            "Invalid",
            f"metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers {added}",
        )


def _texts(value: object) -> list[object]:
    return value if isinstance(value, list) else []
