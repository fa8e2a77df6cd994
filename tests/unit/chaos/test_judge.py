"""What counts as a pause of admissions, and what evictions a judge holds against the system."""

from __future__ import annotations

from typing import Literal

import pytest

from cli.verifier import JobState
from shared.api.conditions import Condition
from shared.api.meta import ObjectMeta, OwnerReference
from shared.api.workload import Workload
from shared.api.workload_status import WorkloadStatus
from tests.chaos.judge import Judge, Pauses


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_pause_is_time_in_which_somebody_waited_in_vain() -> None:
    clock = Clock()
    pauses = Pauses(clock)
    pauses.waits("a", True)
    clock.now = 103.0
    assert pauses.present() == 3.0
    pauses.admitted()
    pauses.waits("a", False)
    assert pauses.present() == 0.0
    # Nobody waits: nothing pauses, however long.
    clock.now = 200.0
    assert pauses.longest(0) == 3.0
    pauses.waits("b", True)
    clock.now = 201.0
    assert pauses.longest(0) == 3.0
    assert pauses.longest(150.0) == 1.0
    clock.now = 205.0
    assert pauses.longest(0) == 5.0


def test_each_admission_begins_a_new_pause_while_others_wait() -> None:
    clock = Clock()
    pauses = Pauses(clock)
    pauses.waits("a", True)
    pauses.waits("b", True)
    for _ in range(3):
        clock.now += 1.0
        pauses.admitted()
    pauses.waits("a", False)
    clock.now += 4.0
    pauses.waits("b", False)
    assert pauses.admissions == 3
    assert pauses.longest(0) == 4.0
    assert pauses.longest(clock.now + 1) == 0.0
    # The last one began at 103.
    assert pauses.longest(0, before=103.0) == 1.0


def condition(type_: str, status: Literal["True", "False"] = "True", message: str = "") -> Condition:
    return Condition(type=type_, status=status, reason="Test", message=message)


def workload(*conditions: Condition) -> Workload:
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="j", uid="job", controller=True)
    metadata = ObjectMeta(namespace="n", name="w", uid="w", resource_version="1", owner_references=(owner,))
    return Workload(metadata=metadata, status=WorkloadStatus(conditions=conditions))


def job(*, suspended: bool, complete: bool = False) -> JobState:
    return JobState(uid="job", key="n/j", version=1, suspended=suspended, complete=complete)


def evicted_for(preemptor: str) -> Condition:
    return condition("Evicted", message=f"Preempted to accommodate a workload (UID: {preemptor}, JobUID: x) due to y")


@pytest.mark.parametrize(("second", "problems"), [("p1", 1), ("p2", 0)])
def test_one_preemption_evicts_a_victim_once(second: str, problems: int) -> None:
    judge = Judge()
    judge.job(job(suspended=True))
    for preemptor in ("p1", second):
        judge.workload(workload(condition("Admitted")))
        judge.workload(workload(condition("Admitted", "False"), evicted_for(preemptor)))
        judge.workload(workload(condition("Admitted", "False"), condition("Evicted", "False")))
    judge.workload(workload(condition("Admitted")))
    judge.job(job(suspended=True, complete=True))
    judge.finish(expected=["job"])
    assert len([p for p in judge.problems if p.startswith("evicted twice")]) == problems
    assert judge.admissions["job"] == 3
    assert not [p for p in judge.problems if p.startswith("twice")]


def test_an_admission_that_nothing_took_away_is_not_given_again() -> None:
    judge = Judge()
    judge.job(job(suspended=True))
    for _ in range(2):
        judge.workload(workload(condition("Admitted")))
        judge.workload(workload(condition("Admitted", "False")))
    judge.job(job(suspended=True, complete=True))
    judge.finish(expected=["job"])
    assert [p.split(":")[0] for p in judge.problems] == ["twice"]


def test_who_waits_is_known_from_job_and_workload_in_either_order() -> None:
    judge = Judge()
    judge.job(job(suspended=True))
    assert judge.pauses.waiting == {"job"}
    judge.workload(workload(condition("Admitted")))
    assert judge.pauses.waiting == set()
    # The Job is seen to start later, or stays suspended for a moment.
    judge.job(job(suspended=True))
    assert judge.pauses.waiting == set()
    judge.workload(workload(condition("Admitted", "False"), evicted_for("p")))
    assert judge.pauses.waiting == {"job"}
    judge.job(job(suspended=False, complete=True))
    assert judge.pauses.waiting == set()
