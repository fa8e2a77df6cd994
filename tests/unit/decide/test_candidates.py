"""The order of candidates across ClusterQueues, and with admission fair sharing."""

from __future__ import annotations

from shared.decide.candidates import Candidate, in_order, own_candidates
from shared.decide.preemption_request import PreemptionRequest
from shared.events import objects as o
from shared.model.world import World
from tests.unit.decide.preemption_worlds import holder
from tests.unit.model.builders import group, info, queue, workload, world

USAGE = {"ns/heavy": 9.0, "ns/light": 1.0}


def built(mode: str = "UsageBasedAdmissionFairSharing", *held: o.Workload) -> World:
    return world(
        queue("q", group(default="cpu=9"), admission_mode=mode, within_cluster_queue="LowerPriority"),
        queue("other", group(default="cpu=9"), admission_mode=mode),
        *held,
    )


def request(target: World, *, fair: bool = False) -> PreemptionRequest:
    return PreemptionRequest(
        preemptor=info(workload("P", priority=10)),
        queue=target.cluster_queues["q"],
        need=frozenset((target.interned.index("default", "cpu"),)),
        demand={},
        usage_of=(lambda local: USAGE.get(local, 0.0)) if fair else None,
    )


def order(target: World, *, fair: bool = False) -> list[str]:
    everyone: list[Candidate] = [(rank, name) for name in ("q", "other") for rank in target.ranked(name)]
    return [rank[4].removeprefix("ns/") for rank, _ in in_order(target, everyone, request(target, fair=fair))]


def test_others_before_the_own_queue_evicted_before_all() -> None:
    target = built(
        "", holder("own", "q", 1, -5), holder("foreign", "other", 1, 5), holder("leaving", "q", 1, evicted=True)
    )
    assert order(target) == ["leaving", "foreign", "own"]


def test_workloads_of_larger_users_go_first_within_a_queue() -> None:
    held = (
        holder("low", "q", 1, 0, local_queue="light"),
        holder("high", "q", 1, 5, local_queue="heavy"),
        holder("lower", "q", 1, 1, local_queue="heavy"),
    )
    assert order(built("UsageBasedAdmissionFairSharing", *held), fair=True) == ["lower", "high", "low"]
    assert order(built("", *held), fair=True) == ["low", "lower", "high"]
    assert order(built("UsageBasedAdmissionFairSharing", *held)) == ["low", "lower", "high"]


def test_usage_is_not_compared_across_queues() -> None:
    target = built(
        "UsageBasedAdmissionFairSharing",
        holder("own", "q", 1, local_queue="heavy"),
        holder("foreign", "other", 1, 3, local_queue="light"),
    )
    assert order(target, fair=True) == ["foreign", "own"]


def test_candidates_of_larger_users_come_first_and_high_priorities_stay() -> None:
    target = built(
        "UsageBasedAdmissionFairSharing",
        holder("untouchable", "q", 1, 10, local_queue="heavy"),
        holder("low", "q", 1, 0, local_queue="light"),
        holder("mid", "q", 1, 5, local_queue="heavy"),
        holder("leaving", "q", 1, 9, local_queue="light", evicted=True),
    )
    found = [rank[4] for rank in own_candidates(target, request(target, fair=True))]
    assert found == ["ns/leaving", "ns/mid", "ns/low"]
    halves = [
        [rank[4] for rank in own_candidates(target, request(target, fair=True), evicted=e)] for e in (True, False)
    ]
    assert halves == [["ns/leaving"], ["ns/mid", "ns/low"]]


def test_the_preemptor_itself_is_no_candidate() -> None:
    target = built("", holder("P", "q", 1, -5), holder("low", "q", 1))
    assert [rank[4] for rank in own_candidates(target, request(target))] == ["ns/low"]


def test_only_as_much_is_read_as_is_needed() -> None:
    """Those of the preemptor's priority and above end the walk, however many follow."""
    target = built("", *(holder(f"h{n}", "q", 1, 10 + n) for n in range(5)), holder("low", "q", 1))
    assert [rank[4] for rank in own_candidates(target, request(target))] == ["ns/low"]
