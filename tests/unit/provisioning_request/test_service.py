"""provisioning_request over a view: what each change leads to, once, and what further instances do."""

from __future__ import annotations

from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from services.provisioning_request.service import ProvisioningJudge
from services.provisioning_request.settings import ProvisioningSettings
from shared.api import names
from shared.bus.interface import CaughtUp, ObjectChanged, Reset, Settled
from shared.events.commands import (
    Command,
    CreateProvisioningRequest,
    DeleteProvisioningRequest,
    SetCheckActive,
    SetCheckState,
    subject_of,
)
from shared.events.decisions import Positions
from shared.events.objects import KINDS, CheckState, Object, ProvisioningRequest, Tombstone, Workload
from shared.events.outcomes import CommandOutcome
from shared.events.subjects import ObjectName
from shared.state.open_commands import CommandWriter
from tests.unit.provisioning_request.objects import (
    EVICTED,
    RESERVED,
    check,
    config,
    request,
    true,
    workload,
)

_KIND_OF = {type_: kind for kind, type_ in KINDS.items()}


class Provisioning:
    """The service without its loop."""

    def __init__(self, *objects: Object, first: bool = True, **settings: Any) -> None:
        self.first = first
        judge = ProvisioningJudge(ProvisioningSettings(**settings), goes_first=lambda: self.first)
        self.writer = CommandWriter("provisioning_request", judge, CollectorRegistry(), leads=True)
        self.position = 100
        self.now = 1000.0
        changes = [self.change(o) for o in objects]
        self.writer.fold([Reset(1, ""), *changes, CaughtUp(Positions(epoch=1))], self.now)

    def change(self, object_: Object, **fields: Any) -> ObjectChanged:
        self.position += 1
        new = msgspec.structs.replace(object_, **{"version": self.position, **fields})
        return ObjectChanged(ObjectName(_KIND_OF[type(new)], new.namespace, new.name), new, self.position)

    def step(self, now: float | None = None) -> list[Command]:
        self.now = self.now if now is None else now
        return self.writer.step(self.now)

    def put(self, object_: Object, **fields: Any) -> list[Command]:
        self.writer.fold([self.change(object_, **fields)], self.now)
        return self.step()

    def gone(self, object_: Object) -> list[Command]:
        self.position += 1
        name = ObjectName(_KIND_OF[type(object_)], object_.namespace, object_.name)
        tombstone = Tombstone(namespace=object_.namespace, name=object_.name, uid=object_.uid, version=self.position)
        self.writer.fold([ObjectChanged(name, tombstone, self.position)], self.now)
        return self.step()

    def settle(self, command: Command, status: Any = "applied", version: int = 0, why: str = "") -> list[Command]:
        subject = subject_of("provisioning_request", command)
        outcome = CommandOutcome(command=command.id, subject=subject, status=status, version=version, why=why)
        self.writer.fold([Settled(outcome, 1)], self.now)
        return self.step()


def kinds(commands: list[Command]) -> list[str]:
    return sorted(type(command).__name__ for command in commands)


def test_a_check_is_active_with_its_configuration_and_not_without() -> None:
    service = Provisioning(config(), check(active=None))
    (command,) = service.step()
    assert isinstance(command, SetCheckActive)
    assert command.active.status
    assert service.put(check(active=command.active)) == []
    service.settle(command, version=service.position)
    (command,) = service.gone(config())
    assert isinstance(command, SetCheckActive)
    assert (command.active.status, command.active.reason) == (False, "BadParametersRef")
    assert service.put(config()) == []


def test_checks_of_other_controllers_are_left_alone() -> None:
    other = check(controller="example.com/other", active=None)
    service = Provisioning(config(), other, workload())
    assert service.step() == []
    assert service.put(workload(), checks=(CheckState(name="prov", state="Retry"),)) == []


def test_a_request_is_made_once() -> None:
    service = Provisioning(config(), check(), workload())
    (create,) = service.step()
    assert isinstance(create, CreateProvisioningRequest)
    assert service.put(workload(), annotations={"unrelated": "x"}) == []
    assert service.put(request(1)) == []
    assert service.settle(create, version=service.position) == []
    assert service.step(5000.0) == []


def test_the_request_may_come_before_or_after_the_answer() -> None:
    service = Provisioning(config(), check(), workload())
    (create,) = service.step()
    assert service.settle(create, version=200) == []
    assert service.put(workload(), annotations={"unrelated": "x"}) == []
    assert service.put(request(1), version=200) == []
    assert service.step(5000.0) == []


def test_a_refused_request_is_tried_again_after_a_pause() -> None:
    service = Provisioning(config(), check(), workload())
    (create,) = service.step()
    assert service.settle(create, "rejected", version=5) == []
    (again,) = service.step(1001.0)
    assert (again.name, again.id != create.id) == (create.name, True)


def test_the_whole_way_to_ready() -> None:
    service = Provisioning(config(), check(), workload())
    (create,) = service.step()
    service.put(request(1))
    service.settle(create, version=service.position)
    (ready,) = service.put(request(1, true("Provisioned", "there it is")))
    assert isinstance(ready, SetCheckState)
    assert (ready.state, ready.message, len(ready.pod_set_updates)) == ("Ready", "there it is", 1)
    assert service.put(workload(checks=[CheckState(name="prov", state="Ready", message="there it is")])) == []
    assert service.settle(ready, version=service.position) == []


def test_failure_eviction_and_the_next_attempt() -> None:
    service = Provisioning(config(), check(), workload(), request(1))
    assert service.step() == []
    (retry,) = service.put(request(1, true("Failed", "no room")))
    assert isinstance(retry, SetCheckState)
    assert (retry.state, retry.requeue_after_s) == ("Retry", 60)
    evicted = workload(conditions=(RESERVED, EVICTED), checks=[CheckState(name="prov", retry_count=1)])
    (delete,) = service.put(evicted)
    assert isinstance(delete, DeleteProvisioningRequest)
    assert service.gone(request(1)) == []
    assert service.put(workload(conditions=(EVICTED,), admission=None, checks=evicted.checks)) == []
    (create,) = service.put(workload(checks=evicted.checks, incarnation="again"))
    assert create.name == "wl-prov-2"


def test_the_end_of_a_workload_cleans_up() -> None:
    service = Provisioning(config(), check(), workload(), request(1))
    assert service.step() == []
    stub = Workload(namespace="ns", name="wl", uid="wl-uid", version=1, finished=True)
    assert [c.name for c in service.put(stub)] == ["wl-prov-1"]


def test_requests_of_an_earlier_workload_of_that_name_do_not_count() -> None:
    service = Provisioning(config(), check(), workload(uid="new-uid"), request(1))
    assert kinds(service.step()) == ["CreateProvisioningRequest"]


def test_a_changed_configuration_reaches_the_workloads_of_its_checks() -> None:
    service = Provisioning(config(), check(), workload(), request(1))
    assert service.step() == []
    commands = service.put(config(), class_name="other-class")
    assert kinds(commands) == ["CreateProvisioningRequest", "DeleteProvisioningRequest"]


def test_a_check_that_stops_working_makes_workloads_wait() -> None:
    service = Provisioning(config(), check(), workload(), request(1))
    assert service.step() == []
    inactive = msgspec.structs.replace(true(names.ACTIVE), status=False)
    commands = service.put(check(active=inactive))
    assert kinds(commands) == ["DeleteProvisioningRequest", "SetCheckActive", "SetCheckState"]


def test_a_workload_that_is_gone_wants_nothing() -> None:
    service = Provisioning(config(), check(), workload(), request(1, true("Failed")))
    service.writer.fold([service.change(workload())], 1000.0)
    assert len(service.step()) == 1
    assert service.gone(workload()) == []
    assert service.gone(request(1)) == []
    assert service.step(5000.0) == []


def test_a_further_instance_leaves_the_first_the_time_to_act() -> None:
    service = Provisioning(config(), check(), workload(), first=False, stagger_s=2.0)
    assert service.step() == []
    assert service.step(1001.9) == []
    assert len(service.step(1002.0)) == 1


def test_who_becomes_the_first_waits_for_nobody() -> None:
    service = Provisioning(config(), check(), workload(), first=False, stagger_s=2.0)
    assert service.step() == []
    service.first = True
    service.writer.fold([service.change(workload())], 1000.5)
    assert len(service.step(1000.5)) == 1


def test_a_further_instance_finds_it_done() -> None:
    service = Provisioning(config(), check(), workload(), first=False, stagger_s=2.0)
    assert service.step() == []
    assert service.put(request(1)) == []
    assert service.step(1002.0) == []
    failed: ProvisioningRequest = request(1, true("Failed"))
    service.writer.fold([service.change(failed)], 1003.0)
    assert service.step(1003.0) == []
    assert kinds(service.step(1005.0)) == ["SetCheckState"]


NOT_MADE = 'Error creating ProvisioningRequest "wl-prov-1": no such class'


def test_why_a_request_could_not_be_made_stands_on_the_check_until_it_is_made() -> None:
    service = Provisioning(config(), check(), workload())
    (create,) = service.step()
    (told,) = service.settle(create, "rejected", version=5, why=NOT_MADE)
    assert isinstance(told, SetCheckState)
    assert (told.check, told.state, told.message) == ("prov", "Pending", NOT_MADE)
    says_so = (CheckState(name="prov", state="Pending", message=NOT_MADE),)
    assert service.put(workload(), checks=says_so) == []
    service.settle(told, version=service.position)
    (again,) = service.step(1001.0)
    assert isinstance(again, CreateProvisioningRequest)
    assert service.settle(again, "rejected", version=5, why=NOT_MADE) == []
    (made,) = service.step(1010.0)
    assert isinstance(made, CreateProvisioningRequest)
    service.settle(made, version=service.position + 1)
    (cleared,) = service.put(request(1))
    assert isinstance(cleared, SetCheckState)
    assert (cleared.state, cleared.message) == ("Pending", "")


def test_other_rejections_are_no_news_for_the_check() -> None:
    service = Provisioning(config(), check(), workload())
    (create,) = service.step()
    assert service.settle(create, "rejected", version=5, why="the workload holds no quota") == []


def test_a_restart_in_between_asks_again_and_tells_again() -> None:
    says_so = (CheckState(name="prov", state="Pending", message=NOT_MADE),)
    service = Provisioning(config(), check(), workload(checks=says_so))
    (create,) = service.step()
    assert isinstance(create, CreateProvisioningRequest)
    other = NOT_MADE.replace("class", "thing")
    (told,) = service.settle(create, "rejected", version=5, why=other)
    assert isinstance(told, SetCheckState)
    assert told.message == other


def test_without_the_api_a_check_says_so_and_becomes_active_when_it_is_there() -> None:
    service = Provisioning(config(), check(active=None))
    (active,) = service.step()
    (not_served,) = service.settle(active, "rejected", version=service.position, why=names.PROVISIONING_NOT_SERVED)
    assert isinstance(not_served, SetCheckActive)
    said = not_served.active
    assert (said.status, said.reason, said.message) == (
        False,
        "ProvisioningRequestNotServed",
        names.PROVISIONING_NOT_SERVED,
    )
    assert service.put(check(active=said)) == []
    service.settle(not_served, version=service.position)
    assert service.step(1004.0) == []
    (again,) = service.step(1005.0)
    assert isinstance(again, SetCheckActive)
    assert again.active.status
    # Still not: it says so already.
    assert service.settle(again, "rejected", version=service.position, why=names.PROVISIONING_NOT_SERVED) == []
    (later,) = service.step(1020.0)
    assert isinstance(later, SetCheckActive)
    assert later.active.status
    assert service.put(check(active=later.active)) == []


def test_a_bad_reference_is_told_before_a_missing_api() -> None:
    service = Provisioning(check(active=None))
    (bad,) = service.step()
    assert isinstance(bad, SetCheckActive)
    assert bad.active.reason == "BadParametersRef"
