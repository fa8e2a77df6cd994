"""Preemption on random worlds: minimal sets that make room, by the policies; state restored; equal input, equal output."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.decide.candidates import own_candidates, queue_candidates
from shared.decide.cycle import BatchLimits, CycleSettings, Decision, rollback, run_batch, run_cycle
from shared.decide.preemption import find_targets
from shared.decide.preemption_classical import exceeds
from shared.decide.preemption_request import PreemptionRequest, Target
from shared.decide.preemption_trial import Trial
from shared.decide.settings import FairSharing
from shared.events import objects as o
from shared.model.pending import OrderPolicy
from shared.model.reservations import rank_of
from shared.model.workload import WorkloadInfo
from shared.model.world import World
from tests.unit.model.builders import cohort, condition, flavor, group, info, local, pod_set, queue, workload, world

FLAVORS = ("f0", "f1")
COHORTS = ("", "c0", "c0", "c1", "c1", "c2")

policies = st.fixed_dictionaries(
    {
        "within_cluster_queue": st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
        "reclaim_within_cohort": st.sampled_from(["Any", "LowerPriority", "Never"]),
        "borrow_within_cohort": st.sampled_from(["LowerPriority", "Never"]),
        "borrow_max_priority": st.one_of(st.none(), st.integers(0, 2)),
        "strategy": st.sampled_from(["StrictFIFO", "BestEffortFIFO"]),
        "when_can_preempt": st.sampled_from(["MayStopSearch", "TryNextFlavor"]),
    }
)
queue_specs = st.tuples(
    st.sampled_from(COHORTS),
    st.integers(0, 5),
    st.integers(0, 4),
    st.one_of(st.none(), st.integers(0, 5)),
    st.one_of(st.none(), st.integers(0, 5)),
    policies,
)  # cohort, nominal of each flavor, borrowing limit, lending limit, policies
running_specs = st.tuples(
    st.integers(0, 3), st.integers(1, 3), st.integers(0, 2), st.integers(0, 5), st.booleans(), st.booleans()
)  # queue, cpu, priority, reserved at, second flavor, already evicted
pending_specs = st.tuples(st.integers(0, 3), st.integers(1, 6), st.integers(0, 4), st.integers(0, 5))
specs = st.tuples(
    st.lists(queue_specs, min_size=1, max_size=4),
    st.lists(running_specs, min_size=1, max_size=10),
    st.lists(pending_specs, min_size=1, max_size=4),
)
crowded = st.tuples(
    st.lists(queue_specs, min_size=1, max_size=4),
    st.lists(running_specs, max_size=8),
    st.lists(pending_specs, min_size=3, max_size=14),
)
Spec = tuple[list[Any], list[Any], list[Any]]
modes = st.sampled_from([None, FairSharing()])
EXAMPLES = settings(max_examples=200, deadline=None)


def running(number: int, spec: Any, queues: int) -> o.Workload:
    target, cpu, priority, at, second, evicted = spec
    name = FLAVORS[second]
    assignment = o.PodSetAssignment(name="main", count=1, flavors={"cpu": name}, usage={"cpu": cpu * 1000})
    conditions: tuple[o.Condition, ...] = (condition("QuotaReserved", True, "QuotaReserved", at),)
    if evicted and number % 3 == 0:
        conditions += (condition("Evicted", True, "Preempted", at),)
    return workload(
        f"r{number}",
        f"l{target % queues}",
        priority=priority,
        created=at,
        incarnation=f"i{number}",
        pod_sets=(pod_set(requests={"cpu": str(cpu)}),),
        admission=o.Admission(f"q{target % queues}", (assignment,)),
        conditions=conditions,
    )


def objects_of(spec: Spec) -> list[o.Object]:
    queues, holders, waiting = spec
    found: list[o.Object] = [flavor(name) for name in FLAVORS]
    found += [cohort("c0", "", group(f0="cpu=1")), cohort("c1", "c0"), cohort("c2", "c1")]
    for number, (parent, first, second, borrow, lend, policy) in enumerate(queues):
        limits = (
            ""
            if not parent
            else "".join(
                f",{word}={limit}" for word, limit in (("borrow", borrow), ("lend", lend)) if limit is not None
            )
        )
        quotas = group(f0=f"cpu={first}{limits}", f1=f"cpu={second}{limits}")
        found += [queue(f"q{number}", quotas, cohort=parent, **policy), local(f"l{number}", f"q{number}")]
    found += [running(number, one, len(queues)) for number, one in enumerate(holders)]
    for number, (target, cpu, priority, created) in enumerate(waiting):
        name = f"l{target % len(queues)}"
        found.append(workload(f"p{number}", name, cpu=str(cpu), priority=priority, created=created))
    return found


def built(spec: Spec, *, backwards: bool = False, policy: OrderPolicy | None = None) -> World:
    parts = objects_of(spec)
    if backwards:
        loads = [one for one in parts if isinstance(one, o.Workload)]
        parts = [one for one in parts if not isinstance(one, o.Workload)][::-1] + loads[::-1]
    return world(*parts, policy=policy)


def requests_of(target: World) -> list[PreemptionRequest]:
    """A request for each pending workload and flavor that does not simply fit."""
    found = []
    for key, one in sorted(target.workloads.items()):
        name = target.pending.place_of(key)
        if one.admission is None and name is not None:
            for flavor_name in FLAVORS:
                index = target.interned.index(flavor_name, "cpu")
                if one.pod_sets[0].requests["cpu"] <= target.forest.available(name, index):
                    continue
                found.append(
                    PreemptionRequest(
                        preemptor=one,
                        queue=target.cluster_queues[name],
                        need=frozenset((index,)),
                        demand={index: one.pod_sets[0].requests["cpu"]},
                    )
                )
    return found


def fits_without(target: World, request: PreemptionRequest, gone: list[Target], allow_borrowing: bool) -> bool:
    mark = target.forest.mark()
    trial = Trial(target, request)
    for one in gone:
        trial.remove(one)
    fits = trial.fits(allow_borrowing)
    target.forest.undo_to(mark)
    return fits


@given(specs, modes)
@EXAMPLES
def test_a_set_of_victims_makes_room_and_none_of_them_can_be_kept(spec: Spec, fair: FairSharing | None) -> None:
    target = built(spec)
    for request in requests_of(target):
        found = list(find_targets(target, request, fair))
        assert len({one.key for one in found}) == len(found)
        if not found:
            continue
        minimal = [
            allow_borrowing
            for allow_borrowing in (True, False)
            if fits_without(target, request, found, allow_borrowing)
            and not any(
                fits_without(target, request, found[:place] + found[place + 1 :], allow_borrowing)
                for place in range(len(found))
            )
        ]
        assert minimal


@given(specs, modes)
@EXAMPLES
def test_a_search_leaves_the_state_bit_for_bit(spec: Spec, fair: FairSharing | None) -> None:
    target = built(spec)
    before = target.forest.dump()
    first = [find_targets(target, request, fair) for request in requests_of(target)]
    assert target.forest.dump() == before
    assert [find_targets(target, request, fair) for request in requests_of(target)] == first


@given(specs, modes)
@EXAMPLES
def test_victims_are_allowed_by_policy_and_nobody_within_quota_loses(spec: Spec, fair: FairSharing | None) -> None:
    target = built(spec)
    for request in requests_of(target):
        own, policy = request.queue.name, request.queue.preemption
        for one in find_targets(target, request, fair):
            victim = target.workloads[one.key]
            assert target.charges[one.key].admission.cluster_queue == one.cluster_queue
            assert not request.need.isdisjoint(one.vector)
            rule = policy.within_cluster_queue if one.cluster_queue == own else policy.reclaim_within_cohort
            assert rule != "Never"
            if rule == "LowerPriority":
                assert victim.priority < request.preemptor.priority
            if rule == "LowerOrNewerEqualPriority":
                assert (-victim.priority, victim.created) > (-request.preemptor.priority, request.preemptor.created)
            if one.cluster_queue != own:
                assert exceeds(target.forest.queue_node(one.cluster_queue), request.need)
            assert (one.reason == "InClusterQueue") == (one.cluster_queue == own)


@given(specs, modes, st.booleans())
@EXAMPLES
def test_the_order_of_insertion_does_not_matter(spec: Spec, fair: FairSharing | None, backwards: bool) -> None:
    options = CycleSettings(fair=fair)
    one, other = (
        run_batch(built(spec), 10, settings=options),
        run_batch(built(spec, backwards=True), 10, settings=options),
    )
    assert one.decisions == other.decisions
    assert one.awaited == other.awaited
    assert {entry.key: entry for entry in one.refused} == {entry.key: entry for entry in other.refused}


def state(target: World) -> tuple[Any, ...]:
    marks = {name: line.preemptor for name, line in target.pending.queues.items()}
    return target.forest.dump(), dict(target.assumed), dict(target.preempting), marks, dict(target.pending.progress)


@given(specs, modes)
@EXAMPLES
def test_rollback_undoes_preemptions(spec: Spec, fair: FairSharing | None) -> None:
    options = CycleSettings(fair=fair)
    target = built(spec)
    before = state(target)
    lost = run_batch(target, 10, settings=options)
    assert {one.key for one in lost.preempts} == set(target.preempting)
    rollback(target, lost, 10)
    assert state(target) == before
    assert run_batch(target, 10, settings=options).decisions == lost.decisions


@given(specs, modes)
@EXAMPLES
def test_no_victim_is_decided_twice_and_a_second_batch_decides_nothing(spec: Spec, fair: FairSharing | None) -> None:
    options = CycleSettings(fair=fair)
    target = built(spec)
    batch = run_batch(target, 10, settings=options)
    keys = [one.key for one in batch.preempts]
    assert len(set(keys)) == len(keys)
    assert not any(one.already_evicted for one in batch.preempts)
    again = run_batch(target, 10, settings=options)
    assert again.decisions == ()


@given(specs, st.integers(1, 3))
@EXAMPLES
def test_a_batch_cut_in_pieces_decides_the_same(spec: Spec, size: int) -> None:
    whole = run_batch(built(spec), 10).decisions
    target = built(spec)
    pieces: list[Any] = []
    for _ in range(100):
        batch = run_batch(target, 10, limits=BatchLimits(max_decisions=size, max_unsettled=1000))
        pieces += batch.decisions
        if not batch.more:
            break
    assert tuple(pieces) == whole


def one_cycle_at_a_time(target: World, options: CycleSettings) -> list[Decision]:
    """Cycles one by one, until many in a row have decided nothing."""
    decisions: list[Decision] = []
    idle = 0
    target.flush_retries(10)
    while idle < 12:
        outcome = run_cycle(target, 10, settings=options)
        decisions += outcome.decisions
        idle = 0 if outcome.decisions else idle + 1
    return decisions


@given(crowded, modes)
@EXAMPLES
def test_a_batch_decides_what_single_cycles_decide(spec: Spec, fair: FairSharing | None) -> None:
    """Without equivalence hashing: what is parked unseen because others like it failed comes earlier to its successors' turn."""
    options, policy = CycleSettings(fair=fair), OrderPolicy(equivalence_hashing=False)
    batch = run_batch(built(spec, policy=policy), 10, settings=options)
    assert list(batch.decisions) == one_cycle_at_a_time(built(spec, policy=policy), options)


def released(one: WorkloadInfo) -> WorkloadInfo:
    return msgspec.structs.replace(one, admission=None, active=False, conditions=())


@given(specs)
@EXAMPLES
def test_a_lone_preemptor_is_admitted_once_its_victims_are_gone(spec: Spec) -> None:
    queues, holders, waiting = spec
    target = built((queues, holders, waiting[:1]))
    batch = run_batch(target, 10)
    waits = [entry for entry in batch.refused if entry.refusal.reason == "WaitingForPreemptedWorkloads"]
    if not waits:
        return
    for victim in (*batch.preempts, *batch.awaited):
        target.upsert(released(target.workloads[victim.key]), 11)
        target.settle_preempted(victim.key, 11)
    assert target.preempting == {}
    assert [admit.key for admit in run_batch(target, 12).admits] == ["ns/p0"]


@given(specs)
@EXAMPLES
def test_nobody_is_admitted_into_quota_that_is_not_there(spec: Spec) -> None:
    """Victims still count until they are gone: admissions of a batch fit beside everything that runs."""
    target = built(spec)
    over_before = {
        (name, index)
        for name in target.forest.cluster_queues()
        for index in range(len(target.interned))
        if target.forest.cell(name, index).raw_available() < 0
    }
    run_batch(target, 10)
    for name in target.forest.cluster_queues():
        for index in range(len(target.interned)):
            if (name, index) not in over_before:
                assert target.forest.cell(name, index).raw_available() >= 0


@given(specs, st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 4)), max_size=12))
@EXAMPLES
def test_ranks_kept_up_to_date_equal_ranks_made_anew(spec: Spec, changes: list[tuple[int, int, int]]) -> None:
    target = built(spec)
    for name in target.cluster_queues:
        target.ranked(name)
    for number, kind, value in changes:
        key = f"ns/r{number}"
        one = target.workloads.get(key)
        if one is None:
            continue
        if kind == 0:
            target.upsert(msgspec.structs.replace(one, priority=value), 5)
        elif kind == 1:
            target.assume_preempted(key, "ns/p0")
        elif kind == 2:
            target.settle_preempted(key, 5)
        else:
            target.delete(key)
    for name in target.cluster_queues:
        expected = []
        for key in target.members.get(name, ()):
            reserved = target.workloads[key].condition("QuotaReserved")
            assert reserved is not None
            expected.append(rank_of(target.workloads[key], target.evicted(key), reserved.changed))
        assert list(target.ranked(name)) == sorted(expected)


@given(specs)
@EXAMPLES
def test_candidates_come_in_order_and_by_halves(spec: Spec) -> None:
    target = built(spec)
    for request in requests_of(target):
        for name in target.cluster_queues:
            whole = list(
                own_candidates(target, request)
                if name == request.queue.name
                else queue_candidates(target, request, name)
            )
            assert whole == sorted(whole)
            halves = []
            for evicted in (True, False):
                if name == request.queue.name:
                    halves += list(own_candidates(target, request, evicted=evicted))
                else:
                    halves += list(queue_candidates(target, request, name, evicted=evicted))
            assert halves == whole


def test_info_of_a_running_workload_is_what_the_tests_think() -> None:
    one = info(running(0, (0, 2, 1, 3, False, True), 1))
    assert one.admission is not None
    assert (one.is_true("Evicted"), one.priority) == (True, 1)
