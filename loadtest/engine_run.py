"""One run of a shape through the engine: simulated time, real work, only the engine's time counted.

Why it exists: counted is what a scheduler does between the bus and the log: folding objects, outcomes and its own batches into
`shared.state`, running cycles, and making the message. Not counted is what others do: the cluster that answers, and the bus itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from time import process_time

from loadtest.engine_cluster import Cluster
from loadtest.engine_shapes import START_S, Arrival, Shape, arrivals, queue_objects
from shared.bus.interface import CaughtUp, FeedItem, Logged
from shared.decide import decisions as decided
from shared.decide.cycle import CycleSettings, run_batch
from shared.decide.settings import FairSharing
from shared.events.decisions import Admit, Batch, Decision, EpochOpened, Positions, Preempt
from shared.events.objects import KINDS, PodSetAssignment
from shared.state.scheduling import SchedulerState

EPOCH = 1
_KIND_OF = {type_: kind for kind, type_ in KINDS.items()}


@dataclass
class Result:
    """What a run did and how long the engine worked for it."""

    shape: str
    queues: int
    workloads: int
    admissions: int = 0
    evictions: int = 0
    cycles: int = 0
    finished: int = 0
    deciding_s: float = 0.0
    folding_s: float = 0.0
    opening_s: float = 0.0
    """Reading queues, flavors and namespaces at the start; not counted."""
    simulated_s: float = 0.0

    @property
    def engine_s(self) -> float:
        return self.deciding_s + self.folding_s

    @property
    def admissions_per_s(self) -> float:
        return self.admissions / self.engine_s

    @property
    def cost_us(self) -> float:
        """Microseconds of engine work for one admission."""
        return self.engine_s / self.admissions * 1e6


class Run:
    """Numbered steps: 1. at each instant, fold what arrives and ends; 2. decide until nothing more can be admitted; 3. apply the log at once."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.result = Result(shape.name, shape.queues, shape.workloads)
        self.cluster = Cluster(EPOCH)
        self.state = SchedulerState()
        self.settings = CycleSettings(fair=FairSharing() if shape.fair_sharing else None)
        self._sequence = 1
        self._ends: list[tuple[int, int, str]] = []
        self._run_of: dict[str, int] = {}
        self._runtimes: dict[str, int] = {}
        self._starts = 0

    def run(self) -> Result:
        """All workloads from arrival to end."""
        pending = [(arrival.at_ms, place, arrival) for place, arrival in enumerate(arrivals(self.shape))]
        heapify(pending)
        self._fold(self._opening(), 0.0)
        # Reading the queues happens once, whatever is admitted afterwards.
        self.result.opening_s, self.result.folding_s = self.result.folding_s, 0.0
        while pending or self._ends:
            at = min(queue[0][0] for queue in (pending, self._ends) if queue)
            now = START_S + at / 1000
            self._fold(self._ended(at), now)
            self._fold(self._arrived(pending, at), now)
            self._decide(at, now)
            self.result.simulated_s = at / 1000
        self.result.evictions = self.cluster.evictions
        return self.result

    def _opening(self) -> list[FeedItem]:
        items: list[FeedItem] = [Logged(EpochOpened(epoch=EPOCH, shard="0", positions=Positions(), opened_ns=0), 1)]
        items.extend(self.cluster.put(_KIND_OF[type(one)], one) for one in queue_objects(self.shape))
        items.append(CaughtUp(Positions(epoch=EPOCH, decisions=1)))
        return items

    def _ended(self, at: int) -> list[FeedItem]:
        items: list[FeedItem] = []
        while self._ends and self._ends[0][0] == at:
            _, start, key = heappop(self._ends)
            if self._run_of.get(key) == start:
                del self._run_of[key]
                items.append(self.cluster.finish(key))
                self.result.finished += 1
        return items

    def _arrived(self, pending: list[tuple[int, int, Arrival]], at: int) -> list[FeedItem]:
        items: list[FeedItem] = []
        while pending and pending[0][0] == at:
            arrival = heappop(pending)[2]
            self._runtimes[arrival.workload.key] = arrival.runtime_ms
            items.append(self.cluster.put("workload", arrival.workload))
        return items

    def _fold(self, items: Iterable[FeedItem], now: float) -> None:
        apply = self.state.apply
        started = process_time()
        for item in items:
            apply(item, now)
        self.result.folding_s += process_time() - started

    def _decide(self, at: int, now: float) -> None:
        while True:
            started = process_time()
            batch = run_batch(self.state.world, now, settings=self.settings)
            message = Batch(
                author="bench",
                positions=self.state.positions,
                decided_ns=int(now * 1e9),
                decisions=tuple(_message(decision) for decision in batch.decisions),
            )
            self.result.cycles += batch.cycles
            if message.decisions:
                self._sequence += 1
                self.state.appended(message, self._sequence, now)
            self.result.deciding_s += process_time() - started
            if not message.decisions:
                return
            applied = list(self.cluster.apply(message, self._sequence, int(now)))
            for decision in message.decisions:
                self._follow(decision.key, isinstance(decision, Admit), isinstance(decision, Preempt), at)
            self._fold((item for _, items in applied for item in items), now)
            started = process_time()
            for decision in message.decisions:
                if isinstance(decision, Preempt):
                    self.state.world.settle_preempted(decision.key, now)
            self.result.folding_s += process_time() - started

    def _follow(self, key: str, admitted: bool, evicted: bool, at: int) -> None:
        if admitted:
            self._starts += 1
            self.result.admissions += 1
            self._run_of[key] = self._starts
            heappush(self._ends, (at + self._runtimes[key], self._starts, key))
        elif evicted:
            self._run_of.pop(key, None)


def _message(decision: decided.Decision) -> Decision:
    """A decision as it stands in the log."""
    if isinstance(decision, decided.Admit):
        return Admit(
            key=decision.key,
            uid=decision.uid,
            incarnation=decision.incarnation,
            domain=decision.domain,
            cluster_queue=decision.cluster_queue,
            pod_sets=tuple(
                PodSetAssignment(name=one.name, count=one.count, flavors=one.flavors, usage=one.usage)
                for one in decision.admission.pod_sets
            ),
            required_checks=decision.required_checks,
            queued_since=decision.queued_since,
            considered=decision.considered,
        )
    return Preempt(
        key=decision.key,
        uid=decision.uid,
        incarnation=decision.incarnation,
        domain=decision.domain,
        reason=decision.reason,
        message=decision.message,
        preemptor=decision.preemptor,
        preemptor_uid=decision.preemptor_uid,
        cluster_queue=decision.cluster_queue,
        preemptor_cluster_queue=decision.preemptor_cluster_queue,
        priority=decision.priority,
        preemptor_priority=decision.preemptor_priority,
    )
