"""Partial admission: the search over counts."""

from __future__ import annotations

import pytest

from shared.decide.cycle import CycleSettings, run_batch
from shared.decide.partial import largest, reduced, slack
from shared.model.workload import PodSetInfo, WorkloadInfo
from tests.unit.model.builders import group, info, local, pod_set, queue, workload, world


def sets(*counts: tuple[int, int | None]) -> tuple[PodSetInfo, ...]:
    return tuple(
        PodSetInfo(name=f"p{place}", count=count, requests={"cpu": count * 10}, min_count=minimum)
        for place, (count, minimum) in enumerate(counts)
    )


def test_worked_example_tries_three_then_one_then_two() -> None:
    tried: list[int] = []

    def fits_seven(smaller: WorkloadInfo) -> int | None:
        count = smaller.pod_sets[0].count
        tried.append(count)
        return count if count <= 7 else None

    source = info(workload("a", pod_sets=(pod_set(count=10, min_count=4, requests={"cpu": "1"}),)))
    assert largest(source, fits_seven) == 7
    assert tried == [7, 9, 8]


def test_pod_sets_shrink_together_and_keep_whole_pods() -> None:
    both = sets((10, 4), (3, None), (4, 2))
    assert slack(both) == 8
    assert [one.count for one in reduced(both, 4)] == [7, 3, 3]
    assert [one.count for one in reduced(both, 8)] == [4, 3, 2]
    assert reduced(both, 4)[0].requests == {"cpu": 70}
    assert reduced(both, 0) == both


@pytest.mark.parametrize("counts", [((5, None),), ((5, 5),), ()])
def test_what_cannot_shrink_is_not_searched(counts: tuple[tuple[int, int | None], ...]) -> None:
    source = WorkloadInfo(namespace="", name="", key="", pod_sets=sets(*counts))
    assert largest(source, lambda smaller: 1) is None


def test_nothing_found_when_even_the_minimum_is_too_much() -> None:
    source = WorkloadInfo(namespace="", name="", key="", pod_sets=sets((5, 2)))
    assert largest(source, lambda smaller: None) is None


@pytest.mark.parametrize(("enabled", "admitted"), [(True, 7), (False, None)])
def test_a_cycle_admits_as_many_pods_as_fit(enabled: bool, admitted: int | None) -> None:
    source = workload("a", pod_sets=(pod_set(count=10, min_count=4, requests={"cpu": "1"}),))
    built = world(queue("cq", group(default="cpu=7")), local("lq", "cq"), source)
    batch = run_batch(built, 10, settings=CycleSettings(partial_admission=enabled))
    counts = [one.admission.pod_sets[0].count for one in batch.admits]
    assert counts == ([admitted] if admitted else [])
    if not admitted:
        assert batch.refused[0].refusal.reason == "ExceedsMaxQuota"
