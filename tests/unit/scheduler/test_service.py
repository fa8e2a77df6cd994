from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from services.scheduler import faults
from services.scheduler.handlers import Explanation
from services.scheduler.reports import RefusedHead
from services.scheduler.service import LONGEST_DELAY, NO_ROOM_WAIT_S, RETELL_S, SILENT_APPENDS, TIMES_ITS_COST
from services.scheduler.settings import SchedulerSettings
from shared.bus.interface import ObjectWrite
from shared.decide import flavors, nomination
from shared.decide.assignment import Assignment
from shared.events.decisions import Batch, Positions
from shared.events.objects import FlavorQuota
from shared.events.subjects import ObjectName
from shared.model.workload import WorkloadInfo
from shared.testing.simulated_bus import Fault
from tests.unit.scheduler.harness import Harness, quiet, until
from tests.unit.state.builders import admit_of, basics, cluster_queue, flavor, local_queue, with_condition, workload


@pytest.fixture
async def harness() -> Harness:
    """An open epoch with one ClusterQueue of 4 cpu."""
    harness = Harness()
    await harness.put(*basics())
    await harness.open()
    return harness


async def test_a_workload_that_fits_is_admitted_by_a_fenced_batch(harness: Harness) -> None:
    scheduler = harness.scheduler()
    async with harness.running(scheduler):
        await harness.put(workload("a", "2"))
        await until(lambda: harness.admits())
        [admit] = harness.admits()
        assert (admit.key, admit.uid, admit.incarnation) == ("ns/a", "uid-a", workload("a", "2").incarnation)
        assert admit.cluster_queue == admit.domain == "cq"
        [assignment] = admit.pod_sets
        assert (assignment.flavors, assignment.usage, assignment.count) == ({"cpu": "default"}, {"cpu": 2000}, 1)
        entry = harness.broker.log()[-1].entry
        assert isinstance(entry, Batch)
        assert entry.author == scheduler.author
        assert entry.positions == Positions(epoch=1, objects=harness.broker.sequence, decisions=1)
    assert harness.ready[-1] == (True, "")


async def test_an_own_batch_counts_before_its_echo(harness: Harness) -> None:
    scheduler = harness.scheduler()
    async with harness.running(scheduler):
        await until(lambda: scheduler.state.caught_up)
        harness.broker.hold("decisions", "outcomes")
        await harness.put(workload("a", "3"))
        await until(lambda: len(harness.admits()) == 1)
        await harness.put(workload("b", "3"), workload("c", "1"))
        await until(lambda: len(harness.admits()) == 2)
        await quiet()
        assert [admit.key for admit in harness.admits()] == ["ns/a", "ns/c"]
        harness.broker.release("decisions", "outcomes")
        await quiet()
        assert scheduler.state.assumptions.spending == 2
        await harness.check(scheduler)


async def test_freed_quota_admits_what_was_parked(harness: Harness) -> None:
    scheduler = harness.scheduler()
    async with harness.running(scheduler):
        await harness.put(workload("a", "3"))
        await until(lambda: len(harness.admits()) == 1)
        await harness.apply(harness.identified_admits())
        await harness.put(workload("b", "3"))
        await until(lambda: harness.reports("ns/b"))
        await harness.put(msgspec.structs.replace(harness.stored("ns/a"), finished=True))
        await until(lambda: len(harness.admits()) == 2)
        assert harness.admits()[1].key == "ns/b"
        await until(lambda: scheduler.state.assumptions.spending == 1)


async def test_a_rejected_admission_frees_the_quota_for_its_neighbour(harness: Harness) -> None:
    async with harness.running(harness.scheduler()):
        await harness.put(workload("a", "3"))
        await until(lambda: len(harness.admits()) == 1)
        await harness.put(workload("b", "3"))
        await until(lambda: harness.reports("ns/b"))
        [(id_, admit)] = harness.identified_admits()
        await harness.reject(id_, admit, version=harness.version + 1)
        await until(lambda: len(harness.admits()) == 2)
        assert harness.admits()[1].key == "ns/b"
        await quiet()
        assert len(harness.admits()) == 2
        await until(lambda: harness.metric("sluice_scheduler_rejected_decisions_total") == 1)


async def test_a_rejected_workload_waits_for_the_state_that_proved_it(harness: Harness) -> None:
    async with harness.running(harness.scheduler()):
        await harness.put(workload("a", "3"))
        await until(lambda: len(harness.admits()) == 1)
        [(id_, admit)] = harness.identified_admits()
        await harness.reject(id_, admit, version=harness.version + 1)
        await quiet()
        assert len(harness.admits()) == 1
        edited = with_condition(harness.stored("ns/a"), generation=2)
        await harness.put(edited)
        await until(lambda: len(harness.admits()) == 2)
        assert harness.admits()[1].incarnation == edited.incarnation


async def test_repeated_rejections_wait_longer_each_time(harness: Harness) -> None:
    async with harness.running(harness.scheduler()):
        await harness.put(workload("a", "3"))
        await until(lambda: len(harness.admits()) == 1)
        await harness.reject(*harness.identified_admits()[0], version=1)
        await until(lambda: len(harness.admits()) == 2)
        await harness.reject(*harness.identified_admits()[1], version=1)
        await quiet()
        assert len(harness.admits()) == 2
        harness.now += 1.5
        await harness.put(workload("other", "9"))
        await until(lambda: len(harness.admits()) == 3)


async def test_a_lost_race_is_decided_again_on_what_won(harness: Harness) -> None:
    scheduler = harness.scheduler()
    async with harness.running(scheduler):
        await until(lambda: scheduler.state.caught_up)
        harness.broker.hold("decisions")
        rival = Batch(
            author="rival",
            positions=Positions(epoch=1, decisions=1),
            decided_ns=0,
            decisions=(admit_of(workload("b", "3")),),
        )
        await harness.broker.bus("scheduler").append(rival)
        await harness.put(workload("a", "3"), workload("b", "3"), workload("c", "1"))
        await until(lambda: harness.metric("sluice_scheduler_lost_races_total") == 1)
        assert [admit.key for admit in harness.admits()] == ["ns/b"]
        harness.broker.release("decisions")
        await until(lambda: len(harness.admits()) == 2)
        assert [admit.key for admit in harness.admits()] == ["ns/b", "ns/c"]
        await harness.check(scheduler)


@pytest.mark.parametrize("fault", ["break_after", "break_before", "break_late"])
async def test_an_unanswered_append_is_neither_lost_nor_doubled(harness: Harness, fault: Fault) -> None:
    scheduler = harness.scheduler()
    async with harness.running(scheduler):
        await until(lambda: scheduler.state.caught_up)
        harness.broker.append_faults.append(fault)
        await harness.put(workload("a", "3"))
        await until(lambda: harness.metric("sluice_scheduler_unknown_appends_total") == 1)
        harness.now += 1
        await harness.put(workload("b", "3"), workload("c", "1"))
        await until(lambda: len(harness.admits()) == 2)
        await quiet()
        assert [admit.key for admit in harness.admits()] == ["ns/a", "ns/c"]
        assert scheduler.state.assumptions.spending == 2
        await harness.check(scheduler)


async def test_a_log_without_room_is_told_and_tried_again_after_a_pause(harness: Harness) -> None:
    scheduler = harness.scheduler()
    async with harness.running(scheduler):
        await until(lambda: scheduler.state.caught_up)
        harness.broker.streams["DECISIONS_0_1"].full = True
        await harness.put(workload("a", "1"))
        await until(lambda: harness.metric("sluice_scheduler_refused_appends_total") == 1)
        assert harness.ready[-1] == (False, "the log of decisions takes nothing: no space left on device")
        # Whatever comes meanwhile, it does not ask again and again.
        await harness.put(workload("b", "1"))
        await quiet()
        assert harness.metric("sluice_scheduler_refused_appends_total") == 1
        harness.now += NO_ROOM_WAIT_S
        await harness.put(workload("c", "1"))
        await until(lambda: harness.metric("sluice_scheduler_refused_appends_total") == 2)
        harness.broker.streams["DECISIONS_0_1"].full = False
        harness.now += NO_ROOM_WAIT_S
        await harness.put(workload("d", "1"))
        await until(lambda: len(harness.admits()) == 4)
        await quiet()
        assert harness.ready[-1] == (True, "")
        await harness.check(scheduler)


async def test_appends_that_nobody_answers_are_told(harness: Harness) -> None:
    scheduler = harness.scheduler()
    async with harness.running(scheduler):
        await until(lambda: scheduler.state.caught_up)
        harness.broker.append_faults += ["break_before"] * SILENT_APPENDS
        await harness.put(workload("a", "1"))
        for count in range(SILENT_APPENDS):
            assert harness.ready[-1][0]
            await until(partial(_unknown, harness, count + 1))
            harness.now += 1
            await harness.put(workload(f"b{count}", "1"))
        assert any("does not answer" in why for is_ready, why in harness.ready if not is_ready)
        await until(lambda: len(harness.admits()) == 1 + SILENT_APPENDS)
        await quiet()
        assert harness.ready[-1] == (True, "")


def _unknown(harness: Harness, count: int) -> bool:
    return harness.metric("sluice_scheduler_unknown_appends_total") == count


async def test_no_more_than_k_decisions_are_unsettled(harness: Harness) -> None:
    scheduler = harness.scheduler(SchedulerSettings(max_unsettled=3, retry_delay_s=0.0))
    async with harness.running(scheduler):
        await harness.put(*(workload(f"w{i}", "100m", created=i) for i in range(10)))
        await until(lambda: len(harness.admits()) == 3)
        await quiet()
        assert len(harness.admits()) == 3
        await harness.apply(harness.identified_admits()[:2])
        await until(lambda: len(harness.admits()) == 5)
        await quiet()
        assert len(harness.admits()) == 5
        assert harness.metric("sluice_scheduler_unsettled_decisions") == 3


async def test_a_batch_too_large_is_split(harness: Harness) -> None:
    async with harness.running(harness.scheduler(SchedulerSettings(batch_bytes=700, retry_delay_s=0.0))):
        await harness.put(*(workload(f"w{i}", "100m", created=i) for i in range(8)))
        await until(lambda: len(harness.admits()) == 8)
        batches = [item.entry for item in harness.broker.log() if isinstance(item.entry, Batch)]
        assert len(batches) >= 4
        assert [admit.key for admit in harness.admits()] == [f"ns/w{i}" for i in range(8)]


async def test_a_standby_follows_and_takes_over(harness: Harness) -> None:
    first, second = harness.scheduler(), harness.scheduler(registry=CollectorRegistry())
    async with AsyncExitStack() as life_of_first, AsyncExitStack() as life_of_second:
        await life_of_first.enter_async_context(harness.running(first))
        await until(lambda: harness.metric("sluice_scheduler_active") == 1)
        await life_of_second.enter_async_context(harness.running(second))
        await harness.put(workload("a", "3"))
        await until(lambda: second.state.assumptions.spending == first.state.assumptions.spending == 1)
        await quiet()
        assert [item.entry.author for item in harness.broker.log() if isinstance(item.entry, Batch)] == [first.author]
        await life_of_first.aclose()
        harness.broker.drop_lease("scheduler")
        await harness.put(workload("b", "3"), workload("c", "1"))
        await until(lambda: len(harness.admits()) == 2)
        assert [admit.key for admit in harness.admits()] == ["ns/a", "ns/c"]
        assert harness.broker.log()[-1].entry.author == second.author  # type: ignore[union-attr]


async def test_nothing_is_decided_before_an_epoch_is_open() -> None:
    harness = Harness()
    await harness.put(*basics(), workload("a", "1"))
    scheduler = harness.scheduler()
    async with harness.running(scheduler):
        await until(lambda: len(harness.ready) == 2)
        await quiet()
        assert harness.ready == [(False, "reading the bus"), (False, "no epoch is open")]
        await harness.open()
        await until(lambda: len(harness.admits()) == 1)


async def test_a_new_epoch_voids_decisions_that_did_not_land(harness: Harness) -> None:
    scheduler = harness.scheduler()
    async with harness.running(scheduler):
        await harness.put(workload("a", "3"))
        await until(lambda: len(harness.admits()) == 1)
        await harness.open(epoch=2)
        await until(lambda: len(harness.admits(epoch=2)) == 1)
        await quiet()
        assert scheduler.state.epoch == 2
        assert scheduler.state.assumptions.spending == 1


async def test_wiped_streams_admit_nobody_twice(harness: Harness) -> None:
    scheduler = harness.scheduler()
    async with harness.running(scheduler):
        await harness.put(workload("a", "3"))
        await until(lambda: len(harness.admits()) == 1)
        await harness.apply(harness.identified_admits())
        held = harness.stored("ns/a")
        harness.broker.wipe()
        await harness.gateway.load_objects()
        await harness.put(*basics(), held, workload("b", "3"), workload("c", "1"))
        await harness.open(epoch=2)
        await until(lambda: len(harness.admits(epoch=2)) == 1)
        await quiet()
        assert [admit.key for admit in harness.admits(epoch=2)] == ["ns/c"]


async def test_a_pending_workload_is_told_why_once(harness: Harness) -> None:
    async with harness.running(harness.scheduler()):
        await harness.put(workload("big", "9"), workload("a", "4"))
        await until(lambda: harness.reports("ns/big"))
        [report] = harness.reports("ns/big")
        assert report.reason == "ExceedsMaxQuota"
        assert "cpu in flavor default" in report.message
        assert report.requests == {"main": {"cpu": 9000}}
        assert (report.uid, report.kind, report.namespace) == ("uid-big", "workload", "ns")
        await harness.put(workload("b", "100m"))
        await until(lambda: harness.reports("ns/b"))
        assert harness.reports("ns/b")[0].reason == "WaitingForQuota"
        await quiet()
        assert len(harness.reports()) == 2


async def test_workloads_of_one_shape_are_told_the_same(harness: Harness) -> None:
    async with harness.running(harness.scheduler()):
        await harness.put(*(workload(f"w{i}", "9", created=i) for i in range(3)))
        await until(lambda: len(harness.reports()) == 3)
        await harness.put(workload("late", "9", created=7))
        await until(lambda: len(harness.reports()) == 4)
        assert {report.reason for report in harness.reports()} == {"ExceedsMaxQuota"}
        assert len({report.message for report in harness.reports()}) == 1


async def test_those_that_are_passed_over_with_one_that_asks_for_less_are_told_so(harness: Harness) -> None:
    async with harness.running(harness.scheduler()):
        await harness.put(*(workload(f"w{i}", str(9 + i), created=i) for i in range(5)))
        await until(lambda: len({report.name for report in harness.reports()}) == 5)
        said = [report.message for report in harness.reports()]
        assert any(message.startswith("Passed over: ns/w0, which asks for no more, was refused: ") for message in said)
        assert {report.reason for report in harness.reports()} == {"ExceedsMaxQuota"}


async def test_those_that_are_parked_with_a_refused_one_are_told_anew_now_and_then_only(harness: Harness) -> None:
    """A batch looks at the heads; what it costs must not grow with all that waits behind them."""
    scheduler = harness.scheduler()
    told: list[str] = []
    refuse = scheduler.reports.refuse

    def count(key: str, refused: RefusedHead) -> None:
        told.append(key)
        refuse(key, refused)

    scheduler.reports.refuse = count  # type: ignore[method-assign]

    async def look_again() -> None:
        told.clear()
        await harness.put(workload(f"small{harness.version}", "100m", priority=9))
        scheduler.state.world.request_retry("cq")
        admitted = len(harness.admits())
        await until(lambda: len(harness.admits()) > admitted)
        await quiet()

    async with harness.running(scheduler):
        await harness.put(*(workload(f"w{i}", "9", created=i) for i in range(20)))
        await until(lambda: len(harness.reports()) == 20)
        assert set(told) == {f"ns/w{i}" for i in range(20)}
        await look_again()
        assert len(told) <= 2
        assert all(scheduler.reports.refused[f"ns/w{i}"] for i in range(20))
        harness.now += RETELL_S
        await look_again()
        assert set(told) == {f"ns/w{i}" for i in range(20)}


async def test_bad_objects_trouble_nobody_else(harness: Harness) -> None:
    scheduler = harness.scheduler()
    async with harness.running(scheduler):
        broken = cluster_queue("broken")
        quota = FlavorQuota(resource="cpu", nominal="four")
        bad_flavor = msgspec.structs.replace(broken.groups[0].flavors[0], quotas=(quota,))
        bad_group = msgspec.structs.replace(broken.groups[0], flavors=(bad_flavor,))
        await harness.put(
            msgspec.structs.replace(broken, groups=(bad_group,)),
            cluster_queue("lost", flavors=("missing",)),
            local_queue("lq-broken", "broken"),
            local_queue("lq-lost", "lost"),
            workload("in-broken", queue="lq-broken"),
            workload("in-lost", queue="lq-lost"),
            workload("unreadable", "many"),
            workload("absurd", "999999999999999999999"),
        )
        await harness.gateway.put_objects([ObjectWrite(ObjectName("workload", "ns", "odd"), flavor("odd"))])
        await harness.put(workload("fine", "1"))
        await until(lambda: harness.admits() and harness.reports("ns/unreadable") and harness.reports("ns/absurd"))
        assert [admit.key for admit in harness.admits()] == ["ns/fine"]
        assert harness.reports("ns/unreadable")[0].reason == "Misconfigured"
        assert harness.reports("ns/absurd")[0].reason == "ExceedsMaxQuota"
        assert scheduler.state.fold.activity("lost").reason == "FlavorNotFound"
        assert not scheduler.state.fold.activity("broken").active
        assert "four" in scheduler.state.fold.activity("broken").message
        await harness.check(scheduler)


async def test_a_mended_queue_admits(harness: Harness) -> None:
    async with harness.running(harness.scheduler()):
        lost = cluster_queue("lost", flavors=("missing",))
        await harness.put(lost, local_queue("lq-lost", "lost"), workload("a", queue="lq-lost"))
        await quiet()
        assert harness.admits() == []
        await harness.put(flavor("missing"))
        await until(lambda: harness.admits())


async def test_requeue_at_is_a_timer(harness: Harness) -> None:
    scheduler = harness.scheduler()
    async with harness.running(scheduler):
        await harness.put(workload("a", "1", requeue_at=int(harness.now) + 30))
        await until(lambda: scheduler.state.next_timer() == harness.now + 30)
        await quiet()
        assert harness.admits() == []
        harness.now += 31
        await harness.put(workload("other", "9"))
        await until(lambda: harness.admits())


async def test_each_admission_is_a_span_of_its_jobs_trace(harness: Harness) -> None:
    parent = "00-11111111222233334444555555555555-aaaaaaaaaaaaaaaa-01"
    async with harness.running(harness.scheduler()):
        await harness.put(workload("a", "1"), trace=parent)
        await until(lambda: harness.spans.get_finished_spans())
        [span] = harness.spans.get_finished_spans()
        assert span.name == "scheduler.admit"
        assert span.context is not None
        assert span.parent is not None
        assert f"{span.context.trace_id:032x}" == "11111111222233334444555555555555"
        assert f"{span.parent.span_id:016x}" == "aaaaaaaaaaaaaaaa"
        [admit] = harness.admits()
        assert admit.trace == f"00-11111111222233334444555555555555-{span.context.span_id:016x}-01"


async def test_explain_and_positions_answer(harness: Harness) -> None:
    scheduler = harness.scheduler()
    bus = harness.broker.bus("metrics")

    async def explain(key: str) -> Explanation:
        return msgspec.json.decode(await bus.request("scheduler", "explain", key.encode(), 1.0), type=Explanation)

    async with harness.running(scheduler):
        await harness.put(workload("a", "3"), workload("big", "9"), workload("same", "9"))
        await until(lambda: len(harness.reports()) == 2)
        big = await explain("ns/big")
        assert (big.state, big.cluster_queue, big.reason, big.place) == ("parked", "cq", "ExceedsMaxQuota", 0)
        assert big.refusal is not None
        assert big.refusal.pod_sets[0].reasons[0].maximum == 4000
        assert (await explain("ns/same")).like == "ns/big"
        decided = await explain("ns/a")
        assert (decided.state, decided.reason) == ("decided", "")
        assert [chapter.what for chapter in decided.story] == ["seen", "decided"]
        assert (await explain("ns/nobody")).state == "unknown"
        await harness.apply(harness.identified_admits())
        await until(lambda: scheduler.state.assumptions.spending == 0)
        assert (await explain("ns/a")).state == "holds_quota"
        where = msgspec.json.decode(await bus.request("scheduler", "positions", b"", 1.0), type=Positions)
        assert where == scheduler.state.positions


async def test_a_workload_that_breaks_the_cycle_stops_nobody_else(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails_for_one(info: WorkloadInfo, *args: Any, **more: Any) -> Assignment:
        if info.name == "poison":
            raise ZeroDivisionError("no such luck")
        return flavors.assign(info, *args, **more)

    monkeypatch.setattr(nomination, "assign", fails_for_one)
    monkeypatch.setattr(faults, "assign", fails_for_one)
    scheduler = harness.scheduler()
    async with harness.running(scheduler):
        await harness.put(cluster_queue("other"), local_queue("lq2", "other"))
        await harness.put(workload("poison", created=1), workload("fine", created=2), workload("b", queue="lq2"))
        await until(lambda: len(harness.admits()) == 2 and harness.reports("ns/poison"))
        assert sorted(admit.key for admit in harness.admits()) == ["ns/b", "ns/fine"]
        [report] = harness.reports("ns/poison")
        assert report.reason == "Misconfigured"
        assert "no such luck" in report.message
        assert harness.metric("sluice_scheduler_failed_cycles_total") == 1
        monkeypatch.undo()
        await harness.put(workload("poison", priority=3))
        await until(lambda: len(harness.admits()) == 3)
        await harness.check(scheduler)


async def test_room_for_one_more_is_not_enough_once_k_was_reached(harness: Harness) -> None:
    scheduler = harness.scheduler(SchedulerSettings(max_unsettled=8, retry_delay_s=0.0))
    async with harness.running(scheduler):
        await harness.put(*(workload(f"w{i}", "100m", created=i) for i in range(12)))
        await until(lambda: len(harness.admits()) == 8)
        admits = harness.identified_admits()
        await harness.apply(admits[:1])
        await until(lambda: scheduler.state.assumptions.spending == 7)
        await quiet()
        assert len(harness.admits()) == 8
        await harness.apply(admits[1:2])
        await until(lambda: len(harness.admits()) == 10)
        # Where K was not reached again, one change is enough.
        await harness.apply(harness.identified_admits()[2:])
        await until(lambda: len(harness.admits()) == 12)
        await harness.put(workload("last", "100m", created=99))
        await until(lambda: len(harness.admits()) == 13)


@pytest.mark.parametrize(("behind", "waits"), [(64, 2.5), (1, 5.0)])
async def test_changes_after_an_admission_wait_for_each_other_longer_if_the_gateway_is_behind(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, behind: int, waits: float
) -> None:
    monkeypatch.setattr("services.scheduler.service.BEHIND", behind)
    scheduler = harness.scheduler(SchedulerSettings(retry_delay_s=5.0))
    async with harness.running(scheduler):
        await harness.put(workload("a", "1"))
        await until(lambda: len(harness.admits()) == 1)
        await harness.put(workload("b", "1"))
        harness.now += waits - 0.1
        await harness.put(workload("c", "1"))
        await until(lambda: scheduler.state.objects.version("workload", "ns/c") > 0)
        await quiet()
        assert len(harness.admits()) == 1
        harness.now += 0.2
        await harness.put(workload("d", "1"))
        await until(lambda: len(harness.admits()) == 4)
        batches = [item.entry for item in harness.broker.log() if isinstance(item.entry, Batch)]
        assert [len(batch.decisions) for batch in batches] == [1, 3]


async def test_a_batch_that_took_long_is_not_followed_by_another_soon(harness: Harness) -> None:
    scheduler = harness.scheduler(SchedulerSettings(retry_delay_s=5.0, cycle_budget_s=1e9))
    seconds = iter(range(1_000_000))
    scheduler._clock = lambda: float(next(seconds))
    async with harness.running(scheduler):
        await harness.put(workload("a", "1"))
        await until(lambda: scheduler._not_before > 0)
        pause = scheduler._not_before - harness.now
        assert scheduler._took >= 1
        assert pause == pytest.approx(min(TIMES_ITS_COST * scheduler._took, LONGEST_DELAY * 5.0))
        await harness.put(workload("b", "1"))
        harness.now += pause - 0.1
        await harness.put(workload("c", "1"))
        await quiet()
        assert len(harness.admits()) == 1
        harness.now += 0.2
        await harness.put(workload("d", "1"))
        await until(lambda: len(harness.admits()) == 4)


async def test_changes_are_looked_at_together_longest_after_a_fruitless_batch(harness: Harness) -> None:
    scheduler = harness.scheduler(SchedulerSettings(retry_delay_s=5.0))
    async with harness.running(scheduler):
        await harness.put(workload("a", "1"))
        await until(lambda: len(harness.admits()) == 1)
        await harness.apply(harness.identified_admits())
        await until(lambda: scheduler.state.assumptions.spending == 0)
        harness.now += 2.5
        await harness.put(workload("b", "1"))
        await until(lambda: len(harness.admits()) == 2)
        harness.now += 2.5
        await harness.put(workload("big", "9"))
        await until(lambda: harness.reports("ns/big"))
        await harness.put(workload("c", "1"))
        await quiet()
        assert len(harness.admits()) == 2
        harness.now += 5
        await harness.put(workload("d", "1"))
        await until(lambda: len(harness.admits()) == 4)
        assert harness.metric("kueue_admission_attempts_total", result="success", replica_role="leader") == 3
        assert harness.metric("kueue_admission_attempts_total", result="inadmissible", replica_role="leader") == 1
