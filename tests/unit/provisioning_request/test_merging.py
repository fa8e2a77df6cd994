"""Which pod sets a request is about, and which become one."""

from __future__ import annotations

from typing import Any

import pytest

from services.provisioning_request.merging import (
    IDENTICAL_REQUIREMENTS,
    IDENTICAL_TEMPLATES,
    merged_pod_sets,
    needed_pod_sets,
)
from shared.events.objects import Admission, Container, PodSet, PodSetAssignment, Requirement, Toleration
from tests.unit.provisioning_request.objects import config, pod_set, workload

GPU = (Container(requests={"cpu": "1", "gpu": "1"}),)


@pytest.mark.parametrize(
    ("pod", "managed", "needed"),
    [
        (pod_set(), (), True),
        (pod_set(count=0), (), False),
        (pod_set(), ("gpu",), False),
        (pod_set(containers=GPU), ("gpu",), True),
        (pod_set(containers=GPU), ("other", "cpu"), True),
        (pod_set(containers=(Container(limits={"gpu": "1"}),)), ("gpu",), True),
        (pod_set(init_containers=GPU), ("gpu",), True),
    ],
)
def test_a_pod_set_is_needed_for_its_pods_and_managed_resources(
    pod: PodSet, managed: tuple[str, ...], needed: bool
) -> None:
    assert bool(needed_pod_sets(workload(pod_sets=[pod]), managed)) is needed


def test_assigned_counts_are_what_counts() -> None:
    admission = Admission("cq", (PodSetAssignment(name="a", count=1), PodSetAssignment(name="b", count=0)))
    wl = workload(pod_sets=[pod_set("a", 3), pod_set("b", 3), pod_set("c", 3)], admission=admission)
    assert [(p.name, count) for p, count in needed_pod_sets(wl, ())] == [("a", 1)]


def test_without_a_reservation_nothing_is_needed() -> None:
    assert needed_pod_sets(workload(admission=None), ()) == []


def test_without_a_policy_each_pod_set_stands_alone() -> None:
    wl = workload(pod_sets=[pod_set("a", 1, template_hash="h"), pod_set("b", 2, template_hash="h")])
    assert merged_pod_sets(wl, config()) == [("a", 1), ("b", 2)]


def test_identical_templates_merge_into_the_first() -> None:
    wl = workload(
        pod_sets=[
            pod_set("a", 1, template_hash="h"),
            pod_set("b", 2, template_hash="other"),
            pod_set("c", 4, template_hash="h"),
            pod_set("d", 8, template_hash="other"),
        ]
    )
    assert merged_pod_sets(wl, config(merge_policy=IDENTICAL_TEMPLATES)) == [("a", 5), ("b", 10)]


def test_unknown_template_hashes_are_not_identical() -> None:
    wl = workload(pod_sets=[pod_set("a", 1), pod_set("b", 2)])
    assert merged_pod_sets(wl, config(merge_policy=IDENTICAL_TEMPLATES)) == [("a", 1), ("b", 2)]


@pytest.mark.parametrize(
    ("change", "merges"),
    [
        ({"template_hash": "differs"}, True),
        ({"containers": (Container(requests={"cpu": "1"}, ports=("80",)),)}, True),
        ({"containers": (Container(limits={"cpu": "1"}),)}, True),
        ({"containers": (Container(requests={"cpu": "2"}),)}, False),
        ({"containers": (Container(requests={"cpu": "1"}), Container())}, False),
        ({"init_containers": (Container(requests={"cpu": "1"}),)}, False),
        ({"pod_requests": {"cpu": "1"}}, False),
        ({"node_selector": {"zone": "a"}}, False),
        ({"tolerations": (Toleration(key="k"),)}, False),
        ({"affinity_terms": ((Requirement("k", "Exists"),),)}, False),
    ],
)
def test_identical_scheduling_requirements(change: dict[str, Any], merges: bool) -> None:
    wl = workload(pod_sets=[pod_set("a", 1), pod_set("b", 2, **change)])
    merged = merged_pod_sets(wl, config(merge_policy=IDENTICAL_REQUIREMENTS))
    assert merged == ([("a", 3)] if merges else [("a", 1), ("b", 2)])
