from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.bus.interface import CaughtUp, Logged, Reset
from shared.events.decisions import Batch, Positions
from shared.events.objects import (
    AdmissionCheck,
    CheckRule,
    Condition,
    Flavor,
    FlavorQuota,
    ResourceGroup,
    Topology,
    WorkloadPriorityClass,
)
from shared.events.subjects import ObjectName
from shared.state.queues import QueueView
from tests.unit.state.builders import (
    NOW,
    Cluster,
    admit_of,
    basics,
    cluster_queue,
    flavor,
    local_queue,
    name_of,
    namespace,
    released,
    reserved,
    workload,
)

CQ = ObjectName("clusterqueue", "", "cq")
LQ = ObjectName("localqueue", "ns", "lq")


class Watcher:
    """A view of a cluster that reads each object as it is written."""

    def __init__(self, *objects: Any) -> None:
        self.cluster = Cluster(objects or basics())
        self.view = QueueView()
        self.view.apply(Reset(1, "start"), NOW)
        for item in self.cluster.objects:
            self.view.apply(item, NOW)
        self.view.apply(CaughtUp(self.cluster.positions), NOW)
        self.view.take_changed()

    def put(self, object_: Any) -> frozenset[ObjectName]:
        self.view.apply(self.cluster.put(object_), NOW)
        return self.view.take_changed()

    def delete(self, object_: Any) -> frozenset[ObjectName]:
        self.view.apply(self.cluster.delete(name_of(object_)), NOW)
        return self.view.take_changed()

    def counts(self) -> tuple[int, int, int]:
        status = self.view.cluster_queue("cq")
        assert status is not None
        return status.pending, status.reserving, status.admitted

    def local_counts(self) -> tuple[int, int, int]:
        status = self.view.local_queue("ns/lq")
        assert status is not None
        return status.pending, status.reserving, status.admitted

    def active(self, queue: str = "cq") -> tuple[bool, str]:
        status = self.view.cluster_queue(queue)
        assert status is not None
        return status.active.active, status.active.reason

    def local_active(self) -> tuple[bool, str]:
        status = self.view.local_queue("ns/lq")
        assert status is not None
        return status.active.active, status.active.reason


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


def test_a_workload_is_counted_through_its_life(watcher: Watcher) -> None:
    pending = workload("a", "2")
    assert watcher.put(pending) == {CQ, LQ}
    assert watcher.counts() == watcher.local_counts() == (1, 0, 0)
    held = reserved(pending, admitted=False)
    assert watcher.put(held) == {CQ, LQ}
    assert watcher.counts() == watcher.local_counts() == (0, 1, 0)
    assert watcher.put(reserved(pending)) == {CQ, LQ}
    assert watcher.counts() == watcher.local_counts() == (0, 1, 1)
    watcher.put(released(reserved(pending)))
    assert watcher.counts() == watcher.local_counts() == (1, 0, 0)
    watcher.put(msgspec.structs.replace(reserved(pending), finished=True))
    assert watcher.counts() == watcher.local_counts() == (0, 0, 0)
    assert watcher.delete(pending) >= {LQ}


def test_usage_has_a_row_for_each_flavor_and_resource_in_spec_order(watcher: Watcher) -> None:
    group = ResourceGroup(
        covered=("memory", "cpu"),
        flavors=tuple(Flavor(n, (FlavorQuota("cpu", "1"), FlavorQuota("memory", "1Gi"))) for n in ("z", "a")),
    )
    watcher.put(cluster_queue("cq", groups=(group,), cohort="org"))
    watcher.put(reserved(workload("one", "2"), flavor="z"))
    watcher.put(reserved(workload("two", "1"), flavor="z", admitted=False))
    status = watcher.view.cluster_queue("cq")
    assert status is not None
    assert status.reservation.rows == (
        ("z", "cpu", 3000, 2000),
        ("z", "memory", 0, 0),
        ("a", "cpu", 0, 0),
        ("a", "memory", 0, 0),
    )
    assert status.usage.rows[0] == ("z", "cpu", 2000, 1000)
    local = watcher.view.local_queue("ns/lq")
    assert local is not None
    assert local.reservation.rows[0] == ("z", "cpu", 3000, 0)
    assert local.usage.rows[0] == ("z", "cpu", 2000, 0)


def test_nothing_is_borrowed_without_a_cohort(watcher: Watcher) -> None:
    watcher.put(reserved(workload("a", "6")))
    status = watcher.view.cluster_queue("cq")
    assert status is not None
    assert status.reservation.rows == (("default", "cpu", 6000, 0),)


def test_a_deactivated_workload_holds_quota_but_is_not_counted(watcher: Watcher) -> None:
    watcher.put(reserved(workload("a", "2"), active=False))
    assert watcher.counts() == (0, 0, 0)
    status = watcher.view.cluster_queue("cq")
    assert status is not None
    assert status.usage.rows == (("default", "cpu", 2000, 0),)
    assert watcher.view.is_reserving("cq")


def test_reclaimable_pods_are_taken_off(watcher: Watcher) -> None:
    watcher.put(reserved(workload("a", "1", count=3), reclaimable={"main": 2}))
    status = watcher.view.cluster_queue("cq")
    assert status is not None
    assert status.usage.rows == (("default", "cpu", 1000, 0),)


def test_a_decision_does_not_show_before_the_object_carries_it(watcher: Watcher) -> None:
    watcher.put(workload("a"))
    batch = Batch(
        author="x", positions=Positions(epoch=1, decisions=1), decided_ns=0, decisions=(admit_of(workload("a")),)
    )
    watcher.view.apply(Logged(batch, 2), NOW)
    assert watcher.counts() == (1, 0, 0)
    assert watcher.view.take_changed() == frozenset()


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        ({"stop_policy": "Hold"}, (False, "Stopped")),
        ({"deleting": True}, (False, "Terminating")),
        ({"checks": (CheckRule("missing"),)}, (False, "AdmissionCheckNotFound")),
        ({}, (True, "Ready")),
    ],
    ids=lambda value: str(value),
)
def test_activity_of_a_cluster_queue(watcher: Watcher, queue: dict[str, Any], expected: tuple[bool, str]) -> None:
    changed = watcher.put(cluster_queue(**queue))
    assert watcher.active() == expected
    assert changed == {CQ, LQ}
    assert watcher.local_active() == ((True, "Ready") if expected[0] else (False, "ClusterQueueIsInactive"))


def test_activity_follows_flavors_checks_and_topologies() -> None:
    watcher = Watcher(namespace(), cluster_queue("cq", checks=(CheckRule("check"),)), local_queue())
    assert watcher.active() == (False, "FlavorNotFound")
    assert watcher.put(flavor(topology="racks")) >= {CQ, LQ}
    assert watcher.active() == (False, "AdmissionCheckNotFound")
    check = AdmissionCheck(name="check", version=1, controller="c", active=Condition("Active", False))
    assert watcher.put(check) >= {CQ}
    assert watcher.active() == (False, "AdmissionCheckInactive")
    watcher.put(msgspec.structs.replace(check, active=Condition("Active", True)))
    assert watcher.active() == (False, "TopologyNotFound")
    assert watcher.put(Topology(name="racks", version=1, levels=("rack",))) >= {CQ}
    assert watcher.active() == (True, "Ready")
    watcher.delete(flavor(topology="racks"))
    assert watcher.active() == (False, "FlavorNotFound")


def test_a_quota_that_cannot_be_read_is_named(watcher: Watcher) -> None:
    watcher.put(cluster_queue("cq", "many"))
    status = watcher.view.cluster_queue("cq")
    assert status is not None
    assert (status.active.active, status.active.reason) == (False, "Unknown")
    assert "many" in status.active.message


def test_activity_of_a_local_queue(watcher: Watcher) -> None:
    assert watcher.local_active() == (True, "Ready")
    assert watcher.put(local_queue(stop_policy="Hold")) == {CQ, LQ}
    assert watcher.local_active() == (False, "Stopped")
    watcher.put(local_queue(queue="nowhere"))
    assert watcher.local_active() == (False, "ClusterQueueDoesNotExist")


def test_a_local_queue_without_cluster_queue_counts_what_waits_and_shows_no_usage(watcher: Watcher) -> None:
    watcher.put(reserved(workload("held", "1")))
    watcher.put(workload("a"))
    watcher.put(local_queue(queue="nowhere"))
    status = watcher.view.local_queue("ns/lq")
    assert status is not None
    assert (status.pending, status.reserving, status.reservation.rows) == (1, 0, ())
    watcher.put(local_queue(queue="nowhere", stop_policy="Hold"))
    assert watcher.local_counts() == (0, 0, 0)


def test_queues_without_an_object_have_no_status(watcher: Watcher) -> None:
    assert watcher.view.cluster_queue("nobody") is None
    assert watcher.view.local_queue("ns/nobody") is None
    watcher.put(reserved(workload("a"), "nobody"))
    assert watcher.view.is_reserving("nobody")
    assert CQ in watcher.delete(cluster_queue())
    assert watcher.view.cluster_queue("cq") is None


def test_moving_a_workload_changes_both_queues(watcher: Watcher) -> None:
    watcher.put(cluster_queue("other"))
    watcher.put(local_queue("lq2", "other"))
    watcher.put(workload("a"))
    changed = watcher.put(workload("a", queue="lq2"))
    assert changed == {CQ, LQ, ObjectName("clusterqueue", "", "other"), ObjectName("localqueue", "ns", "lq2")}
    assert [w.name for w in watcher.view.workloads_of_local_queue("ns/lq2")] == ["a"]
    assert list(watcher.view.workloads_of_local_queue("ns/lq")) == []


def test_workloads_of_a_cluster_queue_come_by_queue_or_by_quota(watcher: Watcher) -> None:
    watcher.put(workload("waits"))
    watcher.put(reserved(workload("held", queue="gone")))
    watcher.put(workload("stranger", queue="gone"))
    assert sorted(w.name for w in watcher.view.workloads_of_cluster_queue("cq")) == ["held", "waits"]


def test_other_kinds_are_kept_and_reported(watcher: Watcher) -> None:
    item = watcher.cluster.put(WorkloadPriorityClass(name="high", version=1, value=5))
    change = watcher.view.apply(item, NOW)
    assert change is not None
    assert change.new == item.object
    assert watcher.view.objects.get(WorkloadPriorityClass, "high") == item.object
    assert watcher.view.apply(item, NOW) is None


def test_a_reset_forgets_everything(watcher: Watcher) -> None:
    watcher.put(workload("a"))
    assert watcher.view.caught_up
    watcher.view.apply(Reset(2, "again"), NOW)
    assert (watcher.view.caught_up, watcher.view.epoch) == (False, 2)
    assert watcher.view.cluster_queue("cq") is None
    assert not watcher.view.objects.dump()


def test_a_parent_of_variants_neither_waits_nor_counts() -> None:
    watcher = Watcher()
    one = workload("one", has_variants=True)
    watcher.put(one)
    assert watcher.counts() == (0, 0, 0)
    watcher.put(reserved(one))
    assert watcher.counts() == watcher.local_counts() == (0, 0, 0)
    assert not watcher.view.is_reserving("cq")
    # It may become one, and an ordinary one again.
    watcher.put(workload("two"))
    assert watcher.counts() == (1, 0, 0)
    watcher.put(workload("two", has_variants=True))
    assert watcher.counts() == (0, 0, 0)
    watcher.put(workload("two"))
    assert watcher.counts() == (1, 0, 0)
