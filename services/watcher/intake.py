"""Every watched kind, listed and watched into the store for as long as the process lives, active or standby.

1. One task a kind follows its ListWatch: a list replaces the kind in the store, which finds out about deletes that nobody saw; changes and
   deletes follow.
2. A malformed object is reported once per state, on the object itself, in the log and as a dead letter; its last good state stays.
3. A list older than what is known means that the API server's data was restored: the kind is forgotten and taken anew, and `rewound` is told.

What the store holds is published elsewhere (publisher).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial

import msgspec

from services.watcher.kinds import Stored, WatchedKind, read
from services.watcher.store import Store
from shared.bus.interface import Bus, StreamsLost
from shared.kube.client import KubeClient
from shared.kube.list_watch import (
    Bookmark,
    Changed,
    Deleted,
    Down,
    Item,
    Listed,
    ListWatch,
    ObjectReference,
    Timing,
)

log = logging.getLogger("sluice.watcher.intake")

KUBERNETES = "KUBERNETES"
"""What a dead letter names as its stream when the message was an object of the API."""
_MOST_REPORTS = 10_000
_ABSENT_AFTER = 3
"""Answers in a row that a kind is not served, until its objects count as gone."""


class Malformed(msgspec.Struct, frozen=True):
    """One state of one object that nobody can use, and why."""

    kind: WatchedKind
    reference: ObjectReference
    error: str


class Intake:
    """Fills `store` from `client`."""

    def __init__(
        self,
        client: KubeClient,
        store: Store,
        bus: Bus,
        *,
        malformed: Callable[[Malformed], None],
        rewound: Callable[[str], None],
        timing: Timing | None = None,
    ) -> None:
        self._store = store
        self._bus = bus
        self._on_malformed = malformed
        self._rewound = rewound
        self.synced = asyncio.Event()
        """Every kind has been listed once (an optional one may be missing)."""
        self.down: dict[str, str] = {}
        """Kinds of which nothing arrives at present, and why."""
        self._absences: dict[str, int] = {}
        self._reported: dict[tuple[str, str, str], int] = {}
        self._dead_letters: asyncio.Queue[Malformed] = asyncio.Queue(maxsize=1000)
        self._fresh = {token: asyncio.Event() for token in store.watched}
        self._watches = {
            token: ListWatch(
                client, kind.resource, partial(read, token, kinds=store.watched), _version_of,
                on_malformed=partial(self._unreadable, kind), query=kind.query, timing=timing,
            )
            for token, kind in store.watched.items()
        }  # fmt: skip

    async def run(self) -> None:
        """Follow all kinds until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send_dead_letters())
            for token, kind in self._store.watched.items():
                group.create_task(self._follow(kind), name=f"watch {token}")

    async def relist(self) -> None:
        """List every kind again; returns when the store holds lists that began after this call. A required kind that cannot be listed is waited for."""
        for token, watch in self._watches.items():
            self._fresh[token].clear()
            watch.relist()
        for fresh in self._fresh.values():
            await fresh.wait()

    def optional(self, token: str) -> bool:
        """Whether a cluster may be without this kind."""
        return self._store.watched[token].optional

    def report(self, stored: Stored, error: str) -> None:
        """Like a malformed object: it could be read, but not used."""
        self._unreadable(
            self._store.watched[stored.kind],
            ObjectReference(stored.namespace, stored.name, stored.uid, stored.version),
            error,
        )

    async def _follow(self, kind: WatchedKind) -> None:
        async with contextlib.aclosing(self._watches[kind.token].run()) as steps:
            async for items in steps:
                for item in items:
                    self._take(kind, item)

    def _take(self, kind: WatchedKind, item: Item[Stored]) -> None:
        token = kind.token
        match item:
            case Changed(item=stored):
                self._store.put(stored)
                self._store.observed(token, stored.version)
            case Deleted(reference=gone):
                self._store.remove(token, gone.namespace, gone.name, version=gone.version)
                self._store.observed(token, gone.version)
            case Bookmark(version=version):
                self._store.observed(token, version)
            case Listed():
                self._take_list(kind, item)
                self._listed(kind)
            case Down(why=why, not_served=not_served):
                if self.down.get(token) != why:
                    log.warning("cannot watch %s: %s", kind.resource.plural, why)
                self.down[token] = why
                if kind.optional and not_served:
                    self._take_absence(kind)
                return
        self._up(token)

    def _take_list(self, kind: WatchedKind, listed: Listed[Stored]) -> None:
        known = self._store.version_of(kind.token)
        if listed.version < known:
            why = f"{kind.resource.plural} are listed at {listed.version}, but {known} was seen before"
            log.error("the API server went back in time: %s", why)
            self._store.forget(kind.token)
            self._rewound(why)
        keep = [(reference.namespace, reference.name) for reference in listed.malformed]
        self._store.replace(kind.token, listed.items, listed.version, keep)

    def _take_absence(self, kind: WatchedKind) -> None:
        """A cluster without this API has none of its objects; but one 404 may be of a server that is starting."""
        token = kind.token
        self._absences[token] = self._absences.get(token, 0) + 1
        if self._absences[token] >= _ABSENT_AFTER or not self._store.version_of(token):
            self._store.replace(token, (), self._store.version_of(token))
            self._listed(kind)

    def _listed(self, kind: WatchedKind) -> None:
        self._fresh[kind.token].set()
        if not self.synced.is_set() and all(fresh.is_set() for fresh in self._fresh.values()):
            self.synced.set()

    def _up(self, token: str) -> None:
        self._absences.pop(token, None)
        if self.down.pop(token, None) is not None:
            log.info("watching %s again", self._store.watched[token].resource.plural)

    def _unreadable(self, kind: WatchedKind, reference: ObjectReference, error: str) -> None:
        key = (kind.token, reference.namespace, reference.name)
        if self._reported.get(key) == reference.version:
            return
        if len(self._reported) >= _MOST_REPORTS:
            self._reported.clear()
        self._reported[key] = reference.version
        log.error(
            "malformed %s: %s", kind.resource.kind, error,
            extra={"namespace": reference.namespace, "object": reference.name, "version": reference.version},
        )  # fmt: skip
        found = Malformed(kind, reference, error)
        self._on_malformed(found)
        with contextlib.suppress(asyncio.QueueFull):
            self._dead_letters.put_nowait(found)

    async def _send_dead_letters(self) -> None:
        while True:
            found = await self._dead_letters.get()
            reference = found.reference
            # No payload: an object may hold values that must not cross the bus, and the API server has it.
            try:
                await self._bus.dead_letter(
                    stream=KUBERNETES,
                    subject=found.kind.resource.path(reference.namespace, reference.name),
                    sequence=reference.version,
                    attempts=1,
                    error=found.error,
                    payload=b"",
                )
            except StreamsLost as error:
                log.warning("no dead letter was written: %s", error)


def _version_of(stored: Stored) -> int:
    return stored.version
