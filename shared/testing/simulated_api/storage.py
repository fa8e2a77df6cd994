"""What the simulated API server holds: every object in its newest state, and every commit that led there.

One counter gives the versions, as etcd's revision does. States are never changed, only replaced, so they can be handed out and their JSON is made once.
No rules of the API live here: what may be written is decided before `commit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from shared.jobs.manifest import JsonObject
from shared.kube.resources import Resource

CollectionKey = tuple[str, str]
"""(API group, plural)."""
ObjectKey = tuple[str, str]
"""(namespace or empty, name)."""

_encode = msgspec.json.Encoder().encode


def collection_of(resource: Resource) -> CollectionKey:
    """Where the objects of a resource are kept; its versions share them."""
    return resource.group, resource.plural


class State:
    """One object as it was stored once."""

    __slots__ = ("_raw", "document")

    def __init__(self, document: JsonObject) -> None:
        self.document = document
        self._raw = b""

    @property
    def raw(self) -> bytes:
        """The document as JSON."""
        if not self._raw:
            self._raw = _encode(self.document)
        return self._raw

    @property
    def metadata(self) -> JsonObject:
        return metadata_of(self.document)

    @property
    def uid(self) -> str:
        return str(self.metadata["uid"])


def metadata_of(document: JsonObject) -> JsonObject:
    """The metadata of a document, which has to be an object. Raises TypeError."""
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        raise TypeError("an object without metadata")
    return metadata


class Commit:
    """One change. `verb` is create, update (patches and deletion marks too) or delete; `old` and `new` are documents, None where there is none."""

    __slots__ = (
        "_gone",
        "_lines",
        "after",
        "before",
        "name",
        "namespace",
        "resource",
        "subresource",
        "user",
        "verb",
        "version",
    )

    def __init__(
        self,
        version: int,
        resource: Resource,
        key: ObjectKey,
        before: State | None,
        after: State | None,
        *,
        user: str,
        subresource: str,
    ) -> None:
        self.version = version
        self.verb = "create" if before is None else "delete" if after is None else "update"
        self.resource = resource
        self.namespace, self.name = key
        self.before = before
        self.after = after
        self.user = user
        self.subresource = subresource
        self._lines: dict[str, bytes] = {}
        self._gone: State | None = None

    def __repr__(self) -> str:
        what = f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural
        return f"<{self.version} {self.verb} {what} {self.namespace}/{self.name} by {self.user}>"

    @property
    def old(self) -> JsonObject | None:
        return None if self.before is None else self.before.document

    @property
    def new(self) -> JsonObject | None:
        return None if self.after is None else self.after.document

    @property
    def gone(self) -> State:
        """The state before, at the version of this commit: what a watch is told when the object has left its view."""
        if self._gone is None:
            assert self.before is not None
            self._gone = at_version(self.before.document, self.version)
        return self._gone

    def line(self, type_: str) -> bytes:
        """The watch event, made once for all watches. `type_`: ADDED, MODIFIED or DELETED."""
        line = self._lines.get(type_)
        if line is None:
            state = self.gone if type_ == "DELETED" or self.after is None else self.after
            line = self._lines[type_] = event_line(type_, state.raw)
        return line


def event_line(type_: str, raw: bytes) -> bytes:
    """One event of a watch, without the line break."""
    return b'{"type":"%b","object":%b}' % (type_.encode(), raw)


def at_version(document: JsonObject, version: int) -> State:
    """The document with another resourceVersion."""
    return State({**document, "metadata": {**metadata_of(document), "resourceVersion": str(version)}})


class Storage:
    """All collections. `subscribe` to hear of commits, in order, at once."""

    def __init__(self) -> None:
        self.version = 1
        self.compacted = 0
        """Versions below this one can be read or watched from no more."""
        self.history: list[Commit] = []
        self.by_uid: dict[str, tuple[Resource, ObjectKey]] = {}
        self._objects: dict[CollectionKey, dict[ObjectKey, State]] = {}
        self._commits: dict[CollectionKey, list[Commit]] = {}
        self._subscribers: list[Callable[[Commit], None]] = []
        self._committing = False

    def subscribe(self, callback: Callable[[Commit], None]) -> None:
        """Have `callback` called with every commit; it may read, not write."""
        self._subscribers.append(callback)

    def find(self, resource: Resource, key: ObjectKey) -> State | None:
        """The newest state of one object."""
        found = self._objects.get((resource.group, resource.plural))
        return None if found is None else found.get(key)

    def all(self, resource: Resource) -> dict[ObjectKey, State]:
        """The newest states of a collection; not to be changed."""
        return self._objects.setdefault(collection_of(resource), {})

    def commit(
        self,
        resource: Resource,
        key: ObjectKey,
        after: JsonObject | None,
        *,
        user: str,
        subresource: str = "",
    ) -> Commit:
        """Store a document under the next version, or remove the object; its metadata gets the version. Raises RuntimeError inside a subscriber."""
        if self._committing:
            raise RuntimeError("a subscriber of commits must not write: let the loop call it soon")
        collection = self.all(resource)
        before = collection.get(key)
        self.version += 1
        state = None if after is None else at_version(after, self.version)
        if state is None:
            assert before is not None
            del collection[key]
            self.by_uid.pop(before.uid, None)
        else:
            collection[key] = state
            if before is None:
                self.by_uid[state.uid] = (resource, key)
        commit = Commit(self.version, resource, key, before, state, user=user, subresource=subresource)
        self.history.append(commit)
        self._commits.setdefault(collection_of(resource), []).append(commit)
        self._committing = True
        try:
            for tell in self._subscribers:
                tell(commit)
        finally:
            self._committing = False
        return commit

    def since(self, resource: Resource, version: int) -> list[Commit]:
        """The commits of a collection after `version`, oldest first."""
        found: list[Commit] = []
        for commit in reversed(self._commits.get(collection_of(resource), [])):
            if commit.version <= version:
                break
            found.append(commit)
        found.reverse()
        return found

    def at(self, resource: Resource, version: int) -> dict[ObjectKey, State]:
        """The collection as it was at an earlier version."""
        states = dict(self.all(resource))
        for commit in reversed(self.since(resource, version)):
            _undo(states, commit)
        return states

    def rewind(self, version: int) -> None:
        """Everything as it was at an earlier version, the counter too; what came later never was."""
        while self.history and self.history[-1].version > version:
            commit = self.history.pop()
            self._commits[collection_of(commit.resource)].pop()
            _undo(self.all(commit.resource), commit)
        self.version = version
        self.compacted = min(self.compacted, version)
        self.by_uid = {state.uid: (resource, key) for resource, key, state in self.everything()}

    def everything(self) -> Iterator[tuple[Resource, ObjectKey, State]]:
        newest = {collection_of(commit.resource): commit.resource for commit in self.history}
        for collection, resource in newest.items():
            for key, state in self._objects[collection].items():
                yield resource, key, state


def _undo(states: dict[ObjectKey, State], commit: Commit) -> None:
    key = (commit.namespace, commit.name)
    if commit.before is None:
        states.pop(key, None)
    else:
        states[key] = commit.before
