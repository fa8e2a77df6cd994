"""What follows a deletion: objects whose owners are gone, foreground and orphan deletion, the contents of a namespace.

As in a real cluster this happens a while after the commit that caused it, each time from what is there then. Timers are the running loop's; without one
nothing happens before `collect`.
"""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from random import Random
from typing import Protocol

from shared.jobs.manifest import JsonObject, items, section
from shared.kube.errors import Conflict, NotFound
from shared.kube.resources import NAMESPACES, Resource
from shared.testing.simulated_api.storage import Commit, ObjectKey, State, Storage

COLLECTOR = "system:serviceaccount:kube-system:generic-garbage-collector"
NAMESPACE_CONTROLLER = "system:serviceaccount:kube-system:namespace-controller"
FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class Writes(Protocol):
    """The writes of the server that are used here."""

    def write(
        self, resource: Resource, namespace: str, name: str, patch: JsonObject, *, subresource: str = "", user: str = ""
    ) -> JsonObject: ...

    def delete(
        self, resource: Resource, namespace: str, name: str, *, uid: str = "", propagation: str = "", user: str = ""
    ) -> None: ...

    def finalize(self, resource: Resource, key: ObjectKey, *, user: str) -> None: ...


class GarbageCollector:
    """Follows the commits of one server. `delay_s`: least and most seconds until it acts on one."""

    def __init__(self, storage: Storage, writes: Writes, random: Random, delay_s: tuple[float, float]) -> None:
        self._storage = storage
        self._writes = writes
        self._random = random
        self._delay_s = delay_s
        self._owned: dict[str, dict[str, None]] = {}
        """Owner's uid -> uids of what it owns."""
        self._waiting: dict[str, None] = {}
        self._context = copy_context()
        storage.subscribe(self._commit)

    def collect(self) -> None:
        """Act on everything that waits, until nothing more follows from it."""
        while self._waiting:
            uid = next(iter(self._waiting))
            self._look(uid)

    def rebuild(self, documents: list[JsonObject]) -> None:
        """The data were replaced: these objects are there now."""
        self._owned.clear()
        self._waiting.clear()
        for document in documents:
            uid = str(section(document, "metadata").get("uid"))
            self._own(uid, document)
            self._wait_for(uid)

    def _commit(self, commit: Commit) -> None:
        if commit.after is None:
            assert commit.before is not None
            uid = commit.before.uid
            for owner in _owners(commit.before.document):
                self._owned.get(owner, {}).pop(uid, None)
                self._wait_for(owner)
            for dependent in self._owned.get(uid, ()):
                self._wait_for(dependent)
            if commit.namespace:
                namespace = self._storage.find(NAMESPACES, ("", commit.namespace))
                if namespace is not None and _terminating(namespace):
                    self._wait_for(namespace.uid)
            return
        metadata = commit.after.metadata
        if commit.before is None or commit.before.metadata.get("ownerReferences") != metadata.get("ownerReferences"):
            uid = commit.after.uid
            for owner in [] if commit.old is None else _owners(commit.old):
                self._owned.get(owner, {}).pop(uid, None)
            self._own(uid, commit.after.document)
            if metadata.get("ownerReferences"):
                self._wait_for(uid)
        if _terminating(commit.after):
            self._wait_for(commit.after.uid)

    def _own(self, uid: str, document: JsonObject) -> None:
        for owner in _owners(document):
            self._owned.setdefault(owner, {})[uid] = None

    def _wait_for(self, uid: str) -> None:
        if uid in self._waiting:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._waiting[uid] = None
            return
        self._waiting[uid] = None
        loop.call_later(self._random.uniform(*self._delay_s), self._look, uid, context=self._context)

    def _look(self, uid: str) -> None:
        """One object that waits: is it garbage, and what does its own deletion wait for?"""
        if uid not in self._waiting:
            return
        del self._waiting[uid]
        place = self._storage.by_uid.get(uid)
        if place is None:
            return
        resource, key = place
        state = self._storage.find(resource, key)
        if state is None or state.uid != uid:
            return
        if _terminating(state):
            self._finish(resource, key, state)
        else:
            owners = _owners(state.document)
            if owners and not any(owner in self._storage.by_uid for owner in owners):
                self._delete(resource, key, uid, COLLECTOR)

    def _finish(self, resource: Resource, key: ObjectKey, state: State) -> None:
        """A deletion that waits for what the object owns, or holds."""
        if resource.plural == "namespaces" and not resource.group:
            self._empty(key[1], state)
            return
        finalizers = state.metadata.get("finalizers") or []
        assert isinstance(finalizers, list)
        dependents = list(self._owned.get(state.uid, ()))
        if ORPHAN in finalizers:
            for dependent in dependents:
                self._release(dependent, state.uid)
            self._drop(resource, key, finalizers, ORPHAN)
        elif FOREGROUND in finalizers:
            blocking = False
            for dependent in dependents:
                blocking = self._delete_dependent(dependent, state.uid) or blocking
            if not blocking:
                self._drop(resource, key, finalizers, FOREGROUND)

    def _delete_dependent(self, uid: str, owner: str) -> bool:
        """Delete what a terminating object owns, if nothing else does; whether the owner has to wait for it."""
        resource, key = self._storage.by_uid[uid]
        state = self._storage.find(resource, key)
        assert state is not None
        if any(other in self._storage.by_uid for other in _owners(state.document) if other != owner):
            return False
        if not _terminating(state):
            self._delete(resource, key, uid, COLLECTOR)
        return uid in self._storage.by_uid and any(
            one.get("uid") == owner and one.get("blockOwnerDeletion") is True
            for one in items(state.document, "metadata", "ownerReferences")
        )

    def _release(self, uid: str, owner: str) -> None:
        resource, (namespace, name) = self._storage.by_uid[uid]
        state = self._storage.find(resource, (namespace, name))
        assert state is not None
        kept = [one for one in items(state.document, "metadata", "ownerReferences") if one.get("uid") != owner]
        patch: JsonObject = {"metadata": {"ownerReferences": kept or None}}
        self._writes.write(resource, namespace, name, patch, user=COLLECTOR)

    def _drop(self, resource: Resource, key: ObjectKey, finalizers: list[object], done: str) -> None:
        kept = [one for one in finalizers if one != done]
        self._writes.write(resource, *key, {"metadata": {"finalizers": kept or None}}, user=COLLECTOR)

    def _empty(self, namespace: str, state: State) -> None:
        held = [(resource, key, uid) for uid, (resource, key) in self._storage.by_uid.items() if key[0] == namespace]
        for resource, key, uid in held:
            self._delete(resource, key, uid, NAMESPACE_CONTROLLER)
        if not any(key[0] == namespace for _, key in self._storage.by_uid.values()):
            self._writes.finalize(NAMESPACES, ("", namespace), user=NAMESPACE_CONTROLLER)

    def _delete(self, resource: Resource, key: ObjectKey, uid: str, user: str) -> None:
        try:
            self._writes.delete(resource, *key, uid=uid, propagation="Background", user=user)
        except (NotFound, Conflict):
            # Somebody was quicker.
            return


def _owners(document: JsonObject) -> list[str]:
    """The uids of the owners."""
    metadata = document["metadata"]
    if not isinstance(metadata, dict) or not metadata.get("ownerReferences"):
        return []
    return [str(owner.get("uid")) for owner in items(document, "metadata", "ownerReferences")]


def _terminating(state: State) -> bool:
    return "deletionTimestamp" in state.metadata
