"""queue_manager over a view: which commands come out, when, and once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from services.queue_manager.service import QueueJudge
from services.queue_manager.settings import QueueManagerSettings
from shared.api import names
from shared.bus.interface import CaughtUp, Reset, Settled
from shared.config.configuration import Configured
from shared.config.feature_gates import resolve
from shared.events.commands import (
    Command,
    FinishWorkload,
    MarkRequeued,
    ReportPending,
    SetFinalizer,
    SetPriority,
    SetQueueStatus,
    SetRequeueAt,
    SyncAdmitted,
    SyncChecks,
    Unreserve,
)
from shared.events.decisions import Positions
from shared.events.objects import (
    CheckState,
    Cohort,
    Container,
    LimitItem,
    LimitRange,
    Object,
    PodSet,
    RuntimeClass,
    Topology,
    Workload,
    WorkloadPriorityClass,
)
from shared.events.outcomes import CommandOutcome
from shared.state.open_commands import CommandWriter
from tests.unit.queue_manager.objects import (
    IN_USE,
    Stream,
    check,
    cluster_queue,
    condition,
    flavor,
    local_queue,
    namespace,
    pending,
    reserved,
    rules,
    workload,
)


class Manager:
    """The service without its loop: put objects, let time pass, see the commands."""

    def __init__(
        self, *objects: Object, now: float = 1000.0, gates: dict[str, bool] | None = None, **settings: Any
    ) -> None:
        judge = QueueJudge(QueueManagerSettings(**settings), Configured(gates=resolve(gates or {})))
        self.writer = CommandWriter("queue_manager", judge, CollectorRegistry(), leads=True)
        self.stream = Stream()
        self.now = now
        self.writer.fold([Reset(1, "")], now)
        for object_ in objects:
            self.writer.fold([self.stream.put(object_)], now)
        self.writer.fold([CaughtUp(Positions(epoch=1))], now)

    def step(self, now: float | None = None) -> list[Command]:
        self.now = self.now if now is None else now
        commands: list[Command] = []
        while (due := self.writer.agenda.next) is not None and due <= self.now:
            commands += self.writer.step(self.now)
        return commands

    def put(self, object_: Object, **changes: Any) -> list[Command]:
        self.writer.fold([self.stream.put(object_, **changes)], self.now)
        return self.step()

    def gone(self, object_: Object) -> list[Command]:
        self.writer.fold([self.stream.gone(object_)], self.now)
        return self.step()

    def settle(self, command: Command, status: Any = "applied", version: int = 0) -> list[Command]:
        outcome = CommandOutcome(command=command.id, subject="", status=status, version=version)
        self.writer.fold([Settled(outcome, 1)], self.now)
        return self.step()


BASE: tuple[Object, ...] = (namespace(), flavor(), cluster_queue(), local_queue())


def about(commands: Sequence[Command], kind: str) -> list[Command]:
    return [c for c in commands if c.kind == kind]


def of_workload(commands: Sequence[Command]) -> list[Command]:
    return about(commands, "workload")


def statuses(commands: Sequence[Command]) -> dict[str, SetQueueStatus]:
    return {c.key: c for c in commands if isinstance(c, SetQueueStatus)}


# --- requests that the namespace or the cluster has a say in ---------------------------------------------------------


def limits(most: str) -> LimitRange:
    item = LimitItem(type="Container", max={"cpu": most})
    return LimitRange(namespace="ns", name="limits", uid="limits-uid", version=1, items=(item,))


def told(commands: Sequence[Command]) -> list[tuple[str, str]]:
    return [(c.name, c.reason) for c in of_workload(commands) if isinstance(c, ReportPending)]


def test_a_workload_beyond_its_limit_range_is_told_so_until_the_limits_are_raised() -> None:
    waiting = workload("w")
    manager = Manager(*BASE, pending(waiting, "WaitingForQuota"), reserved(workload("x"), admitted=True))
    manager.step()
    (report,) = of_workload(manager.put(limits("500m")))
    assert isinstance(report, ReportPending)
    assert (report.name, report.reason) == ("w", "Misconfigured")
    assert "LimitRange of the namespace for cpu" in report.message
    manager.put(pending(waiting, "Misconfigured"))
    manager.settle(report, version=manager.stream.position)
    assert told(manager.put(limits("2"))) == [("w", "PendingEvaluation")]


def test_the_deletion_of_limits_and_the_overhead_of_a_class_tell_too() -> None:
    pod_set = PodSet(count=1, containers=(Container(requests={"cpu": "1"}),), runtime_class="kata")
    refused = pending(workload("w", pod_sets=(pod_set,)), "Misconfigured")
    of_pods = LimitRange(
        namespace="ns", name="limits", uid="u", version=1, items=(LimitItem(type="Pod", max={"cpu": "1"}),)
    )
    manager = Manager(*BASE, of_pods, RuntimeClass(name="kata", uid="k", version=1, overhead={"cpu": "1"}), refused)
    assert told(manager.step()) == []
    (report,) = of_workload(manager.put(RuntimeClass(name="kata", uid="k", version=1)))
    assert isinstance(report, ReportPending)
    assert report.reason == "PendingEvaluation"


# --- status ---------------------------------------------------------------------------------------------------------


def test_queues_say_what_waits_holds_and_runs() -> None:
    manager = Manager(
        *BASE,
        pending(workload("waiting")),
        reserved(workload("holding", checks=(CheckState(name="check"),)), cpu=2000),
        reserved(workload("running"), cpu=500, admitted=True),
    )
    found = statuses(manager.step())
    cq, lq = found["cq"], found["ns/lq"]
    assert (cq.pending, cq.reserving, cq.admitted) == (1, 2, 1)
    assert cq.reservation.rows == (("default", "cpu", 2500, 0),)
    assert cq.usage.rows == (("default", "cpu", 500, 0),)
    assert (lq.pending, lq.reserving, lq.admitted) == (1, 2, 1)
    assert (cq.active.status, cq.active.reason, lq.active.reason) == (True, "Ready", "Ready")


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ((cluster_queue(stop_policy="Hold"), flavor()), "Stopped"),
        ((cluster_queue(),), "FlavorNotFound"),
        ((cluster_queue(checks=rules("check")), flavor()), "AdmissionCheckNotFound"),
        ((cluster_queue(checks=rules("check")), flavor(), check(active=False)), "AdmissionCheckInactive"),
        ((cluster_queue(), flavor(topology="absent")), "TopologyNotFound"),
        ((cluster_queue(stop_policy="Hold"),), "Stopped"),
    ],
)
def test_inactive_queues_say_why(objects: tuple[Object, ...], reason: str) -> None:
    found = statuses(Manager(namespace(), local_queue(), *objects).step())
    assert (found["cq"].active.status, found["cq"].active.reason) == (False, reason)
    assert found["ns/lq"].active.reason == "ClusterQueueIsInactive"


def test_a_local_queue_without_its_cluster_queue_says_so() -> None:
    found = statuses(Manager(local_queue()).step())
    assert found["ns/lq"].active.reason == "ClusterQueueDoesNotExist"


def settled_manager(*extra: Object, **settings: Any) -> Manager:
    """A manager whose queues carry their status already."""
    manager = Manager(*BASE, *extra, **settings)
    for command in manager.step():
        assert isinstance(command, SetQueueStatus)
        queue = cluster_queue() if command.kind == "clusterqueue" else local_queue()
        manager.put(
            queue,
            status_pending=command.pending,
            status_reserving=command.reserving,
            status_admitted=command.admitted,
            status_reservation=command.reservation,
            status_usage=command.usage,
            conditions=(command.active,),
        )
        manager.settle(command, version=manager.stream.position)
    assert manager.step() == []
    return manager


def test_numbers_are_written_at_most_once_a_second_and_the_last_ones_win() -> None:
    manager = settled_manager()
    assert statuses(manager.put(pending(workload("a")))) == {}
    assert statuses(manager.put(pending(workload("b")))) == {}
    assert manager.step(1000.9) == []
    found = statuses(manager.step(1001.0))
    assert {key: command.pending for key, command in found.items()} == {"cq": 2, "ns/lq": 2}


def test_after_a_quiet_second_numbers_go_at_once() -> None:
    manager = settled_manager()
    manager.step(1005.0)
    found = statuses(manager.put(pending(workload())))
    assert {key: command.pending for key, command in found.items()} == {"cq": 1, "ns/lq": 1}


def test_numbers_of_all_queues_together_keep_to_a_rate_and_none_is_forgotten() -> None:
    manager = settled_manager(status_per_s=1.0, status_burst=1)
    manager.step(1005.0)
    assert len(statuses(manager.put(pending(workload())))) == 1
    assert statuses(manager.step(1005.9)) == {}
    second = statuses(manager.step(1006.1))
    assert len(second) == 1
    # What opens or closes does not wait for it.
    assert {"cq", "ns/lq"} == set(statuses(manager.gone(flavor())))


def test_a_change_of_activity_does_not_wait() -> None:
    manager = settled_manager()
    found = statuses(manager.gone(flavor()))
    assert found["cq"].active.reason == "FlavorNotFound"
    assert found["ns/lq"].active.reason == "ClusterQueueIsInactive"


def test_the_status_is_not_asked_for_twice() -> None:
    manager = Manager(*BASE)
    first = statuses(manager.step())
    assert set(first) == {"cq", "ns/lq"}
    assert statuses(manager.put(flavor(), node_labels={"a": "b"})) == {}
    assert statuses(manager.step(1030.0)) == {}
    assert set(statuses(manager.step(1060.0))) == {"cq", "ns/lq"}


# --- finalizers -----------------------------------------------------------------------------------------------------


def finalizers(commands: Sequence[Command]) -> list[tuple[str, str, bool]]:
    return sorted((c.kind, c.key, c.present) for c in commands if isinstance(c, SetFinalizer))


def test_what_may_be_used_gets_its_finalizer() -> None:
    topology = Topology(name="topo", uid="t", version=1)
    commands = Manager(cluster_queue(finalizers=()), flavor(finalizers=()), check(finalizers=()), topology).step()
    assert finalizers(commands) == [
        ("admissioncheck", "check", True),
        ("clusterqueue", "cq", True),
        ("resourceflavor", "default", True),
        ("topology", "topo", True),
    ]


def test_a_cluster_queue_goes_when_nothing_holds_its_quota() -> None:
    running = reserved(workload(), admitted=True)
    manager = Manager(*BASE, running)
    manager.step()
    commands = manager.put(cluster_queue(), deleting=True)
    assert finalizers(commands) == []
    assert statuses(commands)["cq"].active.reason == "Terminating"
    commands = manager.put(running, finished=True, admission=None)
    assert finalizers(commands) == [("clusterqueue", "cq", False)]
    assert "cq" not in statuses(commands)


def test_an_idle_cluster_queue_goes_at_once() -> None:
    manager = Manager(*BASE)
    manager.step()
    assert finalizers(manager.put(cluster_queue(), deleting=True)) == [("clusterqueue", "cq", False)]


def test_flavors_and_checks_go_with_the_last_queue_that_names_them() -> None:
    queue = cluster_queue(checks=rules("check"))
    manager = Manager(namespace(), flavor(), check(), queue)
    manager.step()
    assert finalizers(manager.put(flavor(), deleting=True)) == []
    assert finalizers(manager.put(check(), deleting=True)) == []
    assert finalizers(manager.put(queue, generation=2, checks=())) == [("admissioncheck", "check", False)]
    assert finalizers(manager.gone(queue)) == [("resourceflavor", "default", False)]


def test_a_topology_goes_with_the_last_flavor_that_names_it() -> None:
    topology = Topology(name="topo", uid="t", version=1, finalizers=IN_USE)
    manager = Manager(topology, flavor(topology="topo"))
    manager.step()
    assert finalizers(manager.put(topology, deleting=True)) == []
    assert finalizers(manager.gone(flavor(topology="topo"))) == [("topology", "topo", False)]


def test_a_flavor_that_comes_back_is_guarded_again() -> None:
    manager = Manager(flavor())
    manager.step()
    manager.gone(flavor())
    assert finalizers(manager.put(flavor(), uid="new", finalizers=())) == [("resourceflavor", "default", True)]


# --- workloads ------------------------------------------------------------------------------------------------------


def requeued(reason: str) -> Workload:
    return pending(workload(conditions=(condition(names.REQUEUED, False, reason),)))


@pytest.mark.parametrize(
    ("reason", "wanted"),
    [
        ("Deactivated", "Reactivated"),
        ("DeactivatedDueToAdmissionCheck", "Reactivated"),
        ("PodsReadyTimeout", "BackoffFinished"),
        ("AdmissionCheck", "BackoffFinished"),
        ("LocalQueueStopped", "LocalQueueRestarted"),
        ("ClusterQueueStopped", "ClusterQueueRestarted"),
    ],
)
def test_what_kept_a_workload_out_is_over(reason: str, wanted: str) -> None:
    (command,) = of_workload(Manager(*BASE, requeued(reason)).step())
    assert isinstance(command, MarkRequeued)
    assert (command.reason, command.incarnation, command.uid) == (wanted, "wl-inc", "wl-uid")


@pytest.mark.parametrize("reason", ["Deactivated", "DeactivatedDueToAdmissionCheck"])
def test_what_is_deactivated_stays_out_until_its_user_says_otherwise(reason: str) -> None:
    off = msgspec.structs.replace(
        pending(
            workload(conditions=(condition(names.REQUEUED, False, reason), condition(names.EVICTED, True, reason))),
            "Deactivated",
        ),
        active=False,
    )
    manager = Manager(*BASE, off)
    assert of_workload(manager.step()) == []
    (command,) = of_workload(manager.put(off, active=True, incarnation="on"))
    assert isinstance(command, MarkRequeued)
    assert command.reason == "Reactivated"


def test_a_stopped_queue_keeps_its_workloads_out_until_it_is_open_again() -> None:
    stopped = cluster_queue(stop_policy="HoldAndDrain")
    out = msgspec.structs.replace(workload(), conditions=(condition(names.REQUEUED, False, "ClusterQueueStopped"),))
    manager = Manager(namespace(), flavor(), stopped, local_queue(), pending(out, "Suspended"))
    assert of_workload(manager.step()) == []
    (command,) = of_workload(manager.put(cluster_queue(), generation=2))
    assert isinstance(command, MarkRequeued)
    assert command.reason == "ClusterQueueRestarted"


def test_the_end_of_a_backoff_comes_by_itself() -> None:
    waiting = pending(workload(conditions=(condition(names.REQUEUED, False, "PodsReadyTimeout"),)))
    waiting = msgspec.structs.replace(waiting, requeue_at=1060, has_requeue_state=True, requeue_count=1)
    manager = Manager(*BASE, waiting)
    assert of_workload(manager.step()) == []
    assert of_workload(manager.step(1059.0)) == []
    (command,) = of_workload(manager.step(1060.0))
    assert isinstance(command, MarkRequeued)
    assert (command.reason, command.clear_requeue_at) == ("BackoffFinished", True)


def test_an_expired_time_alone_is_cleared() -> None:
    waiting = pending(workload(requeue_at=900, has_requeue_state=True))
    (command,) = of_workload(Manager(*BASE, waiting).step())
    assert isinstance(command, SetRequeueAt)
    assert (command.at, command.clear_state) == (None, False)


def test_a_check_that_asks_for_a_later_retry_moves_the_time() -> None:
    retry = CheckState(name="check", state="Retry", changed=990, requeue_after_s=60)
    wl = reserved(workload(checks=(retry,)))
    queue = cluster_queue(checks=rules("check"))
    commands = Manager(namespace(), flavor(), check(), queue, local_queue(), wl).step()
    (command,) = of_workload(commands)
    assert isinstance(command, SetRequeueAt)
    assert command.at == 1050


def test_the_list_of_checks_follows_the_queue() -> None:
    queue = cluster_queue(checks=rules("b", "a"))
    objects = (namespace(), flavor(), check("a"), check("b"), local_queue())
    manager = Manager(*objects, queue, pending(workload()))
    (command,) = of_workload(manager.step())
    assert isinstance(command, SyncChecks)
    assert command.checks == ("a", "b")
    listed = pending(workload(checks=(CheckState(name="a"), CheckState(name="b"))))
    assert of_workload(manager.put(listed)) == []
    (command,) = of_workload(manager.put(queue, generation=2, checks=rules("b")))
    assert isinstance(command, SyncChecks)
    assert command.checks == ("b",)


def test_the_last_ready_check_admits() -> None:
    def with_states(*states: Any) -> Workload:
        checks = tuple(CheckState(name=name, state=state) for name, state in zip("ab", states, strict=True))
        base = reserved(workload(checks=checks))
        unsatisfied = condition(names.ADMITTED, False, "UnsatisfiedAdmissionChecks")
        return msgspec.structs.replace(base, conditions=(*base.conditions, unsatisfied))

    queue = cluster_queue(checks=rules("a", "b"))
    manager = Manager(
        namespace(), flavor(), check("a"), check("b"), queue, local_queue(), with_states("Ready", "Pending")
    )
    assert of_workload(manager.step()) == []
    (command,) = of_workload(manager.put(with_states("Ready", "Ready")))
    assert isinstance(command, SyncAdmitted)
    assert command.incarnation == "wl-inc"


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ((flavor(), cluster_queue()), "Misconfigured"),
        ((flavor(), local_queue()), "Misconfigured"),
        ((flavor(), cluster_queue(), local_queue(stop_policy="Hold")), "Suspended"),
        ((flavor(), cluster_queue(stop_policy="Hold"), local_queue()), "Suspended"),
        ((cluster_queue(), local_queue()), "Suspended"),
        ((flavor(), cluster_queue(namespace_selector=None), local_queue()), "Misconfigured"),
    ],
)
def test_a_pending_workload_says_what_is_wrong_with_its_queue(objects: tuple[Object, ...], reason: str) -> None:
    (command,) = of_workload(Manager(namespace(), *objects, pending(workload())).step())
    assert isinstance(command, ReportPending)
    assert (command.reason, command.event) == (reason, False)


def test_a_pending_workload_follows_its_queue_in_and_out_of_trouble() -> None:
    manager = Manager(*BASE, pending(workload()))
    assert of_workload(manager.step()) == []
    (command,) = of_workload(manager.gone(flavor()))
    assert isinstance(command, ReportPending)
    assert command.reason == "Suspended"
    assert of_workload(manager.put(pending(workload(), "Suspended"))) == []
    (command,) = of_workload(manager.put(flavor(), uid="new"))
    assert isinstance(command, ReportPending)
    assert command.reason == "PendingEvaluation"


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ((flavor(), cluster_queue()), "Misconfigured"),
        ((flavor(), cluster_queue(), local_queue(stop_policy="Hold")), "Suspended"),
        ((flavor(), cluster_queue(stop_policy="HoldAndDrain"), local_queue()), "Suspended"),
    ],
)
def test_a_reservation_that_is_not_admitted_goes_back_when_the_queue_stops(
    objects: tuple[Object, ...], reason: str
) -> None:
    wl = reserved(workload())
    unsatisfied = condition(names.ADMITTED, False, "UnsatisfiedAdmissionChecks")
    wl = msgspec.structs.replace(wl, conditions=(*wl.conditions, unsatisfied), checks=(CheckState(name="check"),))
    queues = [msgspec.structs.replace(o, checks=rules("check")) if o.name == "cq" else o for o in objects]
    (command,) = of_workload(Manager(namespace(), check(), *queues, wl).step())
    assert isinstance(command, Unreserve)
    assert command.reason == reason


def test_evictions_are_left_to_the_preemptor() -> None:
    running = reserved(workload(active=False), admitted=True)
    assert of_workload(Manager(*BASE, running).step()) == []


def test_a_class_value_reaches_its_workloads_when_it_changes() -> None:
    class_ = WorkloadPriorityClass(name="high", version=1, value=100)
    named = {"priority": 100, "priority_class": "high", "priority_class_source": "WorkloadPriorityClass"}
    manager = Manager(*BASE, class_, pending(workload("a", **named)), pending(workload("b")))
    assert of_workload(manager.step()) == []
    (command,) = of_workload(manager.put(class_, value=50))
    assert isinstance(command, SetPriority)
    assert (command.key, command.priority) == ("ns/a", 50)


def test_orphans_are_finished_and_released() -> None:
    orphan = pending(workload(owners=(), job_uid="job-uid"))
    (command,) = of_workload(Manager(*BASE, orphan).step())
    assert isinstance(command, FinishWorkload)
    assert command.reason == "OwnerNotFound"
    assert of_workload(Manager(*BASE, orphan, finish_orphans=False).step()) == []
    assert of_workload(Manager(*BASE, orphan, gates={"FinishOrphanedWorkloads": False}).step()) == []
    own = pending(workload(owners=()))
    assert of_workload(Manager(*BASE, own).step()) == []


@pytest.mark.parametrize(
    ("changes", "released"),
    [
        ({"owners": ()}, True),
        ({"owners": (), "finalizers": ()}, False),
        ({"finished": True}, True),
        ({}, False),
    ],
)
def test_a_deleted_workload_without_a_keeper_is_let_go(changes: dict[str, Any], released: bool) -> None:
    wl = pending(workload(**{"deleting": True, "finalizers": IN_USE, **changes}))
    commands = Manager(*BASE, wl).step()
    assert finalizers(commands) == ([("workload", "ns/wl", False)] if released else [])


def test_finished_workloads_are_left_alone() -> None:
    assert of_workload(Manager(*BASE, workload(finished=True, active=False)).step()) == []


def test_a_step_is_asked_for_once_and_again_after_a_rejection() -> None:
    manager = Manager(*BASE, requeued("Deactivated"))
    (command,) = of_workload(manager.step())
    assert of_workload(manager.put(requeued("Deactivated"))) == []
    assert of_workload(manager.settle(command, "rejected")) == []
    (again,) = of_workload(manager.step(1001.0))
    assert isinstance(again, MarkRequeued)
    assert again.id != command.id


def test_cohorts_that_form_a_cycle_suspend_their_workloads() -> None:
    first, second = (Cohort(name=n, uid=n, version=1, generation=1, parent=p) for n, p in (("a", ""), ("b", "a")))
    queue = cluster_queue(cohort="b")
    manager = Manager(namespace(), flavor(), queue, local_queue(), first, second, pending(workload()))
    assert of_workload(manager.step()) == []
    (command,) = of_workload(manager.put(first, parent="b", generation=2))
    assert isinstance(command, ReportPending)
    assert command.reason == "Suspended"
