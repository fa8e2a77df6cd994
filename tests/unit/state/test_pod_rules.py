"""LimitRanges, RuntimeClasses, DeviceClasses and claim templates in the fold: who is counted anew, and as what."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.bus.interface import ObjectChanged
from shared.decide.cycle import run_batch
from shared.decide.requests import DeviceMapping, RequestRules
from shared.events.objects import (
    Container,
    DeviceClass,
    DeviceRequest,
    Object,
    PodClaim,
    ResourceClaimTemplate,
    Tombstone,
    Workload,
)
from shared.events.subjects import ObjectName
from shared.model.workload import WorkloadInfo
from shared.state.folding import Fold
from shared.state.scheduling import SchedulerState
from tests.unit.state.builders import (
    NOW,
    Cluster,
    basics,
    cluster_queue,
    fed,
    flavor,
    limit_range,
    local_queue,
    name_of,
    namespace,
    reserved,
    runtime_class,
    workload,
)

GPUS = RequestRules(device_mappings=(DeviceMapping(resource="gpus", classes=("gpu.example.com",)),))
OPEN: dict[str, Any] = {"containers": (Container(),)}
"""Pods that ask for nothing themselves."""


class Folded:
    """A fold fed by hand."""

    def __init__(self, *objects: Object, rules: RequestRules | None = None) -> None:
        self.fold = Fold(rules=rules or RequestRules())
        self._position = 0
        for one in objects:
            self.put(one)

    def put(self, one: Object) -> tuple[str, ...]:
        """Workloads that were counted anew by it."""
        self._position += 1
        one = msgspec.structs.replace(one, version=self._position)
        self.fold.change(ObjectChanged(name_of(one), one, self._position), NOW)
        return self.fold.recounted

    def delete(self, one: Object) -> tuple[str, ...]:
        self._position += 1
        gone = Tombstone(namespace=one.namespace, name=one.name, uid=one.uid, version=self._position)
        self.fold.change(ObjectChanged(name_of(one), gone, self._position), NOW)
        return self.fold.recounted

    def info(self, name: str = "w") -> WorkloadInfo:
        return self.fold.world.workloads[f"ns/{name}"]

    def requests(self, name: str = "w") -> dict[str, int]:
        (pod_set,) = self.info(name).pod_sets
        return pod_set.requests


@pytest.mark.parametrize("late", [False, True])
def test_a_default_request_of_the_namespace_counts_whichever_comes_first(late: bool) -> None:
    limits, one = limit_range(default_request={"cpu": "200m"}), workload("w", count=3, pods=OPEN)
    folded = Folded(*basics(), *((one, limits) if late else (limits, one)))
    assert folded.requests() == {"cpu": 600}


def test_edits_and_deletion_count_anew_and_name_whom() -> None:
    limits = limit_range(default_request={"cpu": "200m"})
    elsewhere = msgspec.structs.replace(workload("x", pods=OPEN), namespace="other")
    folded = Folded(*basics(), workload("w", pods=OPEN), workload("full", "1"), elsewhere)
    assert folded.put(limits) == ("ns/w",)
    assert folded.put(limit_range(default_request={"cpu": "300m"})) == ("ns/w",)
    assert folded.put(limit_range(default_request={"cpu": "300m"})) == ()
    assert folded.requests() == {"cpu": 300}
    assert folded.delete(limits) == ("ns/w",)
    assert folded.requests() == {}


def test_several_limit_ranges_are_merged_in_the_order_of_their_names() -> None:
    first, second = limit_range("a", default_request={"cpu": "1"}), limit_range("b", default_request={"cpu": "2"})
    assert Folded(*basics(), second, first, workload("w", pods=OPEN)).requests() == {"cpu": 1000}


def test_what_a_workload_holds_is_what_its_admission_says() -> None:
    held = reserved(workload("w", "2"))
    folded = Folded(*basics(), held)
    before = folded.fold.world.charges["ns/w"]
    folded.put(limit_range(max={"cpu": "1"}))
    assert folded.fold.world.charges["ns/w"] == before
    # Once it waits again, it is refused.
    assert "LimitRange" in folded.info().invalid


def test_a_limit_range_that_cannot_be_read_counts_as_gone() -> None:
    folded = Folded(*basics(), limit_range(default_request={"cpu": "200m"}), workload("w", pods=OPEN))
    folded.put(limit_range(default_request={"cpu": "much"}))
    assert folded.requests() == {}
    assert "much" in folded.fold.faults[ObjectName("limitrange", "ns", "limits")]
    folded.put(limit_range(default_request={"cpu": "1"}))
    assert (folded.requests(), folded.fold.faults) == ({"cpu": 1000}, {})


def test_the_overhead_of_a_runtime_class() -> None:
    kata = workload("w", "1", count=2, pods={"runtime_class": "kata"})
    folded = Folded(*basics(), kata, workload("plain", "1"))
    assert folded.put(runtime_class(cpu="250m")) == ("ns/w",)
    assert (folded.requests(), folded.requests("plain")) == ({"cpu": 2500}, {"cpu": 1000})
    assert folded.put(runtime_class("other", cpu="9")) == ()
    folded.put(runtime_class(cpu="much"))
    assert folded.requests() == {"cpu": 2000}


def test_a_workload_of_the_namespace_that_comes_back_has_the_rules_of_now() -> None:
    folded = Folded(*basics(), reserved(workload("w", pods=OPEN | {"containers": (Container(requests={"cpu": "1"}),)})))
    folded.put(limit_range(default_request={"memory": "1Gi"}))
    back = msgspec.structs.replace(workload("w", "1"), generation=1)
    folded.put(back)
    assert folded.requests() == {"cpu": 1000, "memory": 2**30}


def test_a_parked_workload_is_a_head_again_once_the_limits_allow_it() -> None:
    cluster = Cluster([*basics(), limit_range(max={"cpu": "1"}), workload("w", "2")])
    state = fed(cluster)
    refused = run_batch(state.world, NOW).refused
    assert [(entry.key, str(entry.refusal.reason)) for entry in refused] == [("ns/w", "Misconfigured")]
    assert not run_batch(state.world, NOW).refused
    state.apply(cluster.put(limit_range(max={"cpu": "3"})), NOW)
    assert state.dirty
    assert [admit.key for admit in run_batch(state.world, NOW).admits] == ["ns/w"]


def test_a_raised_default_parks_no_one_with_the_shape_it_had() -> None:
    """Refused with a default of 5, it is not taken for the same once the default is 1."""
    cluster = Cluster([*basics(), limit_range(default_request={"cpu": "5"}), workload("w", pods=OPEN)])
    state = fed(cluster)
    assert [str(entry.refusal.reason) for entry in run_batch(state.world, NOW).refused] == ["ExceedsMaxQuota"]
    state.apply(cluster.put(limit_range(default_request={"cpu": "1"})), NOW)
    (admit,) = run_batch(state.world, NOW).admits
    assert admit.admission.pod_sets[0].usage == {"cpu": 1000}


def test_who_is_held_back_after_a_rejection_stays_so() -> None:
    """Counting anew is no reason to decide about a state that is known to be old."""
    state = SchedulerState()
    cluster = Cluster([*basics(), workload("w", pods=OPEN)])
    fed(cluster, state)
    state._not_before["ns/w"] = NOW + 60
    state._reconcile("ns/w", NOW)
    state.apply(cluster.put(limit_range(default_request={"cpu": "1"})), NOW)
    assert state.world.pending.place_of("ns/w") is None


# --- devices ---------------------------------------------------------------------------------------------------------


def gpu_class(name: str = "gpu.example.com", **more: Any) -> DeviceClass:
    return DeviceClass(name=name, uid=f"uid-{name}", version=1, **more)


def template(*requests: DeviceRequest) -> ResourceClaimTemplate:
    return ResourceClaimTemplate(namespace="ns", name="two", uid="uid-two", version=1, requests=requests)


TWO = DeviceRequest(name="r", device_class="gpu.example.com", count=2)


def claiming(**claim: str) -> Workload:
    return workload("w", count=3, pods={"claims": (PodClaim(name="c", **claim),)})


def gpu_queue() -> tuple[Object, ...]:
    return namespace(), flavor(), cluster_queue(strategy="StrictFIFO"), local_queue()


@pytest.mark.parametrize("late", [False, True])
def test_claims_of_a_template_count_as_their_logical_resource(late: bool) -> None:
    objects = (template(TWO), claiming(template="two"))
    folded = Folded(*gpu_queue(), *(reversed(objects) if late else objects), rules=GPUS)
    assert folded.requests() == {"cpu": 3000, "gpus": 6}
    assert not folded.info().invalid


@pytest.mark.parametrize(
    ("rules", "objects", "words"),
    [
        (GPUS, [claiming(claim="mine")], "only claims made of a template"),
        (GPUS, [claiming(template="two")], "two does not exist"),
        (RequestRules(), [template(TWO), claiming(template="two")], "no mapping"),
        (
            GPUS,
            [template(DeviceRequest(device_class="gpu.example.com", unsupported="allocation mode All")), claiming(template="two")],
            "allocation mode All",
        ),
        (
            RequestRules(device_mappings=(DeviceMapping(resource="m", classes=("gpu.example.com",), sources=True),)),
            [template(TWO), claiming(template="two")],
            "counters and capacities",
        ),
        (RequestRules(devices=False), [claiming(template="two")], "KueueDRAIntegration is off"),
    ],
)  # fmt: skip
def test_what_cannot_be_counted_is_not_queued(rules: RequestRules, objects: list[Object], words: str) -> None:
    folded = Folded(*gpu_queue(), *objects, rules=rules)
    assert words in folded.info().invalid
    assert not folded.info().admissible()
    assert folded.fold.world.pending.place_of("ns/w") is None


def test_refused_claims_do_not_block_a_strict_queue_and_come_in_once_they_can_be_counted() -> None:
    folded = Folded(*gpu_queue(), claiming(template="two"), workload("behind", "1", created=5), rules=GPUS)
    assert [admit.key for admit in run_batch(folded.fold.world, NOW).admits] == ["ns/behind"]
    assert folded.put(template(TWO)) == ("ns/w",)
    assert folded.fold.world.pending.place_of("ns/w") == "cq"
    assert folded.delete(template(TWO)) == ("ns/w",)
    assert folded.fold.world.pending.place_of("ns/w") is None


def test_claims_are_left_alone_when_nobody_counts_or_refuses_them() -> None:
    folded = Folded(*gpu_queue(), claiming(template="two"), rules=RequestRules(devices=False, refuse_devices=False))
    assert (folded.requests(), folded.info().invalid) == ({"cpu": 3000}, "")


def test_an_extended_resource_behind_which_a_class_stands() -> None:
    asks = {"containers": (Container(requests={"cpu": "1"}, limits={"example.com/gpu": "2"}),)}
    folded = Folded(*gpu_queue(), workload("w", pods=asks), workload("plain", "1"), rules=GPUS)
    assert folded.requests() == {"cpu": 1000, "example.com/gpu": 2}
    assert folded.put(gpu_class(extended_resource="example.com/gpu")) == ("ns/w",)
    assert folded.requests() == {"cpu": 1000, "gpus": 2}
    assert folded.put(gpu_class(extended_resource="")) == ("ns/w",)
    assert folded.requests() == {"cpu": 1000, "example.com/gpu": 2}


def test_of_two_classes_behind_one_resource_the_younger_counts_and_then_the_first_by_name() -> None:
    asks = {"containers": (Container(requests={"example.com/gpu": "1"}),)}
    mapped = tuple(DeviceMapping(resource=name, classes=(name,)) for name in ("a", "b", "c"))
    folded = Folded(*gpu_queue(), workload("w", pods=asks), rules=RequestRules(device_mappings=mapped))
    for name, created in (("b", 5), ("a", 5), ("c", 4)):
        folded.put(gpu_class(name, created=created, extended_resource="example.com/gpu"))
    assert folded.requests() == {"a": 1}


def test_extended_resources_are_themselves_without_the_gate() -> None:
    asks = {"containers": (Container(requests={"example.com/gpu": "1"}),)}
    rules = msgspec.structs.replace(GPUS, extended_resources=False)
    folded = Folded(*gpu_queue(), gpu_class(extended_resource="example.com/gpu"), workload("w", pods=asks), rules=rules)
    assert folded.requests() == {"example.com/gpu": 1}
