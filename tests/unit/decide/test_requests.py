"""Effective requests: pods, pod sets, transformations, admitted workloads."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.api.quantity import QuantityError
from shared.decide.requests import RequestRules, Transformation, pod_requests, transformed, workload_info
from shared.decide.requests_adjust import over_limit
from shared.events.objects import Container, PodSet
from shared.model.amounts import INT64_MAX
from tests.unit.model.builders import condition, info, pod_set, reserved, workload

MI, GI = 2**20, 2**30
NANO = 10**9


def container(sidecar: bool = False, **requests: str) -> Container:
    return Container(requests=requests, sidecar=sidecar)


def units(one: PodSet, rules: RequestRules | None = None) -> dict[str, int]:
    return transformed(pod_requests(one), rules or RequestRules())


EXAMPLE = PodSet(
    count=3,
    overhead={"cpu": "50m"},
    init_containers=(
        container(cpu="2"),
        container(sidecar=True, cpu="100m", memory="64Mi"),
        container(cpu="1", memory="2Gi"),
    ),
    containers=(container(cpu="500m", memory="1Gi"),),
)


def test_worked_example_of_a_pod_with_init_containers_and_a_sidecar() -> None:
    assert units(EXAMPLE) == {"cpu": 2050, "memory": 2112 * MI}
    found = info(workload("a", pod_sets=(EXAMPLE,)))
    assert found.pod_sets[0].requests == {"cpu": 6150, "memory": 6643777536}


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (PodSet(containers=(container(cpu="1"), container(cpu="500m"))), {"cpu": 1500}),
        (PodSet(containers=(container(cpu="1"),), init_containers=(container(True, cpu="1"),)), {"cpu": 2000}),
        (
            PodSet(containers=(container(cpu="1"),), init_containers=(container(cpu="3"), container(True, cpu="1"))),
            {"cpu": 3000},
        ),
        (PodSet(containers=(Container(limits={"cpu": "2"}),)), {"cpu": 2000}),
        (PodSet(containers=(Container({"cpu": "1"}, {"cpu": "2", "memory": "1Gi"}),)), {"cpu": 1000, "memory": GI}),
        (
            PodSet(containers=(container(cpu="1", gpu="2"),), pod_requests={"cpu": "5", "gpu": "9"}),
            {"cpu": 5000, "gpu": 2},
        ),
        (
            PodSet(containers=(container(cpu="1"),), pod_limits={"memory": "1Gi"}, pod_requests={}),
            {"cpu": 1000, "memory": GI},
        ),
        (PodSet(containers=(container(cpu="0.1m", memory="100m"),)), {"cpu": 1, "memory": 1}),
        (PodSet(), {}),
    ],
)
def test_requests_of_one_pod(one: PodSet, expected: dict[str, int]) -> None:
    assert units(one) == expected


MIG = RequestRules(
    transformations=(
        Transformation(input="g.com/mig", replace=True, outputs=(("x.com/mem", "5Gi"), ("x.com/credits", "15"))),
        Transformation(input="cpu", outputs=(("x.com/credits", "1"),)),
    )
)


def per_device(replace: bool = True) -> RequestRules:
    rule = Transformation(input="mem-per-dev", replace=replace, multiply_by="dev", outputs=(("total", "1"),))
    return RequestRules(transformations=(rule,))


BALANCE = RequestRules(
    transformations=(
        Transformation(input="cpu", outputs=(("c", "1"),)),
        Transformation(input="memory", outputs=(("c", "-1"),)),
    )
)


@pytest.mark.parametrize(
    ("rules", "asked", "result"),
    [
        (MIG, {"g.com/mig": 2, "cpu": 4}, {"x.com/mem": 10 * GI, "x.com/credits": 34, "cpu": 4000}),
        (per_device(), {"mem-per-dev": 8, "dev": 4}, {"total": 32, "dev": 4}),
        (per_device(), {"mem-per-dev": 8}, {"total": 8}),
        (per_device(replace=False), {"mem-per-dev": 8, "dev": 4}, {"mem-per-dev": 8, "total": 32, "dev": 4}),
        (BALANCE, {"cpu": 1, "memory": 4}, {"c": 0, "cpu": 1000, "memory": 4}),
        (MIG, {"gpu": 1}, {"gpu": 1}),
        (RequestRules(exclude_prefixes=("net.",)), {"net.x/vpc": 1, "gpu": 1}, {"gpu": 1}),
    ],
)
def test_transformations_and_exclusion(rules: RequestRules, asked: dict[str, int], result: dict[str, int]) -> None:
    assert transformed({name: amount * NANO for name, amount in asked.items()}, rules) == result


def test_reclaimable_pods_lower_the_count() -> None:
    source = workload("a", pod_sets=(pod_set(count=5, requests={"cpu": "1"}),), reclaimable={"main": 2})
    assert info(source).pod_sets[0].count == 3
    assert info(source).pod_sets[0].requests == {"cpu": 3000}
    assert info(source, RequestRules(reclaimable_pods=False)).pod_sets[0].count == 5
    more = msgspec.structs.replace(source, reclaimable={"main": 9})
    assert info(more).pod_sets[0].requests == {"cpu": 0}


def test_totals_saturate() -> None:
    source = workload("a", pod_sets=(pod_set(count=4, requests={"gpu": "9223372036854775807"}),))
    assert info(source).pod_sets[0].requests == {"gpu": INT64_MAX}


def test_an_admitted_workload_holds_what_its_admission_says_less_reclaimed_pods() -> None:
    source = reserved(workload("a", pod_sets=(pod_set(count=4, requests={"cpu": "9"}),)), "cq", cpu=8000)
    assert source.admission is not None
    four = msgspec.structs.replace(source.admission.pod_sets[0], count=4)
    admission = msgspec.structs.replace(source.admission, pod_sets=(four,))
    source = msgspec.structs.replace(source, admission=admission)
    held = info(source).admission
    assert held is not None
    assert held.pod_sets[0].usage == {"cpu": 8000}
    held = info(msgspec.structs.replace(source, reclaimable={"main": 1})).admission
    assert held is not None
    assert (held.pod_sets[0].count, held.pod_sets[0].usage) == (3, {"cpu": 6000})


def test_requests_above_limits_make_a_workload_invalid() -> None:
    bad = pod_set(requests={"cpu": "3", "memory": "1Gi"}, limits={"cpu": "1", "memory": "1Gi"})
    assert over_limit(bad) == ("cpu",)
    assert over_limit(PodSet(pod_requests={"cpu": "2"}, pod_limits={"cpu": "1"})) == ("cpu",)
    assert info(workload("a", pod_sets=(bad,))).invalid == "pod set main: requests above limits for cpu"
    assert info(workload("a")).invalid == ""


def test_an_unreadable_request_raises() -> None:
    with pytest.raises(QuantityError):
        workload_info(workload("a", cpu="lots"))


def test_effective_priority_needs_the_gate() -> None:
    source = workload("a", priority=5, priority_boost=-3)
    assert info(source).priority == 5
    boosted = info(source, RequestRules(priority_boost=True))
    assert (boosted.priority, boosted.base_priority) == (2, 5)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"name": "b", "uid": "other"}, True),
        ({"created": 77}, True),
        ({"priority": 1}, False),
        ({"pod_sets": (pod_set(requests={"cpu": "2"}),)}, False),
        ({"pod_sets": (pod_set(requests={"cpu": "1"}, node_selector={"a": "b"}),)}, False),
        ({"pod_sets": (pod_set(requests={"cpu": "1"}, min_count=1),)}, False),
        ({"pod_sets": (pod_set(requests={"cpu": "1"}, limits={"cpu": "5"}),)}, True),
    ],
)
def test_shape_tells_what_the_scheduler_can_tell_apart(change: dict[str, Any], same: bool) -> None:
    one = workload("a", pod_sets=(pod_set(requests={"cpu": "1"}),))
    other = msgspec.structs.replace(one, **change)
    assert (info(one).shape == info(other).shape) is same


def test_shape_can_be_switched_off() -> None:
    assert info(workload("a"), RequestRules(equivalence_hashing=False)).shape == ""


def test_finished_by_condition_counts_as_finished() -> None:
    assert info(workload("a", conditions=(condition("Finished", True),))).finished
