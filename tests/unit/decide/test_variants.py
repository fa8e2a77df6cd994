"""Variants of concurrent admission: siblings, preference of flavors, limits of migration."""

from __future__ import annotations

from typing import Any

import pytest

from shared.decide import variants
from shared.events import objects as o
from shared.model.workload import Admission, PodSetAssignment
from shared.model.world import World
from tests.unit.decide.preemption_worlds import holder
from tests.unit.model.builders import condition, flavor, group, info, local, put, queue, workload, world

PARENT = (o.Owner("kueue.x-k8s.io/v1beta2", "Workload", "parent", "parent-uid", True),)
ALLOWED = "kueue.x-k8s.io/workload-allowed-resource-flavors"


def variant(name: str, flavor_name: str, **fields: Any) -> o.Workload:
    return workload(name, owners=PARENT, annotations={ALLOWED: flavor_name}, **fields)


def admitted(name: str, flavor_name: str, queue_name: str = "cq", **fields: Any) -> o.Workload:
    return holder(
        name,
        queue_name,
        1,
        flavor=flavor_name,
        owners=PARENT,
        annotations={ALLOWED: flavor_name},
        conditions=(condition("Admitted", True, "Admitted"),),
        **fields,
    )


def built(*objects: o.Object, last: str = "", checks: tuple[o.CheckRule, ...] = ()) -> World:
    flavors = dict.fromkeys(("first", "second", "third"), "cpu=9")
    one = queue("cq", group(**flavors), last_acceptable_flavor=last, checks=checks)
    check = o.AdmissionCheck(name="slow", version=1, controller="x", active=condition("Active", True))
    return world(
        *(flavor(name) for name in flavors), check, one, queue("other", group(**flavors)), local("lq", "cq"), *objects
    )


def sibling(target: World, name: str = "new") -> str:
    return variants.admitted_sibling(target, target.workloads[f"ns/{name}"], target.cluster_queues["cq"])


def test_the_admitted_variant_of_the_same_parent() -> None:
    new = variant("new", "first")
    assert sibling(built(new, admitted("old", "second"))) == "ns/old"
    assert sibling(built(new, variant("idle", "second"))) == ""
    assert sibling(built(new, holder("stranger", "cq", 1, conditions=(condition("Admitted", True),)))) == ""
    assert sibling(built(new, admitted("elsewhere", "second", "other"))) == ""
    reserved_only = holder("reserved", "cq", 1, owners=PARENT, annotations={ALLOWED: "second"})
    assert sibling(built(new, reserved_only)) == ""
    assert sibling(built(workload("new"), admitted("old", "second"))) == ""


def test_a_variant_that_is_gone_is_no_sibling() -> None:
    target = built(variant("new", "first"), admitted("old", "second"))
    target.delete("ns/old")
    assert sibling(target) == ""
    assert set(target.families["parent-uid"]) == {"ns/new"}
    target.delete("ns/new")
    assert target.families == {}


@pytest.mark.parametrize(("checks", "expected"), [((), "ns/old"), ((o.CheckRule("slow"),), "")])
def test_a_decided_admission_counts_if_no_check_is_left(checks: tuple[o.CheckRule, ...], expected: str) -> None:
    target = built(variant("new", "first"), variant("old", "second"), checks=checks)
    pod_set = PodSetAssignment(name="main", count=1, flavors={"cpu": "second"}, usage={"cpu": 1000})
    target.assume("ns/old", Admission("cq", (pod_set,)))
    assert sibling(target) == expected


def test_preference_follows_the_order_of_the_queue() -> None:
    target = built()
    config = target.cluster_queues["cq"]
    places = [
        variants.place(info(variant("v", name)), config) for name in ("first", "third", "third,second", "unknown")
    ]
    assert places == [0, 2, 1, 3]
    assert variants.place(info(workload("plain")), config) == 3


@pytest.mark.parametrize(
    ("last", "name", "expected"),
    [
        ("", "third", True),
        ("second", "first", True),
        ("second", "second", True),
        ("second", "third", False),
        ("x", "third", True),
    ],
)
def test_migration_stops_at_the_last_acceptable_flavor(last: str, name: str, expected: bool) -> None:
    target = built(last=last)
    assert variants.may_migrate(info(variant("v", name)), target.cluster_queues["cq"]) is expected


def test_an_update_stays_in_its_family() -> None:
    target = built(variant("new", "first"))
    put(target, variant("new", "first", priority=3))
    assert set(target.families["parent-uid"]) == {"ns/new"}
