"""The order of possible victims within a ClusterQueue, kept up to date."""

from __future__ import annotations

from shared.model.pending import RequeueReason
from shared.model.reservations import Reservations, rank_of
from shared.model.workload import Admission, PodSetAssignment
from shared.model.world import World
from tests.unit.decide.preemption_worlds import holder
from tests.unit.model.builders import condition, group, info, local, put, queue, workload, world


def keys(built: World, name: str = "q") -> list[str]:
    return [rank[4].removeprefix("ns/") for rank in built.ranked(name)]


def test_evicted_then_priority_then_newest_then_uid() -> None:
    source = info(workload("w", priority=3))
    assert rank_of(source, True, 7) == (0, 3, -7, "uid-w", "ns/w")
    built = world(
        queue("q", group(default="cpu=9")),
        holder("high", "q", 1, 5),
        holder("old", "q", 1, 1, at=1),
        holder("new-b", "q", 1, 1, at=9, uid="b"),
        holder("new-a", "q", 1, 1, at=9, uid="a"),
        holder("leaving", "q", 1, 9, evicted=True),
    )
    assert keys(built) == ["leaving", "new-a", "new-b", "old", "high"]
    assert keys(built, "unknown") == []


def test_ranks_follow_changes() -> None:
    built = world(queue("q", group(default="cpu=9")), holder("a", "q", 1, 1), holder("b", "q", 1, 2))
    assert keys(built) == ["a", "b"]
    put(built, holder("a", "q", 1, 3))
    assert keys(built) == ["b", "a"]
    put(built, holder("c", "q", 1, 2, at=1))
    assert keys(built) == ["c", "b", "a"]
    put(built, holder("c", "other", 1))
    assert keys(built) == ["b", "a"]
    assert keys(built, "other") == ["c"]
    built.delete("ns/b")
    put(built, workload("a"))
    assert keys(built) == []


def test_put_and_drop_are_idempotent() -> None:
    line = Reservations()
    rank = rank_of(info(workload("w")), False, 1)
    line.drop("ns/w")
    line.put("ns/w", "q", rank)
    assert list(line.ranked("q")) == [rank]
    line.put("ns/w", "q", rank)
    assert list(line.ranked("q")) == [rank]
    line.put("ns/w", "r", rank)
    assert (list(line.ranked("q")), list(line.ranked("r"))) == ([], [rank])
    line.drop("ns/w")
    line.drop("ns/w")
    assert list(line.ranked("r")) == []


def admission(cpu: int) -> Admission:
    pod_set = PodSetAssignment(name="main", count=1, flavors={"cpu": "default"}, usage={"cpu": cpu * 1000})
    return Admission("q", (pod_set,))


def test_an_assumed_reservation_is_as_new_as_its_decision() -> None:
    built = world(queue("q", group(default="cpu=9")), local("lq", "q"), holder("old", "q", 1, at=5), workload("a"))
    built.assume("ns/a", admission(1), at=9)
    assert keys(built) == ["a", "old"]
    built.settle("ns/a", 10)
    assert keys(built) == ["old"]
    built.assume("ns/a", admission(1), at=3)
    assert keys(built) == ["old", "a"]
    built.assume("ns/b", admission(1))
    assert keys(built) == ["old", "a"], "a workload nobody has seen cannot be chosen"
    put(built, workload("b"))
    assert keys(built) == ["b", "old", "a"], "without a time it is the newest"


def test_an_earlier_eviction_says_nothing_about_a_new_admission() -> None:
    back = workload("a", conditions=(condition("Evicted", True, "Preempted", 2),))
    built = world(queue("q", group(default="cpu=9")), local("lq", "q"), back)
    built.assume("ns/a", admission(1), at=4)
    assert not built.evicted("ns/a")
    built.assume_preempted("ns/a", "ns/P")
    assert built.evicted("ns/a")
    assert built.ranked("q")[0][0] == 0


def test_a_decided_eviction_counts_until_it_is_settled() -> None:
    built = world(queue("q", group(default="cpu=9")), holder("a", "q", 1), holder("b", "q", 1, -1))
    built.flush_retries(0)
    built.assume_preempted("ns/a", "ns/P")
    assert (built.preempting, keys(built)) == ({"ns/a": "ns/P"}, ["a", "b"])
    put(built, holder("a", "q", 1, 2))
    assert keys(built) == ["a", "b"], "a change that does not show the eviction changes nothing"
    changes = built.changes
    built.settle_preempted("ns/a", 1)
    assert (built.preempting, keys(built)) == ({}, ["b", "a"])
    assert built.changes == changes + 1
    built.settle_preempted("ns/a", 1)
    assert keys(built) == ["b", "a"]


def test_a_landed_eviction_stays_visible_through_the_object() -> None:
    built = world(queue("q", group(default="cpu=9")), holder("a", "q", 1))
    built.assume_preempted("ns/a", "ns/P")
    put(built, holder("a", "q", 1, evicted=True))
    built.settle_preempted("ns/a", 1)
    assert built.evicted("ns/a")


def test_a_rejected_eviction_is_a_retry_for_the_tree() -> None:
    parked = workload("parked", "lq")
    built = world(
        queue("q", group(default="cpu=1"), cohort="c"),
        queue("p", group(default="cpu=1"), cohort="c"),
        local("lq", "p"),
        holder("a", "q", 1),
        parked,
    )
    built.flush_retries(0)
    built.pending.pop("p")
    built.pending.requeue(info(parked), RequeueReason.PREEMPTION_NO_CANDIDATES, 0, cluster_queue="p")
    assert "ns/parked" in built.pending.queues["p"].inadmissible
    built.assume_preempted("ns/a", "ns/P")
    assert built.flush_retries(0) == 0
    built.settle_preempted("ns/a", 1)
    assert built.flush_retries(1) == 1


def test_a_deleted_victim_is_forgotten() -> None:
    built = world(queue("q", group(default="cpu=9")), holder("a", "q", 1))
    built.assume_preempted("ns/a", "ns/P")
    built.delete("ns/a")
    assert (built.preempting, keys(built)) == ({}, [])


def test_who_is_not_ready() -> None:
    ready = (condition("PodsReady", True, "Started"),)
    built = world(queue("q", group(default="cpu=9")), local("lq", "q"), holder("a", "q", 1), workload("w"))
    assert set(built.not_ready) == {"ns/a"}
    put(built, holder("a", "q", 1, conditions=ready))
    assert set(built.not_ready) == set()
    built.assume("ns/w", admission(1))
    assert set(built.not_ready) == {"ns/w"}
    put(built, holder("w", "q", 1, conditions=ready))
    assert set(built.not_ready) == {"ns/w"}, "not before the admission is settled"
    built.settle("ns/w", 1)
    assert set(built.not_ready) == set()
    put(built, holder("a", "q", 1, conditions=(condition("PodsReady", False, "WaitForRecovery"),)))
    assert set(built.not_ready) == {"ns/a"}
    built.delete("ns/a")
    assert set(built.not_ready) == set()
