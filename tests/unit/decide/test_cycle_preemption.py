"""Cycles and batches that preempt: what is decided in which order, who waits, and what stays claimed meanwhile."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.decide.cycle import Admit, Batch, BatchLimits, CycleSettings, Preempt, rollback, run_batch
from shared.decide.flavors import SearchSettings
from shared.decide.order import HeadOrder
from shared.decide.single_cycle import run_cycle
from shared.events import objects as o
from shared.model.pending_queue import Preemptor
from shared.model.world import World
from tests.unit.decide.preemption_worlds import holder
from tests.unit.model.builders import condition, flavor, group, local, pod_set, put, queue, workload, world


def said(batch: Batch) -> list[tuple[str, str]]:
    """Decisions in order: ("admit" | reason, key)."""
    return [("admit" if isinstance(one, Admit) else one.reason, one.key.removeprefix("ns/")) for one in batch.decisions]


def waits(batch: Batch) -> dict[str, tuple[str, str]]:
    return {one.key.removeprefix("ns/"): (one.refusal.reason, one.requeue) for one in batch.refused}


def one_queue(*workloads: o.Workload, nominal: int = 4, **fields: Any) -> World:
    fields.setdefault("within_cluster_queue", "LowerPriority")
    return world(queue("q", group(default=f"cpu={nominal}"), **fields), local("lq", "q"), *workloads)


def leave(target: World, *names: str, now: float = 20) -> None:
    """The victims' quota is released."""
    for name in names:
        gone = target.workloads[f"ns/{name}"]
        target.upsert(msgspec.structs.replace(gone, admission=None, active=False, conditions=()), now)
        target.settle_preempted(f"ns/{name}", now)


# --- one preemptor ---------------------------------------------------------------------------------------------------


def test_a_preemptor_evicts_and_waits() -> None:
    built = one_queue(holder("v", "q", 4), workload("P", cpu="3", priority=1, job_uid="job"))
    batch = run_batch(built, 10)
    assert said(batch) == [("InClusterQueue", "v")]
    (preempt,) = batch.preempts
    assert (preempt.preemptor, preempt.cluster_queue, preempt.incarnation) == ("ns/P", "q", "inc-v")
    assert waits(batch) == {"P": ("WaitingForPreemptedWorkloads", "PendingPreemption")}
    assert batch.refused[0].message.endswith("preempting 1 workload")
    assert not batch.more
    assert built.preempting == {"ns/v": "ns/P"}
    assert built.pending.queues["q"].preemptor == Preemptor("ns/P", True, 0)
    assert "ns/P" in built.pending.queues["q"].heap


def test_while_victims_leave_nothing_more_is_decided() -> None:
    built = one_queue(holder("v", "q", 4), workload("P", cpu="3", priority=1))
    run_batch(built, 10)
    again = run_batch(built, 11)
    assert again.decisions == ()
    assert [(one.key, one.already_evicted) for one in again.awaited] == [("ns/v", True)]
    assert waits(again) == {"P": ("WaitingForPreemptedWorkloads", "PendingPreemption")}
    put(built, holder("v", "q", 4, evicted=True))
    built.settle_preempted("ns/v", 12)
    assert run_batch(built, 12).decisions == ()


def test_the_preemptor_is_admitted_once_the_quota_is_free() -> None:
    built = one_queue(holder("v", "q", 4), workload("P", cpu="3", priority=1))
    run_batch(built, 10)
    leave(built, "v")
    assert said(run_batch(built, 20)) == [("admit", "P")]
    assert built.pending.queues["q"].preemptor is None


def test_the_free_quota_goes_to_the_preemptor_not_to_who_comes_later() -> None:
    """A newcomer of higher priority is behind the sticky preemptor; in the same queue nobody overtakes it."""
    built = one_queue(holder("v", "q", 4), workload("P", cpu="3", priority=1))
    run_batch(built, 10)
    put(built, workload("Q", cpu="4", priority=5))
    leave(built, "v")
    assert said(run_batch(built, 20))[0] == ("admit", "P")


def test_a_claim_is_kept_from_heads_of_other_queues() -> None:
    """The cohort has 6, v holds 4 and leaves for P, which asks 4: 2 are left for others, not 3."""

    def built(asked: str) -> World:
        return world(
            queue("A", group(default="cpu=4"), cohort="c", within_cluster_queue="LowerPriority"),
            queue("B", group(default="cpu=2"), cohort="c"),
            local("a", "A"),
            local("b", "B"),
            holder("v", "A", 4),
            workload("P", "a", cpu="4", priority=1),
            workload("Q", "b", cpu=asked),
        )

    assert said(run_batch(built("2"), 10)) == [("InClusterQueue", "v"), ("admit", "Q")]
    first = built("3")
    assert said(run_batch(first, 10)) == [("InClusterQueue", "v")]
    assert said(run_batch(first, 11)) == []
    leave(first, "v")
    assert said(run_batch(first, 20)) == [("admit", "P")]


def test_victims_of_a_rejected_eviction_are_chosen_again() -> None:
    built = one_queue(holder("v", "q", 4), workload("P", cpu="3", priority=1))
    run_batch(built, 10)
    built.settle_preempted("ns/v", 11)
    assert said(run_batch(built, 11)) == [("InClusterQueue", "v")]


def test_a_preemptor_without_victims_waits_for_quota() -> None:
    built = one_queue(holder("v", "q", 4, 9), workload("P", cpu="3", priority=1))
    batch = run_batch(built, 10)
    assert batch.decisions == ()
    assert waits(batch) == {"P": ("WaitingForQuota", "PreemptionNoCandidates")}


def test_an_admission_of_the_same_batch_can_be_taken_back() -> None:
    """`low` borrows what `late` then reclaims; the log must hold both, in this order."""
    built = world(
        queue("A", group(default="cpu=2"), cohort="c", reclaim_within_cohort="Any"),
        queue("B", group(default="cpu=0"), cohort="c"),
        local("a", "A"),
        local("b", "B"),
        workload("huge", "a", cpu="5", priority=9),
        workload("late", "a", cpu="2"),
        workload("low", "b", cpu="2"),
    )
    batch = run_batch(built, 10)
    assert said(batch) == [("admit", "low"), ("InCohortReclamation", "low")]
    assert batch.preempts[0].incarnation == ""
    assert set(built.preempting) == set(built.assumed) == {"ns/low"}


def test_scan_progress_is_forgotten_when_victims_were_found() -> None:
    built = world(
        flavor("spot"),
        queue(
            "q",
            group(default="cpu=4", spot="cpu=4"),
            within_cluster_queue="LowerPriority",
            when_can_preempt="MayStopSearch",
        ),
        local("lq", "q"),
        holder("v", "q", 4),
        workload("P", cpu="4", priority=1),
    )
    assert said(run_batch(built, 10)) == [("InClusterQueue", "v")]
    assert built.pending.progress == {}


def test_partial_admission_takes_victims_for_as_many_pods_as_can_be_had() -> None:
    source = workload("P", priority=1, pod_sets=(pod_set(count=6, min_count=2, requests={"cpu": "1"}),))
    built = one_queue(holder("v", "q", 2), holder("stays", "q", 2, 9), source)
    assert said(run_batch(built, 10)) == [("InClusterQueue", "v")]
    leave(built, "v")
    (admit,) = run_batch(built, 20).admits
    assert admit.admission.pod_sets[0].count == 2


# --- several heads of a cycle ----------------------------------------------------------------------------------------


def rivals(recompute: bool = True, extra: tuple[o.Object, ...] = (), **policy: Any) -> tuple[World, CycleSettings]:
    """A and B each have 2 of their own; `big` of C holds all 4. Both heads want their 2 back, and both by evicting `big`."""
    policy = {"reclaim_within_cohort": "Any", **policy}
    built = world(
        queue("A", group(default="cpu=2"), cohort="c", **policy),
        queue("B", group(default="cpu=2"), cohort="c", **policy),
        queue("C", group(default="cpu=0"), cohort="c"),
        local("a", "A"),
        local("b", "B"),
        holder("big", "C", 4),
        workload("first", "a", cpu="2", priority=2),
        workload("second", "b", cpu="2", priority=1),
        *extra,
    )
    return built, CycleSettings(recompute_overlap=recompute)


def test_who_fits_beside_the_victims_of_others_waits_without_victims_of_its_own() -> None:
    built, settings = rivals()
    batch = run_batch(built, 10, settings=settings)
    assert said(batch) == [("InCohortReclamation", "big")]
    assert set(batch.recomputations) == {("B", "deferred_fit")}
    assert waits(batch) == {
        "first": ("WaitingForPreemptedWorkloads", "PendingPreemption"),
        "second": ("WaitingForPreemptedWorkloads", "PendingPreemption"),
    }
    assert built.pending.queues["B"].preemptor == Preemptor("ns/second", True, 0)
    leave(built, "big")
    assert said(run_batch(built, 20, settings=settings)) == [("admit", "first"), ("admit", "second")]


def test_without_recomputation_the_later_head_is_skipped() -> None:
    built, settings = rivals(recompute=False)
    outcome = run_cycle(built, 10, settings=settings)
    assert [one.key for one in outcome.decisions] == ["ns/big"]
    assert outcome.skipped_preemptions == {"B": 1}
    second = next(one for one in outcome.refused if one.key == "ns/second")
    assert (second.refusal.reason, second.requeue) == ("WaitingForQuota", "FailedAfterNomination")


def test_other_victims_are_found_when_the_first_are_taken() -> None:
    extra = (
        queue("D", group(default="cpu=0"), cohort="c"),
        holder("other", "D", 2, at=-1),
        queue("E", group(default="cpu=2"), cohort="c"),
    )
    built, settings = rivals(extra=extra)
    put(built, holder("big", "C", 2, at=5), workload("second", "b", cpu="2", priority=1))
    put(built, holder("a-own", "A", 0), holder("filler", "E", 2, at=-2))
    batch = run_batch(built, 10, settings=settings)
    assert said(batch) == [("InCohortReclamation", "big"), ("InCohortReclamation", "other")]
    assert set(batch.recomputations) == {("B", "new_targets")}


def test_decisions_stand_in_the_order_they_were_taken() -> None:
    """P borrows nothing and goes first; Q is admitted in the same cycle; R in the next one."""
    built = world(
        queue("A", group(default="cpu=2"), within_cluster_queue="LowerPriority"),
        queue("B", group(default="cpu=2")),
        local("a", "A"),
        local("b", "B"),
        holder("v", "A", 2),
        workload("P", "a", cpu="2", priority=9),
        workload("Q", "b", priority=1),
        workload("R", "b"),
    )
    batch = run_batch(built, 10)
    assert said(batch) == [("InClusterQueue", "v"), ("admit", "Q"), ("admit", "R")]
    assert [type(one) for one in batch.decisions] == [Preempt, Admit, Admit]
    assert (len(batch.preempts), len(batch.admits)) == (1, 2)


def test_a_preemptor_that_may_not_be_overtaken_reserves_even_if_it_could_reclaim() -> None:
    """P waits for v; its quota is short again since another workload took it. With preemptors first it keeps what is left from Q."""

    def after(prioritize: bool) -> list[tuple[str, str]]:
        built = world(
            queue(
                "A",
                group(default="cpu=4"),
                cohort="c",
                strategy="StrictFIFO",
                reclaim_within_cohort="Any",
                within_cluster_queue="LowerPriority",
            ),
            queue("B", group(default="cpu=0"), cohort="c"),
            local("a", "A"),
            local("b", "B"),
            holder("v", "A", 2),
            holder("fixed", "A", 1, 9),
            workload("P", "a", cpu="3", priority=1),
        )
        settings = CycleSettings(order=HeadOrder(prioritize_preemptors=prioritize))
        assert said(run_batch(built, 10, settings=settings)) == [("InClusterQueue", "v")]
        built.settle_preempted("ns/v", 11)
        put(built, holder("v", "A", 2, 9), workload("Q", "b", cpu="1"))
        return said(run_batch(built, 12, settings=settings))

    assert after(False) == [("admit", "Q")]
    assert after(True) == []


# --- limits, cuts, rollback ------------------------------------------------------------------------------------------


def many_preemptors(count: int = 4) -> World:
    objects: list[o.Object] = []
    for number in range(count):
        objects.append(queue(f"q{number}", group(default="cpu=2"), within_cluster_queue="LowerPriority"))
        objects.append(local(f"l{number}", f"q{number}"))
        objects += [holder(f"v{number}-{one}", f"q{number}", 1) for one in range(2)]
        objects.append(workload(f"p{number}", f"l{number}", cpu="2", priority=1))
    return world(*objects)


def test_the_victims_of_one_preemptor_are_decided_together() -> None:
    built = many_preemptors()
    batch = run_batch(built, 10, limits=BatchLimits(max_decisions=1))
    assert [one.preemptor for one in batch.preempts] == ["ns/p0", "ns/p0"]
    assert batch.more


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_pieces_decide_what_the_whole_decides(size: int) -> None:
    whole = run_batch(many_preemptors(), 10).decisions
    built, pieces = many_preemptors(), list[Admit | Preempt]()
    while True:
        batch = run_batch(built, 10, limits=BatchLimits(max_decisions=size))
        pieces += batch.decisions
        if not batch.more:
            break
    assert tuple(pieces) == whole
    assert len(whole) == 8


def test_claims_of_a_cut_cycle_still_count() -> None:
    """P's claim and v's leaving are known to the rest of the cycle: Q gets the 2 left, not R the 3 that seem free."""
    built = world(
        queue("A", group(default="cpu=4"), cohort="c", within_cluster_queue="LowerPriority"),
        queue("B", group(default="cpu=2"), cohort="c"),
        local("a", "A"),
        local("b", "B"),
        holder("v", "A", 3),
        workload("P", "a", cpu="4", priority=1),
        workload("R", "b", cpu="3"),
    )
    batch = run_batch(built, 10, limits=BatchLimits(max_decisions=1))
    assert said(batch) == [("InClusterQueue", "v")]
    assert said(run_batch(built, 10)) == []


def test_unsettled_evictions_count_like_admissions() -> None:
    built = many_preemptors(2)
    assert len(run_batch(built, 10, limits=BatchLimits(max_unsettled=1)).decisions) == 2
    stopped = run_batch(built, 10, limits=BatchLimits(max_unsettled=2))
    assert (stopped.decisions, stopped.more) == ((), True)
    leave(built, "v0-0", "v0-1")
    assert said(run_batch(built, 20, limits=BatchLimits(max_unsettled=1)))[0] == ("admit", "p0")


def test_rollback_takes_everything_back() -> None:
    built = many_preemptors(2)
    before = (built.forest.dump(), [line.preemptor for line in built.pending.queues.values()])
    batch = run_batch(built, 10)
    rollback(built, batch, 11)
    assert built.preempting == {}
    assert (built.forest.dump(), [line.preemptor for line in built.pending.queues.values()]) == before
    assert run_batch(built, 12).decisions == batch.decisions


def test_rollback_gives_the_mark_back_to_who_had_it() -> None:
    built = one_queue(holder("v", "q", 2), holder("w", "q", 2, 1), workload("P", cpu="2", priority=2))
    run_batch(built, 10)
    mark = built.pending.queues["q"].preemptor
    leave(built, "v")
    lost = run_batch(built, 20)
    assert said(lost) == [("admit", "P")]
    rollback(built, lost, 21)
    assert built.pending.queues["q"].preemptor == mark


# --- gates, slices, variants, pods ready -----------------------------------------------------------------------------


def gated(open_: bool) -> World:
    source = workload("P", cpu="3", priority=1, preemption_gates=(o.PreemptionGate("mk", open_),))
    return one_queue(holder("v", "q", 4), source)


@pytest.mark.parametrize(
    ("honoured", "open_", "expected"),
    [
        (True, False, ("AdmissionGated", "PreemptionGated")),
        (True, True, ("WaitingForPreemptedWorkloads", "PendingPreemption")),
        (False, False, ("WaitingForPreemptedWorkloads", "PendingPreemption")),
    ],
)
def test_a_closed_gate_keeps_from_preempting(honoured: bool, open_: bool, expected: tuple[str, str]) -> None:
    batch = run_batch(gated(open_), 10, settings=CycleSettings(preemption_gates=honoured))
    assert waits(batch) == {"P": expected}
    assert batch.refused[0].gated == (expected[0] == "AdmissionGated")


def test_a_gate_that_opens_brings_the_workload_back() -> None:
    built = gated(False)
    settings = CycleSettings(preemption_gates=True)
    run_batch(built, 10, settings=settings)
    assert "ns/P" in built.pending.queues["q"].inadmissible
    put(built, workload("P", cpu="3", priority=1, preemption_gates=(o.PreemptionGate("mk", True),)))
    assert said(run_batch(built, 11, settings=settings)) == [("InClusterQueue", "v")]


def test_a_gate_does_not_matter_to_who_simply_fits() -> None:
    source = workload("P", preemption_gates=(o.PreemptionGate("mk", False),))
    assert said(run_batch(one_queue(source), 10, settings=CycleSettings(preemption_gates=True))) == [("admit", "P")]


FOR = "kueue.x-k8s.io/workload-slice-replacement-for"


def slices(cpu: str, **fields: Any) -> World:
    return one_queue(holder("old", "q", 3), workload("new", cpu=cpu, annotations={FOR: "ns/old"}, **fields))


def test_a_new_slice_needs_only_what_it_has_more() -> None:
    batch = run_batch(slices("4"), 10)
    (admit,) = batch.admits
    assert (admit.key, admit.replaces, admit.replaced_uid) == ("ns/new", "ns/old", "uid-old")
    assert admit.admission.pod_sets[0].usage == {"cpu": 4000}


def test_a_new_slice_never_evicts_the_old_one_itself() -> None:
    batch = run_batch(slices("5", priority=9), 10)
    assert batch.decisions == ()
    assert waits(batch) == {"new": ("WaitingForQuota", "PreemptionNoCandidates")}


@pytest.mark.parametrize("other", ["ns/unknown", "elsewhere/old"])
def test_a_slice_that_is_not_there_is_not_replaced(other: str) -> None:
    built = one_queue(holder("old", "q", 3), workload("new", cpu="4", annotations={FOR: other}))
    assert run_batch(built, 10).decisions == ()


def test_slices_are_ordinary_workloads_without_the_gate() -> None:
    assert run_batch(slices("4"), 10, settings=CycleSettings(elastic_slices=False)).decisions == ()


PARENT = (o.Owner("kueue.x-k8s.io/v1beta2", "Workload", "parent", "parent-uid", True),)
ALLOWED = "kueue.x-k8s.io/workload-allowed-resource-flavors"
CONCURRENT = CycleSettings(search=SearchSettings(concurrent_admission=True), preemption_gates=True)


def family(mine: str, theirs: str, last: str = "") -> World:
    admitted = holder(
        "sibling",
        "q",
        2,
        flavor=theirs,
        owners=PARENT,
        annotations={ALLOWED: theirs},
        conditions=(condition("Admitted", True, "Admitted"),),
    )
    return world(
        flavor("best"),
        flavor("worst"),
        queue("q", group(best="cpu=2", default="cpu=2", worst="cpu=2"), last_acceptable_flavor=last),
        local("lq", "q"),
        admitted,
        workload("mine", cpu="2", owners=PARENT, annotations={ALLOWED: mine}),
    )


def test_a_better_variant_replaces_the_admitted_one() -> None:
    built = family("best", "worst")
    batch = run_batch(built, 10, settings=CONCURRENT)
    (migration,) = batch.preempts
    assert (migration.key, migration.eviction, migration.preemptor) == ("ns/sibling", "FlavorMigration", "ns/mine")
    assert waits(batch) == {"mine": ("WaitingForPreemptedWorkloads", "PendingMigration")}
    assert run_batch(built, 11, settings=CONCURRENT).decisions == ()
    leave(built, "sibling")
    assert said(run_batch(built, 20, settings=CONCURRENT)) == [("admit", "mine")]


def test_a_worse_variant_waits_while_a_better_one_is_admitted() -> None:
    batch = run_batch(family("worst", "best"), 10, settings=CONCURRENT)
    assert batch.decisions == ()
    assert waits(batch) == {"mine": ("PendingEvaluation", "FailedAfterNomination")}


def test_no_migration_to_flavors_behind_the_last_acceptable_one() -> None:
    outcome = run_cycle(family("default", "worst", last="best"), 10, settings=CONCURRENT)
    assert outcome.decisions == []
    assert [(one.refusal.reason, one.requeue) for one in outcome.refused] == [("PendingEvaluation", "")]


def test_with_blocked_admission_one_workload_at_a_time() -> None:
    settings = CycleSettings(block_admission=True)
    ready = (condition("PodsReady", True, "Started"),)
    built = one_queue(workload("a", created=1), workload("b", created=2), holder("runs", "q", 1, conditions=ready))
    first = run_batch(built, 10, settings=settings)
    assert said(first) == [("admit", "a")]
    assert (first.blocked, first.more) == (True, False)
    assert waits(first) == {"b": ("WaitingForPodsReady", "FailedAfterNomination")}
    assert run_batch(built, 11, settings=settings).decisions == ()
    put(built, holder("a", "q", 1, conditions=ready))
    built.settle("ns/a", 12)
    assert said(run_batch(built, 12, settings=settings)) == [("admit", "b")]


def test_blocking_leaves_the_other_heads_where_they_are() -> None:
    settings = CycleSettings(block_admission=True)
    built = world(
        *(queue(f"q{n}", group(default="cpu=1")) for n in range(3)),
        *(local(f"l{n}", f"q{n}") for n in range(3)),
        *(workload(f"w{n}", f"l{n}", created=n) for n in range(3)),
    )
    batch = run_batch(built, 10, settings=settings)
    assert said(batch) == [("admit", "w0")]
    assert set(waits(batch)) == {"w1"}
    assert [set(built.pending.queues[f"q{n}"].heap) for n in (1, 2)] == [{"ns/w1"}, {"ns/w2"}]
    assert built.pending.queues["q2"].inflight is None
