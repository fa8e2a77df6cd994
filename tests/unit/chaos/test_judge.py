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


def workload(*conditions: Condition, job: str = "job") -> Workload:
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="j", uid=job, controller=True)
    metadata = ObjectMeta(
        namespace="n", name=f"w-{job}", uid=f"w-{job}", resource_version="1", owner_references=(owner,)
    )
    return Workload(metadata=metadata, status=WorkloadStatus(conditions=conditions))


def job(*, suspended: bool, complete: bool = False) -> JobState:
    return JobState(uid="job", key="n/j", version=1, suspended=suspended, complete=complete)


def evicted_for(preemptor: str) -> Condition:
    return condition("Evicted", message=f"Preempted to accommodate a workload (UID: {preemptor}, JobUID: x) due to y")


def told_of_evictions(second: str, *, admitted_again: bool, preemptor_admitted: bool) -> Judge:
    """A victim is evicted for `p1`, and then for `second`."""
    judge = Judge()
    judge.job(job(suspended=True))
    judge.workload(workload(condition("Admitted")))
    judge.workload(workload(condition("Admitted", "False"), evicted_for("p1")))
    judge.workload(workload(condition("Admitted", "False"), condition("Evicted", "False")))
    if preemptor_admitted:
        judge.workload(workload(condition("Admitted"), job="x"))
    if admitted_again:
        judge.workload(workload(condition("Admitted")))
    judge.workload(workload(condition("Admitted", "False"), evicted_for(second)))
    judge.workload(workload(condition("Admitted", "False"), condition("Evicted", "False")))
    judge.workload(workload(condition("Admitted")))
    judge.job(job(suspended=True, complete=True))
    judge.finish(expected=["job"])
    assert not [p for p in judge.problems if p.startswith("twice")]
    return judge


@pytest.mark.parametrize(
    ("second", "admitted_again", "preemptor_admitted", "problems"),
    [
        ("p2", True, False, 0),
        # Others went before it, the victim came back: it preempts anew.
        ("p1", True, False, 0),
        # Once more for somebody who has got its quota, or of what was evicted already.
        ("p1", True, True, 1),
        ("p1", False, False, 1),
    ],
)
def test_one_preemption_evicts_a_victim_once(
    second: str, admitted_again: bool, preemptor_admitted: bool, problems: int
) -> None:
    judge = told_of_evictions(second, admitted_again=admitted_again, preemptor_admitted=preemptor_admitted)
    assert len([p for p in judge.problems if p.startswith("evicted twice")]) == problems


def test_who_was_evicted_itself_preempts_anew() -> None:
    judge = Judge()
    for admitted in ("True", "False"):
        judge.workload(workload(condition("Admitted")))
        judge.workload(workload(condition("Admitted", "False"), evicted_for("p1")))
        judge.workload(workload(condition("Admitted", "False"), condition("Evicted", "False")))
        judge.workload(workload(condition("Admitted", admitted), job="x"))
        judge.workload(workload(condition("Admitted", "False"), job="x"))
    assert judge.problems == []


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
