"""When a new epoch opens, what has to be over before, and what must never happen: a number twice, a decision taken while it is closed."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

import msgspec
import pytest
from aiohttp import web

from services.watcher.epochs import EpochKeeper, EpochRecord, annotations_of, record_of
from services.watcher.intake import Intake
from services.watcher.publisher import Publisher
from services.watcher.store import Store
from shared.kube import resources
from shared.kube.client import KubeClient
from shared.kube.lease import LeaderLease, LeaseLost
from tests.unit.kube.api_server import ApiServer, client_of, status, until
from tests.unit.watcher.gateway_bus import GatewayStreams
from tests.unit.watcher.manifests import flavor
from tests.unit.watcher.test_intake import QUICK, bare


class Applier:
    """Stands for the writing half: notes when its gate is open, and what it follows."""

    def __init__(self) -> None:
        self.applied = 0
        self.is_open = False
        self.following: list[int] = []
        self.history: list[str] = []
        self.in_flight = asyncio.Event()
        self.in_flight.set()

    async def follow(self, *, shard: str, epoch: int) -> None:
        self.history.append(f"follow {shard}/{epoch}")
        self.following.append(epoch)
        try:
            await asyncio.Event().wait()
        finally:
            self.following.remove(epoch)

    async def pause(self) -> None:
        self.is_open = False
        self.history.append("pause")
        await self.in_flight.wait()

    def resume(self) -> None:
        self.is_open = True
        self.history.append("resume")


class World:
    """One API server and one bus; gateways come and go."""

    def __init__(self, api: ApiServer, client: KubeClient) -> None:
        self.api = api
        self.client = client
        self.bus = GatewayStreams()

    @asynccontextmanager
    async def gateway(self, check_s: float = 0.05) -> AsyncIterator["Gateway"]:
        gateway = Gateway(self, check_s)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(_task(gateway.lease.run()))
            await asyncio.wait_for(gateway.lease.held.wait(), 5)
            await stack.enter_async_context(_task(gateway.intake.run()))
            await asyncio.wait_for(gateway.intake.synced.wait(), 5)
            gateway.store.subscribe(gateway.publisher.changed)
            await stack.enter_async_context(_task(gateway.publisher.run()))
            gateway.running = await stack.enter_async_context(_task(gateway.keeper.run()))
            yield gateway

    def record(self) -> EpochRecord:
        annotations = self.api.objects["leases"][("ns", "role")]["metadata"].get("annotations", {})
        return record_of(annotations, "0")


class Gateway:
    def __init__(self, world: World, check_s: float) -> None:
        self.lease = LeaderLease(world.client, namespace="ns", name="role", identity="a", duration_s=30, renew_s=0.05)
        self.store = Store()
        self.applier = Applier()
        self.intake = Intake(
            world.client, self.store, world.bus, malformed=lambda _: None, rewound=self.trouble, timing=QUICK
        )
        self.publisher = Publisher(
            world.bus, self.store, acknowledged=lambda *_: None, unprojectable=lambda *_: None, lost=self.trouble
        )
        self.keeper = EpochKeeper(
            shard="0",
            bus=world.bus,
            lease=self.lease,
            intake=self.intake,
            publisher=self.publisher,
            applier=self.applier,
            check_s=check_s,
        )
        self.running: asyncio.Task[None] | None = None

    def trouble(self, why: str) -> None:
        self.keeper.trouble(why)

    async def open_at(self, epoch: int) -> None:
        await until(lambda: self.keeper.opened.is_set() and self.keeper.epoch == epoch and bool(self.applier.following))


@asynccontextmanager
async def _task(work: Coroutine[None, None, None]) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, LeaseLost):
            await task


@asynccontextmanager
async def cluster() -> AsyncIterator[World]:
    api = ApiServer()
    async with client_of(api) as client:
        yield World(api, client)


async def test_a_new_cluster_gets_its_first_epoch() -> None:
    async with cluster() as world:
        await world.api.put(resources.RESOURCE_FLAVORS, bare(flavor("a")))
        async with world.gateway() as gateway:
            await gateway.open_at(1)
            assert gateway.applier.is_open
            assert gateway.applier.history == ["resume", "follow 0/1"]
            assert set(world.bus.living()) == {"resourceflavor/a"}
            announced = world.bus.broker.epochs["0"]
            assert (announced.version, announced.objects_position) == (1, world.bus.broker.sequence - 1)
            assert world.record().epoch == 1


async def test_a_restart_goes_on_with_the_same_epoch_and_catches_up() -> None:
    async with cluster() as world:
        await world.api.put(resources.RESOURCE_FLAVORS, bare(flavor("gone")))
        async with world.gateway() as gateway:
            await gateway.open_at(1)
            gateway.applier.applied = 1
            await until(lambda: world.record().applied == 1)
        await world.api.remove(resources.RESOURCE_FLAVORS, "", "gone")
        await world.api.put(resources.RESOURCE_FLAVORS, bare(flavor("new")))
        async with world.gateway() as gateway:
            await gateway.open_at(1)
            assert gateway.applier.history == ["resume", "follow 0/1"]
            assert set(world.bus.living()) == {"resourceflavor/new"}


def _lose_streams(bus: GatewayStreams) -> None:
    bus.broker.wipe()


def _make_outcomes_anew(bus: GatewayStreams) -> None:
    bus.broker.remake("OUTCOMES")


def _cut_the_log(bus: GatewayStreams) -> None:
    bus.broker.lose_tail(1, "DECISIONS_0_1")


def _cut_objects(bus: GatewayStreams) -> None:
    bus.broker.lose_tail(1, "OBJECTS")


def _make_the_log_anew(bus: GatewayStreams) -> None:
    held = list(bus.broker.streams["DECISIONS_0_1"].messages.values())
    bus.broker.remake("DECISIONS_0_1")
    for message in held:
        bus.broker.streams["DECISIONS_0_1"].store(message.subject, message.payload, None, now=0.0, stamp=message.stamp)


@pytest.mark.parametrize("damage", [_lose_streams, _make_outcomes_anew, _make_the_log_anew, _cut_the_log, _cut_objects])
async def test_damage_while_the_gateway_was_away_opens_a_new_epoch(damage: Callable[[GatewayStreams], None]) -> None:
    async with cluster() as world:
        await world.api.put(resources.RESOURCE_FLAVORS, bare(flavor("a")))
        async with world.gateway() as gateway:
            await gateway.open_at(1)
            gateway.applier.applied = 1
            await until(lambda: world.record().applied == 1 and world.record().objects_position > 0)
        damage(world.bus)
        async with world.gateway() as gateway:
            await gateway.open_at(2)
            assert set(world.bus.living()) == {"resourceflavor/a"}
            assert world.record().epoch == 2


async def test_a_wipe_while_running_closes_the_gate_drains_and_opens_anew() -> None:
    async with cluster() as world:
        await world.api.put(resources.RESOURCE_FLAVORS, bare(flavor("a")))
        async with world.gateway(check_s=60) as gateway:
            await gateway.open_at(1)
            gateway.applier.in_flight.clear()
            world.bus.broker.wipe()
            await until(lambda: "pause" in gateway.applier.history)
            assert not gateway.keeper.opened.is_set()
            assert gateway.keeper.why_closed
            assert gateway.applier.following == []
            assert world.bus.broker.streams == {}, "nothing is made while a call is in flight"
            gateway.applier.in_flight.set()
            await gateway.open_at(2)
            assert gateway.applier.history == ["resume", "follow 0/1", "pause", "resume", "follow 0/2"]
            assert set(world.bus.living()) == {"resourceflavor/a"}


async def test_a_wipe_without_a_reconnect_is_found_by_the_regular_check() -> None:
    async with cluster() as world, world.gateway(check_s=0.05) as gateway:
        await gateway.open_at(1)
        world.bus.drop_streams()
        await gateway.open_at(2)


async def test_a_reconnect_to_streams_that_are_whole_changes_nothing() -> None:
    async with cluster() as world, world.gateway(check_s=60) as gateway:
        await gateway.open_at(1)
        world.bus.broker.disconnect()
        gateway.applier.applied = 1
        world.bus.broker.disconnect()
        await until(lambda: world.record().applied == 1)
        assert gateway.applier.history == ["resume", "follow 0/1"]


async def test_a_server_that_was_started_again_opens_a_new_epoch_however_whole_its_streams_look() -> None:
    async with cluster() as world, world.gateway(check_s=60) as gateway:
        await gateway.open_at(1)
        # What it lost may have been written over by the time that anybody looks.
        world.bus.broker.restart()
        await gateway.open_at(2)
        assert gateway.applier.history == ["resume", "follow 0/1", "pause", "resume", "follow 0/2"]


async def test_a_server_that_was_started_again_while_the_gateway_was_away_opens_a_new_epoch() -> None:
    async with cluster() as world:
        async with world.gateway() as gateway:
            await gateway.open_at(1)
            await until(lambda: "server" in world.record().streams)
        world.bus.broker.restart()
        async with world.gateway() as gateway:
            await gateway.open_at(2)


async def test_an_epoch_that_nobody_was_told_of_does_not_go_on() -> None:
    async with cluster() as world:
        async with world.gateway() as gateway:
            await gateway.open_at(1)
            await until(lambda: world.record().epoch == 1)
        # The gateway died after it had made the log, before the announcement.
        objects = world.bus.broker.streams["OBJECTS"]
        announced = objects.newest("sluice.objects.epoch._.0")
        assert announced is not None
        objects.remove(announced.sequence)
        async with world.gateway() as gateway:
            await gateway.open_at(2)


async def test_a_log_whose_maker_died_before_it_was_recorded_is_not_gone_on_with() -> None:
    async with cluster() as world:
        async with world.gateway(check_s=60) as gateway:
            await gateway.open_at(1)
            # At once, not with the next check: nothing was applied before.
            assert world.record().streams["DECISIONS_0_1"] == world.bus.broker.streams["DECISIONS_0_1"].created
        record = world.record()
        streams = {name: made for name, made in record.streams.items() if name != "DECISIONS_0_1"}
        annotations = annotations_of(msgspec.structs.replace(record, streams=streams), "0")
        world.api.objects["leases"][("ns", "role")]["metadata"]["annotations"] = annotations
        async with world.gateway() as gateway:
            await gateway.open_at(2)
            assert "DECISIONS_0_1" not in world.record().streams


async def test_which_log_was_made_is_saved_again_and_again_before_anything_is_applied() -> None:
    async with cluster() as world:
        failed = 0

        async def fault(request: web.Request) -> web.Response | None:
            nonlocal failed
            if request.method == "PATCH" and "DECISIONS_0_1" in await request.text() and failed < 3:
                failed += 1
                return status(500, "InternalError")
            world.api.faults.append(fault)
            return None

        world.api.faults += [fault] * 4
        async with world.gateway(check_s=60) as gateway:
            await gateway.open_at(1)
            assert failed == 3
            assert gateway.applier.history == ["resume", "follow 0/1"]


async def test_a_deletion_during_the_closed_time_is_not_lost() -> None:
    async with cluster() as world:
        await world.api.put(resources.RESOURCE_FLAVORS, bare(flavor("a")))
        await world.api.put(resources.RESOURCE_FLAVORS, bare(flavor("b")))
        async with world.gateway(check_s=60) as gateway:
            await gateway.open_at(1)
            gateway.applier.in_flight.clear()
            gateway.keeper.trouble("test")
            await until(lambda: "pause" in gateway.applier.history)
            await world.api.remove(resources.RESOURCE_FLAVORS, "", "a")
            gateway.applier.in_flight.set()
            await gateway.open_at(2)
            await until(lambda: set(world.bus.living()) == {"resourceflavor/b"})


async def test_a_number_is_never_used_twice_whoever_remembers_it() -> None:
    async with cluster() as world:
        await world.bus.ensure_streams()
        await world.bus.open_epoch(shard="0", epoch=7, objects_position=0, why="a Lease that was deleted")
        async with world.gateway() as gateway:
            await gateway.open_at(8)
    async with cluster() as world:
        lease = {"metadata": {"namespace": "ns", "name": "role", "annotations": annotations_of(EpochRecord(9), "0")}}
        await world.api.put(resources.LEASES, {**lease, "spec": {}})
        async with world.gateway() as gateway:
            await gateway.open_at(10)


async def test_the_record_is_written_before_the_epoch_is_opened() -> None:
    async with cluster() as world:
        seen: list[int] = []
        original = world.bus.open_epoch

        async def open_epoch(*, shard: str, epoch: int, objects_position: int, why: str) -> None:
            seen.append(world.record().epoch)
            await original(shard=shard, epoch=epoch, objects_position=objects_position, why=why)

        world.bus.open_epoch = open_epoch  # type: ignore[method-assign]
        async with world.gateway() as gateway:
            await gateway.open_at(1)
        assert seen == [1]


async def test_an_epoch_that_cannot_be_recorded_is_not_opened() -> None:
    async def fault(request: web.Request) -> web.Response | None:
        if request.method == "PATCH":
            return status(500, "InternalError")
        world.api.faults.append(fault)
        return None

    async with cluster() as world, world.gateway(check_s=60) as gateway:
        await gateway.open_at(1)
        world.api.faults += [fault] * 3
        gateway.keeper.trouble("test")
        await until(lambda: gateway.keeper.opened.is_set() and gateway.keeper.epoch > 1)
        # However often it had to be tried: what is open is what is recorded.
        assert world.record().epoch == gateway.keeper.epoch == world.bus.broker.epochs["0"].version


async def test_objects_ahead_of_a_restored_cluster_are_dropped_and_filled_anew() -> None:
    async with cluster() as world:
        await world.api.put(resources.RESOURCE_FLAVORS, bare(flavor("lost")))
        async with world.gateway() as gateway:
            await gateway.open_at(1)
            await until(lambda: world.record().epoch == 1)
        await world.api.restore(50, "leases")
        restored = await world.api.put(resources.RESOURCE_FLAVORS, bare(flavor("kept")))
        async with world.gateway() as gateway:
            await gateway.open_at(2)
            assert world.bus.held().keys() == {"resourceflavor/kept"}
            assert world.bus.living() == {"resourceflavor/kept": restored}


async def test_a_restore_while_running_opens_a_new_epoch() -> None:
    async with cluster() as world:
        await world.api.put(resources.RESOURCE_FLAVORS, bare(flavor("lost")))
        async with world.gateway(check_s=60) as gateway:
            await gateway.open_at(1)
            await until(lambda: world.api.watches > 10)
            await world.api.restore(50, "leases")
            restored = await world.api.put(resources.RESOURCE_FLAVORS, bare(flavor("kept")))
            await until(lambda: world.bus.living() == {"resourceflavor/kept": restored})
            await until(lambda: gateway.keeper.opened.is_set() and gateway.keeper.epoch >= 2)


async def test_a_lost_lease_ends_the_keeper() -> None:
    async with cluster() as world, world.gateway(check_s=60) as gateway:
        await gateway.open_at(1)
        gateway.lease.lost.set()
        gateway.keeper.trouble("test")
        assert gateway.running is not None
        with pytest.raises(LeaseLost):
            await asyncio.wait_for(asyncio.shield(gateway.running), 5)
        assert not gateway.applier.is_open


def test_the_record_survives_the_lease_and_a_spoilt_one_reads_as_none() -> None:
    record = EpochRecord(3, 17, 40, {"OBJECTS": "2026"})
    assert record_of(annotations_of(record, "0"), "0") == record
    assert record_of(annotations_of(record, "1"), "0") == EpochRecord()
    assert record_of({"sluice.dev/epoch-0": "by hand"}, "0") == EpochRecord()
