"""Says of every workload that was looked at why it is pending, with as few writes as possible (R8).

A changed reason is reported as soon as the rate allows; a message whose reason stays only seldom; what the object already says, or what is on its way,
never. The refusals themselves are kept for `explain`. Which workloads are refused is decided elsewhere.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heappop, heappush

import msgspec

from shared.decide.cycle import NotAdmitted
from shared.decide.legacy_reasons import of_scheduler
from shared.events.commands import ReportPending
from shared.events.decisions import Positions
from shared.events.objects import Workload
from shared.events.outcomes import CommandOutcome
from shared.state import explain
from shared.state.objects import Objects


class RefusedHead(msgspec.Struct, frozen=True):
    """Why a workload is pending, and what that was based on. `like`: the workload of the same shape that was looked at instead of it."""

    entry: NotAdmitted
    positions: Positions
    at: float
    like: str = ""


class _Sent(msgspec.Struct, frozen=True):
    id: str
    uid: str
    reason: str
    message: str
    at: float
    visible_at: int | None = None
    """Version of the object that carries it; None while there is no outcome."""


class PendingReports:
    """Wishes in, commands out. States of a wish: urgent (in line for the rate), later (its time has not come), sent, or dropped."""

    def __init__(
        self, author: str, *, interval_s: float, per_s: float, burst: int, legacy_reasons: bool = False
    ) -> None:
        self.refused: dict[str, RefusedHead] = {}
        self._author = author
        self._legacy_reasons = legacy_reasons
        self._interval_s = interval_s
        self._per_s = per_s
        self._burst = float(burst)
        self._tokens = float(burst)
        self._filled_at: float | None = None
        self._urgent: OrderedDict[str, None] = OrderedDict()
        self._later: list[tuple[float, str]] = []
        self._waits: set[str] = set()
        self._sent: dict[str, _Sent] = {}
        self._keys: dict[str, str] = {}
        self._count = 0

    def clear(self) -> None:
        """Forget what was said (a Reset: commands may be gone with the streams)."""
        self.refused.clear()
        self._urgent.clear()
        self._later.clear()
        self._waits.clear()
        self._sent.clear()
        self._keys.clear()

    def refuse(self, key: str, refused: RefusedHead) -> None:
        """A workload was looked at and stays pending, or is parked since one of its shape was refused."""
        self.refused[key] = refused
        self._urgent[key] = None

    def forget(self, key: str) -> None:
        """The workload does not wait any more."""
        self.refused.pop(key, None)
        self._urgent.pop(key, None)
        sent = self._sent.pop(key, None)
        if sent is not None:
            self._keys.pop(sent.id, None)

    def outcome(self, outcome: CommandOutcome) -> None:
        """What became of a report: the object will say it, or it has to be said again at the next refusal."""
        key = self._keys.pop(outcome.command, None)
        sent = self._sent.get(key) if key is not None else None
        if key is None or sent is None or sent.id != outcome.command:
            return
        if outcome.status == "applied":
            self._sent[key] = msgspec.structs.replace(sent, visible_at=outcome.version)
        else:
            del self._sent[key]

    def due(self, objects: Objects, traces: dict[str, str], now: float) -> list[ReportPending]:
        """What is to be sent now."""
        while self._later and self._later[0][0] <= now:
            key = heappop(self._later)[1]
            self._waits.discard(key)
            self._urgent[key] = None
        self._fill(now)
        commands: list[ReportPending] = []
        for key in self._next_urgent():
            refused = self.refused.get(key)
            workload = objects.get(Workload, key)
            if refused is None or workload is None or not self._is_news(key, refused.entry, workload, now):
                continue
            self._tokens -= 1
            commands.append(self._command(key, refused.entry, workload, traces.get(key, ""), now))
        return commands

    def _next_urgent(self) -> Iterator[str]:
        while self._urgent and self._tokens >= 1:
            yield self._urgent.popitem(last=False)[0]

    def _is_news(self, key: str, entry: NotAdmitted, workload: Workload, now: float) -> bool:
        said = next((c for c in workload.conditions if c.type == "QuotaReserved"), None)
        reason = str(entry.refusal.reason)
        if workload.finished or (said is not None and said.status):
            return False
        if said is not None and (said.reason, said.message) == (self._word(reason), entry.message):
            return False
        sent = self._sent.get(key)
        if sent is None or sent.uid != workload.uid:
            return True
        if now >= sent.at + self._interval_s:
            return True
        on_its_way = sent.visible_at is None or workload.version < sent.visible_at
        if on_its_way and (sent.reason, sent.message) == (reason, entry.message):
            return False
        ours = said is not None and (said.reason, said.message) == (self._word(sent.reason), sent.message)
        # Old words are the same for many reasons: what was sent tells them apart.
        shown = sent.reason if on_its_way or ours else (said.reason if said is not None else "")
        if shown != reason:
            return True
        if key not in self._waits:
            self._waits.add(key)
            heappush(self._later, (sent.at + self._interval_s, key))
        return False

    def _command(self, key: str, entry: NotAdmitted, workload: Workload, trace: str, now: float) -> ReportPending:
        self._count += 1
        id_ = f"{self._author}/{self._count}"
        reason = str(entry.refusal.reason)
        before = self._sent.get(key)
        if before is not None:
            self._keys.pop(before.id, None)
        self._sent[key] = _Sent(id_, workload.uid, reason, entry.message, now)
        self._keys[id_] = key
        return ReportPending(
            id=id_,
            kind="workload",
            namespace=workload.namespace,
            name=workload.name,
            uid=workload.uid,
            version=workload.version,
            trace=trace,
            reason=self._word(reason),
            message=entry.message,
            requests=entry.requests or None,
            gated=entry.gated,
            why=explain.of(entry.refusal),
        )

    def _word(self, reason: str) -> str:
        return of_scheduler(reason) if self._legacy_reasons else reason

    def _fill(self, now: float) -> None:
        if self._filled_at is not None:
            self._tokens = min(self._burst, self._tokens + max(0.0, now - self._filled_at) * self._per_s)
        self._filled_at = now

    def next_due(self, now: float) -> float | None:
        """When `due` has something to do; None: not before something changes."""
        if self._urgent:
            return now if self._tokens >= 1 else now + (1 - self._tokens) / self._per_s
        return self._later[0][0] if self._later else None
