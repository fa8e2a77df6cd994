"""A scheduler that preempts, on the bus in memory: what is logged, what counts meanwhile, and what becomes of it."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from services.scheduler.settings import SchedulerSettings
from shared.events.decisions import Batch, Preempt
from tests.unit.scheduler.harness import Harness, quiet, until
from tests.unit.state.builders import cluster_queue, flavor, local_queue, namespace, released, reserved, workload


@pytest.fixture
async def harness() -> Harness:
    """An open epoch; one ClusterQueue of 4 cpu that preempts by priority and is full of `low`."""
    harness = Harness()
    queue = cluster_queue(within_cluster_queue="LowerPriority")
    await harness.put(namespace(), flavor(), queue, local_queue(), reserved(workload("low", "4")))
    await harness.open()
    return harness


async def test_a_victim_is_logged_reported_and_its_place_taken(harness: Harness) -> None:
    scheduler = harness.scheduler()
    async with harness.running(scheduler):
        await harness.put(workload("high", "4", priority=5))
        await until(lambda: harness.identified_preempts())
        [(id_, preempt)] = harness.identified_preempts()
        assert (preempt.key, preempt.uid, preempt.incarnation) == (
            "ns/low",
            "uid-low",
            harness.stored("ns/low").incarnation,
        )
        assert (preempt.preemptor, preempt.preemptor_uid, preempt.reason) == ("ns/high", "uid-high", "InClusterQueue")
        assert (preempt.eviction, preempt.priority, preempt.preemptor_priority) == ("Preempted", 0, 5)
        assert preempt.trace.startswith("00-")
        await until(lambda: harness.reports("ns/high"))
        assert [r.reason for r in harness.reports("ns/high")] == ["WaitingForPreemptedWorkloads"]
        assert scheduler.state.assumptions.spending == 1
        await harness.evict(id_, preempt)
        await until(lambda: scheduler.state.assumptions.spending == 0)
        await quiet()
        assert len(harness.identified_preempts()) == 1, "whoever is on the way out is not evicted again"
        await harness.put(released(harness.stored("ns/low")))
        await until(lambda: harness.admits())
        assert [admit.key for admit in harness.admits()] == ["ns/high"]
        await harness.check(scheduler)
    assert harness.metric("sluice_scheduler_preemptions_decided_total") == 1
    assert [span.name for span in harness.spans.get_finished_spans()] == ["scheduler.preempt", "scheduler.admit"]


async def test_a_waiting_preemptor_is_not_looked_at_without_cause(harness: Harness) -> None:
    scheduler = harness.scheduler(SchedulerSettings(retry_delay_s=0.02, race_wait_s=0.2))
    async with harness.running(scheduler):
        await harness.put(workload("high", "4", priority=5))
        await until(lambda: harness.identified_preempts())
        await quiet(200)
        before = harness.metric("sluice_scheduler_cycles_total")
        await quiet(500)
        assert harness.metric("sluice_scheduler_cycles_total") == before
        entries = [item.entry for item in harness.broker.log() if isinstance(item.entry, Batch)]
        assert len(entries) == 1


async def test_a_standby_knows_who_is_on_the_way_out(harness: Harness) -> None:
    first, second = harness.scheduler(), harness.scheduler(registry=CollectorRegistry())
    async with harness.running(first):
        await harness.put(workload("high", "4", priority=5))
        await until(lambda: harness.identified_preempts())
    harness.broker.drop_lease("scheduler")
    async with harness.running(second):
        await until(lambda: second.state.caught_up)
        await quiet()
        assert second.state.world.preempting == {"ns/low": "ns/high"}
        assert len(harness.identified_preempts()) == 1
        [(id_, preempt)] = harness.identified_preempts()
        await harness.evict(id_, preempt)
        await harness.put(released(harness.stored("ns/low")))
        await until(lambda: [admit.key for admit in harness.admits()] == ["ns/high"])
        await harness.check(second)


async def test_a_rejected_preemption_is_decided_again_on_the_newer_state(harness: Harness) -> None:
    scheduler = harness.scheduler()
    async with harness.running(scheduler):
        await harness.put(workload("high", "4", priority=5))
        await until(lambda: harness.identified_preempts())
        [(id_, preempt)] = harness.identified_preempts()
        await harness.reject(id_, preempt, version=harness.version + 1)
        await quiet()
        assert len(harness.identified_preempts()) == 1, "our view does not show yet what stood against it"
        assert scheduler.state.world.preempting == {"ns/low": "ns/high"}
        edited = workload("low", "4", generation=2)
        await harness.put(reserved(edited))
        await until(lambda: len(harness.identified_preempts()) == 2)
        assert harness.identified_preempts()[1][1].incarnation == harness.stored("ns/low").incarnation
        await harness.check(scheduler)


async def test_preemptions_that_are_rejected_again_and_again_back_off(harness: Harness) -> None:
    scheduler = harness.scheduler()
    async with harness.running(scheduler):
        await harness.put(workload("high", "4", priority=5))
        for attempt in (1, 2):
            await until(lambda attempt=attempt: len(harness.identified_preempts()) == attempt)  # type: ignore[misc]
            id_, preempt = harness.identified_preempts()[-1]
            await harness.reject(id_, preempt, version=1)
        await quiet()
        assert len(harness.identified_preempts()) == 2
        assert scheduler.state.is_held_back("ns/high", harness.now)
        assert scheduler.state.next_timer() == harness.now + 1.0
        await harness.check(scheduler)
        harness.now += 1.0
        await harness.put(workload("other", "1", queue="none"))
        await until(lambda: len(harness.identified_preempts()) == 3)


async def test_a_new_epoch_forgets_victims_that_were_not_evicted(harness: Harness) -> None:
    scheduler = harness.scheduler()
    async with harness.running(scheduler):
        await harness.put(workload("high", "4", priority=5))
        await until(lambda: harness.identified_preempts())
        await harness.open(2)
        await until(lambda: scheduler.state.epoch == 2 and harness.identified_preempts(2))
        [(_, preempt)] = harness.identified_preempts(2)
        assert (preempt.key, preempt.preemptor) == ("ns/low", "ns/high")


async def test_no_more_than_k_victims_and_admissions_are_unsettled(harness: Harness) -> None:
    scheduler = harness.scheduler(SchedulerSettings(retry_delay_s=0.0, race_wait_s=0.2, max_unsettled=1))
    async with harness.running(scheduler):
        other = cluster_queue("other", "4")
        await harness.put(workload("high", "4", priority=5))
        await until(lambda: harness.identified_preempts())
        await harness.put(other, local_queue("other", "other"), workload("elsewhere", "1", queue="other"))
        await quiet()
        assert harness.admits() == []
        [(id_, preempt)] = harness.identified_preempts()
        await harness.evict(id_, preempt)
        await until(lambda: [admit.key for admit in harness.admits()] == ["ns/elsewhere"])


async def test_an_admission_and_its_own_eviction_in_one_log(harness: Harness) -> None:
    scheduler = harness.scheduler()
    async with harness.running(scheduler):
        queue = cluster_queue("fresh", "4", within_cluster_queue="LowerPriority")
        await harness.put(queue, local_queue("fresh", "fresh"), workload("early", "4", queue="fresh"))
        await until(lambda: len(harness.admits()) == 1)
        await harness.put(workload("urgent", "4", queue="fresh", priority=9))
        await until(lambda: harness.identified_preempts())
        [(_, preempt)] = harness.identified_preempts()
        assert (preempt.key, preempt.incarnation) == ("ns/early", ""), "its admission is not settled"
        [(id_, admit)] = harness.identified_admits()
        await harness.apply([(id_, admit)])
        await quiet()
        assert scheduler.state.world.preempting == {"ns/early": "ns/urgent"}
        await harness.check(scheduler)


def test_a_preempt_says_what_it_is() -> None:
    preempt = Preempt(key="a/b", uid="u", incarnation="i", reason="r", message="m", preemptor="c/d", preemptor_uid="v")
    assert preempt.eviction == "Preempted"
