"""When a stopped job's quota may be given away."""

import pytest

from services.watcher.job_runs import PATIENCE_S, JobRuns
from shared.jobs.batch_job import BatchJob
from shared.jobs.manifest import JsonObject
from tests.unit.watcher.moments import Clock

KIND = BatchJob()


def job(active: int = 0, suspended: str = "") -> JsonObject:
    conditions = [{"type": "Suspended", "status": suspended}] if suspended else []
    return {"spec": {"suspend": True}, "status": {"active": active, "conditions": conditions}}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def runs(clock: Clock) -> JobRuns:
    return JobRuns(clock)


@pytest.mark.parametrize(
    ("view", "waits"), [(job(), False), (job(suspended="True"), False), (job(suspended="False"), True), (job(1), True)]
)
def test_a_job_we_did_nothing_to(runs: JobRuns, view: JsonObject, waits: bool) -> None:
    assert (runs.wait_before_release(KIND, "u", view) is not None) is waits


def test_a_job_that_somebody_else_stopped_gets_its_time_from_us(runs: JobRuns, clock: Clock) -> None:
    for _ in range(2):
        assert runs.wait_before_release(KIND, "u", job(suspended="False")) == PATIENCE_S
    clock.pass_(PATIENCE_S - 2)
    assert runs.wait_before_release(KIND, "u", job(suspended="False")) == 2
    clock.pass_(2)
    assert runs.wait_before_release(KIND, "u", job(suspended="False")) is None
    assert runs.wait_before_release(KIND, "u", job(1, suspended="False")) is not None


def test_a_status_from_before_the_start_is_not_believed(runs: JobRuns, clock: Clock) -> None:
    runs.started("u")
    runs.stopped("u")
    assert runs.wait_before_release(KIND, "u", job(suspended="True")) == PATIENCE_S
    clock.pass_(PATIENCE_S - 1)
    assert runs.wait_before_release(KIND, "u", job(suspended="True")) == 1
    clock.pass_(1)
    assert runs.wait_before_release(KIND, "u", job(suspended="True")) is None


def test_a_controller_that_saw_both_is_believed_at_once(runs: JobRuns) -> None:
    runs.started("u")
    runs.observe(KIND, "u", job(suspended="False"))
    runs.stopped("u")
    assert runs.wait_before_release(KIND, "u", job(suspended="False")) == PATIENCE_S
    assert runs.wait_before_release(KIND, "u", job(suspended="True")) is None


def test_pods_always_hold_the_quota(runs: JobRuns, clock: Clock) -> None:
    runs.started("u")
    runs.observe(KIND, "u", job(active=1))
    runs.stopped("u")
    clock.pass_(1000)
    assert runs.wait_before_release(KIND, "u", job(active=1, suspended="True")) is not None


def test_a_kind_whose_status_tells_nothing_gets_its_time(runs: JobRuns, clock: Clock) -> None:
    runs.stopped("u")
    runs.stopped("u")
    assert runs.wait_before_release(KIND, "u", job()) == PATIENCE_S
    clock.pass_(PATIENCE_S)
    assert runs.wait_before_release(KIND, "u", job()) is None


def test_only_jobs_we_touched_are_followed(runs: JobRuns) -> None:
    assert not runs.follows("u")
    runs.stopped("u")
    assert runs.follows("u")
    runs.forget("u")
    assert not runs.follows("u")
