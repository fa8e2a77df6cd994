"""A workload's whole way through two attempts, with the service ended and started anew at every single point of it: the outcome is the same, and no request is
made twice or for nothing. What it asked for before its end may be carried out before, after, or not at all."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from services.provisioning_request.service import ProvisioningJudge
from services.provisioning_request.settings import ProvisioningSettings
from shared.bus.interface import CaughtUp, FeedItem, ObjectChanged, Reset, Settled
from shared.events.commands import (
    Command,
    CreateProvisioningRequest,
    DeleteProvisioningRequest,
    SetCheckState,
    subject_of,
)
from shared.events.decisions import Positions
from shared.events.objects import KINDS, Condition, Object, ProvisioningRequest, Tombstone, Workload
from shared.events.outcomes import CommandOutcome
from shared.events.subjects import ObjectName
from shared.state.open_commands import CommandWriter
from tests.unit.provisioning_request.objects import EVICTED, RESERVED, check, config, request, true, workload

Fate = Literal["before", "after", "lost"]
_KIND_OF = {type_: kind for kind, type_ in KINDS.items()}
ROUNDS = 40


class Cluster:
    """The objects, a gateway that carries out commands, an autoscaler that fails the first attempt, and one instance of the service at a time."""

    def __init__(self, restart_at: int, fate: Fate) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.position, self.now, self.restarts_in = 100, 1000.0, restart_at
        self.fate = fate
        self.made: Counter[str] = Counter()
        self.states: list[str] = []
        self.writer = self._writer()
        for one in (config(), check(), workload()):
            self._store(one)
        self._replay()

    def _writer(self) -> CommandWriter:
        return CommandWriter(
            "provisioning_request", ProvisioningJudge(ProvisioningSettings()), CollectorRegistry(), leads=True
        )

    def _item(self, one: Object) -> ObjectChanged:
        return ObjectChanged(ObjectName(_KIND_OF[type(one)], one.namespace, one.name), one, one.version)

    def _store(self, one: Object) -> ObjectChanged:
        self.position += 1
        one = msgspec.structs.replace(one, version=self.position)
        self.objects[_KIND_OF[type(one)], one.name] = one
        return self._item(one)

    def _fold(self, *items: FeedItem) -> None:
        self.writer.fold(items, self.now)

    def _replay(self) -> None:
        self._fold(Reset(1, ""), *map(self._item, self.objects.values()), CaughtUp(Positions(epoch=1)))

    def put(self, one: Object) -> None:
        self._fold(self._store(one))

    @property
    def workload(self) -> Workload:
        found = self.objects["workload", "wl"]
        assert isinstance(found, Workload)
        return found

    def requests(self) -> dict[str, ProvisioningRequest]:
        return {o.name: o for o in self.objects.values() if isinstance(o, ProvisioningRequest)}

    # --- one round ----------------------------------------------------------------------------------------------------

    def service(self) -> bool:
        """Let it do what it wants; whether it wanted anything."""
        commands = self.writer.step(self.now)
        if not commands:
            return False
        self.restarts_in -= 1
        dies = self.restarts_in == 0
        if dies and self.fate != "after":
            self.writer = self._writer()
            if self.fate == "before":
                self._carry_out(commands)
            self._replay()
            return True
        self._carry_out(commands)
        if dies:
            self.writer = self._writer()
            self._replay()
        return True

    def _carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            version = self._applied(command)
            outcome = CommandOutcome(
                command=command.id,
                subject=subject_of("provisioning_request", command),
                status="applied" if version else "rejected",
                version=version,
            )
            self._fold(Settled(outcome, 1))

    def _applied(self, command: Command) -> int:
        match command:
            case CreateProvisioningRequest():
                if command.name in self.requests():
                    return self.requests()[command.name].version
                self.made[command.name] += 1
                attempt = int(command.name.rpartition("-")[2])
                self.put(request(attempt))
            case DeleteProvisioningRequest():
                gone = self.objects.pop(("provisioningrequest", command.name), None)
                if gone is None or gone.uid != command.uid:
                    return 0
                self.position += 1
                name = ObjectName("provisioningrequest", "ns", command.name)
                tombstone = Tombstone(namespace="ns", name=command.name, uid=gone.uid, version=self.position)
                self._fold(ObjectChanged(name, tombstone, self.position))
            case SetCheckState():
                if command.incarnation != self.workload.incarnation:
                    return 0
                (state,) = self.workload.checks
                if state.state != command.state:
                    self.states.append(command.state)
                changed = msgspec.structs.replace(
                    state,
                    state=command.state,
                    message=command.message,
                    requeue_after_s=command.requeue_after_s,
                )
                self.put(msgspec.structs.replace(self.workload, checks=(changed,)))
            case _:
                raise AssertionError(command)
        return self.position

    def autoscaler(self) -> bool:
        for one in self.requests().values():
            if not one.conditions:
                failed = one.name.endswith("-1")
                said = true("Failed", "no room") if failed else true("Provisioned", "there it is")
                self.put(msgspec.structs.replace(one, conditions=(said,)))
                return True
        return False

    def others(self) -> bool:
        """Eviction by a check in Retry, release, and a new reservation."""
        found = self.workload
        (state,) = found.checks
        if state.state == "Retry":
            again = msgspec.structs.replace(
                state, state="Pending", message="reset", retry_count=(state.retry_count or 0) + 1
            )
            self._change(conditions=(RESERVED, EVICTED), checks=(again,), incarnation="evicted")
        elif EVICTED in found.conditions and found.admission is not None:
            self._change(conditions=(EVICTED,), admission=None, incarnation="released")
        elif found.admission is None:
            over = Condition("Evicted", False, "QuotaReserved")
            self._change(conditions=(RESERVED, over), admission=workload().admission, incarnation="again")
        else:
            return False
        return True

    def _change(self, **fields: Any) -> None:
        self.put(msgspec.structs.replace(self.workload, **fields))

    def run(self) -> None:
        for _ in range(ROUNDS):
            if self.service() or self.autoscaler() or self.others():
                continue
            due = self.writer.agenda.next
            if due is None or due > self.now + 3600:
                return
            self.now = max(due, self.now)
        raise AssertionError("it never ends")


def test_the_way_itself() -> None:
    cluster = Cluster(restart_at=0, fate="after")
    cluster.run()
    assert cluster.states == ["Retry", "Ready"]
    assert cluster.made == {"wl-prov-1": 1, "wl-prov-2": 1}
    assert cluster.restarts_in <= -5, "so many points there are to end it at"


@pytest.mark.parametrize("fate", ["before", "after", "lost"])
@pytest.mark.parametrize("point", range(1, 8))
def test_wherever_it_ends_and_starts_anew(point: int, fate: Fate) -> None:
    cluster = Cluster(point, fate)
    cluster.run()
    (state,) = cluster.workload.checks
    assert (state.state, state.message) == ("Ready", "there it is")
    assert list(cluster.requests()) == ["wl-prov-2"]
    assert cluster.made == {"wl-prov-1": 1, "wl-prov-2": 1}
    assert cluster.states == ["Retry", "Ready"]
