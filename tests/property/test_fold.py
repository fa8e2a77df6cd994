"""The fold of the scheduler's state under every order of delivery, and what it must never allow: quota spent twice, work lost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from services.scheduler.handlers import batch_message
from shared.bus.interface import CaughtUp, FeedItem, Reset
from shared.decide.cycle import BatchLimits, rollback, run_batch
from shared.events.decisions import Admit, Batch, DecisionId, Preempt
from shared.events.objects import ClusterQueue, Workload
from shared.events.outcomes import DecisionOutcome
from shared.events.subjects import ObjectName
from shared.state.scheduling import SchedulerState
from shared.state.validation import facts, validate
from tests.unit.state.builders import (
    NOW,
    Cluster,
    cluster_queue,
    fed,
    flavor,
    limit_range,
    local_queue,
    name_of,
    namespace,
    released,
    runtime_class,
    with_condition,
    workload,
)

QUEUES = ("left", "right")
QUOTA = 3000
K = 4
PREEMPTING: dict[str, Any] = {"within_cluster_queue": "LowerPriority", "reclaim_within_cohort": "Any"}


def new_cluster() -> Cluster:
    """Two ClusterQueues of 3 cpu each in one cohort that preempt, with a LocalQueue each."""
    queues = [cluster_queue(name, "3", cohort="org", **PREEMPTING) for name in QUEUES]
    return Cluster([namespace(), flavor(), *queues, *(local_queue(name, name) for name in QUEUES)])


class Reader:
    """A scheduler that reads the streams of a cluster at its own pace."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.state = SchedulerState()
        self.read = [0, 0, 0]
        self.state.apply(Reset(cluster.epoch, "start"), NOW)

    def take(self, stream: int, count: int, again: int = 0) -> None:
        """Read the next `count` messages of a stream, repeating the last `again` of those read before."""
        items = self.cluster.everything()[stream]
        start = max(0, self.read[stream] - again)
        end = min(len(items), self.read[stream] + count)
        for item in items[start:end]:
            self.state.apply(item, NOW)
        self.read[stream] = max(self.read[stream], end)

    def catch_up(self) -> None:
        """Read all there is."""
        for stream in range(3):
            self.take(stream, 1 << 30)
        if not self.state.caught_up:
            self.state.apply(CaughtUp(self.cluster.positions), NOW)

    def decide(self) -> bool:
        """A batch, appended behind what was read; False if the fence refused it or there was nothing to append."""
        state = self.state
        counted = len(state.world.assumed) + len(state.world.preempting)
        limits = BatchLimits(max_unsettled=K - state.assumptions.spending + counted)
        decided = run_batch(state.world, NOW, limits=limits)
        if not decided.decisions:
            return False
        batch = batch_message(decided, author="x", positions=state.positions, now=NOW)
        if not self.cluster.append(batch):
            rollback(state.world, decided, NOW)
            state.dirty = True
            return False
        before = state.assumptions.spending
        state.appended(batch, len(self.cluster.log), NOW)
        # The victims of one preemptor are decided together, even if they are more than there is room for.
        victims = Counter(preempt.preemptor for preempt in decided.preempts)
        assert before < K
        assert state.assumptions.spending <= K + max(victims.values(), default=1) - 1
        return True


class Delays(RuleBasedStateMachine):
    """Two schedulers, a gateway and users, each at a pace of its own."""

    @initialize()
    def start(self) -> None:
        self.cluster = new_cluster()
        self.readers = [Reader(self.cluster), Reader(self.cluster)]
        self.made = 0
        for reader in self.readers:
            reader.catch_up()

    def pick(self, number: int, *, holding: bool) -> Workload | None:
        found = [
            w
            for w in self.cluster.truth.values()
            if isinstance(w, Workload) and (w.admission is not None) == holding and not w.finished
        ]
        return found[number % len(found)] if found else None

    @rule(
        queue=st.sampled_from(QUEUES),
        sizes=st.lists(st.sampled_from(["1", "2", "2", "3", "500m", "7"]), min_size=1, max_size=4),
        priority=st.integers(0, 2),
        seen=st.booleans(),
    )
    def submit(self, queue: str, sizes: list[str], priority: int, seen: bool) -> None:
        for cpu in sizes:
            self.made += 1
            pods = {"runtime_class": "kata" if self.made % 3 == 0 else ""}
            self.cluster.put(
                workload(f"w{self.made}", cpu, queue=queue, priority=priority, created=self.made, pods=pods)
            )
        if seen:
            for reader in self.readers:
                reader.take(0, 1 << 30)

    @rule(number=st.integers(0, 9))
    def finish(self, number: int) -> None:
        if found := self.pick(number, holding=True):
            self.cluster.put(msgspec.structs.replace(found, finished=True))

    @rule(number=st.integers(0, 9))
    def release_a_victim(self, number: int) -> None:
        """The job of an evicted workload has stopped."""
        if victims := self.victims():
            self.cluster.put(released(victims[number % len(victims)]))

    def victims(self) -> list[Workload]:
        return [
            w
            for w in self.cluster.truth.values()
            if isinstance(w, Workload)
            and w.admission is not None
            and not w.finished
            and any(c.type == "Evicted" and c.status for c in w.conditions)
        ]

    @rule(number=st.integers(0, 9))
    def evict_and_release(self, number: int) -> None:
        if found := self.pick(number, holding=True):
            self.cluster.put(released(found))

    @rule(number=st.integers(0, 9), holding=st.booleans())
    def delete(self, number: int, holding: bool) -> None:
        if found := self.pick(number, holding=holding):
            self.cluster.delete(name_of(found))

    @rule(number=st.integers(0, 9))
    def delete_and_create_again(self, number: int) -> None:
        if found := self.pick(number, holding=False):
            self.made += 1
            self.cluster.delete(name_of(found))
            self.cluster.put(msgspec.structs.replace(found, uid=f"uid-again-{self.made}"))

    @rule(number=st.integers(0, 9))
    def edit(self, number: int) -> None:
        if found := self.pick(number, holding=False):
            self.cluster.put(msgspec.structs.replace(found, generation=found.generation + 1, active=not found.active))

    @rule(
        queue=st.sampled_from(QUEUES), stop=st.sampled_from(["None", "Hold"]), cohort=st.sampled_from(["org", "other"])
    )
    def edit_queue(self, queue: str, stop: str, cohort: str) -> None:
        found = self.cluster.truth[ObjectName("clusterqueue", "", queue)]
        assert isinstance(found, ClusterQueue)
        # Leaving the cohort while borrowing is over-admission by the administrator, not by a scheduler: only the stop policy changes then.
        borrowed = any(used > QUOTA for used in self.cluster.used().values())
        cohort = found.cohort if borrowed or self.cluster.applied < len(self.cluster.log) else cohort
        self.cluster.put(msgspec.structs.replace(found, stop_policy=stop, cohort=cohort))
        if cohort != found.cohort:
            # The administrator waits until the schedulers know.
            for reader in self.readers:
                reader.catch_up()

    @rule(most=st.sampled_from(["1", "2", "9"]), overhead=st.sampled_from(["0", "500m", "1"]))
    def edit_what_pods_get(self, most: str, overhead: str) -> None:
        self.cluster.put(limit_range(max={"cpu": most}))
        self.cluster.put(runtime_class(cpu=overhead))

    @rule(count=st.integers(1, 5))
    def gateway(self, count: int) -> None:
        for _ in range(count):
            self.cluster.apply_next()

    @rule(who=st.integers(0, 1), stream=st.integers(0, 2), count=st.integers(1, 4), again=st.integers(0, 2))
    def deliver(self, who: int, stream: int, count: int, again: int) -> None:
        self.readers[who].take(stream, count, again)

    @rule(who=st.integers(0, 1), outcomes=st.booleans(), objects=st.booleans())
    def read_the_log_and_decide(self, who: int, outcomes: bool, objects: bool) -> None:
        reader = self.readers[who]
        reader.take(1, 1 << 30)
        if outcomes:
            reader.take(2, 1 << 30)
        if objects:
            reader.take(0, 1 << 30)
        reader.decide()

    @rule(who=st.integers(0, 1))
    def decide_on_an_old_log(self, who: int) -> None:
        self.readers[who].decide()

    @precondition(lambda self: hasattr(self, "cluster"))
    @invariant()
    def the_truth_is_within_quota(self) -> None:
        used = self.cluster.used()
        cohorts: dict[str, int] = {}
        for name in QUEUES:
            queue = self.cluster.truth[ObjectName("clusterqueue", "", name)]
            assert isinstance(queue, ClusterQueue)
            cohorts[queue.cohort] = cohorts.get(queue.cohort, 0) + QUOTA
        for name in QUEUES:
            queue = self.cluster.truth[ObjectName("clusterqueue", "", name)]
            assert isinstance(queue, ClusterQueue)
            cohorts[queue.cohort] -= used.get((name, "default"), 0)
        assert all(left >= 0 for left in cohorts.values()), used

    @precondition(lambda self: hasattr(self, "cluster"))
    @invariant()
    def kept_is_computed(self) -> None:
        for reader in self.readers:
            validate(reader.state, NOW)

    def teardown(self) -> None:
        """Nothing is lost: once all is quiet, nobody waits who could be admitted, and both schedulers see the same."""
        if not hasattr(self, "cluster"):
            return
        busy = True
        while busy:
            while self.cluster.apply_next():
                pass
            for victim in self.victims():
                self.cluster.put(released(victim))
            for reader in self.readers:
                reader.catch_up()
            # A back-off after repeated rejections is over after a minute; here time stands still.
            later = NOW + 100
            self.readers[0].state.wake(later)
            busy = self.readers[0].decide()
        self.the_truth_is_within_quota()
        self.readers[1].catch_up()
        newcomer = fed(self.cluster)
        assert not newcomer.assumptions.spending
        assert not self.readers[0].state.assumptions.spending
        assert not newcomer.world.preempting
        # It may see a victim where a parked workload was not woken for: that somebody else was given quota is no reason to look again.
        assert run_batch(newcomer.world, NOW).admits == ()


def live(seed: int, steps: int) -> Delays:
    """A long random life: the rules of the machine in an order drawn by `seed`, with more deciding than users do."""
    draw = random.Random(seed)
    machine = Delays()
    machine.start()
    queues, flags, cpus = QUEUES, (True, False), ("1", "2", "2", "3", "500m", "7")
    actions: list[tuple[int, Callable[[], None]]] = [
        (
            4,
            lambda: machine.submit(
                queue=draw.choice(queues),
                sizes=draw.choices(cpus, k=draw.randint(1, 4)),
                priority=draw.randint(0, 2),
                seen=draw.choice(flags),
            ),
        ),
        (3, lambda: machine.finish(number=draw.randint(0, 9))),
        (2, lambda: machine.evict_and_release(number=draw.randint(0, 9))),
        (4, lambda: machine.release_a_victim(number=draw.randint(0, 9))),
        (2, lambda: machine.delete(number=draw.randint(0, 9), holding=draw.choice(flags))),
        (1, lambda: machine.delete_and_create_again(number=draw.randint(0, 9))),
        (2, lambda: machine.edit(number=draw.randint(0, 9))),
        (
            1,
            lambda: machine.edit_queue(
                queue=draw.choice(queues),
                stop=draw.choice(("None", "None", "Hold")),
                cohort=draw.choice(("org", "other")),
            ),
        ),
        (
            1,
            lambda: machine.edit_what_pods_get(
                most=draw.choice(("2", "9", "9", "9")), overhead=draw.choice(("0", "500m", "1"))
            ),
        ),
        (6, lambda: machine.gateway(count=draw.randint(1, 5))),
        (
            8,
            lambda: machine.deliver(
                who=draw.randint(0, 1), stream=draw.randint(0, 2), count=draw.randint(1, 6), again=draw.randint(0, 2)
            ),
        ),
        (
            8,
            lambda: machine.read_the_log_and_decide(
                who=draw.randint(0, 1), outcomes=draw.choice(flags), objects=draw.choice(flags)
            ),
        ),
        (2, lambda: machine.decide_on_an_old_log(who=draw.randint(0, 1))),
    ]
    weights = [weight for weight, _ in actions]
    for step in range(steps):
        draw.choices(actions, weights)[0][1]()
        machine.the_truth_is_within_quota()
        if step % 5 == 0:
            machine.kept_is_computed()
    return machine


@pytest.mark.parametrize("seed", range(24))
def test_a_long_life_spends_nothing_twice_and_loses_nothing(seed: int) -> None:
    machine = live(seed, 250)
    machine.teardown()
    assert applied(machine.cluster)[Admit] > 5


def test_long_lives_preempt() -> None:
    lives = [live(seed, 250) for seed in range(4)]
    assert sum(applied(machine.cluster)[Preempt] for machine in lives) > 10


def applied(cluster: Cluster) -> Counter[type]:
    """How many decisions of each kind have landed."""
    decisions = {
        DecisionId(1, item.position, index): decision
        for item in cluster.log
        if isinstance(item.entry, Batch)
        for index, decision in enumerate(item.entry.decisions)
    }
    return Counter(
        type(decisions[item.outcome.decision])
        for item in cluster.outcomes
        if isinstance(item.outcome, DecisionOutcome) and item.outcome.status == "applied"
    )


Delays.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestDelays = Delays.TestCase


@st.composite
def histories(draw: st.DrawFn) -> Cluster:
    """A cluster after a random life, seen by a scheduler that reads everything at once."""
    cluster = new_cluster()
    reader = Reader(cluster)
    reader.catch_up()
    for number in range(draw(st.integers(1, 12))):
        match draw(
            st.sampled_from(
                ["submit", "submit", "decide", "gateway", "finish", "release", "delete", "edit", "queue", "pods"]
            )
        ):
            case "submit":
                queue, cpu = draw(st.sampled_from(QUEUES)), draw(st.sampled_from(["1", "2", "500m"]))
                priority = draw(st.integers(0, 1))
                pods = {"runtime_class": draw(st.sampled_from(["", "kata"]))}
                cluster.put(workload(f"w{number}", cpu, queue=queue, created=number, priority=priority, pods=pods))
            case "decide":
                reader.catch_up()
                reader.decide()
            case "gateway":
                cluster.apply_next()
            case "pods":
                cluster.put(limit_range(max={"cpu": draw(st.sampled_from(["1", "2"]))}))
                cluster.put(runtime_class(cpu=draw(st.sampled_from(["0", "1"]))))
            case "queue":
                name = draw(st.sampled_from(QUEUES))
                cohort = draw(st.sampled_from(["org", "", "else"]))
                cluster.put(cluster_queue(name, draw(st.sampled_from(["3", "1"])), cohort=cohort, **PREEMPTING))
            case action:
                _happen(cluster, action, draw(st.integers(0, 5)))
    return cluster


def _happen(cluster: Cluster, action: str, number: int) -> None:
    found = [w for w in cluster.truth.values() if isinstance(w, Workload)]
    if not found:
        return
    chosen = found[number % len(found)]
    match action:
        case "finish":
            cluster.put(msgspec.structs.replace(chosen, finished=True))
        case "release" if chosen.admission is not None:
            cluster.put(released(chosen))
        case "delete":
            cluster.delete(name_of(chosen))
        case "edit":
            cluster.put(with_condition(chosen, generation=chosen.generation + 1, priority=number))


@st.composite
def interleavings(draw: st.DrawFn) -> tuple[Cluster, list[FeedItem], list[FeedItem]]:
    """Two deliveries of the same streams: each in order within a stream, with repetitions."""
    cluster = draw(histories())
    return cluster, draw(_delivery(cluster)), draw(_delivery(cluster))


@st.composite
def _delivery(draw: st.DrawFn, cluster: Cluster) -> list[FeedItem]:
    streams: list[list[FeedItem]] = [list(stream) for stream in cluster.everything()]
    items: list[FeedItem] = [Reset(cluster.epoch, "start")]
    at = [0, 0, 0]
    while any(at[i] < len(streams[i]) for i in range(3)):
        i = draw(st.sampled_from([i for i in range(3) if at[i] < len(streams[i])]))
        if at[i] and draw(st.integers(0, 4)) == 0:
            items.append(streams[i][draw(st.integers(0, at[i] - 1))])
        items.append(streams[i][at[i]])
        at[i] += 1
    return [*items, CaughtUp(cluster.positions)]


@given(interleavings())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_interleaving_ends_in_the_same_state(drawn: tuple[Cluster, list[FeedItem], list[FeedItem]]) -> None:
    _, first, second = drawn
    one, other = SchedulerState(), SchedulerState()
    for item in first:
        one.apply(item, NOW)
        validate(one, NOW)
    for item in second:
        other.apply(item, NOW)
    assert facts(one) == facts(other)


@given(interleavings())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_interleaving_decides_the_same(drawn: tuple[Cluster, list[FeedItem], list[FeedItem]]) -> None:
    _, first, second = drawn
    decided = []
    for items in (first, second):
        state = SchedulerState()
        for item in items:
            state.apply(item, NOW)
        decided.append(run_batch(state.world, NOW).admits)
    assert decided[0] == decided[1]


@given(histories(), st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_reset_forgets_everything(cluster: Cluster, data: st.DataObject) -> None:
    state = SchedulerState()
    for item in data.draw(_delivery(cluster)):
        state.apply(item, NOW)
    fed(cluster, state)
    assert facts(state) == facts(fed(cluster))
