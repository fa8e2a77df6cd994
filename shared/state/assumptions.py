"""Decisions that are not settled yet, and what their outcomes said (R6).

Between the log and the API server a decision counts as spent. It is kept from its entry in the log until its outcome is `rejected`, or `applied` and
our view of the workload has reached the version that carries it. A rejected Preempt is kept until our view shows what proved the rejection, else the
same victim would be chosen again on the same old view. Outcomes may come before their decision and before the object; both are kept until the other
side arrives. Quota is not computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from shared.events.decisions import Admit, Batch, Decision, DecisionId, Preempt
from shared.events.outcomes import DecisionOutcome

_SPENDING = (Admit, Preempt)


class Assumed(msgspec.Struct, frozen=True, gc=False):
    """A decision in the log, taken at `decided` (whole seconds since the epoch). `outcome` is what the gateway said, None so far."""

    id: DecisionId
    decision: Decision
    decided: int = 0
    outcome: DecisionOutcome | None = None


class Rejection(msgspec.Struct, frozen=True, gc=False):
    """The last rejected decision of a workload: it is no head before our view shows what proved the rejection.

    `count` rejections of decisions about the same incarnation: more than one means that our view was not the cause.
    """

    uid: str
    incarnation: str
    version: int
    gone: bool
    count: int


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """A decision that no longer counts."""

    id: DecisionId
    decision: Decision
    landed: bool
    why: str = ""


class Assumptions:
    """States of a decision: unknown, early (outcome only), open, applied (waiting for the view), settled (forgotten)."""

    def __init__(self, version_of: Callable[[str], int], uid_of: Callable[[str], str]) -> None:
        """`version_of` gives the version of the newest state seen of a workload's key, its deletion included; `uid_of` its uid, empty if it is gone."""
        self._version_of = version_of
        self._uid_of = uid_of
        self.epoch = 0
        self.folded = 0
        """Position of the newest entry of the log folded."""
        self.rejections: dict[str, Rejection] = {}
        self._open: dict[str, list[Assumed]] = {}
        self._early: dict[DecisionId, DecisionOutcome] = {}
        self._spending = 0

    def open_epoch(self, epoch: int, folded: int = 0) -> list[str]:
        """All that is older is void; the keys it was about."""
        keys = sorted(self._open)
        self.epoch, self.folded = epoch, folded
        self._open.clear()
        self.rejections.clear()
        self._early = {id_: outcome for id_, outcome in self._early.items() if id_.epoch == epoch}
        self._spending = 0
        return keys

    def log(self, batch: Batch, position: int) -> list[Settlement] | None:
        """A batch at `position` of the log; what settled at once. None if it was folded before or belongs to another epoch."""
        if position <= self.folded or batch.positions.epoch != self.epoch:
            return None
        self.folded = position
        settled: list[Settlement] = []
        for index, decision in enumerate(batch.decisions):
            id_ = DecisionId(self.epoch, position, index)
            assumed = Assumed(id_, decision, batch.decided_ns // 10**9)
            self._open.setdefault(decision.key, []).append(assumed)
            self._spending += isinstance(decision, _SPENDING)
            outcome = self._early.pop(id_, None)
            if outcome is not None:
                settled += self._conclude(assumed, outcome)
        return settled

    def outcome(self, outcome: DecisionOutcome) -> list[Settlement]:
        """What an outcome settles; one of an unknown decision is kept, a repeated one ignored."""
        id_ = outcome.decision
        if id_.epoch < self.epoch:
            return []
        if id_.epoch > self.epoch or id_.sequence > self.folded:
            self._early[id_] = outcome
            return []
        for assumed in self._open.get(outcome.key, ()):
            if assumed.id == id_:
                return self._conclude(assumed, outcome)
        return []

    def seen(self, key: str) -> list[Settlement]:
        """The view of a workload moved on; what that settles."""
        known = self._open.get(key)
        if known is None:
            return []
        done = [a for a in known if a.outcome is not None and self._is_over(a.decision, a.outcome)]
        return [self._settle(assumed) for assumed in done]

    def caught_up(self) -> None:
        """Outcomes of decisions whose entries are purged will find no decision any more."""
        self._early = {
            id_: o for id_, o in self._early.items() if (id_.epoch, id_.sequence) > (self.epoch, self.folded)
        }

    def _conclude(self, assumed: Assumed, outcome: DecisionOutcome) -> list[Settlement]:
        key = assumed.decision.key
        if outcome.status == "rejected" and not isinstance(assumed.decision, Preempt):
            self._reject(assumed.decision, outcome)
        known = self._open[key]
        concluded = msgspec.structs.replace(assumed, outcome=outcome)
        known[known.index(assumed)] = concluded
        return [self._settle(concluded)] if self._is_over(assumed.decision, outcome) else []

    def _is_over(self, decision: Decision, outcome: DecisionOutcome) -> bool:
        """Does our view say all that the outcome does?"""
        key = decision.key
        if outcome.status == "rejected" and not isinstance(decision, Preempt):
            return True
        if outcome.gone:
            return self._uid_of(key) != decision.uid
        return outcome.version <= self._version_of(key)

    def _reject(self, decision: Decision, outcome: DecisionOutcome) -> None:
        before = self.rejections.get(decision.key)
        again = before is not None and before.uid == decision.uid and before.incarnation == decision.incarnation
        count = before.count + 1 if again and before is not None else 1
        self.rejections[decision.key] = Rejection(
            decision.uid, decision.incarnation, outcome.version, outcome.gone, count
        )

    def _settle(self, assumed: Assumed) -> Settlement:
        key = assumed.decision.key
        known = self._open[key]
        known.remove(assumed)
        if not known:
            del self._open[key]
        self._spending -= isinstance(assumed.decision, _SPENDING)
        outcome = assumed.outcome
        landed = outcome is not None and outcome.status == "applied"
        return Settlement(assumed.id, assumed.decision, landed, outcome.why if outcome is not None else "")

    @property
    def spending(self) -> int:
        """Unsettled Admits and Preempts: what the budget K bounds."""
        return self._spending

    def admit_of(self, key: str) -> tuple[Admit, int] | None:
        """The newest unsettled Admit of a workload and when it was decided. An older one beside it is over for the author of the newer."""
        for assumed in reversed(self._open.get(key, ())):
            if isinstance(assumed.decision, Admit):
                return assumed.decision, assumed.decided
        return None

    def preempt_of(self, key: str) -> Preempt | None:
        """The newest unsettled Preempt of a workload, unless an unsettled Admit stands behind it: that one is about a later state."""
        for assumed in reversed(self._open.get(key, ())):
            match assumed.decision:
                case Admit():
                    return None
                case Preempt() as preempt:
                    return preempt
                case _:
                    pass
        return None

    def newest(self, key: str) -> tuple[Preempt | None, tuple[Admit, int] | None]:
        """(`preempt_of`, `admit_of`) of a workload."""
        if key not in self._open:
            return None, None
        return self.preempt_of(key), self.admit_of(key)

    def of(self, key: str) -> tuple[Assumed, ...]:
        """All unsettled decisions about a workload, in log order."""
        return tuple(self._open.get(key, ()))

    def workloads(self) -> Iterable[str]:
        """Workloads with unsettled decisions."""
        return self._open.keys()

    def dump(self) -> dict[str, object]:
        """Everything, for comparisons; outcomes that can find no decision any more are left out."""
        early = {id_: o for id_, o in self._early.items() if (id_.epoch, id_.sequence) > (self.epoch, self.folded)}
        return {
            "epoch": self.epoch,
            "folded": self.folded,
            "open": {key: tuple(known) for key, known in sorted(self._open.items())},
            "early": dict(sorted(early.items())),
            "rejections": dict(sorted(self.rejections.items())),
        }
