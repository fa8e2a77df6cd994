"""An API server in memory behind the methods of KubeClient: versions, uids, merge patches, the status subresource, deletion with finalizers, and faults.

It keeps what the gateway relies on and nothing else: no schemas, no admission. `fail` makes calls end in an error, before or after they were carried out.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from services.watcher.store import Store
from shared.jobs.merge_patch import apply
from shared.kube.client import MERGE_PATCH, STRATEGIC_MERGE_PATCH, KubeClient
from shared.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from shared.kube.resources import Resource

Key = tuple[str, str, str]


class Call:
    """A write as it was asked for."""

    def __init__(self, verb: str, plural: str, name: str, subresource: str, body: Any) -> None:
        self.verb = verb
        self.plural = plural
        self.name = name
        self.subresource = subresource
        self.body = body

    def __repr__(self) -> str:
        return f"{self.verb} {self.plural}/{self.subresource or '-'} {self.name} {self.body}"


class FakeApi:
    def __init__(self) -> None:
        self.objects: dict[Key, dict[str, Any]] = {}
        self.calls: list[Call] = []
        """Writes, in order; reads are not among them."""
        self.version = 1000
        self.poison: set[str] = set()
        """Names of objects whose patches make the caller's code fail."""
        self.is_active = True
        self.served: dict[str, list[dict[str, Any]]] = {}
        """What discovery tells, by path."""
        self._faults: deque[tuple[str, ApiError, bool, Callable[[], None] | None]] = deque()

    def may_write(self) -> bool:
        """Whether whoever writes is the active gateway."""
        return self.is_active

    @property
    def client(self) -> KubeClient:
        return cast(KubeClient, self)

    def fail(
        self, verb: str, error: ApiError, *, landed: bool = False, meanwhile: Callable[[], None] | None = None
    ) -> None:
        """The next `verb` raises; `landed`: after it was carried out. `meanwhile` runs before."""
        self._faults.append((verb, error, landed, meanwhile))

    def put(self, resource: str, document: dict[str, Any]) -> dict[str, Any]:
        """Somebody else's write: a new state of an object."""
        self.version += 1
        meta = document["metadata"]
        document["metadata"] = {**meta, "resourceVersion": str(self.version)}
        self.objects[(resource, meta.get("namespace", ""), meta["name"])] = document
        return document

    def load(self, store: Store, kind: str, resource: str, document: dict[str, Any]) -> None:
        """`put`, and the watch has delivered it."""
        store.upsert(kind, json.dumps(self.put(resource, document)).encode())

    def one(self, resource: str, name: str, namespace: str = "team") -> dict[str, Any]:
        return self.objects[(resource, namespace, name)]

    def objects_of(self, resource: str) -> list[dict[str, Any]]:
        return [found for (plural, _, _), found in self.objects.items() if plural == resource]

    def created(self, plural: str) -> list[dict[str, Any]]:
        return [call.body for call in self.calls if call.verb == "create" and call.plural == plural]

    async def get(self, resource: Resource, namespace: str, name: str, **_: Any) -> bytes:
        self._fault("get", before=True)
        found = self.objects.get((resource.plural, namespace, name))
        if found is None:
            raise NotFound(404, "NotFound", name)
        return json.dumps(found).encode()

    async def discover(self, path: str) -> bytes:
        """Kinds that somebody has put objects of."""
        self._fault("get", before=True)
        if path not in self.served:
            raise NotFound(404, "NotFound", path)
        return json.dumps({"resources": self.served[path]}).encode()

    async def create(self, resource: Resource, namespace: str, body: bytes, **_: Any) -> bytes:
        landed = self._fault("create", before=True)
        document = json.loads(body)
        name = document["metadata"]["name"]
        self.calls.append(Call("create", resource.plural, name, "", document))
        if (resource.plural, namespace, name) in self.objects:
            raise AlreadyExists(409, "AlreadyExists", name)
        document["metadata"] = {"uid": f"uid-{name}", "generation": 1, **document["metadata"], "namespace": namespace}
        made = self.put(resource.plural, document)
        if landed is not None:
            raise landed
        return json.dumps(made).encode()

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: bytes,
        *,
        subresource: str = "",
        content_type: str = MERGE_PATCH,
        **_: Any,
    ) -> bytes:
        landed = self._fault("patch", before=True)
        if name in self.poison:
            raise ValueError("poison")
        patch = json.loads(body)
        self.calls.append(Call("patch", resource.plural, name, subresource, patch))
        key = (resource.plural, namespace, name)
        found = self.objects.get(key)
        if found is None:
            raise NotFound(404, "NotFound", name)
        wanted = patch.get("metadata", {})
        for field in ("resourceVersion", "uid"):
            if wanted.get(field, found["metadata"][field]) != found["metadata"][field]:
                raise Conflict(409, "Conflict", f"{field} of {name}")
        parts = {"status", "metadata"} if subresource else set(patch) - {"status"}
        if content_type == STRATEGIC_MERGE_PATCH:
            patch = _with_conditions(patch, found)
        if subresource:
            patch["metadata"] = {}
        new = apply(found, {part: patch[part] for part in parts if part in patch})
        if new == found:
            return json.dumps(found).encode()
        if new.get("spec") != found.get("spec"):
            metadata = cast("dict[str, Any]", new["metadata"])
            new["metadata"] = {**metadata, "generation": metadata.get("generation", 1) + 1}
        made = self.put(resource.plural, new)
        if made["metadata"].get("deletionTimestamp") and not made["metadata"].get("finalizers"):
            del self.objects[key]
        if landed is not None:
            raise landed
        return json.dumps(made).encode()

    async def delete(self, resource: Resource, namespace: str, name: str, *, uid: str = "", **_: Any) -> bytes:
        self._fault("delete", before=True)
        self.calls.append(Call("delete", resource.plural, name, "", {}))
        found = self.objects.get((resource.plural, namespace, name))
        if found is None:
            raise NotFound(404, "NotFound", name)
        if uid and found["metadata"]["uid"] != uid:
            raise Conflict(409, "Conflict", name)
        if found["metadata"].get("finalizers"):
            metadata = {**found["metadata"], "deletionTimestamp": "2026-01-03T00:00:00Z"}
            return json.dumps(self.put(resource.plural, {**found, "metadata": metadata})).encode()
        del self.objects[(resource.plural, namespace, name)]
        return b"{}"

    def _fault(self, verb: str, *, before: bool) -> ApiError | None:
        """Raises, or returns the error to raise once the call was carried out."""
        if not self._faults or self._faults[0][0] != verb:
            return None
        _, error, landed, meanwhile = self._faults.popleft()
        if meanwhile is not None:
            meanwhile()
        if landed:
            return error
        raise error


def _with_conditions(patch: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """A strategic merge of conditions, which are told apart by their type, as a merge patch."""
    present = {c["type"]: c for c in found.get("status", {}).get("conditions", [])}
    present |= {c["type"]: c for c in patch["status"].get("conditions", [])}
    return {**patch, "status": {**patch["status"], "conditions": list(present.values())}}
