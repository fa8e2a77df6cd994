"""One function per message that the metrics service reads."""

from __future__ import annotations

from services.metrics.transitions import became, observations, split_reason
from shared.api import names
from shared.bus.interface import Logged, ObjectChanged, Settled
from shared.events.decisions import Batch, EpochOpened, Preempt
from shared.events.objects import Object, Tombstone, Workload
from shared.events.outcomes import DecisionOutcome
from shared.telemetry.metrics import Recorder


class Memory:
    """The newest object of each kind and key, and what counting needs besides. Forgotten at a Reset, but for what was counted already."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Object]] = {}
        self.live = False
        """After the replay: only then a change is something that happened."""
        self.before: dict[str, Workload] = {}
        """Workloads by key as they were when a replay began: what changed meanwhile is counted when it has brought their newest state."""
        self.evicted_for: dict[str, set[str]] = {}
        """Reasons for which a workload (by uid) was counted as evicted."""
        self.preemptions: dict[tuple[int, int, int], Preempt] = {}

    def reset(self) -> None:
        """A replay follows."""
        if self.live:
            workloads = self.objects.get("workload", {})
            self.before = {key: w for key, w in workloads.items() if isinstance(w, Workload)}
        self.objects.clear()
        self.preemptions.clear()
        self.live = False

    def caught_up(self, recorder: Recorder) -> None:
        """The replay is over."""
        self.live = True
        now = self.objects.get("workload", {})
        for key, old in self.before.items():
            new = now.get(key)
            if isinstance(new, Workload) and new.version > old.version:
                _count(self, recorder, old, new)
        self.before = {}


def object_changed(memory: Memory, recorder: Recorder, item: ObjectChanged) -> None:
    """Keep the newest state; count what its change from the one before means."""
    kind = memory.objects.setdefault(item.name.kind, {})
    old = kind.get(item.name.key)
    new = item.object
    if isinstance(new, Tombstone):
        gone = kind.pop(item.name.key, None)
        if gone is not None:
            _forget(memory, recorder, item, gone)
        return
    if old is not None and old.uid == new.uid and new.version < old.version:
        return
    kind[item.name.key] = new
    if memory.live and isinstance(old, Workload) and isinstance(new, Workload):
        _count(memory, recorder, old, new)


def _count(memory: Memory, recorder: Recorder, old: Workload, new: Workload) -> None:
    for seen in observations(old, new):
        recorder.record(seen.name, seen.labels, seen.value)
        if seen.name == "evicted_workloads_total":
            evicted = became(old, new, "Evicted")
            reason = split_reason(evicted.reason)[0] if evicted else ""
            reasons = memory.evicted_for.setdefault(new.uid, set())
            if reason not in reasons:
                reasons.add(reason)
                recorder.record("evicted_workloads_once_total", seen.labels)


def _forget(memory: Memory, recorder: Recorder, item: ObjectChanged, gone: Object) -> None:
    memory.evicted_for.pop(gone.uid, None)
    if item.name.kind == "clusterqueue":
        recorder.forget({"cluster_queue": item.name.name})
    elif item.name.kind == "localqueue":
        recorder.forget({"name": item.name.name, "namespace": item.name.namespace})


def logged(memory: Memory, recorder: Recorder, item: Logged) -> None:
    """Remember decided preemptions until their outcome; a new epoch voids them."""
    entry = item.entry
    if isinstance(entry, EpochOpened):
        memory.preemptions.clear()
    elif isinstance(entry, Batch):
        for index, decision in enumerate(entry.decisions):
            if isinstance(decision, Preempt) and decision.eviction == names.REASON_PREEMPTED:
                memory.preemptions[entry.positions.epoch, item.position, index] = decision


def settled(memory: Memory, recorder: Recorder, item: Settled) -> None:
    """Count a preemption once it was applied."""
    outcome = item.outcome
    if isinstance(outcome, DecisionOutcome):
        key = (outcome.decision.epoch, outcome.decision.sequence, outcome.decision.index)
        decision = memory.preemptions.pop(key, None)
        if decision is not None and memory.live and outcome.status == "applied":
            recorder.record("preempted_workloads_total", (decision.preemptor_cluster_queue, decision.reason))
