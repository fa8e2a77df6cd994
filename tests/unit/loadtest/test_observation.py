"""States of Jobs and Workloads become timelines."""

from __future__ import annotations

from itertools import count

import pytest

from loadtest.changes import SeenCondition
from loadtest.observation import Observation, Seen, SeenMeta, SeenSpec, SeenStatus, seen_decoder
from loadtest.timeline import Timeline
from shared.api.meta import OwnerReference
from shared.kube.client import KubeClient
from tests.unit.loadtest.items import item


class Fixture:
    """An observation of items `a` and `b` whose clock ticks by one at each look."""

    def __init__(self, *, with_jobs: bool) -> None:
        self.told: list[str] = []
        self.a, self.b = Timeline(item("a")), Timeline(item("b"))
        ticks = count(1)
        client: KubeClient = object()  # type: ignore[assignment]  # never called: states are handed over
        self.observation = Observation(
            client,
            [self.a, self.b],
            with_jobs=with_jobs,
            on_admitted=lambda t, _: self.told.append(f"admitted {t.item.name}"),
            on_evicted=lambda t, _: self.told.append(f"evicted {t.item.name}"),
            clock=lambda: float(next(ticks)),
        )


@pytest.fixture
def jobs() -> Fixture:
    return Fixture(with_jobs=True)


@pytest.fixture
def alone() -> Fixture:
    return Fixture(with_jobs=False)


def job(name: str, *true: str, suspend: bool = False) -> Seen:
    return Seen(SeenMeta(namespace="ns", name=name, uid=f"uid-{name}"), SeenSpec(suspend), status(*true))


def workload(name: str, *true: str, owner: str = "", not_true: tuple[str, ...] = ()) -> Seen:
    owners = (OwnerReference(api_version="batch/v1", kind="Job", name=owner, uid=f"uid-{owner}", controller=True),)
    return Seen(
        SeenMeta(namespace="ns", name=name, owner_references=owners if owner else ()),
        SeenSpec(),
        SeenStatus((*status(*true).conditions, *(SeenCondition(type_, "False") for type_ in not_true))),
    )


def status(*true: str) -> SeenStatus:
    return SeenStatus(tuple(SeenCondition(type_, "True") for type_ in true))


def test_the_life_of_a_job(jobs: Fixture) -> None:
    o, a = jobs.observation, jobs.a
    o.job(job("a", suspend=True))
    o.workload(workload("w", owner="a"))
    o.workload(workload("w", "QuotaReserved", "Admitted", owner="a"))
    o.job(job("a"))
    o.job(job("a", "Complete"))
    assert (a.held, a.workload) == (True, "ns/w")
    assert 0 < a.reserved <= a.admitted < a.started < a.finished
    assert a.succeeded
    assert (o.started, o.finished) == (1, 1)
    assert jobs.told == ["admitted a"]


def test_a_workload_may_be_seen_before_its_job(jobs: Fixture) -> None:
    jobs.observation.workload(workload("w", "QuotaReserved", "Admitted", owner="a"))
    assert jobs.told == []
    jobs.observation.job(job("a", suspend=True))
    assert jobs.told == ["admitted a"]
    assert jobs.a.admitted > 0


def test_a_failed_job_has_finished_without_success(jobs: Fixture) -> None:
    jobs.observation.job(job("a", "Failed"))
    assert (bool(jobs.a.finished), jobs.a.succeeded) == (True, False)


def test_a_job_counts_once_however_often_it_is_seen(jobs: Fixture) -> None:
    for _ in range(3):
        jobs.observation.job(job("a", "Complete"))
    assert (jobs.observation.started, jobs.observation.finished) == (1, 1)


def test_the_finished_workload_of_a_job_does_not_end_the_item(jobs: Fixture) -> None:
    jobs.observation.job(job("a"))
    jobs.observation.workload(workload("w", "Admitted", owner="a"))
    jobs.observation.workload(workload("w", "Admitted", "Finished", owner="a"))
    assert (jobs.a.finished, jobs.a.current) == (0, 0)
    assert jobs.a.occupied_s > 0


def test_strangers_are_left_alone(jobs: Fixture) -> None:
    jobs.observation.job(job("stranger", "Complete"))
    jobs.observation.workload(workload("nobody's", "Admitted"))
    assert (jobs.observation.finished, jobs.told) == (0, [])


def test_a_workload_of_its_own(alone: Fixture) -> None:
    o, a = alone.observation, alone.a
    for true in ((), ("QuotaReserved",), ("QuotaReserved", "Admitted"), ("QuotaReserved", "Admitted", "Finished")):
        o.workload(workload("a", *true))
    assert 0 < a.reserved < a.admitted < a.finished
    assert (o.started, o.finished, alone.told) == (1, 1, ["admitted a"])


def test_evictions_and_admissions_are_told_as_they_begin(alone: Fixture) -> None:
    o = alone.observation
    o.workload(workload("b", "QuotaReserved", "Admitted"))
    o.workload(workload("b", "QuotaReserved", "Admitted", "Evicted"))
    o.workload(workload("b", "QuotaReserved", "Admitted", "Evicted"))
    o.workload(workload("b", "Evicted", "Admitted", not_true=("QuotaReserved",)))
    o.workload(workload("b", "QuotaReserved", "Admitted"))
    assert alone.told == ["admitted b", "evicted b", "admitted b"]
    assert (alone.b.evictions, o.started) == (1, 1)


def test_changes_are_announced(alone: Fixture) -> None:
    alone.observation.workload(workload("a", "QuotaReserved"))
    assert not alone.observation.changed.is_set()
    alone.observation.workload(workload("a", "QuotaReserved", "Admitted"))
    assert alone.observation.changed.is_set()


def test_what_each_change_was_for_is_counted(alone: Fixture) -> None:
    o = alone.observation
    for true in ((), ("QuotaReserved", "Admitted"), ("QuotaReserved", "Admitted", "Finished")):
        o.workload(workload("a", *true))
    assert o.purposes == {"creation": 1, "admission": 1, "finish": 1}


def test_the_wait_is_told_by_the_times_of_the_object_and_by_its_first_admission(alone: Fixture) -> None:
    def state(admitted_at: str) -> Seen:
        return seen_decoder.decode(
            b'{"metadata": {"namespace": "ns", "name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"}, "status": {"conditions": ['
            b'{"type": "Admitted", "status": "True", "lastTransitionTime": "%s"}]}}' % admitted_at.encode()
        )

    alone.observation.workload(state("2026-01-01T00:01:05Z"))
    alone.observation.workload(workload("a", "Evicted"))
    alone.observation.workload(state("2026-01-01T00:02:00Z"))
    assert alone.a.waited_s == 65


def test_an_object_without_times_tells_no_wait(alone: Fixture) -> None:
    alone.observation.workload(workload("a", "Admitted"))
    assert alone.a.admitted
    assert alone.a.waited_s is None
