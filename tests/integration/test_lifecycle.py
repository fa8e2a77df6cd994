"""queue_manager, preemptor and provisioning_request on a real NATS server with the real permissions.

The API server's part is played by `Cluster`: it holds projections, does what commands ask of them, and answers. How the gateway really writes them is
tested where it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest_asyncio
from opentelemetry.trace import NoOpTracer
from prometheus_client import CollectorRegistry

from devcluster.nats_server import NatsServer
from services.preemptor.service import serve as serve_preemptor
from services.preemptor.settings import PreemptorSettings
from services.provisioning_request.service import serve as serve_provisioning
from services.provisioning_request.settings import ProvisioningSettings
from services.queue_manager.service import serve as serve_queue_manager
from services.queue_manager.settings import QueueManagerSettings
from shared.api import names
from shared.bus.interface import ObjectWrite, OpenCommand, StreamsLost
from shared.bus.nats_bus import NatsGatewayBus, connect
from shared.config.settings import BaseSettings
from shared.events import commands as c
from shared.events.objects import (
    KINDS,
    Admission,
    AdmissionCheck,
    CheckRule,
    CheckState,
    ClusterQueue,
    Condition,
    Flavor,
    FlavorQuota,
    LocalQueue,
    Namespace,
    Object,
    Owner,
    PodSet,
    PodSetAssignment,
    ProvisioningRequest,
    ProvisioningRequestConfig,
    ResourceFlavor,
    ResourceGroup,
    Selector,
    Workload,
)
from shared.events.outcomes import CommandOutcome
from shared.events.subjects import ObjectName
from shared.runtime.health import Health
from shared.runtime.service import Context

WITHIN_S = 30.0
S = TypeVar("S", bound=BaseSettings)
T = TypeVar("T")
_KIND_OF = {type_: kind for kind, type_ in KINDS.items()}


def name_of(object_: Object) -> ObjectName:
    return ObjectName(_KIND_OF[type(object_)], object_.namespace, object_.name)


class Cluster:
    """Holds objects, publishes each of their states, carries out and answers commands."""

    def __init__(self, bus: NatsGatewayBus) -> None:
        self.bus = bus
        self.objects: dict[ObjectName, Any] = {}
        self.taken: list[c.Command] = []
        self.version = 100
        self._changed = asyncio.Event()

    async def open(self, epoch: int) -> None:
        """Fill the streams with what there is, then let decisions begin."""
        await self.bus.ensure_streams()
        await self.bus.load_objects()
        position = await self.bus.put_objects([ObjectWrite(name, o) for name, o in self.objects.items()])
        await self.bus.open_epoch(shard="0", epoch=epoch, objects_position=position, why="test")

    async def put(self, *objects: Object) -> None:
        """New states of objects."""
        for object_ in objects:
            self.version += 1
            self.objects[name_of(object_)] = msgspec.structs.replace(object_, version=self.version)
        await self.bus.put_objects([ObjectWrite(name_of(o), self.objects[name_of(o)]) for o in objects])
        self._changed.set()

    async def change(self, object_: Object, **fields: Any) -> None:
        """The object with other fields."""
        await self.put(msgspec.structs.replace(self.objects[name_of(object_)], **fields))

    def get(self, object_: T) -> T:
        """The state of an object now."""
        found: T = self.objects[name_of(object_)]  # type: ignore[arg-type]
        return found

    async def carry_out(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as closing:
            async for batch in self.bus.commands():
                for open_ in batch:
                    # Lost with its stream: what is wanted still is asked for again in the next epoch.
                    with suppress(StreamsLost):
                        await self._carry_out(open_)
                closing.create_task(self._close(batch))

    async def _carry_out(self, open_: OpenCommand) -> None:
        command = open_.command
        self.taken.append(command)
        name = ObjectName(command.kind, command.namespace, command.name)
        done = _done(self.objects.get(name), command)
        if done is not None and done != self.objects.get(name):
            await self.put(done)
        version = self.objects[name].version if done is not None else 0
        status: Any = "applied" if done is not None else "rejected"
        outcome = CommandOutcome(command=command.id, subject=open_.subject, status=status, version=version)
        await self.bus.settle([outcome])
        self._changed.set()

    async def _close(self, batch: list[OpenCommand]) -> None:
        with suppress(StreamsLost):
            await self.bus.close_commands(batch)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return once this is so; fails after a while with what was asked for."""
        try:
            async with asyncio.timeout(WITHIN_S):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"did not come true; commands were {self.taken}") from None

    def taken_of(self, type_: type[T]) -> list[T]:
        """Commands of one type so far."""
        return [command for command in self.taken if isinstance(command, type_)]


def _done(object_: Any, command: c.Command) -> Any:
    """The object after the command, None if it cannot be done."""
    match command:
        case c.SetQueueStatus():
            return msgspec.structs.replace(
                object_,
                status_pending=command.pending,
                status_reserving=command.reserving,
                status_admitted=command.admitted,
                status_reservation=command.reservation,
                status_usage=command.usage,
                conditions=(command.active,),
            )
        case c.SetFinalizer(present=present):
            return msgspec.structs.replace(object_, finalizers=(names.RESOURCE_IN_USE,) if present else ())
        case c.SetCheckActive(active=active):
            return msgspec.structs.replace(object_, active=active)
        case c.SyncChecks(checks=checks):
            return msgspec.structs.replace(object_, checks=tuple(CheckState(name=name) for name in checks))
        case c.SetCheckState(check=check, state=state, message=message):
            checks = tuple(
                msgspec.structs.replace(s, state=state, message=message) if s.name == check else s
                for s in object_.checks
            )
            return msgspec.structs.replace(object_, checks=checks)
        case c.SyncAdmitted():
            ready = all(state.state == "Ready" for state in object_.checks)
            return with_condition(object_, names.ADMITTED, ready, "Admitted" if ready else "UnsatisfiedAdmissionChecks")
        case c.Evict(reason=reason, message=message):
            return msgspec.structs.replace(
                with_condition(object_, names.EVICTED, True, reason, message), evictions=object_.evictions + 1
            )
        case c.MarkRequeued(reason=reason):
            return with_condition(object_, names.REQUEUED, True, reason)
        case c.CreateProvisioningRequest():
            owner = Owner(names.GROUP_VERSION, names.WORKLOAD, command.workload, command.workload_uid, controller=True)
            return ProvisioningRequest(
                namespace=command.namespace,
                name=command.name,
                uid=command.id,
                version=0,
                class_name=command.class_name,
                parameters=command.parameters,
                pod_sets=tuple((t.name, t.count) for t in command.templates),
                owners=(owner,),
            )
        case _:
            return None


def with_condition(workload: Workload, type_: str, status: bool, reason: str, message: str = "") -> Workload:
    rest = tuple(cond for cond in workload.conditions if cond.type != type_)
    return msgspec.structs.replace(workload, conditions=(*rest, Condition(type_, status, reason, message, 1)))


# --- the parts ------------------------------------------------------------------------------------------------------

QUEUE = ClusterQueue(
    name="team.a",
    uid="cq",
    version=1,
    generation=1,
    namespace_selector=Selector(),
    groups=(ResourceGroup(("cpu",), (Flavor("default", (FlavorQuota(resource="cpu", nominal="4"),)),)),),
)
LOCAL = LocalQueue(namespace="ns", name="lq", uid="lq", version=1, generation=1, cluster_queue="team.a")
BASE: tuple[Object, ...] = (
    Namespace(name="ns", uid="ns", version=1),
    ResourceFlavor(name="default", uid="rf", version=1, generation=1),
    QUEUE,
    LOCAL,
)


def running(name: str) -> Workload:
    """A workload that holds one cpu and runs."""
    assignment = PodSetAssignment(name="main", count=1, flavors={"cpu": "default"}, usage={"cpu": 1000})
    return Workload(
        namespace="ns",
        name=name,
        uid=name,
        version=1,
        generation=1,
        incarnation=f"{name}-1",
        queue_name="lq",
        pod_sets=(PodSet(count=1),),
        owners=(Owner("batch/v1", "Job", name, f"job-{name}", controller=True),),
        admission=Admission("team.a", (assignment,)),
        conditions=(
            Condition(names.QUOTA_RESERVED, True, "QuotaReserved"),
            Condition(names.ADMITTED, True, "Admitted"),
        ),
    )


@pytest_asyncio.fixture
async def nats(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with NatsServer(tmp_path) as server:
        yield server


@pytest_asyncio.fixture
async def cluster(nats: NatsServer) -> AsyncIterator[Cluster]:
    bus = await connect("watcher", nats.url, "watcher", nats.password("watcher"), gateway=True)
    subject = Cluster(bus)
    await bus.ensure_streams()
    task = asyncio.create_task(subject.carry_out())
    try:
        yield subject
    finally:
        await _end(task)
        await bus.close()


@asynccontextmanager
async def service(
    nats: NatsServer, name: str, serve: Callable[[Context[S]], Awaitable[None]], settings: S
) -> AsyncIterator[Context[S]]:
    """The service itself, in this process."""
    bus = await connect(name, nats.url, name, nats.password(name))
    context = Context(name, settings, bus, Health(), CollectorRegistry(), NoOpTracer())
    task = asyncio.ensure_future(serve(context))
    try:
        yield context
        if task.done():
            task.result()
    finally:
        await _end(task)
        await bus.close()


async def _end(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=5)


def queue_manager(nats: NatsServer) -> Any:
    return service(nats, "queue_manager", serve_queue_manager, QueueManagerSettings())


def preemptor(nats: NatsServer) -> Any:
    return service(nats, "preemptor", serve_preemptor, PreemptorSettings())


def provisioning(nats: NatsServer) -> Any:
    return service(nats, "provisioning_request", serve_provisioning, ProvisioningSettings())


# --- what must hold -------------------------------------------------------------------------------------------------


async def test_queues_get_their_status_and_finalizers_once(nats: NatsServer, cluster: Cluster) -> None:
    await cluster.put(*BASE, running("a"), running("b"))
    await cluster.open(1)
    async with queue_manager(nats):
        await cluster.until(lambda: cluster.get(QUEUE).status_admitted == 2 and cluster.get(LOCAL).status_admitted == 2)
        await cluster.until(lambda: bool(cluster.get(QUEUE).finalizers))
        assert cluster.get(QUEUE).status_usage.rows == (("default", "cpu", 2000, 0),)
        assert [(x.type, x.status, x.reason) for x in cluster.get(LOCAL).conditions] == [("Active", True, "Ready")]
        await cluster.change(running("b"), finished=True, admission=None)
        await cluster.until(lambda: cluster.get(QUEUE).status_admitted == 1 and cluster.get(LOCAL).status_admitted == 1)
        assert cluster.get(QUEUE).status_usage.rows == (("default", "cpu", 1000, 0),)
    finalizers = [(x.kind, x.name) for x in cluster.taken_of(c.SetFinalizer)]
    assert sorted(finalizers) == [("clusterqueue", "team.a"), ("resourceflavor", "default")]
    assert len(cluster.taken_of(c.SetQueueStatus)) == 4


async def test_the_standby_takes_over(nats: NatsServer, cluster: Cluster) -> None:
    await cluster.put(*BASE)
    await cluster.open(1)
    async with AsyncExitStack() as active, AsyncExitStack() as standby:
        await active.enter_async_context(queue_manager(nats))
        await cluster.until(lambda: bool(cluster.get(QUEUE).conditions and cluster.get(LOCAL).conditions))
        second = await standby.enter_async_context(queue_manager(nats))
        await cluster.put(running("a"))
        await cluster.until(lambda: cluster.get(QUEUE).status_admitted == 1)
        assert statuses_sent(second) == 0
        await active.aclose()
        await cluster.put(running("b"))
        await cluster.until(lambda: cluster.get(QUEUE).status_admitted == 2)
        assert statuses_sent(second) > 0


def statuses_sent(context: Context[Any]) -> float:
    name, labels = "sluice_queue_manager_commands_sent_total", {"type": "SetQueueStatus"}
    return context.metrics.get_sample_value(name, labels) or 0.0


async def test_a_wiped_bus_is_judged_anew(nats: NatsServer, cluster: Cluster) -> None:
    await cluster.put(*BASE)
    await cluster.open(1)
    async with queue_manager(nats):
        await cluster.until(lambda: bool(cluster.get(QUEUE).conditions and cluster.get(LOCAL).conditions))
        await nats.wipe()
        await cluster.open(2)
        await cluster.put(running("a"))
        await cluster.until(lambda: cluster.get(QUEUE).status_admitted == 1)


async def test_a_queue_that_drains_and_opens_again(nats: NatsServer, cluster: Cluster) -> None:
    workload = running("a")
    await cluster.put(*BASE, workload)
    await cluster.open(1)
    async with queue_manager(nats), preemptor(nats):
        await cluster.change(QUEUE, stop_policy="HoldAndDrain", generation=2)
        await cluster.until(lambda: bool(cluster.taken_of(c.Evict)))
        (evict,) = cluster.taken_of(c.Evict)
        assert (evict.reason, evict.incarnation) == ("ClusterQueueStopped", "a-1")
        released = with_condition(cluster.get(workload), names.QUOTA_RESERVED, False, "Suspended")
        released = with_condition(released, names.ADMITTED, False, "NoReservation")
        released = with_condition(released, names.REQUEUED, False, "ClusterQueueStopped")
        await cluster.put(msgspec.structs.replace(released, admission=None, incarnation="a-2"))
        await cluster.change(QUEUE, stop_policy="None", generation=3)
        await cluster.until(lambda: bool(cluster.taken_of(c.MarkRequeued)))
        (requeued,) = cluster.taken_of(c.MarkRequeued)
        assert (requeued.reason, requeued.incarnation) == ("ClusterQueueRestarted", "a-2")
        await cluster.until(lambda: cluster.get(QUEUE).conditions[0].status)
    assert len(cluster.taken_of(c.Evict)) == 1


async def test_two_phases_of_admission(nats: NatsServer, cluster: Cluster) -> None:
    check = AdmissionCheck(
        name="prov",
        uid="ac",
        version=1,
        generation=1,
        controller=names.PROVISIONING_REQUEST_CONTROLLER,
        parameters_group=names.GROUP,
        parameters_kind=names.PROVISIONING_REQUEST_CONFIG,
        parameters_name="config",
    )
    config = ProvisioningRequestConfig(name="config", uid="prc", version=1, class_name="check-capacity")
    queue = msgspec.structs.replace(QUEUE, checks=(CheckRule("prov"),))
    workload = with_condition(running("a"), names.ADMITTED, False, "UnsatisfiedAdmissionChecks")
    await cluster.put(*BASE, queue, check, config, workload)
    await cluster.open(1)
    request = ProvisioningRequest(namespace="ns", name="a-prov-1", version=0)
    async with queue_manager(nats), provisioning(nats):
        await cluster.until(lambda: name_of(request) in cluster.objects)
        assert cluster.get(request).pod_sets == (("ppt-a-prov-1-main", 1),)
        await cluster.change(request, conditions=(Condition("Provisioned", True, "Done", "there it is"),))
        await cluster.until(
            lambda: any(x.type == names.ADMITTED and x.status for x in cluster.get(workload).conditions)
        )
        await cluster.until(lambda: any(x.status for x in cluster.get(queue).conditions))
    (ready,) = [x for x in cluster.taken_of(c.SetCheckState) if x.state == "Ready"]
    assert ready.message == "there it is"
    assert ready.pod_set_updates[0].annotations["autoscaling.x-k8s.io/consume-provisioning-request"] == "a-prov-1"
    assert len(cluster.taken_of(c.CreateProvisioningRequest)) == 1
