"""Whole batches with fair sharing on: who is admitted first, and where contention settles."""

from __future__ import annotations

import msgspec
import pytest

from shared.decide.cycle import BatchLimits, CycleSettings, rollback, run_batch
from shared.decide.settings import FairSharing
from shared.events import objects as o
from shared.model.admission_fair_sharing import AfsSettings
from shared.model.world import World
from tests.unit.model.builders import cohort, condition, flavor, group, local, put, queue, reserved, workload, world

FAIR = CycleSettings(fair=FairSharing())


def used(built: World, name: str) -> int:
    """Cores in use in a ClusterQueue."""
    return built.forest.cell(name, built.interned.index("default", "cpu")).usage // 1000


class Cluster:
    """Runs batches and does at once what the cluster would do: reservations are written, victims stop and wait again."""

    def __init__(self, *objects: o.Object) -> None:
        self.world = world(*objects)
        self.sources = {f"ns/{one.name}": one for one in objects if isinstance(one, o.Workload)}
        self.now = 100
        self.preempted: list[str] = []

    def step(self, settings: CycleSettings = FAIR) -> bool:
        """One batch; did it decide anything?"""
        self.now += 10
        batch = run_batch(self.world, self.now, settings=settings)
        for admit in batch.admits:
            source, cores = self.sources[admit.key], admit.admission.pod_sets[0].usage["cpu"]
            held = reserved(source, admit.cluster_queue, cpu=cores)
            since = condition("QuotaReserved", True, "QuotaReserved", self.now)
            put(self.world, msgspec.structs.replace(held, conditions=(since,)), now=self.now)
            self.world.settle(admit.key, self.now)
        for preempt in batch.preempts:
            self.preempted.append(preempt.key)
            put(self.world, self.sources[preempt.key], now=self.now)
            self.world.settle_preempted(preempt.key, self.now)
        return bool(batch.decisions)

    def settle(self, limit: int = 200) -> None:
        """Until nothing more is decided. Fails when it never comes to rest."""
        for _ in range(limit):
            if not self.step():
                return
        raise AssertionError("admissions and preemptions go on for ever")


def contended(weights: dict[str, str], jobs: int, pool: int = 20) -> list[o.Object]:
    """Queues without quota of their own that share a pool, each with `jobs` workloads of one core."""
    made: list[o.Object] = [cohort("pool", "", group(default=f"cpu={pool}"))]
    for name, weight in weights.items():
        made.append(queue(name, group(default="cpu=0"), cohort="pool", fair_weight=weight, reclaim_within_cohort="Any"))
        made.append(local(f"l{name}", name))
    for name in weights:
        made += [workload(f"{name}{n:02}", f"l{name}", created=n) for n in range(jobs)]
    return made


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({"a": "6", "b": "4"}, {"a": 12, "b": 8}),
        ({"a": "1", "b": "1"}, {"a": 10, "b": 10}),
        ({"a": "2", "b": "1", "c": "1"}, {"a": 10, "b": 5, "c": 5}),
        ({"a": "1", "b": "0"}, {"a": 20, "b": 0}),
    ],
)
def test_a_pool_is_split_by_weight(weights: dict[str, str], expected: dict[str, int]) -> None:
    cluster = Cluster(*contended(weights, 30))
    cluster.settle()
    assert {name: used(cluster.world, name) for name in weights} == expected
    assert len(cluster.preempted) < 20, "a cycle serves each queue once; what that leaves uneven is preempted, once"


def test_a_late_comer_gets_its_share_by_preemption() -> None:
    objects = contended({"a": "6", "b": "4"}, 30)
    late = [one for one in objects if isinstance(one, o.Workload) and one.queue_name == "lb"]
    cluster = Cluster(*(one for one in objects if one not in late))
    cluster.settle()
    assert (used(cluster.world, "a"), used(cluster.world, "b")) == (20, 0)
    cluster.sources |= {f"ns/{one.name}": one for one in late}
    put(cluster.world, *late, now=cluster.now)
    cluster.settle()
    assert (used(cluster.world, "a"), used(cluster.world, "b")) == (12, 8)
    assert len(cluster.preempted) == 8
    assert all(key.startswith("ns/a") for key in cluster.preempted)


def test_cohorts_share_first_and_their_queues_within() -> None:
    objects: list[o.Object] = [
        cohort("pool", "", group(default="cpu=12")),
        o.Cohort(name="left", version=1, parent="pool", fair_weight="2"),
        cohort("right", "pool"),
    ]
    for name, parent in (("l1", "left"), ("l2", "left"), ("r1", "right")):
        objects += [queue(name, group(default="cpu=0"), cohort=parent), local(f"q{name}", name)]
    for name in ("l1", "l2", "r1"):
        objects += [workload(f"{name}-{n:02}", f"q{name}", created=n) for n in range(12)]
    cluster = Cluster(*objects)
    cluster.settle()
    assert {name: used(cluster.world, name) for name in ("l1", "l2", "r1")} == {"l1": 4, "l2": 4, "r1": 4}


@pytest.mark.parametrize("budget", [1, 2, 5])
def test_batches_cut_short_decide_what_one_long_batch_does(budget: int) -> None:
    whole = world(*contended({"a": "3", "b": "2", "c": "1"}, 10))
    order = [one.key for one in run_batch(whole, 100, settings=FAIR).admits]
    pieces = world(*contended({"a": "3", "b": "2", "c": "1"}, 10))
    found: list[str] = []
    while batch := run_batch(pieces, 100, settings=FAIR, limits=BatchLimits(max_decisions=budget)).admits:
        found += [one.key for one in batch]
    assert found == order
    assert len(found) == 20


def test_without_fair_sharing_the_pool_goes_by_age() -> None:
    objects = contended({"a": "1", "b": "1"}, 30)
    objects = [
        msgspec.structs.replace(one, created=one.created + 1000)
        if isinstance(one, o.Workload) and one.queue_name == "lb"
        else one
        for one in objects
    ]
    cluster = Cluster(*objects)
    cluster.step(CycleSettings())
    assert used(cluster.world, "a") >= used(cluster.world, "b")
    fair = Cluster(*objects)
    fair.settle()
    assert (used(fair.world, "a"), used(fair.world, "b")) == (10, 10)


def turns() -> World:
    """Two LocalQueues of one ClusterQueue, `b` with twice the weight."""
    built = World(afs=AfsSettings(half_life_s=600, sampling_s=300))
    built.set_namespace("ns", {})
    built.set_resource_flavor(flavor("default"))
    put(
        built,
        queue("cq", group(default="cpu=6"), admission_mode="UsageBasedAdmissionFairSharing"),
        local("a", "cq"),
        local("b", "cq", fair_weight="2"),
        *(workload(f"a{n}", "a", created=n, priority=9) for n in range(6)),
        *(workload(f"b{n}", "b", created=n) for n in range(6)),
    )
    return built


def test_local_queues_take_turns_by_usage_within_one_batch() -> None:
    names = [one.key.removeprefix("ns/") for one in run_batch(turns(), 10).admits]
    assert sorted(names) == ["a0", "a1", "b0", "b1", "b2", "b3"], "twice the weight, twice as many"
    assert names[0] == "a0"


def test_a_lost_batch_leaves_no_penalties_and_is_decided_again_alike() -> None:
    built = turns()
    assert built.afs is not None
    lost = run_batch(built, 10)
    assert built.afs.usage("ns/a") > 0
    rollback(built, lost, 10)
    assert built.afs.usage("ns/a") == built.afs.usage("ns/b") == 0
    assert run_batch(built, 10).admits == lost.admits
