"""Lists in pages: the first page fixes the version, a continue token carries it and the place, and ends when that version was compacted."""

from __future__ import annotations

import base64
from collections.abc import Mapping

import msgspec

from shared.kube.errors import Gone, Refused, ServerTimeout
from shared.kube.resources import Resource
from shared.testing.simulated_api.selectors import selection
from shared.testing.simulated_api.storage import ObjectKey, Storage


class _Token(msgspec.Struct, array_like=True, frozen=True):
    version: int
    namespace: str
    name: str


_tokens = msgspec.json.Decoder(_Token)


def page(storage: Storage, resource: Resource, namespace: str, query: Mapping[str, str]) -> bytes:
    """One page as JSON, in the order of namespaces and names. Raises Gone, Refused."""
    limit = int(query.get("limit") or 0)
    token = _token(query["continue"]) if query.get("continue") else None
    if token is not None and not storage.compacted <= token.version <= storage.version:
        raise Gone(410, "Expired", "The provided continue parameter is too old to display a consistent list result")
    if token is None and int(query.get("resourceVersion") or 0) > storage.version:
        why = f"Timeout: Too large resource version: {query['resourceVersion']}, current: {storage.version}"
        raise ServerTimeout(504, "Timeout", why)
    version = storage.version if token is None else token.version
    shows = selection(query)
    states = storage.all(resource) if version == storage.version else storage.at(resource, version)
    keys = sorted(key for key in states if not namespace or key[0] == namespace)
    if token is not None:
        after: ObjectKey = (token.namespace, token.name)
        keys = [key for key in keys if key > after]
    found: list[bytes] = []
    last: ObjectKey = ("", "")
    metadata: dict[str, object] = {"resourceVersion": str(version)}
    for key in keys:
        if limit and len(found) == limit:
            metadata["continue"] = _text(_Token(version, *last))
            break
        state = states[key]
        if shows is None or shows(state.document):
            found.append(state.raw)
            last = key
    head = msgspec.json.encode(
        {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
    )
    return b'%b,"items":[%b]}' % (head[:-1], b",".join(found))


def _text(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode()


def _token(text: str) -> _Token:
    try:
        return _tokens.decode(base64.urlsafe_b64decode(text))
    except ValueError as error:
        raise Refused(400, "BadRequest", f"continue key is not valid: {error}") from error
