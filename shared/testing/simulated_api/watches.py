"""Open watches of the simulated API server: which events each one gets, bookmarks, and how it ends.

A watch holds lines until its stream takes them. The JSON of an event is made once and shared by all watches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random

import msgspec

from shared.jobs.manifest import JsonObject
from shared.kube.errors import ApiError, Gone
from shared.kube.resources import Resource
from shared.kube.transport import Request
from shared.testing.simulated_api.selectors import Matches, selection
from shared.testing.simulated_api.storage import CollectionKey, Commit, Storage, collection_of, event_line

_LAST_BOOKMARK_S = 2.0
"""A watch gets one more bookmark this long before it ends."""
_LONGEST_S = 1800.0
"""A watch that names no time-out ends after this to twice this."""


class Watch:
    """One open watch. `lines` wait for the stream; `over`: the server ended it; `broken`: the connection is gone."""

    def __init__(self, request: Request, *, after: int, ends_at: float, bookmark_at: float | None) -> None:
        self.resource = request.resource
        self.namespace = request.namespace
        self.shows: Matches | None = selection(request.query)
        self.after = after
        """Only later versions are told. One that was never reached is waited for, in silence, as the real server does."""
        self.ends_at = ends_at
        self.bookmark_at = bookmark_at
        """When the next bookmark is due, in the loop's time; None: none are wanted."""
        self.lines: list[bytes] = []
        self.over = False
        self.broken = False
        self.silent = False
        """The connection seems to live, and nothing arrives any more."""
        self._wake: asyncio.Future[None] | None = None

    def take(self, commit: Commit) -> None:
        """A commit of this collection."""
        type_ = self._type(commit)
        if type_ and not self.silent:
            self.lines.append(commit.line(type_))
            self._awake()

    def end(self) -> None:
        """The server has nothing more to say."""
        self.over = True
        self._awake()

    def break_(self) -> None:
        """The connection is gone, and with it what was not delivered."""
        self.broken = True
        self._awake()

    async def wait(self, until: float) -> None:
        """Until there is something to do, or `until` in the loop's time."""
        if self.lines or self.over or self.broken:
            return
        loop = asyncio.get_running_loop()
        self._wake = loop.create_future()
        timer = loop.call_at(until, self._awake)
        try:
            await self._wake
        finally:
            timer.cancel()
            self._wake = None

    def _awake(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _type(self, commit: Commit) -> str:
        if commit.version <= self.after or (self.namespace and commit.namespace != self.namespace):
            return ""
        if self.shows is None:
            return {"create": "ADDED", "update": "MODIFIED", "delete": "DELETED"}[commit.verb]
        before = commit.old is not None and self.shows(commit.old)
        after = commit.new is not None and self.shows(commit.new)
        if not after:
            return "DELETED" if before else ""
        return "MODIFIED" if before else "ADDED"


class Watches:
    """All open watches of one server."""

    def __init__(self, storage: Storage, random: Random, *, bookmark_s: float) -> None:
        self._storage = storage
        self._random = random
        self._bookmark_s = bookmark_s
        self._open: dict[CollectionKey, list[Watch]] = {}
        storage.subscribe(self._commit)

    def open(self, request: Request) -> Watch:
        """A watch with what happened since the version that the query names; without one, or from 0, with all objects first. Raises Refused."""
        now = asyncio.get_running_loop().time()
        seconds = float(request.query.get("timeoutSeconds") or 0) or self._random.uniform(_LONGEST_S, 2 * _LONGEST_S)
        wanted = request.query.get("allowWatchBookmarks") in ("true", "1")
        version = int(request.query.get("resourceVersion") or 0)
        watch = Watch(request, after=version, ends_at=now + seconds, bookmark_at=None)
        if wanted:
            watch.bookmark_at = self._next_bookmark(watch, now)
        if not version:
            self._begin(watch)
        elif version < self._storage.compacted:
            watch.lines.append(
                _error_line(Gone(410, "Expired", f"too old resource version: {version} ({self._storage.compacted})"))
            )
            watch.over = True
        else:
            for commit in self._storage.since(request.resource, version):
                watch.take(commit)
        self._open.setdefault(collection_of(request.resource), []).append(watch)
        return watch

    def close(self, watch: Watch) -> None:
        """The client left, or the stream is over."""
        watch.lines.clear()
        watches = self._open[collection_of(watch.resource)]
        if watch in watches:
            watches.remove(watch)

    def count(self, resource: Resource | None = None) -> int:
        """How many are open."""
        return sum(1 for _ in self._of(resource))

    def bookmark(self, watch: Watch, now: float) -> None:
        """Let the watch know that it has seen everything up to now; the next time is later."""
        watch.bookmark_at = self._next_bookmark(watch, now)
        if self._storage.version < watch.after:
            return
        document: JsonObject = {
            "kind": watch.resource.kind,
            "apiVersion": watch.resource.api_version,
            "metadata": {"resourceVersion": str(self._storage.version), "creationTimestamp": None},
        }
        watch.lines.append(event_line("BOOKMARK", msgspec.json.encode(document)))

    def _next_bookmark(self, watch: Watch, now: float) -> float | None:
        last = watch.ends_at - _LAST_BOOKMARK_S
        return min(now + self._bookmark_s, last) if now < last else None

    def break_all(self, resource: Resource | None = None) -> None:
        """Connections of these watches, or of all, are reset."""
        for watch in self._of(resource):
            watch.break_()

    def silence(self, resource: Resource | None = None) -> None:
        """Nothing reaches these watches any more, and nobody tells them."""
        for watch in self._of(resource):
            watch.silent = True
            watch.lines.clear()

    def _of(self, resource: Resource | None) -> list[Watch]:
        if resource is not None:
            return list(self._open.get(collection_of(resource), ()))
        return [watch for watches in self._open.values() for watch in watches]

    def _begin(self, watch: Watch) -> None:
        for (namespace, _), state in sorted(self._storage.all(watch.resource).items()):
            if watch.namespace in ("", namespace) and (watch.shows is None or watch.shows(state.document)):
                watch.lines.append(event_line("ADDED", state.raw))

    def _commit(self, commit: Commit) -> None:
        for watch in self._open.get((commit.resource.group, commit.resource.plural), ()):
            watch.take(commit)


def status_of(error: ApiError) -> Mapping[str, object]:
    """The metav1.Status that tells an error."""
    body: dict[str, object] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
        "code": error.status,
    }
    if error.retry_after:
        body["details"] = {"retryAfterSeconds": int(error.retry_after)}
    return body


def _error_line(error: ApiError) -> bytes:
    return event_line("ERROR", msgspec.json.encode(status_of(error)))
