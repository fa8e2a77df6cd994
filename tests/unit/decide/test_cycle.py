"""Cycles and batches: who is admitted, in which order, what is set aside, what comes back and why."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.decide.cycle import Batch, BatchLimits, CycleSettings, rollback, run_batch, run_cycle
from shared.decide.flavors import SearchSettings
from shared.decide.order import HeadOrder, head_key
from shared.events import objects as o
from shared.model.pending import RequeueReason, ScanProgress
from shared.model.workload import Admission
from shared.model.world import World
from tests.unit.model.builders import condition, flavor, group, info, local, pod_set, queue, reserved, workload, world


def names(batch: Batch) -> list[str]:
    return [admit.key.removeprefix("ns/") for admit in batch.admits]


def reasons(batch: Batch) -> dict[str, tuple[str, str]]:
    return {entry.key.removeprefix("ns/"): (entry.refusal.reason, entry.requeue) for entry in batch.refused}


def used(built: World, name: str) -> int:
    return built.forest.cell(name, built.interned.index("default", "cpu")).usage


def one_queue(nominal: str, *workloads: o.Workload, **fields: Any) -> World:
    return world(queue("cq", group(default=f"cpu={nominal}"), **fields), local("lq", "cq"), *workloads)


def test_heads_are_admitted_in_order_until_quota_is_used() -> None:
    built = one_queue("2", *(workload(name, created=at) for name, at in (("c", 3), ("a", 1), ("b", 2))))
    batch = run_batch(built, 10)
    assert names(batch) == ["a", "b"]
    assert reasons(batch) == {"c": ("WaitingForQuota", "PreemptionNoCandidates")}
    assert not batch.more
    assert used(built, "cq") == 2000
    assert set(built.assumed) == {"ns/a", "ns/b"}


def test_an_admit_carries_what_the_write_needs() -> None:
    checks = (o.CheckRule("zz"), o.CheckRule("only-b", ("b",)), o.CheckRule("aa", ("default",)))
    source = workload(
        "a",
        pod_sets=(pod_set(count=3, requests={"cpu": "500m"}),),
        conditions=(condition("Requeued", True, "BackoffFinished", 77),),
        incarnation="i1",
        created=5,
    )
    built = world(
        *(
            o.AdmissionCheck(name=n, version=1, controller="x", active=condition("Active", True))
            for n in ("zz", "aa", "only-b")
        ),
        flavor("b"),
        queue("cq", group(default="cpu=9", b="cpu=9"), cohort="pool", checks=checks),
        local("lq", "cq"),
        source,
    )
    (admit,) = run_batch(built, 100).admits
    assert (admit.key, admit.uid, admit.incarnation) == ("ns/a", "uid-a", "i1")
    assert (admit.cluster_queue, admit.domain, admit.queued_since) == ("cq", "pool", 77)
    assert admit.required_checks == ("aa", "zz")
    (one,) = admit.admission.pod_sets
    assert (one.name, one.count, one.flavors, one.usage) == ("main", 3, {"cpu": "default"}, {"cpu": 1500})
    assert admit.considered == ""


def test_a_refusal_carries_reason_message_and_requests() -> None:
    built = one_queue("2", workload("a", cpu="3"), workload("b", cpu="2", created=9), workload("c", created=10))
    batch = run_batch(built, 100)
    big = next(entry for entry in batch.refused if entry.key == "ns/a")
    assert (big.refusal.reason, big.requeue) == ("ExceedsMaxQuota", RequeueReason.NO_FIT)
    assert big.message == "pod set main: cpu in flavor default: 3 requested, maximum ever available is 2"
    assert big.requests == {"main": {"cpu": 3000}}
    waits = next(entry for entry in batch.refused if entry.key == "ns/c")
    assert "1 more needed" in waits.message
    assert (waits.refusal.pod_sets[0].reasons[0].missing, waits.cluster_queue) == (1000, "cq")


def cohort_of_two(reclaim: str = "LowerPriority", strategy: str = "StrictFIFO") -> World:
    """A asks 4 of its nominal 4 while B uses 6 of 8: B's head asks 2."""
    preemption = {"reclaim_within_cohort": reclaim, "within_cluster_queue": "LowerPriority"}
    return world(
        queue("A", group(default="cpu=4"), cohort="pool", strategy=strategy, **preemption),
        queue("B", group(default="cpu=4"), cohort="pool"),
        local("a", "A"),
        local("b", "B"),
        reserved(workload("old", "b", priority=10), "B", cpu=6000),
        workload("P", "a", cpu="4", priority=5),
        workload("Q", "b", cpu="2"),
    )


def test_capacity_is_set_aside_for_a_head_that_cannot_reclaim() -> None:
    built = cohort_of_two()
    batch = run_batch(built, 100)
    assert names(batch) == []
    assert reasons(batch) == {
        "P": ("WaitingForQuota", "PreemptionNoCandidates"),
        "Q": ("WaitingForQuota", "FailedAfterNomination"),
    }
    assert (used(built, "A"), used(built, "B")) == (0, 6000)


def test_a_parked_head_sets_nothing_aside_in_later_cycles() -> None:
    built = cohort_of_two(strategy="BestEffortFIFO")
    assert run_cycle(built, 100).admits == []
    assert [admit.key for admit in run_cycle(built, 100).admits] == ["ns/Q"]


def test_nothing_is_set_aside_when_the_quota_can_be_taken_back() -> None:
    assert names(run_batch(cohort_of_two("Any"), 100)) == ["Q"]


def test_one_head_per_queue_and_cycle_lower_levels_first() -> None:
    built = world(
        queue("A", group(default="cpu=1"), cohort="pool"),
        queue("B", group(default="cpu=3"), cohort="pool"),
        local("a", "A"),
        local("b", "B"),
        workload("borrows", "a", cpu="2", priority=100),
        workload("own", "b", cpu="2"),
    )
    batch = run_batch(built, 100)
    assert names(batch) == ["own", "borrows"]
    assert batch.admits[1].considered == "main: default(Fit;borrow=1)"


@pytest.mark.parametrize(("strict", "admitted"), [(True, []), (False, ["small"])])
def test_a_strict_queue_waits_for_its_head(strict: bool, admitted: list[str]) -> None:
    strategy = "StrictFIFO" if strict else "BestEffortFIFO"
    built = one_queue("2", workload("big", cpu="5", priority=1), workload("small"), strategy=strategy)
    batch = run_batch(built, 100)
    assert names(batch) == admitted
    assert set(built.pending.queues["cq"].heap) == ({"ns/big", "ns/small"} if strict else set())


@pytest.mark.parametrize(
    ("fields", "source", "expected"),
    [
        ({"namespace_selector": o.Selector({"team": "x"})}, workload("a"), ("Misconfigured", "NamespaceMismatch")),
        ({}, workload("a", checks=(o.CheckState(name="c", state="Retry"),)), ("PendingEvaluation", "")),
        (
            {},
            workload("a", pod_sets=(pod_set(requests={"cpu": "2"}, limits={"cpu": "1"}),)),
            ("Misconfigured", ""),
        ),
        ({}, workload("a", pod_sets=(pod_set(requests={"gpu": "2"}),)), ("NoMatchingFlavor", "NoFit")),
    ],
)
def test_heads_that_cannot_be_nominated(fields: dict[str, Any], source: o.Workload, expected: tuple[str, str]) -> None:
    built = one_queue("4", source, **fields)
    assert reasons(run_batch(built, 100)) == {"a": expected}
    assert "ns/a" in built.pending.queues["cq"].inadmissible


def test_queues_in_a_cohort_cycle_admit_nothing() -> None:
    built = world(
        queue("cq", group(default="cpu=4"), cohort="one"),
        o.Cohort(name="one", version=1, parent="two"),
        o.Cohort(name="two", version=1, parent="one"),
        local("lq", "cq"),
        workload("a"),
    )
    assert reasons(run_batch(built, 100)) == {"a": ("Suspended", "")}


def test_a_head_that_already_counts_is_dropped() -> None:
    built = one_queue("4", workload("a"))
    assert run_batch(built, 100).admits
    built.pending.adopt(info(workload("a")))
    assert run_batch(built, 100) == Batch(cycles=1, progress_before={"ns/a": None}, preemptors_before={"cq": None})
    assert built.pending.pending_count("cq") == 0


def test_a_head_that_lost_its_flavor_tries_the_next_one() -> None:
    """Both queues want the two free cpu of spot; the later entry is skipped and goes on to its second flavor."""
    built = world(
        flavor("spot"),
        flavor("od"),
        queue("A", group(spot="cpu=0", od="cpu=2"), cohort="pool"),
        queue("B", group(spot="cpu=0", od="cpu=2"), cohort="pool"),
        queue("lender", group(spot="cpu=2"), cohort="pool"),
        local("a", "A"),
        local("b", "B"),
        workload("first", "a", cpu="2", priority=1),
        workload("second", "b", cpu="2"),
    )
    batch = run_batch(built, 100)
    assert [(admit.key, admit.admission.pod_sets[0].flavors["cpu"]) for admit in batch.admits] == [
        ("ns/first", "spot"),
        ("ns/second", "od"),
    ]
    assert batch.refused == ()
    assert batch.cycles >= 2


def many(count: int, queues: int = 3) -> World:
    return world(
        *(queue(f"q{n}", group(default="cpu=100"), cohort="pool") for n in range(queues)),
        *(local(f"l{n}", f"q{n}") for n in range(queues)),
        *(workload(f"w{n:02}", f"l{n % queues}", created=n) for n in range(count)),
    )


def test_a_batch_in_pieces_admits_the_same_in_the_same_order() -> None:
    whole = names(run_batch(many(20), 100))
    assert len(whole) == 20
    for size in (1, 2, 5, 7):
        built, pieces = many(20), []
        while True:
            batch = run_batch(built, 100, limits=BatchLimits(max_decisions=size))
            assert len(batch.admits) <= size
            pieces += names(batch)
            if not batch.more:
                break
        assert pieces == whole


def test_unsettled_decisions_bound_a_batch() -> None:
    built = many(20)
    limits = BatchLimits(max_unsettled=4)
    first = run_batch(built, 100, limits=limits)
    assert (len(first.admits), first.more) == (4, True)
    blocked = run_batch(built, 100, limits=limits)
    assert (blocked.admits, blocked.cycles, blocked.more) == ((), 0, True)
    for admit in first.admits:
        source = workload(admit.key.removeprefix("ns/"), f"l{admit.cluster_queue[1:]}")
        built.upsert(info(reserved(source, admit.cluster_queue, cpu=1000)), 100)
        built.settle(admit.key, 100)
    assert len(run_batch(built, 100, limits=limits).admits) == 4


def test_the_time_budget_is_asked_between_cycles() -> None:
    built = many(20)
    batch = run_batch(built, 100, should_stop=lambda: True)
    assert (batch.cycles, len(batch.admits), batch.more) == (1, 3, True)


def test_rollback_takes_everything_back() -> None:
    built = one_queue("2", *(workload(f"w{n}", created=n) for n in range(4)))
    twin = one_queue("2", *(workload(f"w{n}", created=n) for n in range(4)))
    lost = run_batch(built, 100)
    rollback(built, lost, 100)
    assert (used(built, "cq"), built.assumed) == (0, {})
    assert run_batch(built, 100).admits == run_batch(twin, 100).admits == lost.admits


def test_rollback_restores_scan_progress() -> None:
    built = world(
        flavor("spot"),
        flavor("od"),
        queue("cq", group(spot="cpu=2", od="cpu=2"), when_can_preempt="MayStopSearch", strategy="StrictFIFO"),
        local("lq", "cq"),
        reserved(workload("holds"), "cq", "spot", cpu=2000),
        reserved(workload("holds-too"), "cq", "od", cpu=2000),
        workload("a"),
    )
    before = dict(built.pending.progress)
    rollback(built, run_batch(built, 100), 100)
    assert built.pending.progress == before


def test_an_idle_batch_ends_and_says_so() -> None:
    built = one_queue("1", workload("a", cpu="5"), strategy="StrictFIFO")
    batch = run_batch(built, 100)
    assert (batch.cycles, batch.more, len(batch.refused)) == (1, False, 1)
    assert run_batch(one_queue("1"), 100) == Batch()


def test_equal_worlds_give_equal_batches_whatever_the_order_of_insertion() -> None:
    def build(backwards: bool) -> World:
        queues: list[o.Object] = [queue(f"q{n}", group(default="cpu=3"), cohort=f"c{n % 2}") for n in range(4)]
        locals_: list[o.Object] = [local(f"l{n}", f"q{n}") for n in range(4)]
        loads: list[o.Object] = [workload(f"w{n}", f"l{n % 4}", cpu=str(1 + n % 3), created=n // 5) for n in range(24)]
        step = -1 if backwards else 1
        return world(*queues[::step], *loads[::step], *locals_[::step])

    one, other = run_batch(build(False), 100), run_batch(build(True), 100)
    assert one.admits == other.admits
    assert {entry.key: entry for entry in one.refused} == {entry.key: entry for entry in other.refused}


def test_a_cut_cycle_goes_on_with_its_own_heads_first() -> None:
    built = many(6)
    outcome = run_cycle(built, 100, budget=2)
    assert (len(outcome.admits), outcome.cut) == (2, True)
    assert built.pending.pending_count("q2") == 2
    assert [admit.key for admit in run_cycle(built, 100).admits] == ["ns/w02"]
    assert len(run_cycle(built, 100).admits) == 3


def test_a_cut_cycle_is_forgotten_once_something_changed() -> None:
    built = many(6)
    run_cycle(built, 100, budget=2)
    built.delete("ns/w02")
    assert [admit.key for admit in run_cycle(built, 100).admits] == ["ns/w03", "ns/w04", "ns/w05"]


def test_the_rest_of_a_cut_cycle_is_void_once_somebody_else_has_decided() -> None:
    built, other = many(6), many(6)
    run_cycle(built, 100, budget=2)
    (_, _, theirs, *_) = run_cycle(other, 100).admits
    assert theirs.key == "ns/w02"
    built.assume(theirs.key, other.assumed[theirs.key])
    assert "ns/w02" not in [admit.key for admit in run_cycle(built, 100).admits]
    # What it had decided itself is no news, when it comes back with the log.
    built = many(6)
    first = run_cycle(built, 100, budget=2)
    for admit in first.admits:
        built.assume(admit.key, built.assumed[admit.key])
    assert [admit.key for admit in run_cycle(built, 100).admits] == ["ns/w02"]


def test_what_was_set_aside_before_a_cut_stays_set_aside_after_it() -> None:
    built, whole = cohort_of_two(), cohort_of_two()
    for target in (built, whole):
        for name in ("C", "D"):
            target.set_cluster_queue(queue(name, group(default="cpu=1")))
            target.set_local_queue(local(name.lower(), name))
            target.upsert(info(workload(f"own-{name}", name.lower())), 100)
    # The third piece looks at Q, which would fit if the capacity for P were forgotten.
    pieces = [admit.key for _ in range(3) for admit in run_cycle(built, 100, budget=1).admits]
    assert pieces == [admit.key for admit in run_cycle(whole, 100).admits] == ["ns/own-C", "ns/own-D"]


def test_settings_reach_the_search() -> None:
    built = one_queue("4", workload("a", pod_sets=(pod_set(requests={"cpu": "1", "gpu": "1"}),)))
    settings = CycleSettings(search=SearchSettings(ignore_undeclared=True))
    (admit,) = run_batch(built, 100, settings=settings).admits
    assert admit.admission.pod_sets[0].usage == {"cpu": 1000}


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (HeadOrder(), ["second-pass", "own", "important", "early", "late", "waits"]),
        (HeadOrder(prioritize_preemptors=True), ["second-pass", "waits", "own", "important", "early", "late"]),
        (HeadOrder(priority_within_cohort=False), ["second-pass", "own", "early", "important", "late", "waits"]),
    ],
)
def test_order_of_heads(order: HeadOrder, expected: list[str]) -> None:
    heads = {
        "late": (workload("late", created=9), 1, False),
        "early": (workload("early", created=1), 1, False),
        "important": (workload("important", created=5, priority=2), 1, False),
        "own": (workload("own", created=50), 0, False),
        "waits": (workload("waits", created=60), 2, True),
        "second-pass": (reserved(workload("second-pass", created=70), "cq", cpu=1), 3, False),
    }
    keys = {name: head_key(info(source), level, mark, order) for name, (source, level, mark) in heads.items()}
    assert sorted(keys, key=keys.__getitem__) == expected


def test_outdated_scan_progress_is_dropped_without_the_gate() -> None:
    built = world(
        flavor("spot"), flavor("od"), queue("cq", group(spot="cpu=2", od="cpu=2")), local("lq", "cq"), workload("a")
    )
    progress = run_progress(built)
    assert progress.pod_sets[0].flavors["cpu"] == "od"
    built = world(
        flavor("spot"), flavor("od"), queue("cq", group(spot="cpu=2", od="cpu=2")), local("lq", "cq"), workload("a")
    )
    built.forest.bump_generation("cq")
    assert run_progress(built, generation=0).pod_sets[0].flavors["cpu"] == "spot"


def run_progress(built: World, generation: int = 1 << 20) -> Admission:
    built.pending.progress["ns/a"] = ScanProgress(((("cpu", 0),),), generation=generation)
    built.cycle = 10
    (admit,) = run_batch(
        built, 100, settings=msgspec.structs.replace(CycleSettings(), preserve_scan_progress=False)
    ).admits
    return admit.admission


def test_the_rest_of_a_cut_cycle_is_not_taken_for_all_there_is() -> None:
    """Its only head is refused, but the other queue has one that fits by now."""
    strict: dict[str, Any] = {"cohort": "org", "strategy": "StrictFIFO"}
    built = world(
        queue("one", group(default="cpu=1"), **strict),
        queue("two", group(default="cpu=2"), **strict),
        *(local(name, name) for name in ("one", "two")),
        workload("a", "one", "1", created=1),
        workload("b", "one", "1", created=2),
        workload("large", "two", "2500m"),
    )
    size_one = BatchLimits(1, 100)
    assert [names(run_batch(built, 10, limits=size_one)) for _ in range(3)] == [["a"], ["b"], []]


def turning() -> World:
    """Strict queues whose heads go round their flavors for ever, one a cycle behind the other.

    `left` and `right` each have a flavor set aside for a head that nothing helps; `one` and `two` would fit there, and lose it in each cycle.
    `two` starts a cycle later, as its first workload is admitted.
    """
    strict: dict[str, Any] = {"cohort": "org", "strategy": "StrictFIFO"}
    empty = {"f0": "cpu=0", "f1": "cpu=0"}
    return world(
        flavor("f0"), flavor("f1"), flavor("m"),
        queue("left", group(f0="cpu=4"), **strict),
        queue("right", group(f1="cpu=4"), **strict),
        queue("user", group(**empty), cohort="org"),
        queue("one", group(**empty), **strict),
        queue("two", group(**empty), group(m="memory=1"), **strict),
        *(local(name, name) for name in ("left", "right", "one", "two")),
        reserved(workload("u0"), "user", "f0", cpu=2000),
        reserved(workload("u1"), "user", "f1", cpu=2000),
        workload("l", "left", "4"), workload("r", "right", "4"),
        workload("a", "one", "2"),
        workload("first", "two", created=0, pod_sets=(pod_set(requests={"memory": "1"}),)),
        workload("b", "two", "2", created=1),
    )  # fmt: skip


def test_heads_that_go_round_their_flavors_end_a_batch_once_all_is_as_it_was() -> None:
    calls = 0

    def far_too_long() -> bool:
        nonlocal calls
        calls += 1
        return calls > 50

    built = turning()
    batch = run_batch(built, 10, should_stop=far_too_long)
    assert names(batch) == ["first"]
    assert not batch.more
    assert calls < 10
    assert {name for name, _ in reasons(batch).items()} == {"l", "r", "a", "b"}
    # Whoever looks again soon finds it as it was.
    assert not run_batch(built, 11, should_stop=far_too_long).more
