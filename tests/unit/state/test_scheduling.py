"""Effects of workload events (core 2.11), retries of parked workloads (4.4), and how decisions and outcomes meet them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from shared.bus.interface import CaughtUp, Logged, Reset, Settled, Skipped
from shared.decide.cycle import run_batch
from shared.events.decisions import Batch, DecisionId, EpochOpened, Positions
from shared.events.objects import Cohort, Flavor, FlavorQuota, ResourceGroup, Selector, Taint, Workload
from shared.events.outcomes import DecisionOutcome
from shared.events.subjects import ObjectName
from shared.state.scheduling import SchedulerState
from shared.state.validation import StateDiverged, facts, validate
from tests.unit.state.builders import (
    NOW,
    Cluster,
    admit_of,
    basics,
    cluster_queue,
    condition,
    fed,
    flavor,
    local_queue,
    name_of,
    namespace,
    released,
    reserved,
    with_condition,
    workload,
)


class Life:
    """A cluster and the state of a scheduler that reads each object as it is written."""

    def __init__(self, *objects: Any) -> None:
        self.cluster = Cluster(objects or basics())
        self.state = fed(self.cluster)

    def put(self, object_: Any, now: float = NOW) -> Any:
        item = self.cluster.put(object_)
        self.state.apply(item, now)
        validate(self.state, now)
        return item.object

    def delete(self, object_: Any) -> None:
        self.state.apply(self.cluster.delete(name_of(object_)), NOW)
        validate(self.state, NOW)

    def waits(self, key: str) -> bool:
        return self.state.world.pending.place_of(key) is not None

    def parked(self, key: str, queue: str = "cq") -> bool:
        return key in self.state.world.pending.queues[queue].inadmissible

    def used(self, queue: str = "cq") -> int:
        world = self.state.world
        return world.forest.cell(queue, world.interned.index("default", "cpu")).usage

    def decide(self, now: float = NOW) -> list[str]:
        """Decide without a log: who would be admitted now."""
        return [admit.key for admit in run_batch(self.state.world, now).admits]

    def park(self, name: str = "parked", cpu: str = "4") -> Workload:
        """A workload that was refused, as nothing of its size is free."""
        parked: Workload = self.put(workload(name, cpu))
        assert self.decide() == []
        assert self.parked(parked.key)
        return parked


@pytest.fixture
def life() -> Life:
    return Life()


# --- core 2.11, row by row -----------------------------------------------------------------------------------------


def test_created_finished_neither_waits_nor_counts(life: Life) -> None:
    life.put(msgspec.structs.replace(reserved(workload("a")), finished=True))
    assert not life.waits("ns/a")
    assert life.used() == 0


def test_created_admissible_waits(life: Life) -> None:
    life.put(workload("a"))
    assert life.waits("ns/a")
    assert life.decide() == ["ns/a"]


def test_created_with_a_reservation_counts(life: Life) -> None:
    life.put(reserved(workload("a", "3")))
    assert not life.waits("ns/a")
    assert life.used() == 3000


@pytest.mark.parametrize(
    "change",
    [
        {"active": False},
        {"annotations": {"kueue.x-k8s.io/admission-gated-by": "somebody"}},
        {"finished": True},
        {"conditions": (condition("QuotaReserved", False, "OnHold"),)},
        {"conditions": (condition("WaitingForReplacementPods", True),)},
    ],
    ids=["inactive", "gated", "finished", "on hold", "waits for pods"],
)
def test_inadmissible_does_not_wait_and_does_once_it_may(life: Life, change: dict[str, Any]) -> None:
    life.put(msgspec.structs.replace(workload("a"), **change))
    assert not life.waits("ns/a")
    if "finished" not in change:
        life.put(workload("a"))
        assert life.waits("ns/a")


def test_pending_to_pending_follows_priority(life: Life) -> None:
    life.put(workload("a", "3", created=1))
    life.put(workload("b", "3", created=2))
    life.put(workload("b", "3", created=2, priority=5))
    assert life.decide() == ["ns/b"]


def test_pending_to_pending_follows_the_queue(life: Life) -> None:
    life.put(cluster_queue("other"))
    life.put(local_queue("lq2", "other"))
    life.put(workload("a"))
    life.put(workload("a", queue="lq2"))
    assert life.state.world.pending.place_of("ns/a") == "other"


def test_pending_to_reserved_leaves_the_queue(life: Life) -> None:
    life.put(workload("a", "2"))
    life.put(reserved(workload("a", "2")))
    assert not life.waits("ns/a")
    assert life.used() == 2000


def test_reserved_to_pending_waits_again_and_wakes_the_tree(life: Life) -> None:
    held = life.put(reserved(workload("a", "2")))
    life.park()
    life.put(released(held))
    assert life.used() == 0
    assert life.waits("ns/a")
    life.state.world.flush_retries(NOW)
    assert not life.parked("ns/parked")
    assert life.decide() == ["ns/a"]


def test_reserved_to_pending_with_a_time_ahead_waits_for_it(life: Life) -> None:
    held = life.put(reserved(workload("a", "2")))
    life.put(released(held, requeue_at=int(NOW) + 10))
    assert life.parked("ns/a")
    assert life.state.next_timer() == NOW + 10
    life.state.wake(NOW + 10)
    assert life.decide(NOW + 10) == ["ns/a"]


def test_eviction_alone_frees_nothing(life: Life) -> None:
    held = life.put(reserved(workload("a", "2")))
    life.put(with_condition(held, condition("Evicted", True, "Preempted"), evictions=1))
    assert life.used() == 2000


WAKERS: dict[str, Callable[[Life, Workload], Any]] = {
    "finished": lambda life, held: life.put(msgspec.structs.replace(held, finished=True)),
    "deleted": lambda life, held: life.delete(held),
    "lost its reservation": lambda life, held: life.put(released(held, active=False)),
    "reclaimable pods": lambda life, held: life.put(msgspec.structs.replace(held, reclaimable={"main": 1})),
    "priority changed": lambda life, held: life.put(msgspec.structs.replace(held, priority=7)),
}


@pytest.mark.parametrize("waker", WAKERS.values(), ids=WAKERS.keys())
def test_what_frees_quota_wakes_the_whole_tree(waker: Callable[[Life, Workload], Any]) -> None:
    queues = [cluster_queue(name, "2", cohort="org") for name in ("cq", "other")]
    life = Life(namespace(), flavor(), *queues, local_queue(), local_queue("lq2", "other"))
    held = life.put(reserved(workload("held", "1", count=2, queue="lq2"), "other"))
    life.park("parked", "3")
    waker(life, held)
    life.state.world.flush_retries(NOW)
    assert not life.parked("ns/parked")
    validate(life.state, NOW)


# --- core 4.4: other triggers --------------------------------------------------------------------------------------

TRIGGERS: dict[str, Callable[[Life], Any]] = {
    "ClusterQueue changed": lambda life: life.put(cluster_queue("cq", "8")),
    "flavor taints changed": lambda life: life.put(flavor(node_taints=(Taint(key="k", effect="PreferNoSchedule"),))),
    "flavor labels changed": lambda life: life.put(flavor(node_labels={"k": "v"})),
}


@pytest.mark.parametrize("trigger", TRIGGERS.values(), ids=TRIGGERS.keys())
def test_a_change_that_could_help_wakes(life: Life, trigger: Callable[[Life], Any]) -> None:
    life.put(reserved(workload("a", "2")))
    life.park()
    trigger(life)
    life.state.world.flush_retries(NOW)
    assert not life.parked("ns/parked")


def cohort(name: str, cpu: str, parent: str = "") -> Cohort:
    group = ResourceGroup(covered=("cpu",), flavors=(Flavor("default", (FlavorQuota("cpu", cpu),)),))
    return Cohort(name=name, uid=name, version=1, parent=parent, groups=(group,))


def test_cohorts_wake_their_tree() -> None:
    life = Life(namespace(), flavor(), cluster_queue("cq", "2", cohort="org"), local_queue())
    life.park("parked", "3")
    life.put(cohort("org", "5"))
    assert life.decide() == ["ns/parked"]


def test_a_queue_that_leaves_takes_its_usage_along() -> None:
    queues = [cluster_queue(name, "4", cohort="org") for name in ("cq", "other")]
    life = Life(namespace(), flavor(), *queues, local_queue(), local_queue("lq2", "other"))
    life.put(reserved(workload("held", "6", queue="lq2"), "other"))
    life.park("parked", "4")
    life.put(cluster_queue("other", "4", cohort="else"))
    assert life.decide() == ["ns/parked"]


def test_a_namespace_that_comes_to_match_wakes() -> None:
    picky = cluster_queue("cq", "4", namespace_selector=Selector(labels={"team": "a"}))
    life = Life(namespace(), flavor(), picky, local_queue())
    life.put(workload("a"))
    assert life.decide() == []
    assert life.parked("ns/a")
    life.put(namespace("ns", team="a"))
    assert life.decide() == ["ns/a"]


def test_a_queue_that_becomes_active_decides() -> None:
    life = Life(namespace(), cluster_queue(), local_queue())
    life.put(workload("a"))
    assert life.state.fold.activity("cq").reason == "FlavorNotFound"
    assert life.decide() == []
    life.put(flavor())
    assert life.decide() == ["ns/a"]


def test_a_stopped_local_queue_lets_go_and_takes_back(life: Life) -> None:
    life.put(workload("a"))
    life.put(local_queue(stop_policy="Hold"))
    assert not life.waits("ns/a")
    life.put(local_queue())
    assert life.decide() == ["ns/a"]


def test_queues_may_come_after_their_workloads() -> None:
    life = Life(namespace())
    life.put(workload("a"))
    life.put(local_queue())
    life.put(cluster_queue())
    life.put(flavor())
    assert life.decide() == ["ns/a"]


def test_a_queue_deleted_and_made_again_finds_its_workloads(life: Life) -> None:
    life.put(reserved(workload("held", "3")))
    life.put(workload("a", "3"))
    life.delete(cluster_queue())
    assert not life.waits("ns/a")
    life.put(cluster_queue("cq", "6"))
    assert life.used() == 3000
    assert life.decide() == ["ns/a"]


def test_nothing_wakes_what_nothing_helped(life: Life) -> None:
    life.put(reserved(workload("a", "2")))
    life.park()
    life.put(cluster_queue("unrelated"))
    life.put(workload("small", "1"))
    life.state.world.flush_retries(NOW)
    assert life.parked("ns/parked")


def test_a_status_of_a_queue_wakes_nobody(life: Life) -> None:
    """It is written every few seconds, and all that is parked in the tree would be looked at again each time."""
    life.put(reserved(workload("a", "2")))
    life.park()
    life.put(cluster_queue("cq", status_pending=1, status_reserving=1))
    life.state.world.flush_retries(NOW)
    assert life.parked("ns/parked")


# --- decisions and outcomes ----------------------------------------------------------------------------------------


def decide_and_log(life: Life, *, tell: bool = True) -> Batch:
    """A batch for all that fits, in the log of the cluster."""
    admits = []
    for key in life.decide():
        found = life.cluster.workload(key)
        assert found is not None
        admits.append(admit_of(found))
    batch = Batch(author="x", positions=life.state.positions, decided_ns=0, decisions=tuple(admits))
    assert life.cluster.append(batch)
    if tell:
        life.state.appended(batch, len(life.cluster.log), NOW)
    return batch


def test_a_decision_counts_until_the_object_does(life: Life) -> None:
    life.put(workload("a", "3"))
    decide_and_log(life)
    assert (life.used(), life.state.assumptions.spending) == (3000, 1)
    while life.cluster.apply_next():
        pass
    life.state.apply(life.cluster.outcomes[0], NOW)
    assert (life.used(), life.state.assumptions.spending) == (3000, 1)
    life.state.apply(life.cluster.objects[-1], NOW)
    assert (life.used(), life.state.assumptions.spending) == (3000, 0)
    assert life.state.world.assumed == {}
    validate(life.state, NOW)


def test_an_admission_evicted_and_pending_again_before_anyone_looks(life: Life) -> None:
    life.put(workload("a", "3"))
    decide_and_log(life)
    while life.cluster.apply_next():
        pass
    held = life.cluster.workload("ns/a")
    assert held is not None
    again = life.cluster.put(released(held))
    life.state.apply(life.cluster.outcomes[0], NOW)
    assert not life.waits("ns/a")
    life.state.apply(again, NOW)
    assert life.waits("ns/a")
    assert life.used() == 0
    assert life.decide() == ["ns/a"]


def test_the_object_before_the_outcome_is_not_counted_twice(life: Life) -> None:
    life.put(workload("a", "3"))
    decide_and_log(life)
    while life.cluster.apply_next():
        pass
    life.state.apply(life.cluster.objects[-1], NOW)
    assert life.used() == 3000
    life.state.apply(life.cluster.outcomes[0], NOW)
    assert life.used() == 3000
    validate(life.state, NOW)


def test_a_decision_of_another_scheduler_counts_before_its_workload_is_known(life: Life) -> None:
    batch = Batch(
        author="other",
        positions=Positions(epoch=1, decisions=1),
        decided_ns=0,
        decisions=(admit_of(workload("b", "3")),),
    )
    life.state.apply(Logged(batch, 2), NOW)
    assert life.used() == 3000
    life.put(workload("b", "3"))
    assert not life.waits("ns/b")
    assert life.state.positions.decisions == 2


def test_finished_before_the_outcome_counts_until_it_comes(life: Life) -> None:
    life.put(workload("a", "3"))
    decide_and_log(life)
    while life.cluster.apply_next():
        pass
    held = life.cluster.workload("ns/a")
    assert held is not None
    life.state.apply(life.cluster.put(msgspec.structs.replace(held, finished=True)), NOW)
    assert life.used() == 3000
    life.state.apply(life.cluster.outcomes[0], NOW)
    assert life.used() == 0
    validate(life.state, NOW)


def test_a_rejection_wakes_the_neighbour_and_holds_its_own_back(life: Life) -> None:
    first = life.put(workload("a", "3"))
    decide_and_log(life)
    life.park("parked", "3")
    edited = life.cluster.put(msgspec.structs.replace(first, generation=2, priority=-1))
    while life.cluster.apply_next():
        pass
    life.state.apply(life.cluster.outcomes[0], NOW)
    validate(life.state, NOW)
    assert life.state.is_held_back("ns/a", NOW)
    assert life.decide() == ["ns/parked"]
    life.state.apply(edited, NOW)
    assert life.waits("ns/a")
    assert life.state.assumptions.rejections == {}


def test_a_rejection_of_something_gone_waits_for_its_tombstone(life: Life) -> None:
    first = life.put(workload("a", "3"))
    decide_and_log(life)
    tombstone = life.cluster.delete(name_of(first))
    while life.cluster.apply_next():
        pass
    life.state.apply(life.cluster.outcomes[0], NOW)
    assert not life.waits("ns/a")
    life.state.apply(tombstone, NOW)
    assert life.state.assumptions.rejections == {}
    assert life.used() == 0


def test_repeated_rejections_of_one_state_back_off(life: Life) -> None:
    life.put(workload("a", "3"))
    version = life.state.objects.version("workload", "ns/a")
    for attempt in (1, 2):
        decide_and_log(life)
        position = len(life.cluster.log)
        life.cluster.applied = position
        no = DecisionOutcome(
            decision=DecisionId(1, position, 0), key="ns/a", uid="uid-a", status="rejected", version=version, why="no"
        )
        life.state.apply(Settled(no, attempt), NOW)
        assert life.waits("ns/a") == (attempt == 1)
    assert life.state.next_timer() == NOW + 1.0
    life.state.wake(NOW + 0.5)
    assert not life.waits("ns/a")
    life.state.wake(NOW + 1.0)
    assert life.decide(NOW + 1.0) == ["ns/a"]


def test_an_epoch_voids_what_is_not_settled(life: Life) -> None:
    life.put(workload("a", "3"))
    decide_and_log(life)
    life.state.apply(Logged(EpochOpened(epoch=2, shard="0", positions=Positions(epoch=2), opened_ns=0), 1), NOW)
    assert (life.used(), life.state.epoch, life.state.assumptions.spending) == (0, 2, 0)
    assert life.decide() == ["ns/a"]


def test_a_purged_log_still_gives_the_position_of_its_tail() -> None:
    state = SchedulerState()
    state.apply(Reset(3, "start"), NOW)
    state.apply(CaughtUp(Positions(epoch=3, objects=9, decisions=17, outcomes=4)), NOW)
    assert state.positions == Positions(epoch=3, objects=9, decisions=17, outcomes=4)
    assert state.caught_up


def test_a_story_is_told_in_order(life: Life) -> None:
    life.put(workload("a", "3"))
    decide_and_log(life)
    while life.cluster.apply_next():
        pass
    life.state.apply(life.cluster.objects[-1], NOW + 1)
    life.state.apply(life.cluster.outcomes[0], NOW + 2)
    story = life.state.story("ns/a")
    assert [chapter.what for chapter in story] == ["seen", "decided", "seen", "applied"]
    assert "Admit to cq on default (1/2/0)" in story[1].detail
    assert story[3].at == NOW + 2


def test_unreadable_requests_still_count_what_they_hold(life: Life) -> None:
    held = reserved(workload("a", "2"))
    bad = msgspec.structs.replace(held, pod_sets=workload("a", "two").pod_sets)
    life.put(bad)
    assert life.used() == 2000
    assert ObjectName("workload", "ns", "a") in life.state.fold.faults
    life.put(held)
    assert not life.state.fold.faults


def test_an_unreadable_quota_stops_its_queue_alone(life: Life) -> None:
    life.put(cluster_queue("bad", "lots"))
    life.put(local_queue("lq2", "bad"))
    life.put(workload("b", queue="lq2"))
    life.put(workload("a"))
    assert life.state.world.pending.ready() == ["cq"]
    assert "lots" in life.state.fold.activity("bad").message
    life.put(cluster_queue("bad", "4"))
    assert life.decide() == ["ns/a", "ns/b"]


def test_validate_notices_a_state_that_is_off(life: Life) -> None:
    life.put(reserved(workload("a", "2")))
    life.state.world.forest.add_usage("cq", {0: 1})
    with pytest.raises(StateDiverged, match="forest"):
        validate(life.state, NOW)


def test_a_reset_starts_anew(life: Life) -> None:
    life.put(workload("a", "3"))
    decide_and_log(life)
    assert facts(fed(Cluster(basics()), life.state)) == facts(fed(Cluster(basics())))


def test_an_entry_that_nobody_can_read_moves_the_fence_and_decides_nothing(life: Life) -> None:
    life.put(workload("a", "3"))
    before = life.state.positions
    for stream in ("OBJECTS", "DECISIONS", "OUTCOMES"):
        life.state.apply(Skipped(stream, 40), NOW)
    assert before.decisions == 1
    assert life.state.positions == Positions(epoch=1, objects=40, decisions=40, outcomes=40)
    assert life.state.assumptions.spending == 0
    batch = Batch(author="x", positions=life.state.positions, decided_ns=0, decisions=(admit_of(workload("b")),))
    life.state.apply(Logged(batch, 41), NOW)
    assert life.state.assumptions.spending == 1
