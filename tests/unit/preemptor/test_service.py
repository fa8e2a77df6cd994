"""preemptor over a view: who is told to stop, when, and once; which victims are asked again."""

from __future__ import annotations

import logging

import pytest

from shared.api import names
from shared.bus.interface import CaughtUp, Logged, Reset
from shared.events.commands import Command, Evict, SetActive, SetDeactivationTarget
from shared.events.decisions import EpochOpened, Positions
from shared.events.objects import Flavor, FlavorQuota, ResourceGroup, Workload
from tests.unit.preemptor.objects import (
    Preemptor,
    check_state,
    cluster_queue,
    condition,
    local_queue,
    released,
    with_check,
    workload,
)

BASE = (cluster_queue(), local_queue())


def evictions(commands: list[Command]) -> list[str]:
    return [c.reason for c in commands if isinstance(c, Evict)]


def test_a_deactivation_is_asked_for_once() -> None:
    service = Preemptor(*BASE, workload())
    assert service.step() == []
    (command,) = service.put(workload(active=False))
    assert evictions([command]) == ["Deactivated"]
    assert service.put(workload(active=False)) == []
    evicted = workload(condition(names.EVICTED, "Deactivated", 1000), active=False, evictions=1)
    assert service.put(evicted) == []
    assert service.settle(command, version=service.position) == []


def test_a_queue_that_drains_stops_all_that_runs_in_it() -> None:
    service = Preemptor(*BASE, workload(name="a"), workload(name="b"), released(name="c"))
    assert service.step() == []
    commands = service.put(cluster_queue(), stop_policy="HoldAndDrain", generation=2)
    assert sorted(c.name for c in commands) == ["a", "b"]
    assert evictions(commands) == ["ClusterQueueStopped"] * 2


def test_a_local_queue_that_drains_stops_its_own() -> None:
    other = workload(name="b", queue_name="other")
    service = Preemptor(*BASE, local_queue(name="other"), workload(name="a"), other)
    assert service.step() == []
    commands = service.put(local_queue(), stop_policy="HoldAndDrain", generation=2)
    assert [(c.name, *evictions([c])) for c in commands] == [("a", "LocalQueueStopped")]


def test_the_queue_that_holds_the_quota_is_the_one_that_drains() -> None:
    """The LocalQueue was made anew and points elsewhere."""
    service = Preemptor(cluster_queue(), cluster_queue(name="new"), local_queue(cluster_queue="new"), workload())
    assert service.put(cluster_queue(name="new"), stop_policy="HoldAndDrain", generation=2) == []
    assert evictions(service.put(cluster_queue(), stop_policy="HoldAndDrain", generation=2)) == ["ClusterQueueStopped"]


def test_a_change_of_status_of_a_queue_concerns_nobody() -> None:
    service = Preemptor(*BASE, workload())
    service.step()
    service.fold(service.change(cluster_queue(), status_pending=5))
    assert len(service.writer.agenda) == 0


def test_a_queue_whose_quota_cannot_be_read_still_drains() -> None:
    bad = (ResourceGroup(("cpu",), (Flavor("default", (FlavorQuota(resource="cpu", nominal="much"),)),)),)
    service = Preemptor(cluster_queue(groups=bad, stop_policy="HoldAndDrain"), local_queue(), workload())
    assert evictions(service.step()) == ["ClusterQueueStopped"]


def test_a_rejected_check_deactivates_step_by_step() -> None:
    checked = workload(checks=(check_state("Rejected"),))
    target = condition(names.DEACTIVATION_TARGET, "AdmissionCheck", message="rejected")
    service = Preemptor(with_check(cluster_queue()), local_queue(), checked)
    (first,) = service.step()
    assert isinstance(first, SetDeactivationTarget)
    (second,) = service.put(workload(target, checks=(check_state("Rejected"),)))
    assert isinstance(second, SetActive)
    (third,) = service.put(workload(target, checks=(check_state("Rejected"),), active=False, incarnation="2"))
    assert isinstance(third, Evict)
    assert (third.cause, third.incarnation) == ("AdmissionCheck", "2")


def test_run_time_ends_by_itself() -> None:
    service = Preemptor(*BASE, workload(max_execution_s=600))
    assert service.step() == []
    assert service.step(1099.0) == []
    (command,) = service.step(1100.0)
    assert isinstance(command, SetDeactivationTarget)
    assert command.reason == "MaximumExecutionTimeExceeded"


def test_a_missing_queue_stops_nobody() -> None:
    service = Preemptor(workload())
    assert service.step() == []


# --- victims --------------------------------------------------------------------------------------------------------


def victim(changed: int = 1000, evictions_: int = 1) -> Workload:
    return workload(condition(names.EVICTED, "Preempted", changed, "for another"), evictions=evictions_)


def test_a_victim_that_frees_its_quota_in_time_hears_nothing_more() -> None:
    service = Preemptor(*BASE, victim())
    assert service.step(1059.0) == []
    assert service.put(released(condition(names.EVICTED, "Preempted", 1000), evictions=1)) == []
    assert service.step(5000.0) == []


def test_a_late_victim_is_asked_again_and_becomes_an_error(caplog: pytest.LogCaptureFixture) -> None:
    service = Preemptor(*BASE, victim(), victim_attempts=2)
    assert service.step(1059.0) == []
    with caplog.at_level(logging.WARNING, "sluice.preemptor"):
        (first,) = service.step(1060.0)
        assert isinstance(first, Evict)
        assert (first.reason, first.message) == ("Preempted", "for another")
        service.settle(first)
        assert service.step(1119.0) == []
        (second,) = service.step(1120.0)
        assert second.id != first.id
    assert [r.levelno for r in caplog.records] == [logging.WARNING, logging.ERROR]
    assert service.metric("victims_late_total", cause="reservation held") == 2
    assert service.metric("victims_stuck") == 1
    service.put(released())
    assert service.metric("victims_stuck") == 0


def test_each_eviction_has_its_own_time() -> None:
    service = Preemptor(*BASE, victim())
    assert len(service.step(1060.0)) == 1
    assert service.put(victim(1061, 2)) == []
    assert service.step(1120.0) == []
    assert len(service.step(1121.0)) == 1


# --- decisions ------------------------------------------------------------------------------------------------------


def no_outcome(service: Preemptor) -> float:
    return service.metric("victims_late_total", cause="no outcome") or 0.0


def test_a_decision_without_an_outcome_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    service = Preemptor(*BASE, workload())
    assert service.preempt(2) == []
    service.step(1059.0)
    assert no_outcome(service) == 0
    with caplog.at_level(logging.ERROR, "sluice.preemptor"):
        assert service.step(1060.0) == []
    assert no_outcome(service) == 1
    (record,) = caplog.records
    assert (record.__dict__["workload"], record.__dict__["preemptor"]) == ("ns/wl", "ns/other")
    service.step(1061.0)
    assert no_outcome(service) == 1
    service.step(1120.0)
    assert no_outcome(service) == 2


@pytest.mark.parametrize("outcome_first", [True, False])
@pytest.mark.parametrize("status", ["applied", "rejected"])
def test_an_outcome_ends_the_watch_in_any_order(status: str, outcome_first: bool) -> None:
    service = Preemptor(*BASE, workload())
    if outcome_first:
        service.outcome(2, status, 99)
        service.preempt(2)
    else:
        service.preempt(2)
        service.outcome(2, status, 99)
    service.step(5000.0)
    assert no_outcome(service) == 0


def test_decisions_of_an_older_epoch_are_void() -> None:
    service = Preemptor(*BASE, workload())
    service.preempt(2)
    opened = EpochOpened(epoch=2, shard="0", positions=Positions(epoch=2), opened_ns=0)
    service.fold(Logged(opened, 1))
    service.step(5000.0)
    assert no_outcome(service) == 0


def test_a_reset_forgets_and_a_replay_brings_back() -> None:
    service = Preemptor(*BASE, workload(active=False))
    assert evictions(service.step()) == ["Deactivated"]
    service.fold(Reset(2, "wiped"))
    assert service.step(2000.0) == []
    service.fold(*(service.change(o) for o in BASE), service.change(workload(active=False)))
    assert evictions(service.fold(CaughtUp(Positions(epoch=2)))) == ["Deactivated"]


def test_a_workload_that_is_gone_is_forgotten() -> None:
    service = Preemptor(*BASE, victim())
    service.preempt(2)
    for now in (1060.0, 1120.0, 1180.0):
        service.step(now)
    assert service.metric("victims_stuck") == 1
    told = no_outcome(service)
    service.gone(workload())
    assert service.metric("victims_stuck") == 0
    assert service.step(5000.0) == []
    assert no_outcome(service) == told
