"""What would happen: objects in, decisions and reasons out, with nothing else running.

Why it exists: the engine decides the same wherever its input comes from, so a question about a cluster can be answered from a dump of it. Cycles run until
nothing changes; a workload that is evicted gives its quota back at once and waits again; nothing ever finishes. Reading files is the caller's work.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from datetime import UTC, datetime

import msgspec

from shared.api import names
from shared.bus.interface import ObjectChanged
from shared.decide.cycle import Admit, CycleSettings, NotAdmitted, Preempt, run_batch
from shared.decide.lifecycle import why_not_tried
from shared.decide.requests import DEFAULT_RULES, RequestRules
from shared.decide.settings import DEFAULT_SETTINGS
from shared.events.objects import KINDS, Condition, Object, Workload
from shared.events.subjects import ObjectName
from shared.model.admission_fair_sharing import AfsSettings
from shared.model.pending import OrderPolicy
from shared.state import pod_rules
from shared.state.folding import Fold
from shared.state.lifecycle_view import lifecycle_view

MOST_ROUNDS = 1000
"""Workloads that evict each other in turn would never come to rest."""

_KIND_OF = {type_: kind for kind, type_ in KINDS.items()}
_ORDER = (
    "namespace",
    "topology",
    *pod_rules.KINDS,
    "resourceflavor",
    "admissioncheck",
    "cohort",
    "clusterqueue",
    "localqueue",
    "workload",
)


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A workload that cannot be tried, and why: reason and words of its condition."""

    key: str
    cluster_queue: str
    reason: str
    message: str


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine did."""

    decisions: tuple[Admit | Preempt, ...] = ()
    """In the order they were taken."""
    refused: tuple[NotAdmitted, ...] = ()
    """Why workloads still wait, the last word on each that was looked at, by key."""
    held: tuple[Held, ...] = ()
    """Workloads that are not tried at all: deactivated, gated, in a backoff, or without a queue that is open; by key."""
    passed_over: tuple[str, ...] = ()
    """Workloads that wait and were not looked at: others like them, or ahead of them, had no success."""
    faults: tuple[str, ...] = ()
    """Objects that could not be used, and why."""
    settled: bool = True
    """It came to rest by itself."""


def simulate(
    objects: Iterable[Object],
    now: float,
    *,
    settings: CycleSettings = DEFAULT_SETTINGS,
    policy: OrderPolicy | None = None,
    rules: RequestRules = DEFAULT_RULES,
    afs: AfsSettings | None = None,
) -> Simulated:
    """Run the engine on these objects until nothing changes. `now` in seconds since the epoch; the rest is what a configuration says."""
    return _Simulation(now, settings, Fold(policy, rules, afs), admission_gates=rules.admission_gates).run(objects)


class _Simulation:
    """1. fold the objects; 2. run a batch; 3. release what it evicted; 4. again, until a batch decides nothing."""

    def __init__(self, now: float, settings: CycleSettings, fold: Fold, *, admission_gates: bool) -> None:
        self.now = now
        self.settings = settings
        self.fold = fold
        self.admission_gates = admission_gates
        self._position = 0

    def run(self, objects: Iterable[Object]) -> Simulated:
        known = [one for one in objects if _KIND_OF.get(type(one)) in _ORDER]
        for one in sorted(known, key=lambda one: _ORDER.index(_KIND_OF[type(one)])):
            self._put(one)
        world = self.fold.world
        decisions: list[Admit | Preempt] = []
        refused: dict[str, NotAdmitted] = {}
        settled = False
        for _ in range(MOST_ROUNDS):
            batch = run_batch(world, self.now, settings=self.settings)
            decisions.extend(batch.decisions)
            refused.update((entry.key, entry) for entry in batch.refused)
            for admit in batch.admits:
                refused.pop(admit.key, None)
            for preempt in (*batch.preempts, *batch.awaited):
                self._release(preempt)
            if not batch.decisions and not batch.awaited and not batch.more:
                settled = True
                break
        waiting = {key for queue in world.pending.queues.values() for key in queue.waiting}
        held = tuple(self._held(refused))
        waiting.difference_update(one.key for one in held)
        return Simulated(
            decisions=tuple(decisions),
            refused=tuple(refused[key] for key in sorted(refused)),
            held=held,
            passed_over=tuple(sorted(waiting - refused.keys())),
            faults=tuple(sorted(f"{name.kind} {name.key}: {why}" for name, why in self.fold.faults.items())),
            settled=settled,
        )

    def _put(self, one: Object) -> None:
        self._position += 1
        name = ObjectName(_KIND_OF[type(one)], one.namespace, one.name)
        self.fold.change(ObjectChanged(name, one, self._position), self.now)

    def _held(self, refused: Container[str]) -> Iterator[Held]:
        world = self.fold.world
        for key, workload in sorted(self.fold.objects.all(Workload).items()):
            if workload.finished or key in world.charges or key in world.assumed or key in refused:
                continue
            view = lifecycle_view(workload, world, admission_gates=self.admission_gates)
            found = why_not_tried(view) or _backoff(workload, self.now)
            if found is not None:
                queue = view.cluster_queue
                yield Held(
                    key=key, cluster_queue=queue.name if queue is not None else "", reason=found[0], message=found[1]
                )

    def _release(self, preempt: Preempt) -> None:
        """The evicted workload has stopped: it holds nothing and waits again."""
        before = self.fold.objects.get(Workload, preempt.key)
        if before is None:
            return
        at = int(self.now)
        fresh = (
            Condition("QuotaReserved", False, "PendingEvaluation", changed=at),
            Condition("Admitted", False, "NoReservation", changed=at),
            Condition("Evicted", True, "Preempted", preempt.message, at),
            Condition("Preempted", True, preempt.reason, preempt.message, at),
            Condition("Requeued", True, "Preempted", changed=at),
        )
        types = {condition.type for condition in fresh}
        kept = (condition for condition in before.conditions if condition.type not in types)
        self._put(
            msgspec.structs.replace(
                before,
                version=before.version + 1,
                admission=None,
                conditions=(*kept, *fresh),
                evictions=before.evictions + 1,
            )
        )
        world = self.fold.world
        world.settle(preempt.key, self.now)
        world.settle_preempted(preempt.key, self.now)


def _backoff(workload: Workload, now: float) -> tuple[str, str] | None:
    """Why a workload that may be queued is not tried yet."""
    reason = names.REASON_PENDING_EVALUATION
    if workload.requeue_at is not None and workload.requeue_at > now:
        return reason, f"not before {datetime.fromtimestamp(workload.requeue_at, UTC):%Y-%m-%dT%H:%M:%SZ}"
    requeued = next((c for c in workload.conditions if c.type == names.REQUEUED and not c.status), None)
    return (reason, f"not queued again yet: {requeued.reason}") if requeued is not None else None
