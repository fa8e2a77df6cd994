"""The timelines of core spec A.12, written by queue_manager and preemptor together through what the gateway makes of their commands.

Each service sees every state; the job stops as soon as its workload is evicted. No timeline ever goes on by itself: in the end nobody wants anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from services.preemptor.service import PreemptorJudge
from services.preemptor.settings import PreemptorSettings
from services.queue_manager.service import QueueJudge
from services.queue_manager.settings import QueueManagerSettings
from services.watcher.commands_workload import plan
from services.watcher.patches import Refusal
from services.watcher.projections_workload import project_workload
from shared.api import conditions as conds
from shared.api.meta import ObjectMeta, OwnerReference
from shared.api.pods import Container, PodSpec, PodTemplateSpec, ResourceRequirements
from shared.api.workload import PodSet, Workload, WorkloadSpec
from shared.api.workload_status import Admission, PodSetAssignment, WorkloadStatus
from shared.bus.interface import CaughtUp, ObjectChanged, Reset, Settled
from shared.config.configuration import Configured
from shared.config.feature_gates import resolve
from shared.decide import transitions
from shared.decide.lifecycle_limits import PodsReadyLimits
from shared.events import commands as c
from shared.events.decisions import Positions
from shared.events.objects import ClusterQueue, Object
from shared.events.outcomes import CommandOutcome
from shared.events.subjects import ObjectName
from shared.state.open_commands import CommandWriter
from tests.unit.queue_manager.objects import Stream, check, cluster_queue, flavor, local_queue, namespace, rules

START = 1_000_000.0
MOST_ROUNDS = 60
NOTHING_CONFIGURED = Configured()


class World:
    """One workload `ns/wl` with a job, two services, and the gateway's part played by its own planner."""

    def __init__(
        self,
        *,
        checks: tuple[str, ...] = (),
        reserved: bool = True,
        pods_ready: PodsReadyLimits | None = None,
        configured: Configured = NOTHING_CONFIGURED,
        forget: bool = True,
    ) -> None:
        self.now = START
        self.stream = Stream()
        self.queue = cluster_queue(checks=rules(*checks))
        self.log: list[str] = []
        self.sent: list[c.Command] = []
        registry = CollectorRegistry()
        self.writers = (
            CommandWriter(
                "queue_manager", QueueJudge(QueueManagerSettings(), configured), CollectorRegistry(), leads=True
            ),
            CommandWriter(
                "preemptor",
                PreemptorJudge(PreemptorSettings(), registry, pods_ready=pods_ready),
                registry,
                leads=True,
            ),
        )
        template = PodTemplateSpec(
            spec=PodSpec(containers=(Container(name="c", resources=ResourceRequirements(requests={"cpu": "1"})),))
        )
        self.workload = Workload(
            metadata=ObjectMeta(
                namespace="ns",
                name="wl",
                uid="wl-uid",
                generation=1,
                owner_references=(OwnerReference(api_version="batch/v1", kind="Job", name="job", controller=True),),
            ),
            spec=WorkloadSpec(queue_name="lq", pod_sets=(PodSet(name="main", count=1, template=template),)),
        )
        objects: tuple[Object, ...] = (namespace(), flavor(), *(check(name) for name in checks), local_queue())
        for writer in self.writers:
            writer.fold([Reset(1, ""), *(self.stream.put(o) for o in (*objects, self.queue))], self.now)
        self._publish()
        for writer in self.writers:
            writer.fold([CaughtUp(Positions(epoch=1))], self.now)
        self.run()
        if reserved:
            self.reserve()
            self.run()
        if forget:
            self.log.clear()
            self.sent.clear()

    # --- what others do --------------------------------------------------------------------------------------------

    def reserve(self) -> None:
        assignment = PodSetAssignment(name="main", count=1, flavors={"cpu": "default"}, resource_usage={"cpu": "1"})
        admission = Admission(cluster_queue="cq", pod_set_assignments=(assignment,))
        required = [rule.name for rule in self.queue.checks]
        status = transitions.reserve(
            self.workload.status,
            admission=admission,
            required_checks=required,
            now=self.moment,
            generation=self.workload.metadata.generation,
        )
        self.write(status)

    def answer(self, name: str, state: Any, requeue_after_s: int | None = None) -> None:
        status = transitions.set_check(
            self.workload.status, name, state, f"{name} says {state}", self.moment, requeue_after_s=requeue_after_s
        )
        self.write(status)

    def edit(self, **spec: Any) -> None:
        metadata = msgspec.structs.replace(self.workload.metadata, generation=self.workload.metadata.generation + 1)
        new = msgspec.structs.replace(self.workload.spec, **spec)
        self.workload = msgspec.structs.replace(self.workload, metadata=metadata, spec=new)
        self.log += [f"{key}={value}" for key, value in spec.items()]
        self._publish()

    def change_queue(self, **fields: Any) -> None:
        self.queue = msgspec.structs.replace(self.queue, generation=self.queue.generation + 1, **fields)
        for writer in self.writers:
            writer.fold([self.stream.put(self.queue)], self.now)

    def stop_job(self) -> None:
        status = self.workload.status
        evicted = transitions.release(status, self.moment, self.workload.metadata.generation)
        if transitions.is_reserved(status) and evicted != status:
            self.write(evicted)

    # --- the machine -----------------------------------------------------------------------------------------------

    @property
    def moment(self) -> datetime:
        return datetime.fromtimestamp(self.now, UTC)

    def write(self, status: WorkloadStatus) -> None:
        before = {x.type: x for x in self.workload.status.conditions}
        for x in status.conditions:
            old = before.get(x.type)
            if old is None or (old.status, old.reason) != (x.status, x.reason):
                self.log.append(f"{x.type} {x.status[0]}/{x.reason}")
        for type_ in before.keys() - {x.type for x in status.conditions}:
            self.log.append(f"{type_} removed")
        self.workload = msgspec.structs.replace(self.workload, status=status)
        self._publish()

    def _publish(self) -> None:
        self.stream.position += 1
        metadata = msgspec.structs.replace(self.workload.metadata, resource_version=str(self.stream.position))
        self.workload = msgspec.structs.replace(self.workload, metadata=metadata)
        projection = project_workload(self.workload)
        item = ObjectChanged(ObjectName("workload", "ns", "wl"), projection, self.stream.position)
        for writer in self.writers:
            writer.fold([item], self.now)

    def run(self, until: float | None = None) -> None:
        """Until nobody wants anything before `until` (or now)."""
        for _ in range(MOST_ROUNDS):
            for writer in self.writers:
                for command in writer.step(self.now):
                    self._carry_out(writer, command)
            self.stop_job()
            due = min((w.agenda.next for w in self.writers if w.agenda.next is not None), default=None)
            if due is not None and due <= self.now:
                continue
            if until is None or due is None or due > until:
                self.now = until if until is not None else self.now
                return
            self.now = due
        raise AssertionError(f"it never ends: {self.log[-10:]}, {self.sent[-5:]}")

    def _carry_out(self, writer: CommandWriter, command: c.Command) -> None:
        if isinstance(command, c.SetQueueStatus):
            self._write_queue_status(writer, command)
            return
        self.sent.append(command)
        refused = False
        match command:
            case c.SetActive(active=active):
                self.edit(active=active)
            case c.SetFinalizer() | c.SetPriority() | c.SetCheckActive() | c.SetCohortStatus():
                raise AssertionError(command)
            case c.CreateProvisioningRequest() | c.DeleteProvisioningRequest():
                raise AssertionError(command)
            case _:
                planned = plan(command, self.workload, self.moment)
                refused = isinstance(planned, Refusal)
                if isinstance(planned, WorkloadStatus) and planned != self.workload.status:
                    self.write(planned)
        self._settle(writer, command, refused=refused)

    def _write_queue_status(self, writer: CommandWriter, command: c.SetQueueStatus) -> None:
        queue = self.queue if command.kind == "clusterqueue" else local_queue()
        changed = msgspec.structs.replace(
            queue,
            status_pending=command.pending,
            status_reserving=command.reserving,
            status_admitted=command.admitted,
            status_reservation=command.reservation,
            status_usage=command.usage,
            conditions=(command.active,),
        )
        if isinstance(changed, ClusterQueue):
            self.queue = changed
        for each in self.writers:
            each.fold([self.stream.put(changed)], self.now)
        self._settle(writer, command, refused=False)

    def _settle(self, writer: CommandWriter, command: c.Command, *, refused: bool) -> None:
        status: Any = "rejected" if refused else "applied"
        outcome = CommandOutcome(
            command=command.id, subject="", status=status, version=0 if refused else self.version_of(command)
        )
        writer.fold([Settled(outcome, 1)], self.now)

    def version_of(self, command: c.Command) -> int:
        return int(self.workload.metadata.resource_version) if command.kind == "workload" else self.stream.position


def sent(world: World) -> list[str]:
    return [type(command).__name__ for command in world.sent]


def only(entries: Iterable[str], *types: str) -> list[str]:
    return [entry for entry in entries if entry.split()[0].split("=")[0] in types]


def test_a_user_deactivates_and_reactivates() -> None:
    world = World()
    world.edit(active=False)
    world.run()
    assert world.log[:2] == ["active=False", "Evicted T/Deactivated"]
    assert set(world.log[2:-1]) == {
        "QuotaReserved F/PendingEvaluation",
        "Admitted F/NoReservation",
        "Requeued F/Deactivated",
    }
    assert world.log[-1] == "QuotaReserved F/Deactivated"
    world.log.clear()
    world.run(world.now + 3600)
    assert world.log == []
    world.edit(active=True)
    world.run()
    assert world.log[:2] == ["active=True", "Requeued T/Reactivated"]
    assert world.log[2:] == ["QuotaReserved F/PendingEvaluation"]


def test_a_queue_drains_and_opens_again() -> None:
    world = World()
    world.change_queue(stop_policy="HoldAndDrain")
    world.run(world.now + 10)
    assert only(world.log, "Evicted", "Requeued") == ["Evicted T/ClusterQueueStopped", "Requeued F/ClusterQueueStopped"]
    assert only(world.log, "QuotaReserved")[-1] == "QuotaReserved F/Suspended"
    world.log.clear()
    world.run(world.now + 3600)
    assert world.log == []
    world.change_queue(stop_policy="None")
    world.run(world.now + 10)
    assert world.log == ["Requeued T/ClusterQueueRestarted", "QuotaReserved F/PendingEvaluation"]


def test_a_queue_on_hold_lets_run_what_runs() -> None:
    world = World()
    world.change_queue(stop_policy="Hold")
    world.run(world.now + 3600)
    assert world.log == []


def test_one_admission_check() -> None:
    world = World(checks=("check",), reserved=False)
    assert [x.name for x in world.workload.status.admission_checks] == ["check"]
    world.reserve()
    world.run()
    assert world.log == ["QuotaReserved T/QuotaReserved", "Admitted F/UnsatisfiedAdmissionChecks"]
    world.answer("check", "Ready")
    world.run()
    assert world.log[2:] == ["Admitted T/Admitted"]
    assert sent(world) == ["SyncAdmitted"]


def test_a_check_asks_for_a_retry() -> None:
    world = World(checks=("check",))
    world.answer("check", "Retry")
    world.run()
    entries = only(world.log, "Evicted", "Requeued")
    assert entries == ["Evicted T/AdmissionCheck", "Requeued F/AdmissionCheck", "Requeued T/BackoffFinished"]
    (state,) = world.workload.status.admission_checks
    assert (state.state, state.retry_count) == ("Pending", 1)
    world.log.clear()
    world.run(world.now + 3600)
    assert world.log == []


def test_a_check_asks_for_a_later_retry() -> None:
    world = World(checks=("check",))
    world.answer("check", "Retry", requeue_after_s=60)
    world.run(START + 59)
    # Its quota is free at once; only the workload waits.
    assert only(world.log, "Evicted", "Requeued") == ["Evicted T/AdmissionCheck", "Requeued F/AdmissionCheck"]
    assert world.workload.status.requeue_state is not None
    world.run(START + 61)
    entries = only(world.log, "Evicted", "Requeued")
    assert entries == ["Evicted T/AdmissionCheck", "Requeued F/AdmissionCheck", "Requeued T/BackoffFinished"]
    state = world.workload.status.requeue_state
    assert state is None or state.requeue_at is None


def test_a_check_rejects() -> None:
    world = World(checks=("check",))
    world.answer("check", "Rejected")
    world.run()
    assert only(world.log, "DeactivationTarget", "active", "Evicted", "Requeued") == [
        "DeactivationTarget T/AdmissionCheck",
        "active=False",
        "Evicted T/DeactivatedDueToAdmissionCheck",
        "DeactivationTarget removed",
        "Requeued F/DeactivatedDueToAdmissionCheck",
    ]
    assert [x for x in sent(world) if x in ("SetDeactivationTarget", "SetActive", "Evict")] == [
        "SetDeactivationTarget",
        "SetActive",
        "Evict",
    ]
    assert world.workload.status.requeue_state is None
    world.log.clear()
    world.run(world.now + 3600)
    assert world.log == []


def test_pods_are_not_ready_in_time_again_and_again() -> None:
    """Each requeue waits twice as long; the one after the limit deactivates."""
    world = World(pods_ready=PodsReadyLimits(timeout_s=300, backoff_limit=2))
    for count, backoff_s in ((1, 60), (2, 120)):
        timeout = world.now + 300
        world.run(timeout - 1)
        assert world.log == []
        world.run(timeout)
        assert only(world.log, "Evicted", "Requeued") == ["Evicted T/PodsReadyTimeout", "Requeued F/PodsReadyTimeout"]
        state = world.workload.status.requeue_state
        assert state is not None
        assert (state.count, state.requeue_at) == (count, datetime.fromtimestamp(timeout + backoff_s, UTC))
        world.run(timeout + backoff_s - 1)
        assert only(world.log, "Requeued")[1:] == []
        world.run(timeout + backoff_s)
        assert only(world.log, "Requeued")[1:] == ["Requeued T/BackoffFinished"]
        state = world.workload.status.requeue_state
        assert state is not None
        assert (state.count, state.requeue_at) == (count, None)
        world.reserve()
        world.run()
        world.log.clear()
    world.run(world.now + 300)
    assert only(world.log, "DeactivationTarget", "active", "Evicted", "Requeued") == [
        "DeactivationTarget T/RequeuingLimitExceeded",
        "active=False",
        "Evicted T/DeactivatedDueToRequeuingLimitExceeded",
        "DeactivationTarget removed",
        "Requeued F/DeactivatedDueToRequeuingLimitExceeded",
    ]
    assert world.workload.status.requeue_state is None


def test_pods_that_are_ready_have_no_deadline() -> None:
    world = World(pods_ready=PodsReadyLimits(timeout_s=300, recovery_timeout_s=60))
    status = world.workload.status
    ready = conds.make("PodsReady", True, "Started", "", now=world.moment, observed_generation=1)
    world.write(msgspec.structs.replace(status, conditions=conds.set_condition(status.conditions, ready)))
    world.log.clear()
    world.run(world.now + 3600)
    assert world.log == []
    lost = conds.make("PodsReady", False, "WaitForRecovery", "", now=world.moment, observed_generation=1)
    status = world.workload.status
    world.write(msgspec.structs.replace(status, conditions=conds.set_condition(status.conditions, lost)))
    world.log.clear()
    world.run(world.now + 59)
    assert world.log == []
    world.run(world.now + 1)
    assert only(world.log, "Evicted") == ["Evicted T/PodsReadyTimeout"]
    stats = world.workload.status.scheduling_stats
    assert stats is not None
    assert [(one.reason, one.underlying_cause) for one in stats.evictions] == [("PodsReadyTimeout", "WaitForRecovery")]


def test_run_time_is_over() -> None:
    world = World()
    world.edit(maximum_execution_time_seconds=600)
    world.run(START + 599)
    assert only(world.log, "DeactivationTarget") == []
    world.run(START + 601)
    assert only(world.log, "DeactivationTarget", "active", "Evicted") == [
        "DeactivationTarget T/MaximumExecutionTimeExceeded",
        "active=False",
        "Evicted T/DeactivatedDueToMaximumExecutionTimeExceeded",
        "DeactivationTarget removed",
    ]


@pytest.mark.parametrize("checks", [(), ("a", "b")])
def test_what_is_well_is_left_alone(checks: tuple[str, ...]) -> None:
    world = World(checks=checks)
    for name in checks:
        world.answer(name, "Ready")
    world.run()
    world.sent.clear()
    world.run(world.now + 7200)
    assert sent(world) == []
    assert transitions.is_reserved(world.workload.status)


@pytest.mark.parametrize(
    ("gate", "said"),
    [(False, []), (True, ["QuotaReserved F/PendingEvaluation", "Admitted F/NoReservation"])],
)
def test_what_a_new_workload_says_of_itself_before_anybody_looked_at_it(gate: bool, said: list[str]) -> None:
    gates = resolve({"UnadmittedWorkloadsExplicitStatus": gate})
    world = World(reserved=False, configured=Configured(gates=gates), forget=False)
    assert only(world.log, "QuotaReserved", "Admitted") == said
    world.log.clear()
    world.reserve()
    world.run()
    assert only(world.log, "QuotaReserved", "Admitted") == ["QuotaReserved T/QuotaReserved", "Admitted T/Admitted"]
