"""The watch copy: the newest known state of every watched object, in memory.

Watches feed it, and so do the responses of our own writes, in any order: of two states the one with the higher version stays, and a state
that was deleted does not come back. Readers are told of every change, in the order in which it happened here. It makes no calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

import msgspec

from services.watcher.kinds import KINDS, MalformedObject, Stored, WatchedKind, read

__all__ = ["Change", "MalformedObject", "Store", "Stored"]


class Change(msgspec.Struct, frozen=True, gc=False):
    """`old` is None for a new object, `new` for one that is gone; with two uids it is another object of the same name."""

    kind: str
    old: Stored | None
    new: Stored | None
    version: int
    """That of `new`, or at which the object was gone."""

    @property
    def subject(self) -> Stored:
        """Whichever there is, the newer one first."""
        found = self.new or self.old
        assert found is not None
        return found


Callback = Callable[[Change], None]
_Name = tuple[str, str]


class Store:
    """Objects by kind, namespace and name, with indexes by namespace and by owner. Not for use by several threads."""

    def __init__(self, watched: Mapping[str, WatchedKind] = KINDS) -> None:
        self.watched = watched
        """The kinds that there may be objects of."""
        self._kinds = {token: _Kind() for token in {**KINDS, **watched}}
        self._subscribers: list[Callback] = []

    def subscribe(self, callback: Callback) -> None:
        """Call `callback` on every change, within the call that made it. It must be quick and must not fail."""
        self._subscribers.append(callback)

    def get(self, kind: str, namespace: str, name: str) -> Stored | None:
        """The newest known state; `namespace` is empty for cluster-scoped kinds."""
        return self._kinds[kind].objects.get((namespace, name))

    def of_kind(self, kind: str) -> Iterable[Stored]:
        """All objects of a kind; a snapshot, so the store may change meanwhile."""
        return tuple(self._kinds[kind].objects.values())

    def in_namespace(self, kind: str, namespace: str) -> list[Stored]:
        """All objects of a kind in a namespace."""
        found = self._kinds[kind]
        return [found.objects[name] for name in found.by_namespace.get(namespace, ())]

    def owned_by(self, kind: str, owner_uid: str) -> list[Stored]:
        """All objects of a kind with an owner reference to this uid."""
        found = self._kinds[kind]
        return [found.objects[name] for name in found.by_owner.get(owner_uid, ())]

    def version_of(self, kind: str) -> int:
        """Everything that happened to the kind up to this resourceVersion is in here; 0 before the first list."""
        return self._kinds[kind].seen

    def upsert(self, kind: str, raw: bytes) -> bool:
        """Take in an object as the API server sent it; False if it was not news. Raises MalformedObject."""
        return self.put(read(kind, raw, self.watched))

    def put(self, new: Stored) -> bool:
        """Take in one state; False if the same or a newer one is known, or if it is known to be gone."""
        kind = self._kinds[new.kind]
        name = (new.namespace, new.name)
        old = kind.objects.get(name)
        if old is not None:
            if new.version <= old.version:
                return False
        elif new.version <= kind.gone.get(name, kind.seen):
            # The watch has passed this version and holds no such object: it was deleted since.
            return False
        self._replace(kind, name, old, new, new.version)
        return True

    def remove(self, kind: str, namespace: str, name: str, *, version: int) -> bool:
        """No object had this name at `version`; False if none was known, or a newer one is. Versions order all objects of a
        name, so which of them was deleted does not matter."""
        found = self._kinds[kind]
        key = (namespace, name)
        old = found.objects.get(key)
        found.unreadable -= {key}
        if version > found.seen:
            found.gone[key] = max(version, found.gone.get(key, 0))
        if old is None or old.version > version:
            return False
        self._replace(found, key, old, None, version)
        return True

    def replace(self, kind: str, items: Iterable[Stored], version: int, keep: Iterable[_Name] = ()) -> None:
        """The whole kind as listed at `version`: what is not among the items and not newer is gone. `keep`: listed, but unreadable."""
        found = self._kinds[kind]
        if version < found.seen:
            raise ValueError(f"a list of {kind} at {version} is older than what is known, at {found.seen}")
        listed = set(keep)
        found.unreadable = frozenset(listed)
        for item in items:
            name = (item.namespace, item.name)
            listed.add(name)
            old = found.objects.get(name)
            if item.version > (old.version if old is not None else found.gone.get(name, 0)):
                self._replace(found, name, old, item, item.version)
        for name, old in tuple(found.objects.items()):
            if name not in listed and old.version <= version:
                self._replace(found, name, old, None, version)
        self.observed(kind, version)

    def is_unreadable(self, kind: str, namespace: str, name: str) -> bool:
        """The object was there when the kind was listed, but could not be read: what it was before still counts."""
        return (namespace, name) in self._kinds[kind].unreadable

    def observed(self, kind: str, version: int) -> None:
        """The watch of the kind has delivered everything up to `version`."""
        found = self._kinds[kind]
        if version > found.seen:
            found.seen = version
            if found.gone:
                found.gone = {name: at for name, at in found.gone.items() if at > version}

    def forget(self, kind: str) -> None:
        """Drop a kind as if it had never been listed, since the API server went back in time; to readers all of it is gone."""
        found = self._kinds[kind]
        for name, old in tuple(found.objects.items()):
            self._replace(found, name, old, None, max(found.seen, old.version))
        self._kinds[kind] = _Kind()

    def _replace(self, kind: _Kind, name: _Name, old: Stored | None, new: Stored | None, version: int) -> None:
        if old is not None:
            kind.unindex(name, old)
        if name in kind.unreadable:
            kind.unreadable -= {name}
        if new is None:
            del kind.objects[name]
        else:
            kind.objects[name] = new
            kind.index(name, new)
        found = new or old
        assert found is not None
        change = Change(found.kind, old, new, version)
        for callback in self._subscribers:
            callback(change)


class _Kind:
    """The objects of one kind."""

    def __init__(self) -> None:
        self.objects: dict[_Name, Stored] = {}
        self.by_namespace: defaultdict[str, dict[_Name, None]] = defaultdict(dict)
        self.by_owner: defaultdict[str, dict[_Name, None]] = defaultdict(dict)
        self.gone: dict[_Name, int] = {}
        """Versions of deletions that the watch has not delivered yet."""
        self.seen = 0
        self.unreadable: frozenset[_Name] = frozenset()

    def index(self, name: _Name, new: Stored) -> None:
        if new.namespace:
            self.by_namespace[new.namespace][name] = None
        for owner in new.object.metadata.owner_references:
            self.by_owner[owner.uid][name] = None

    def unindex(self, name: _Name, old: Stored) -> None:
        if old.namespace:
            _drop(self.by_namespace, old.namespace, name)
        for owner in old.object.metadata.owner_references:
            _drop(self.by_owner, owner.uid, name)


def _drop(index: defaultdict[str, dict[_Name, None]], key: str, name: _Name) -> None:
    names = index.get(key)
    if names is not None:
        names.pop(name, None)
        if not names:
            del index[key]
