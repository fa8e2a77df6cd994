"""The interleavings that the design names, each as a scenario of its own: few workloads, and the one thing that has to go wrong at its moment.

Every promise is checked as in any seed (`invariants`); what a test adds is the proof that the interleaving came about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from shared.api import names
from shared.bus.connection import Connection
from shared.events.decisions import Preempt
from tests.integration.stack.manifests import API, cluster_queue, flavor, job, local_queue, priority_class
from tests.simulation.run import told
from tests.simulation.scenario import CHECK, NAMESPACES, SERVICES, Manifest, Scenario, Step
from tests.simulation.simulation import Report, simulate
from tests.simulation.world import World

HERE = NAMESPACES[0]
SLOTS = tuple(f"{service}-0" for service in SERVICES if service != "provisioning_request")
VARIANTS = range(1, 4)
"""Seeds of the ways that messages take: an interleaving has to hold whatever else is a little earlier or later."""


def queues(cpu: str = "4", count: int = 2, **spec: Any) -> list[Manifest]:
    """A flavor, priority classes, and queues `cq0`... in cohort `north`, with a LocalQueue each."""
    found = [flavor("spot"), priority_class("low", 10), priority_class("high", 100)]
    preemption = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    for i in range(count):
        whole = {"cohortName": "north", "preemption": preemption, **spec}
        found.append(cluster_queue(f"cq{i}", cpu, flavors=("spot",), **whole))
        found.append(local_queue(f"lq-cq{i}", HERE, f"cq{i}"))
    return found


def a_job(at: float, name: str, *, queue: str = "cq0", cpu: str = "1", high: bool = False, runs_s: float = 1.0) -> Step:
    """A Job is asked for."""
    labels = {names.PRIORITY_CLASS_LABEL: "high"} if high else {}
    manifest = job(name, f"lq-{queue}", cpu, labels=labels)
    manifest["metadata"]["namespace"] = HERE
    return Step(at, "create_job", (manifest, runs_s))


def fault(at: float, do: str, *args: Any) -> Step:
    """Something goes wrong."""
    return Step(at, do, args)


def run(
    seed: int,
    load: Sequence[Step],
    faults: Sequence[Step],
    *,
    setup: Sequence[Manifest] | None = None,
    slots: Sequence[str] = SLOTS,
    active_s: float = 15.0,
    look: Callable[[World], None] = lambda world: None,
    **more: Any,
) -> Report:
    """Run it, and demand that all promises are kept."""
    scenario = Scenario(
        seed=seed,
        name="named",
        setup=tuple(setup if setup is not None else queues()),
        load=tuple(sorted(load, key=lambda step: step.at)),
        faults=tuple(sorted(faults, key=lambda step: step.at)),
        slots=tuple(slots),
        active_s=active_s,
        **more,
    )
    report = simulate(scenario, look)
    assert not report.violations, told(report)
    return report


def chapters(world: World, key: str, what: str) -> list[tuple[Any, ...]]:
    """Details of the chapters of this kind in a story."""
    return [details for _, _, told_, details in world.story._chapters.get(key, ()) if told_ == what]


@pytest.mark.parametrize("seed", VARIANTS)
def test_a_queue_moves_while_two_schedulers_decide_at_different_positions(seed: int) -> None:
    def two_decided(world: World) -> None:
        authors = {details[2] for key in world.story._chapters for details in chapters(world, key, "decided")}
        assert len(authors) >= 2

    load = [a_job(1.0 + 0.05 * i, f"j{i}", queue=f"cq{i % 3}", runs_s=0.5) for i in range(60)]
    load += [Step(2.0 + 0.5 * i, "move_queue", ("cq1", ("south", "north", "")[i % 3])) for i in range(9)]
    faults = [fault(1.8 + i, "two_leaders", "scheduler") for i in range(5)]
    faults += [fault(1.9 + i, "pause", f"scheduler-{i % 2}", 0.7) for i in range(5)]
    faults += [fault(2.1 + i, "reorder", "OBJECTS", "scheduler", 0.4) for i in range(4)]
    run(seed, load, faults, setup=queues(count=3), slots=(*SLOTS, "scheduler-1"), look=two_decided)


@pytest.mark.parametrize("what", ["wipe", "remake", "lose_tail"])
@pytest.mark.parametrize("seed", VARIANTS)
def test_streams_are_lost_while_the_gateway_holds_admissions_behind_other_patches(seed: int, what: str) -> None:
    def opened_again(world: World) -> None:
        assert len(chapters(world, "", "epoch opened")) >= 2

    load = [a_job(1.0 + 0.01 * i, f"j{i}", queue=f"cq{i % 2}", runs_s=0.8) for i in range(40)]
    args: dict[str, tuple[Any, ...]] = {"wipe": (), "remake": ("DECISIONS",), "lose_tail": (15, "")}
    faults = [fault(1.05, "slow_link", "watcher-0", "api", 0.8, 6.0)]
    faults += [fault(at, what, *args[what]) for at in (1.6, 4.0)]
    run(seed, load, faults, look=opened_again)


@pytest.mark.parametrize("seed", VARIANTS)
def test_the_log_is_made_anew_and_as_long_as_it_was_while_the_gateway_is_away(seed: int) -> None:
    """Entries that stand in the place of others have others' outcomes; only when the log was made tells the two apart."""
    swapped: list[int] = []

    def swap(world: World) -> None:
        (name,) = (name for name in world.broker.streams if name.startswith("DECISIONS"))
        opened, *batches = world.broker.streams[name].messages.values()
        world.broker.remake(name)
        log = world.broker.streams[name]
        for message in (opened, *reversed(batches)):
            log.store(message.subject, message.payload, None, now=world.broker.elapsed(), stamp=message.stamp + 1)
        swapped.append(len(batches))

    def opened_again(world: World) -> None:
        assert len(chapters(world, "", "epoch opened")) >= 2

    load = [a_job(1.0 + 0.1 * i, f"j{i}", queue=f"cq{i % 2}", runs_s=2.0) for i in range(40)]
    # While it is away nothing is settled, so the log cannot be purged under our hands.
    faults = [fault(2.0, "kill", "watcher-0", 5.0), fault(3.5, "call", swap)]
    run(seed, load, faults, look=opened_again)
    assert swapped
    assert swapped[0] >= 2


@pytest.mark.parametrize("seed", VARIANTS)
def test_the_gateway_dies_between_patch_and_outcome_and_the_outcome_overtakes_the_object(seed: int) -> None:
    load = [a_job(1.0 + 0.02 * i, f"low{i}", runs_s=9.0) for i in range(8)]
    load += [a_job(6.0 + 0.1 * i, f"high{i}", high=True, runs_s=0.5) for i in range(8)]
    # A new gateway has to wait until the Lease of the one that died is over.
    faults = [fault(at, "crash", "watcher-0", "back", "patch workloads/status", 0.1) for at in (1.1, 6.05, 11.0)]
    faults += [fault(at, "reorder", "OBJECTS", "scheduler", 1.5) for at in (1.1, 5.9, 9.0)]
    report = run(seed, load, faults, active_s=20.0)
    assert report.faults["crash after"] >= 2
    assert report.evictions


@pytest.mark.parametrize("seed", VARIANTS)
def test_a_reservation_is_written_and_taken_back_before_the_log_is_read_again(seed: int) -> None:
    """Nothing on the workload says afterwards that it was reserved: applied once more, its decision would admit it twice."""
    check: Manifest = {"admissionChecksStrategy": {"admissionChecks": [{"name": CHECK}]}}
    approval = {
        "apiVersion": API,
        "kind": "AdmissionCheck",
        "metadata": {"name": CHECK},
        "spec": {"controllerName": "example.com/approval"},
    }
    load = [a_job(1.0 + 0.01 * i, f"j{i}", runs_s=0.5) for i in range(6)]
    load += [Step(1.5, "stop_queue", ("cq0", "HoldAndDrain")), Step(8.0, "stop_queue", ("cq0", "None"))]
    faults = [fault(1.0, "crash", "watcher-0", "there", "sluice.outcomes.decisions", 0.1)]
    run(seed, load, faults, setup=[approval, *queues(**check)], active_s=14.0)


@pytest.mark.parametrize("seed", VARIANTS)
def test_quota_frees_and_a_neighbour_is_edited_while_a_cycle_is_running(seed: int) -> None:
    load = [a_job(1.0 + 0.01 * i, f"j{i}", cpu="4", runs_s=0.3) for i in range(20)]
    # Decided on, and paused by its user before the decision is written.
    load += [Step(1.2 + 0.4 * i, "set_active", ("job", f"{HERE}/j{i}", False)) for i in range(20)]
    load += [Step(9.0, "set_active", ("job", f"{HERE}/j{i}", True)) for i in range(20)]
    faults = [
        fault(1.0, "slow_link", "scheduler-0", "bus", 0.3, 8.0),
        fault(1.0, "slow_link", "watcher-0", "api", 0.3, 8.0),
    ]
    run(seed, load, faults)


@pytest.mark.parametrize("seed", VARIANTS)
def test_an_older_object_comes_after_a_newer_one_and_after_a_tombstone(seed: int) -> None:
    load: list[Step] = []
    for i in range(12):
        load.append(a_job(1.0 + 0.5 * i, "again", runs_s=5.0))
        load.append(Step(1.25 + 0.5 * i, "delete_job", (f"{HERE}/again",)))
    load.append(a_job(9.0, "last", runs_s=0.5))
    faults = [fault(1.1 + 0.7 * i, ("break_watches", "compact", "kill")[i % 3], *_args(i)) for i in range(9)]
    faults += [fault(1.3 + 0.9 * i, "publish", "lose_ack", "OBJECTS", 2) for i in range(6)]
    run(seed, load, faults, slots=(*SLOTS, "watcher-1"), active_s=20.0)


def _args(i: int) -> tuple[Any, ...]:
    return (f"watcher-{i % 2}", 0.2) if i % 3 == 2 else ()


@pytest.mark.parametrize("seed", VARIANTS)
def test_the_preemptor_goes_while_its_victims_are_on_their_way_out(seed: int) -> None:
    def preempted(world: World) -> None:
        decided = [d[1] for key in world.story._chapters for d in chapters(world, key, "decided")]
        assert any(isinstance(decision, Preempt) for decision in decided)

    load = [a_job(1.0 + 0.01 * i, f"low{i}", queue=f"cq{i % 2}", runs_s=4.0) for i in range(8)]
    load += [a_job(2.5 + 0.3 * i, f"high{i}", cpu="4", high=True, runs_s=0.5) for i in range(6)]
    load += [Step(2.53 + 0.3 * i, "delete_job", (f"{HERE}/high{i}",)) for i in range(0, 6, 2)]
    faults = [fault(2.4, "slow_link", "watcher-0", "api", 0.2, 3.0), fault(3.0, "publish", "twice", "COMMANDS", 3)]
    faults += [fault(2.6, "refuse", 429, 0.3, 1.5)]
    run(seed, load, faults, look=preempted)


@pytest.mark.parametrize("seed", VARIANTS)
def test_a_patch_that_timed_out_lands_later(seed: int) -> None:
    load = [a_job(1.0 + 0.05 * i, f"j{i}", queue=f"cq{i % 2}", runs_s=0.8) for i in range(30)]
    faults = [
        fault(1.1 + 0.5 * i, "time_out", "late", ("workloads", "jobs")[i % 2], 2, 0.4 * (i % 5)) for i in range(12)
    ]
    report = run(seed, load, faults)
    assert report.faults["API server acts late"] >= 10


@pytest.mark.parametrize("seed", VARIANTS)
def test_a_job_is_started_and_stopped_at_once_unsuspended_by_hand_and_its_name_is_taken(seed: int) -> None:
    load = [a_job(1.0, f"low{i}", runs_s=3.0) for i in range(4)]
    load += [Step(1.001, "foreign_workload", (f"{HERE}/low{i}",)) for i in range(2)]
    load += [Step(2.0, "remove_foreign_workload", (f"{HERE}/low{i}",)) for i in range(2)]
    load += [a_job(1.05 + 0.2 * i, f"high{i}", cpu="4", high=True, runs_s=0.2) for i in range(6)]
    load += [Step(1.2 + 0.21 * i, "unsuspend", (f"{HERE}/low{i % 4}",)) for i in range(10)]
    run(seed, load, [])


@pytest.mark.parametrize("seed", VARIANTS)
def test_a_queue_and_a_job_in_one_apply(seed: int) -> None:
    def finished(world: World) -> None:
        assert all(wanted.done for wanted in world.users.jobs.values())

    late = local_queue("lq-late", HERE, "cq0")
    manifest = job("first", "lq-late", "1")
    manifest["metadata"]["namespace"] = HERE
    load = [Step(2.0, "create_queue", (late,)), Step(2.0, "create_job", (manifest, 0.5))]
    faults = [fault(1.9, "reorder", "OBJECTS", "webhook", 2.0), fault(1.9, "reorder", "OBJECTS", "scheduler", 1.0)]
    run(seed, load, faults, look=finished)


@pytest.mark.parametrize("seed", VARIANTS)
def test_the_webhook_is_down_while_evictions_are_due(seed: int) -> None:
    def evicted_meanwhile(world: World) -> None:
        times = [
            at
            for key, told_ in world.story._chapters.items()
            for at, _, what, details in told_
            if what == "commit" and names.EVICTED in details
        ]
        assert any(3.0 <= at <= 8.0 for at in times), times

    load = [a_job(1.0 + 0.01 * i, f"low{i}", runs_s=6.0) for i in range(8)]
    load += [a_job(2.9, f"high{i}", high=True, runs_s=0.5) for i in range(4)]
    load.append(Step(4.0, "stop_queue", ("cq0", "HoldAndDrain")))
    load.append(Step(9.0, "stop_queue", ("cq0", "None")))
    run(seed, load, [fault(3.0, "kill", "webhook-0", 6.0)], look=evicted_meanwhile)


def test_a_reader_of_events_is_refused_every_api_of_jetstream() -> None:
    refused: list[str] = []

    def attack(world: World) -> None:
        connection: Connection = world.broker.connection("events_reader")
        subjects = ["$JS.API.STREAM.NAMES", "$JS.API.STREAM.MSG.GET.EVENTS", "$JS.API.DIRECT.GET.EVENTS"]
        subjects += ["$JS.API.CONSUMER.CREATE.EVENTS.x", "$JS.API.STREAM.DELETE.EVENTS", "sluice.decisions.0.1"]

        async def ask() -> None:
            for subject in subjects:
                try:
                    await connection.request(subject, b"{}", timeout_s=1.0)
                except PermissionError:
                    refused.append(subject)
                    continue

        task = world.loop.create_task(ask(), context=world.context.copy())
        world._tasks.add(task)

    run(1, [a_job(1.0, "j")], [fault(2.0, "call", attack)])
    assert len(refused) == 6


@pytest.mark.parametrize("seed", VARIANTS)
def test_a_slow_api_server_and_nobody_decides_far_ahead(seed: int) -> None:
    def all_done(world: World) -> None:
        assert all(wanted.done for wanted in world.users.jobs.values())

    load = [a_job(1.0 + 0.002 * i, f"j{i}", queue=f"cq{i % 2}", cpu="100m", runs_s=0.3) for i in range(150)]
    faults = [fault(1.0, "slow_link", "watcher-0", "api", 1.5, 10.0)]
    run(seed, load, faults, setup=queues("40"), max_unsettled=3, look=all_done)
