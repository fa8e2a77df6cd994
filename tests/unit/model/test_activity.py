"""Active conditions of queues."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.events import objects as o
from shared.model.activity import Activity, local_queue_activity
from tests.unit.model.builders import condition, flavor, group, queue, world

MULTIKUEUE, PROVISIONING = "kueue.x-k8s.io/multikueue", "kueue.x-k8s.io/provisioning-request"


def check(name: str, controller: str = "x", active: bool = True) -> o.AdmissionCheck:
    return o.AdmissionCheck(name=name, version=1, controller=controller, active=condition("Active", active))


def rules(*names: str, on: tuple[str, ...] = ()) -> tuple[o.CheckRule, ...]:
    return tuple(o.CheckRule(name, on) for name in names)


GROUPS = (group(default="cpu=1"),)


@pytest.mark.parametrize(
    ("fields", "reason", "names"),
    [
        ({}, "Ready", ()),
        ({"stop_policy": "Hold"}, "Stopped", ()),
        ({"groups": (group(zz="cpu=1", aa="cpu=1"),)}, "FlavorNotFound", ("zz,aa",)),
        ({"checks": rules("missing", "ghost")}, "AdmissionCheckNotFound", ("ghost,missing",)),
        ({"checks": rules("idle", "ok")}, "AdmissionCheckInactive", ("idle",)),
        ({"checks": rules("mk1", "mk2")}, "MultipleMultiKueueAdmissionChecks", ("mk1,mk2",)),
        ({"checks": rules("mk1", on=("other",))}, "MultiKueueAdmissionCheckAppliedPerFlavor", ("mk1",)),
        ({"checks": rules("mk1", "prov")}, "MultiKueueWithProvisioningRequest", ()),
        ({"groups": (group(placed="cpu=1"),)}, "TopologyNotFound", ("racks",)),
        ({"groups": (group(placed="cpu=1"),), "checks": rules("mk1")}, "Ready", ()),
        ({"deleting": True, "stop_policy": "Hold"}, "Terminating", ()),
        ({"stop_policy": "Hold", "checks": rules("missing")}, "Stopped", ("missing",)),
    ],
)
def test_the_first_cause_is_the_reason_and_the_message_names_all(
    fields: dict[str, Any], reason: str, names: tuple[str, ...]
) -> None:
    built = world(
        flavor("placed", topology="racks"),
        check("ok"),
        check("idle", active=False),
        check("mk1", MULTIKUEUE),
        check("mk2", MULTIKUEUE),
        check("prov", PROVISIONING),
    )
    built.set_cluster_queue(msgspec.structs.replace(queue("cq", *GROUPS), **fields))
    activity = built.activity("cq")
    assert activity.reason == reason
    assert activity.active is (reason == "Ready")
    assert all(name in activity.message for name in names)
    assert built.in_snapshot("cq") is activity.active


def test_the_message_is_one_sentence_with_all_causes() -> None:
    built = world()
    built.set_cluster_queue(msgspec.structs.replace(queue("cq", *GROUPS), stop_policy="Hold", checks=rules("missing")))
    said = built.activity("cq").message
    assert said.startswith("Can't admit new workloads: ")
    assert said.endswith(".")
    assert len(said.removeprefix("Can't admit new workloads: ").split(", ")) >= 2


def test_unknown_queue() -> None:
    assert world().activity("nope").reason == "NotFound"


def test_activity_follows_flavors_checks_and_topologies() -> None:
    built = world()
    built.set_cluster_queue(queue("cq", group(late="cpu=1"), checks=rules("gate")))
    assert built.activity("cq").reason == "FlavorNotFound"
    built.set_resource_flavor(flavor("late", topology="racks"))
    assert built.activity("cq").reason == "AdmissionCheckNotFound"
    built.set_admission_check(check("gate"))
    assert built.activity("cq").reason == "TopologyNotFound"
    built.set_topology("racks")
    assert built.activity("cq").active
    built.remove_topology("racks")
    assert not built.activity("cq").active
    built.set_topology("racks")
    built.remove_admission_check("gate")
    assert built.activity("cq").reason == "AdmissionCheckNotFound"
    built.set_admission_check(check("gate"))
    built.remove_resource_flavor("late")
    assert built.activity("cq").reason == "FlavorNotFound"


READY, IDLE = Activity(True, "Ready", ""), Activity(False, "Stopped", "")


@pytest.mark.parametrize(
    ("stopped", "cluster_queue", "reason"),
    [
        (True, READY, "Stopped"),
        (False, None, "ClusterQueueDoesNotExist"),
        (False, IDLE, "ClusterQueueIsInactive"),
        (False, READY, "Ready"),
    ],
)
def test_local_queue(stopped: bool, cluster_queue: Activity | None, reason: str) -> None:
    assert local_queue_activity(stopped, cluster_queue).reason == reason
