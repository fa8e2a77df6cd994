"""One function per message that the metrics service reads."""

from __future__ import annotations

from collections.abc import Callable

from services.metrics.transitions import became, observations, why_evicted
from services.metrics.view import Objects, View
from shared.api import names
from shared.bus.interface import Logged, ObjectChanged, Settled
from shared.events.decisions import Batch, EpochOpened, Preempt
from shared.events.objects import ClusterQueue, Cohort, LocalQueue, Object, Tombstone, Workload
from shared.events.outcomes import DecisionOutcome
from shared.telemetry.metrics import FAMILIES, Recorder


class Memory:
    """The newest object of each kind and key, and what counting needs besides. Forgotten at a Reset, but for what was counted already."""

    def __init__(self, view: Callable[[Objects], View]) -> None:
        self.objects: dict[str, dict[str, Object]] = {}
        self.view = view(self.objects)
        self.live = False
        """After the replay: only then a change is something that happened."""
        self.before: dict[str, Workload] = {}
        """Workloads by key as they were when a replay began: what changed meanwhile is counted when it has brought their newest state."""
        self.others_before: dict[tuple[str, str], Object] = {}
        """Queues and cohorts by kind and key, as they were then."""
        self.evicted_for: dict[str, set[tuple[str, str]]] = {}
        """Reasons and causes for which a workload (by uid) was counted as evicted."""
        self.preemptions: dict[tuple[int, int, int], Preempt] = {}

    def reset(self) -> None:
        """A replay follows."""
        if self.live:
            workloads = self.objects.get("workload", {})
            self.before = {key: w for key, w in workloads.items() if isinstance(w, Workload)}
            self.others_before = {
                (kind, key): item
                for kind, items in self.objects.items()
                if kind != "workload"
                for key, item in items.items()
            }
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
        for (kind, key), gone in self.others_before.items():
            if key not in self.objects.get(kind, {}):
                _forget(self, recorder, gone)
        self.others_before = {}


def object_changed(memory: Memory, recorder: Recorder, item: ObjectChanged) -> None:
    """Keep the newest state; count what its change from the one before means."""
    kind = memory.objects.setdefault(item.name.kind, {})
    old = kind.get(item.name.key)
    new = item.object
    if isinstance(new, Tombstone):
        gone = kind.pop(item.name.key, None)
        if gone is not None:
            _forget(memory, recorder, gone)
        return
    if old is not None and old.uid == new.uid and new.version < old.version:
        return
    kind[item.name.key] = new
    if isinstance(new, Workload):
        if memory.live and isinstance(old, Workload):
            _count(memory, recorder, old, new)
    elif isinstance(new, LocalQueue) and memory.view.shown_local_queue(new.key) is None:
        recorder.forget({"name": new.name, "namespace": new.namespace})
    elif old is not None:
        _forget_unnamed_cohort(memory, recorder, old)


def _count(memory: Memory, recorder: Recorder, old: Workload, new: Workload) -> None:
    for seen in observations(old, new):
        _record(memory, recorder, seen.name, seen.labels, seen.value, new)
        if seen.name == "evicted_workloads_total":
            evicted = became(old, new, "Evicted")
            reason = why_evicted(old, evicted) if evicted else ("", "")
            reasons = memory.evicted_for.setdefault(new.uid, set())
            if reason not in reasons:
                reasons.add(reason)
                _record(memory, recorder, "evicted_workloads_once_total", seen.labels, 1.0, new)
        elif seen.name == "admitted_workloads_total":
            cluster_queue, priority_class = seen.labels
            queue = memory.view.get(ClusterQueue, cluster_queue)
            for cohort in memory.view.above(queue.cohort if queue is not None else ""):
                labels = (cohort, priority_class)
                _record(memory, recorder, "cohort_subtree_admitted_workloads_total", labels, 1.0, new)


def _record(
    memory: Memory,
    recorder: Recorder,
    name: str,
    labels: tuple[str, ...],
    value: float = 1.0,
    workload: Workload | None = None,
) -> None:
    """Unless the queue is gone or has no series: nobody would take the new ones away."""
    family = FAMILIES[name]
    if memory.view.exists(dict(zip(family.labels, labels, strict=True))):
        recorder.record(name, (*labels, *memory.view.custom_values(family, labels, workload)), value)


def _forget(memory: Memory, recorder: Recorder, gone: Object) -> None:
    memory.evicted_for.pop(gone.uid, None)
    if isinstance(gone, ClusterQueue):
        recorder.forget({"cluster_queue": gone.name})
        recorder.forget({"preempting_cluster_queue": gone.name})
    elif isinstance(gone, LocalQueue):
        recorder.forget({"name": gone.name, "namespace": gone.namespace})
    _forget_unnamed_cohort(memory, recorder, gone)


def _forget_unnamed_cohort(memory: Memory, recorder: Recorder, old: Object) -> None:
    """A cohort is there as long as an object or a member names it."""
    named = (
        (old.cohort,) if isinstance(old, ClusterQueue) else (old.name, old.parent) if isinstance(old, Cohort) else ()
    )
    if any(named):
        for gone in set(named) - memory.view.cohorts():
            recorder.forget({"cohort": gone})


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
            labels = (decision.preemptor_cluster_queue, decision.reason)
            _record(memory, recorder, "preempted_workloads_total", labels)
