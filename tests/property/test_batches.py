"""A batch decides what repeated single-head cycles decide, in their order, wherever it is cut and whatever comes in between."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.decide.cycle import BatchLimits, CycleSettings, rollback, run_batch, run_cycle
from shared.decide.decisions import Admit, Decision
from shared.decide.settings import FairSharing
from shared.events import objects as o
from shared.model.pending import OrderPolicy, ScanProgress
from shared.model.pending_queue import Preemptor
from shared.model.workload import ConditionInfo
from shared.model.world import World
from tests.unit.model.builders import cohort, flavor, group, local, pod_set, put, queue, reserved, workload

FLAVORS = ("f0", "f1")
NOW = 1000.0

queue_specs = st.fixed_dictionaries(
    {
        "cohort": st.sampled_from(["", "flat", "flat", "flat", "low", "high"]),
        "quotas": st.lists(st.integers(0, 8), min_size=1, max_size=2),
        "borrow": st.sampled_from([None, None, 0, 3]),
        "strategy": st.sampled_from(["StrictFIFO", "BestEffortFIFO", "BestEffortFIFO", "BestEffortFIFO"]),
        "when_can_preempt": st.sampled_from(["TryNextFlavor", "MayStopSearch"]),
        "when_can_borrow": st.sampled_from(["MayStopSearch", "MayStopSearch", "TryNextFlavor"]),
        "within_cluster_queue": st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
        "reclaim_within_cohort": st.sampled_from(["Never", "LowerPriority", "Any", "Any"]),
        "namespace": st.sampled_from(["", "", "", "blue"]),
    }
)
load_specs = st.tuples(
    st.integers(0, 3),  # queue
    st.integers(1, 9),  # cpu
    st.integers(0, 2),  # memory
    st.integers(0, 2),  # priority
    st.integers(0, 9),  # created
    st.sampled_from(["waits", "waits", "waits", "waits", "runs"]),
    st.sampled_from(["ns", "ns", "ns", "blue"]),
)
specs = st.fixed_dictionaries(
    {
        "queues": st.lists(queue_specs, min_size=1, max_size=4),
        "loads": st.lists(load_specs, min_size=4, max_size=26),
        "hashing": st.sampled_from([True, True, True, False]),
        "fair": st.sampled_from([False, False, False, True]),
        "distinct": st.sampled_from([True, True, False]),
        "parts": st.sampled_from([1, 1, 2]),
    }
)
Spec = dict[str, Any]


def load(spec: Spec, number: int, one: tuple[Any, ...]) -> o.Object:
    target, cpu, memory, priority, created, state, where = one
    target %= len(spec["queues"])
    amount = cpu * 1000 + (number if spec["distinct"] else 0)
    requests = {"cpu": f"{amount}m", **({"memory": str(memory)} if memory else {})}
    made = workload(
        f"w{number}",
        f"l{target}",
        namespace=where,
        priority=priority,
        created=created,
        pod_sets=(pod_set(requests=requests), *((pod_set("more", requests={"cpu": "1"}),) if number % 5 == 4 else ())),
    )
    if state == "runs" and number % 3 == 0:
        usage = {"cpu": amount, **({"memory": memory} if memory else {})}
        return reserved(made, f"q{target}", "f0", **usage)
    return made


def built(spec: Spec, loads: list[tuple[int, tuple[Any, ...]]]) -> World:
    target = World(OrderPolicy(equivalence_hashing=spec["hashing"]))
    target.set_namespace("ns", {})
    target.set_namespace("blue", {"color": "blue"})
    put(target, *(flavor(name) for name in FLAVORS))
    put(target, cohort("low", "high"), cohort("high", "", group(f0=("cpu=2", "memory=1"))))
    for number, raw in enumerate(spec["queues"]):
        limit = f",borrow={raw['borrow']}" if raw["cohort"] and raw["borrow"] is not None else ""
        quotas = {
            FLAVORS[place]: (f"cpu={nominal}{limit}", f"memory={6 - place}")
            for place, nominal in enumerate(raw["quotas"])
        }
        names = ("strategy", "when_can_preempt", "when_can_borrow", "within_cluster_queue", "reclaim_within_cohort")
        policies = {name: raw[name] for name in names}
        made = queue(f"q{number}", group(**quotas), cohort=raw["cohort"], **policies)
        if raw["namespace"]:
            made = msgspec.structs.replace(made, namespace_selector=o.Selector(labels={"color": "blue"}))
        put(target, made)
        for where in ("ns", "blue"):
            put(target, local(f"l{number}", f"q{number}", namespace=where))
    put(target, *(load(spec, number, one) for number, one in loads))
    return target


def settings_of(spec: Spec) -> CycleSettings:
    return CycleSettings(fair=FairSharing() if spec["fair"] else None)


def standing(progress: dict[str, ScanProgress | None], marks: dict[str, Preemptor | None]) -> object:
    """Heads with how far they have searched, and who waits for victims."""
    return {key: one.tried if one is not None else None for key, one in progress.items()}, marks


def reference(target: World, chosen: CycleSettings) -> list[Decision]:
    """One cycle at a time, until the next would begin as another did since anything happened."""
    made: list[Decision] = []
    seen: list[object] = []
    target.flush_retries(NOW)
    for _ in range(400):
        outcome = run_cycle(target, NOW, settings=chosen)
        if not outcome.heads:
            return made
        made += outcome.decisions
        if outcome.decisions or outcome.parked:
            seen.clear()
            continue
        seen.append(standing(dict(outcome.heads), dict(outcome.marks)))
        progress, queues = target.pending.progress, target.pending.queues
        after = {key: progress.get(key) for key, _ in outcome.heads if target.pending.place_of(key) is not None}
        if standing(after, {name: queues[name].preemptor for name, _ in outcome.marks}) in seen:
            return made
    raise AssertionError("cycles without end")


def words(decisions: list[Decision]) -> list[tuple[object, ...]]:
    return [
        (one.key, one.cluster_queue, one.admission if isinstance(one, Admit) else one.preemptor) for one in decisions
    ]


def lines(target: World) -> dict[str, object]:
    """Who waits and who is parked in each ClusterQueue, and who comes first."""
    return {
        name: (sorted(line.heap), sorted(line.inadmissible), [item.info.key for item in line.items()], line.preemptor)
        for name, line in target.pending.queues.items()
    }


def end_some(target: World, numbers: list[int]) -> None:
    """Running workloads that end, the same in each world that decided the same."""
    held = sorted(target.charges)
    for number in numbers:
        if held:
            target.delete(held.pop(number % len(held)))


def confirm(target: World, admits: Iterable[Admit]) -> None:
    """The objects show what was decided."""
    for admit in admits:
        info = msgspec.structs.replace(
            target.workloads[admit.key],
            admission=admit.admission,
            conditions=(ConditionInfo("QuotaReserved", True, "QuotaReserved", int(NOW)),),
        )
        target.upsert(info, NOW)
        target.settle(admit.key, NOW)


def parts_of(spec: Spec) -> list[list[tuple[int, tuple[Any, ...]]]]:
    numbered = list(enumerate(spec["loads"]))
    if spec["parts"] == 1:
        return [numbered]
    middle = len(numbered) // 2
    return [numbered[:middle], numbered[middle:]]


@given(specs, st.lists(st.lists(st.integers(0, 20), max_size=2), max_size=4))
@settings(max_examples=1000, deadline=None)
def test_a_batch_is_a_sequence_of_single_cycles(spec: Spec, ends: list[list[int]]) -> None:
    first, *later = parts_of(spec)
    chosen = settings_of(spec)
    quick, plain = built(spec, first), built(spec, first)
    for numbers in [[], *ends]:
        for target in (quick, plain):
            end_some(target, numbers)
        batch = run_batch(quick, NOW, settings=chosen, limits=BatchLimits(10_000, 10_000))
        assert words(list(batch.decisions)) == words(reference(plain, chosen))
        assert lines(quick) == lines(plain)
        if later:
            part = later.pop()
            for target in (quick, plain):
                put(target, *(load(spec, number, one) for number, one in part))


def test_a_head_that_lost_to_the_first_part_of_a_cut_cycle_comes_again() -> None:
    """What was admitted before the cut took the room of a head that was found to fit; behind it others wait."""
    flat = {
        "cohort": "flat", "quotas": [3], "borrow": None, "strategy": "BestEffortFIFO", "when_can_preempt": "TryNextFlavor",
        "when_can_borrow": "MayStopSearch", "within_cluster_queue": "Never", "reclaim_within_cohort": "Never", "namespace": "",
    }  # fmt: skip
    alone = {**flat, "cohort": "", "quotas": [0], "strategy": "StrictFIFO"}
    waiting = [(3, 1), (0, 3), (0, 1), (0, 1)]
    loads = [(queue, amount, 0, 0, 0, "waits", "ns") for queue, amount in waiting]
    spec: Spec = {
        "queues": [flat, alone, alone, {**flat, "quotas": [1], "strategy": "StrictFIFO"}],
        "loads": loads,
        "hashing": True, "fair": False, "distinct": True, "parts": 1,
    }  # fmt: skip
    everything = list(enumerate(loads))
    chosen = settings_of(spec)
    whole, pieces = built(spec, everything), built(spec, everything)
    expected = words(reference(whole, chosen))
    made: list[Decision] = []
    for _ in range(20):
        batch = run_batch(pieces, NOW, settings=chosen, limits=BatchLimits(1, 10_000), should_stop=lambda: True)
        made += batch.decisions
        if not batch.more:
            break
    assert words(made) == expected
    assert lines(pieces) == lines(whole)


@given(
    specs,
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=12),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=1000, deadline=None)
def test_cut_anywhere_it_decides_the_same(spec: Spec, cuts: list[tuple[int, int]], lost: bool, confirmed: bool) -> None:
    """`cuts`: per batch how many decisions it may hold and how many cycles its time budget allows. `lost`: some batches do not reach the log.

    `confirmed`: the outcomes of admissions arrive between the batches.
    """
    chosen = settings_of(spec)
    everything = list(enumerate(spec["loads"]))
    whole, pieces = built(spec, everything), built(spec, everything)
    expected = words(reference(whole, chosen))
    made: list[Decision] = []
    for size, cycles in (cuts * 200)[:400]:
        left = iter(range(cycles - 1))
        batch = run_batch(
            pieces,
            NOW,
            settings=chosen,
            limits=BatchLimits(size, 10_000),
            should_stop=lambda left=left: next(left, None) is None,  # type: ignore[misc]
        )
        made += batch.decisions
        if confirmed:
            confirm(pieces, batch.admits)
        if not batch.more:
            break
    assert words(made) == expected
    assert lines(pieces) == lines(whole)
    if lost:
        quick, plain = built(spec, everything), built(spec, everything)
        for target in (quick, plain):
            rollback(target, run_batch(target, NOW, settings=chosen, limits=BatchLimits(cuts[0][0], 10_000)), NOW)
        batch = run_batch(quick, NOW, settings=chosen, limits=BatchLimits(10_000, 10_000))
        assert words(list(batch.decisions)) == words(reference(plain, chosen))
