"""Defaults and bounds of pod templates."""

from __future__ import annotations

import msgspec
import pytest

from shared.decide.requests import LogicalDevices, RequestRules, pod_requests, workload_info
from shared.decide.requests_adjust import adjusted, out_of_bounds
from shared.events.objects import Container, LimitItem, PodSet
from shared.model.limit_range import pod_rules
from tests.unit.model.builders import pod_set, workload

RULES = pod_rules(
    [
        LimitItem(
            type="Container",
            default={"cpu": "1"},
            default_request={"cpu": "200m"},
            max={"cpu": "4"},
            min={"cpu": "100m"},
        )
    ],
    {"kata": {"cpu": "50m"}},
)


@pytest.mark.parametrize(
    ("given_", "requests", "limits"),
    [
        (Container(), {"cpu": "200m"}, {"cpu": "1"}),
        (Container(limits={"cpu": "4"}), {"cpu": "200m"}, {"cpu": "4"}),
        (Container(requests={"cpu": "3"}), {"cpu": "3"}, {"cpu": "1"}),
        (Container(limits={"memory": "1Gi"}), {"cpu": "200m", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"}),
    ],
)
def test_defaults_come_before_limits_as_requests(
    given_: Container, requests: dict[str, str], limits: dict[str, str]
) -> None:
    found = adjusted(PodSet(containers=(given_,)), RULES).containers[0]
    assert (dict(found.requests), dict(found.limits)) == (requests, limits)


def test_overhead_of_the_runtime_class_only_where_there_is_none() -> None:
    assert adjusted(PodSet(runtime_class="kata"), RULES).overhead == {"cpu": "50m"}
    assert adjusted(PodSet(runtime_class="kata", overhead={"cpu": "1"}), RULES).overhead == {"cpu": "1"}
    assert adjusted(PodSet(runtime_class="other"), RULES).overhead == {}


def test_nothing_to_add_keeps_the_object() -> None:
    one = pod_set(requests={"cpu": "1"}, limits={"cpu": "2"})
    assert adjusted(one) is one


def test_several_items_take_the_tightest_bound_and_the_first_default() -> None:
    items = [
        LimitItem(type="Pod", max={"cpu": "4"}, min={"cpu": "1"}, default={"cpu": "2"}),
        LimitItem(type="Pod", max={"cpu": "3"}, min={"cpu": "2"}, default={"cpu": "9"}),
    ]
    found = pod_rules(items, {}).pod
    assert (found.max, found.min, found.default) == ({"cpu": "3"}, {"cpu": "2"}, {"cpu": "2"})


@pytest.mark.parametrize(("cpu", "out"), [("4", ()), ("5", ("cpu",)), ("50m", ("cpu",))])
def test_bounds_of_containers(cpu: str, out: tuple[str, ...]) -> None:
    one = PodSet(containers=(Container(requests={"cpu": cpu}),))
    assert out_of_bounds(one, pod_requests(one), RULES) == out


def test_a_refused_template_makes_the_workload_invalid() -> None:
    info = workload_info(workload("w", cpu="5"), pod_rules=RULES)
    assert "requests above limits for cpu" in info.invalid


def test_devices_take_the_place_of_extended_resources() -> None:
    source = workload("w", pod_sets=(pod_set(count=2, requests={"cpu": "1", "example.com/gpu": "1"}),))
    devices = LogicalDevices(per_pod={"main": {"gpu": "3"}}, replaced={"main": ("example.com/gpu",)})
    assert workload_info(source, devices=devices).pod_sets[0].requests == {"cpu": 2000, "gpu": 6}


def test_an_unchanged_spec_is_taken_over() -> None:
    source = workload("w", generation=3)
    before = workload_info(source)
    assert workload_info(source, before=before).pod_sets is before.pod_sets
    assert workload_info(workload("w", cpu="2", generation=3), before=before).pod_sets is before.pod_sets
    assert workload_info(workload("w", cpu="2", generation=4), before=before).pod_sets[0].requests == {"cpu": 2000}
    assert workload_info(workload("w", generation=3, priority=1), before=before).shape != before.shape


def test_workloads_of_one_template_share_what_follows_from_it() -> None:
    first, other = workload_info(workload("a", cpu="7")), workload_info(workload("b", cpu="7"))
    assert other.pod_sets is first.pod_sets
    assert (other.shape, other.family) == (first.shape, first.family)
    boosted = workload_info(workload("c", cpu="7", priority=9))
    assert boosted.shape != first.shape
    assert boosted.family == first.family


def test_rules_and_reclaimable_pods_are_told_apart() -> None:
    source = workload("w", pod_sets=(pod_set(count=3, requests={"cpu": "1", "example.com/gpu": "1"}),))
    assert workload_info(source).pod_sets[0].requests == {"cpu": 3000, "example.com/gpu": 3}
    fewer = msgspec.structs.replace(source, reclaimable={"main": 2})
    assert workload_info(fewer).pod_sets[0].requests == {"cpu": 1000, "example.com/gpu": 1}
    excluded = RequestRules(exclude_prefixes=("example.com/",))
    assert workload_info(source, excluded).pod_sets[0].requests == {"cpu": 3000}
