"""The level-triggered writer of commands: which keys to judge and when, which of its commands are still open, and the loop around it.

Why it exists: queue_manager, preemptor and provisioning_request compare what is with what should be and ask the gateway for the difference. Without a
memory they would ask again with every change they see before their own is done. What should be is the service's business: it brings a `Judge`.

A command, by its subject:

    sent      until its outcome comes; asked again after `answer_s` without one, then after twice that, and so on (it may have been replaced on the stream)
    unseen    answered, but our view of its target is older than the answer: its key is not judged (at most `view_s`)
    settled   our view has caught up. If the same content is wanted still, it is asked again after a growing pause
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge

from shared.bus.interface import Bus, CaughtUp, FeedItem, Lease, ObjectChanged, Reset, Settled
from shared.events.commands import Command, SetCheckActive, SetQueueStatus, subject_of
from shared.events.objects import Tombstone
from shared.events.outcomes import CommandOutcome

log = logging.getLogger("sluice.commands")

KEYS_A_STEP = 500
"""How many keys are judged before others (the reader, health checks) get their turn."""
MOST_PATIENCE_S = 600.0
"""Longest wait for an outcome: a gateway that is behind by minutes is not helped by asking each minute."""
SHORTEST_PAUSE_S = 0.01
"""A judge that wants to look again at once does not get to spin."""

VersionOf = Callable[[str, str], int]
"""(kind, key) of an object -> version of our view of it (of its tombstone, when it is gone); 0 if never seen."""


class Agenda:
    """Keys to judge: at once, or at a time (seconds since the epoch). A key waits once, with its earliest time."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._due)

    def clear(self) -> None:
        """Forget everything."""
        self._heap.clear()
        self._due.clear()

    def mark(self, key: str) -> None:
        """Judge `key` at once."""
        self.at(0.0, key)

    def at(self, when: float, key: str) -> None:
        """Judge `key` at `when`, unless it is due earlier."""
        if when < self._due.get(key, float("inf")):
            self._due[key] = when
            heapq.heappush(self._heap, (when, key))

    @property
    def next(self) -> float | None:
        """When the next key is due; None if none waits."""
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, now: float, limit: int) -> list[str]:
        """At most `limit` keys that are due, earliest first; they wait no longer."""
        keys: list[str] = []
        while len(keys) < limit and (due := self.next) is not None and due <= now:
            _, key = heapq.heappop(self._heap)
            del self._due[key]
            keys.append(key)
        return keys


class _Sent(msgspec.Struct, gc=False):
    key: str
    content: Command
    id: str
    since: float
    attempts: int = 1
    answered: bool = False
    version: int = 0
    """Of the answer; our view must reach it."""
    seen: bool = False
    again_at: float = 0.0


class OpenCommands:
    """The open commands of one writer. Durations are seconds."""

    def __init__(
        self,
        writer: str,
        version_of: VersionOf,
        *,
        answer_s: float = 60.0,
        view_s: float = 30.0,
        retry_s: float = 1.0,
        retry_max_s: float = 60.0,
    ) -> None:
        self._writer = writer
        self._version_of = version_of
        self._answer_s = answer_s
        self._view_s = view_s
        self._retry_s = retry_s
        self._retry_max_s = retry_max_s
        self._instance = secrets.token_hex(4)
        self._numbers = itertools.count(1)
        self._by_subject: dict[str, _Sent] = {}
        self._by_id: dict[str, str] = {}
        self._by_key: dict[str, set[str]] = {}
        self._unseen: dict[tuple[str, str], set[str]] = {}

    def __len__(self) -> int:
        """How many wait for their outcome."""
        return sum(not sent.answered for sent in self._by_subject.values())

    def clear(self) -> None:
        """Forget everything: after a Reset all is judged anew."""
        self._by_subject.clear()
        self._by_id.clear()
        self._by_key.clear()
        self._unseen.clear()

    def settled(self, outcome: CommandOutcome, now: float) -> str | None:
        """Take an outcome; returns the key to judge again, None if the command is not one of ours that is open."""
        subject = self._by_id.pop(outcome.command, None)
        sent = self._by_subject.get(subject) if subject is not None else None
        if sent is None or sent.id != outcome.command:
            return None
        sent.answered = True
        sent.version = outcome.version
        sent.since = now
        sent.again_at = now + min(self._retry_s * 2.0 ** min(sent.attempts - 1, 30), self._retry_max_s)
        # What refused to make an object that we have never seen was some other object.
        unknown = outcome.status == "rejected" and not self._version_of(sent.content.kind, sent.content.key)
        if unknown or self._reached(sent):
            sent.seen = True
        else:
            self._unseen.setdefault((sent.content.kind, sent.content.key), set()).add(sent.key)
        return sent.key

    def viewed(self, kind: str, key: str) -> Iterable[str]:
        """Our view of this object changed: the keys that waited for it."""
        return self._unseen.pop((kind, key), ())

    def waiting(self, key: str, now: float) -> float | None:
        """Until when `key` should not be judged since our view does not show yet what was answered; None: judge it."""
        until: float | None = None
        for subject in self._by_key.get(key, ()):
            sent = self._by_subject[subject]
            if not sent.answered or sent.seen:
                continue
            if self._reached(sent) or now >= sent.since + self._view_s:
                sent.seen = True
                continue
            self._unseen.setdefault((sent.content.kind, sent.content.key), set()).add(key)
            until = max(until or 0.0, sent.since + self._view_s)
        return until

    def select(self, key: str, wanted: Sequence[Command], now: float, agenda: Agenda) -> list[Command]:
        """Those of `wanted` to send now, each with a fresh id; they count as sent. `wanted` is all that `key` wants: what it no longer wants
        is forgotten. A time to look again, if any, is put into `agenda`."""
        chosen: list[Command] = []
        kept: set[str] = set()
        for command in wanted:
            subject = subject_of(self._writer, command)
            kept.add(subject)
            content = _content(command)
            sent = self._by_subject.get(subject)
            attempts = 1
            if sent is not None and sent.content == content:
                again = sent.again_at if sent.answered else self._overdue_at(sent)
                if now < again:
                    agenda.at(again, key)
                    continue
                attempts = sent.attempts + 1
            chosen.append(self._send(key, subject, command, content, attempts, now))
            agenda.at(self._overdue_at(self._by_subject[subject]), key)
        for subject in self._by_key.get(key, set()) - kept:
            if self._by_subject[subject].answered or now >= self._overdue_at(self._by_subject[subject]):
                self._forget(subject)
        return chosen

    def _send(self, key: str, subject: str, command: Command, content: Command, attempts: int, now: float) -> Command:
        if subject in self._by_subject:
            self._forget(subject)
        id_ = f"{self._writer}-{self._instance}-{next(self._numbers)}"
        self._by_subject[subject] = _Sent(key=key, content=content, id=id_, since=now, attempts=attempts)
        self._by_id[id_] = subject
        self._by_key.setdefault(key, set()).add(subject)
        stamped: Command = msgspec.structs.replace(command, id=id_)
        return stamped

    def _forget(self, subject: str) -> None:
        sent = self._by_subject.pop(subject)
        self._by_id.pop(sent.id, None)
        subjects = self._by_key[sent.key]
        subjects.discard(subject)
        if not subjects:
            del self._by_key[sent.key]

    def _overdue_at(self, sent: _Sent) -> float:
        return sent.since + min(self._answer_s * 2.0 ** min(sent.attempts - 1, 30), MOST_PATIENCE_S)

    def _reached(self, sent: _Sent) -> bool:
        return sent.version <= self._version_of(sent.content.kind, sent.content.key)


def _content(command: Command) -> Command:
    """What makes two commands on one subject the same wish."""
    content: Command = msgspec.structs.replace(command, id="", version=0, trace="")
    if isinstance(content, SetQueueStatus | SetCheckActive):
        # A wish that is made again a second later means the same transition.
        return msgspec.structs.replace(content, active=msgspec.structs.replace(content.active, changed=0))
    return content


class Verdict(msgspec.Struct, frozen=True):
    """What a key wants: commands without id (an empty tuple: all is well), and when to judge it again even if nothing changes."""

    commands: tuple[Command, ...] = ()
    again_at: float | None = None


class Judge(Protocol):
    """The part that a service brings. Keys are its own; every method is quick and does no I/O."""

    def fold(self, item: FeedItem, now: float) -> Iterable[str]:
        """Take in one item of the feed (a Reset forgets all); returns the keys it concerns."""
        ...

    def version(self, kind: str, key: str) -> int:
        """Version of the view of an object (see VersionOf)."""
        ...

    def everything(self) -> Iterable[str]:
        """All keys: judged after a replay, and by a standby that becomes active."""
        ...

    def judge(self, key: str, now: float) -> Verdict:
        """Compare what is with what should be."""
        ...


class CommandWriter:
    """Lets the judge fold and judge, and sends what is not asked for yet.

    1. A Reset forgets everything; nothing is judged before CaughtUp, and then everything is.
    2. An object that changed, an outcome, or a time that has come puts keys on the agenda.
    3. A step takes due keys that do not wait for our view, judges each, and sends what is new of what they want.
    4. With a lease, a standby folds as well but judges nothing; when it becomes active it judges everything.

    A key whose judgement fails is logged, counted, and judged again with its next change: it never stops the others.
    """

    def __init__(self, writer: str, judge: Judge, metrics: CollectorRegistry, *, leads: bool) -> None:
        self.judge = judge
        self.agenda = Agenda()
        self.open = OpenCommands(writer, judge.version)
        self.leads = leads
        """False while another instance is active."""
        self.caught_up = False
        self._traces: dict[str, str] = {}
        self._lost = asyncio.Event()
        self._sent = Counter(f"sluice_{writer}_commands_sent", "Commands sent, by type.", ["type"], registry=metrics)
        self._failed = Counter(f"sluice_{writer}_judgements_failed", "Keys that could not be judged.", registry=metrics)
        Gauge(f"sluice_{writer}_commands_open", "Commands without an outcome.", registry=metrics).set_function(
            lambda: len(self.open)
        )

    def fold(self, items: Iterable[FeedItem], now: float) -> None:
        """Take in items of the feed, in their order."""
        for item in items:
            keys = list(self.judge.fold(item, now))
            match item:
                case ObjectChanged(name=name, trace=trace):
                    if name.kind == "workload":
                        self._remember_trace(name.key, "" if isinstance(item.object, Tombstone) else trace)
                    keys += self.open.viewed(name.kind, name.key)
                case Settled(outcome=CommandOutcome() as outcome):
                    key = self.open.settled(outcome, now)
                    keys += [key] if key is not None else []
                case Reset():
                    self.caught_up = False
                    self._traces.clear()
                    self._begin()
                case CaughtUp():
                    self.caught_up = True
                    self._begin()
                case _:
                    pass
            self._mark(keys)

    def lead(self, leads: bool) -> None:
        """Become active, or a standby."""
        if leads != self.leads:
            self.leads = leads
            self._begin()

    def step(self, now: float, limit: int = KEYS_A_STEP) -> list[Command]:
        """Judge at most `limit` due keys; returns the commands to send."""
        commands: list[Command] = []
        for key in self.agenda.take(now, limit):
            until = self.open.waiting(key, now)
            if until is not None:
                self.agenda.at(until, key)
                continue
            try:
                verdict = self.judge.judge(key, now)
            except Exception:
                self._failed.inc()
                log.exception("cannot judge", extra={"key": key})
                continue
            if verdict.again_at is not None:
                self.agenda.at(max(verdict.again_at, now + SHORTEST_PAUSE_S), key)
            for command in self.open.select(key, verdict.commands, now, self.agenda):
                trace = self._traces.get(command.key, "") if command.kind == "workload" else ""
                commands.append(msgspec.structs.replace(command, trace=trace) if trace else command)
                self._sent.labels(type(command).__name__).inc()
        return commands

    async def run(
        self,
        bus: Bus,
        kinds: Sequence[str],
        now: Callable[[], float],
        *,
        lease: Lease | None = None,
        decisions: bool = False,
        ready: Callable[[bool, str], None] = lambda ready, why: None,
    ) -> None:
        """Until cancelled: read, judge, send. `ready` is told when the view is complete or no longer so."""
        wake = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read(bus, kinds, now, decisions, wake, ready))
            tasks.create_task(self._act(bus, now, wake, lease))
            if lease is not None:
                tasks.create_task(self._follow(lease, wake))

    async def _read(
        self,
        bus: Bus,
        kinds: Sequence[str],
        now: Callable[[], float],
        decisions: bool,
        wake: asyncio.Event,
        ready: Callable[[bool, str], None],
    ) -> None:
        async for items in bus.feed(kinds=kinds, decisions=decisions, outcomes=True):
            self.fold(items, now())
            ready(self.caught_up, "" if self.caught_up else "replaying")
            wake.set()

    async def _act(self, bus: Bus, now: Callable[[], float], wake: asyncio.Event, lease: Lease | None) -> None:
        while True:
            wake.clear()
            if lease is not None and not lease.held:
                self.lead(False)
                self._lost.set()
            commands = self.step(now())
            if commands:
                await bus.command(commands)
            due = self.agenda.next
            pause = None if due is None else due - now()
            if pause is not None and pause <= 0:
                await asyncio.sleep(0)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await wake.wait()

    async def _follow(self, lease: Lease, wake: asyncio.Event) -> None:
        while True:
            await lease.wait_until_held()
            self._lost.clear()
            self.lead(True)
            wake.set()
            await self._lost.wait()

    def _remember_trace(self, key: str, trace: str) -> None:
        if trace:
            self._traces[key] = trace
        else:
            self._traces.pop(key, None)

    def _mark(self, keys: Iterable[str]) -> None:
        if self.caught_up and self.leads:
            for key in keys:
                self.agenda.mark(key)

    def _begin(self) -> None:
        self.open.clear()
        self.agenda.clear()
        self._mark(self.judge.everything())
