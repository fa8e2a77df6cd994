"""What each change means for preemptor: which workloads to look at again. One function per kind of message.

Keys of the agenda are `namespace/name` of workloads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from shared.api.quantity import QuantityError
from shared.bus.interface import Logged
from shared.events.decisions import Batch, EpochOpened, Positions, Preempt
from shared.events.objects import ClusterQueue, LocalQueue, Object, Workload
from shared.events.outcomes import DecisionOutcome, Outcome
from shared.model import cluster_queue as configs
from shared.model.flavor_resources import FlavorResources
from shared.state.assumptions import Assumptions
from shared.state.objects import Change, Objects


class Preemption(msgspec.Struct, frozen=True, gc=False):
    """A decision to preempt that has no outcome yet."""

    preemptor: str
    decided_s: float


class Watched:
    """Workloads by queue, queues in model form, and decisions to preempt that are not settled."""

    def __init__(self, epoch: int) -> None:
        self.objects = Objects()
        self._interned = FlavorResources()
        self._cluster_queues: dict[str, configs.ClusterQueue] = {}
        self._by_local_queue: dict[str, set[str]] = {}
        self._holding: dict[str, set[str]] = {}
        self._assumptions = Assumptions(lambda key: self.objects.version("workload", key), self._uid_of)
        self._assumptions.open_epoch(epoch)
        self._decided: dict[str, float] = {}

    def _uid_of(self, key: str) -> str:
        found = self.objects.get(Workload, key)
        return found.uid if found is not None else ""

    # --- what there is ---------------------------------------------------------------------------------------------

    def local_queue(self, workload: Workload) -> configs.LocalQueue | None:
        """The LocalQueue that the workload names."""
        found = self.objects.get(LocalQueue, f"{workload.namespace}/{workload.queue_name}")
        return configs.local_queue(found) if found is not None else None

    def cluster_queue(self, workload: Workload) -> configs.ClusterQueue | None:
        """The ClusterQueue that holds the workload, else that of its LocalQueue."""
        if workload.admission is not None:
            return self._cluster_queues.get(workload.admission.cluster_queue)
        local_queue = self.local_queue(workload)
        return self._cluster_queues.get(local_queue.cluster_queue) if local_queue is not None else None

    def preemption(self, key: str) -> Preemption | None:
        """The oldest decision to preempt this workload that has no outcome."""
        for assumed in self._assumptions.of(key):
            if isinstance(assumed.decision, Preempt) and assumed.outcome is None:
                return Preemption(assumed.decision.preemptor, self._decided.get(key, 0.0))
        self._decided.pop(key, None)
        return None

    # --- what changes ----------------------------------------------------------------------------------------------

    def changed(self, change: Change[Object]) -> Iterable[str]:
        """An object changed: keys of the workloads it concerns."""
        match change.new if change.new is not None else change.old:
            case Workload():
                self._workload(change.old, change.new)
                self._assumptions.seen(change.name.key)
                return [change.name.key]
            case LocalQueue() if _queue_matters(change.old, change.new):
                return list(self._by_local_queue.get(change.name.key, ()))
            case ClusterQueue() if _queue_matters(change.old, change.new):
                self._cluster_queue(change.name.key, change.new)
                return list(self._workloads_of(change.name.key))
        return ()

    def logged(self, item: Logged) -> Iterable[str]:
        """An entry of the log: keys of those it preempts."""
        match item.entry:
            case EpochOpened(epoch=epoch):
                if epoch > self._assumptions.epoch:
                    self._decided.clear()
                    return self._assumptions.open_epoch(epoch, item.position)
            case Batch() as batch:
                victims = [d.key for d in batch.decisions if isinstance(d, Preempt)]
                for key in victims:
                    self._decided.setdefault(key, batch.decided_ns / 1e9)
                self._assumptions.log(batch, item.position)
                return victims
        return ()

    def settled(self, outcome: Outcome) -> Iterable[str]:
        """An outcome: key of the workload whose decision it settles."""
        if not isinstance(outcome, DecisionOutcome):
            return ()
        self._assumptions.outcome(outcome)
        # Whether and when to decide again is the scheduler's business.
        self._assumptions.rejections.clear()
        return [outcome.key]

    def caught_up(self, positions: Positions) -> None:
        """The replay is over: outcomes of entries that are purged find none any more."""
        self._assumptions.folded = max(self._assumptions.folded, positions.decisions)
        self._assumptions.caught_up()

    def _workload(self, old: Object | None, new: Object | None) -> None:
        for index, before, after in (
            (self._by_local_queue, _local_queue_of(old), _local_queue_of(new)),
            (self._holding, _holder_of(old), _holder_of(new)),
        ):
            if before != after:
                if before and isinstance(old, Workload):
                    index[before].discard(old.key)
                if after and isinstance(new, Workload):
                    index.setdefault(after, set()).add(new.key)

    def _cluster_queue(self, name: str, new: Object | None) -> None:
        if not isinstance(new, ClusterQueue):
            self._cluster_queues.pop(name, None)
            return
        try:
            config = configs.cluster_queue(new, self._interned)
        except QuantityError:
            # Its quota is of no interest here, its stop policy is.
            config = configs.cluster_queue(msgspec.structs.replace(new, groups=(), fair_weight="1"), self._interned)
        self._cluster_queues[name] = config

    def _workloads_of(self, cluster_queue: str) -> Iterator[str]:
        yield from self._holding.get(cluster_queue, ())
        for key, local_queue in self.objects.all(LocalQueue).items():
            if local_queue.cluster_queue == cluster_queue:
                yield from self._by_local_queue.get(key, ())


def _local_queue_of(workload: Object | None) -> str:
    if isinstance(workload, Workload) and not workload.finished:
        return f"{workload.namespace}/{workload.queue_name}"
    return ""


def _holder_of(workload: Object | None) -> str:
    if isinstance(workload, Workload) and not workload.finished and workload.admission is not None:
        return workload.admission.cluster_queue
    return ""


def _queue_matters(old: Object | None, new: Object | None) -> bool:
    """Not a mere change of status."""
    if old is None or new is None:
        return True
    return (old.uid, old.generation, old.deleting) != (new.uid, new.generation, new.deleting)
