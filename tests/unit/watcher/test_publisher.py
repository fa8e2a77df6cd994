"""From the watch copy to OBJECTS: refill, changes, tombstones, acknowledgements, and losing the stream in between."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.watcher.kinds import Stored, read
from services.watcher.publisher import BATCH, Publisher
from services.watcher.store import Store
from shared.api import names
from shared.bus.interface import ObjectWrite, StreamsLost
from shared.config.custom_labels import MarkKeys
from shared.events.objects import LocalQueue, Object, ResourceFlavor, Tombstone, Workload
from shared.events.subjects import ObjectName
from tests.unit.kube.api_server import until
from tests.unit.watcher.gateway_bus import GatewayStreams
from tests.unit.watcher.manifests import flavor, job, metadata, raw, workload


class World:
    def __init__(self) -> None:
        self.bus = GatewayStreams()
        self.store = Store()
        self.acknowledged: list[tuple[str, str, str, int]] = []
        self.unprojectable: list[tuple[Stored, str]] = []
        self.lost: list[str] = []
        self.publisher = Publisher(
            self.bus,
            self.store,
            acknowledged=lambda *about: self.acknowledged.append(about),
            unprojectable=lambda *about: self.unprojectable.append(about),
            lost=self.lost.append,
        )
        self.store.subscribe(self.publisher.changed)

    def flavors(self, version: int, **versions: int) -> None:
        """List the flavors at `version`."""
        items = [read("resourceflavor", raw(flavor(name, version=v))) for name, v in versions.items()]
        self.store.replace("resourceflavor", items, version)

    async def hold(self, name: str, version: int, *, uid: str = "") -> None:
        """Something that OBJECTS holds from an earlier time."""
        found = ResourceFlavor(name=name, uid=uid or f"uid-{name}", version=version)
        await self.bus.put_objects([ObjectWrite(ObjectName("resourceflavor", "", name), found)])


@asynccontextmanager
async def running() -> AsyncIterator[World]:
    world = World()
    await world.bus.ensure_streams()
    task = asyncio.create_task(world.publisher.run())
    try:
        yield world
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_refill_writes_what_is_missing_or_old_and_buries_what_is_gone() -> None:
    async with running() as world:
        await world.hold("same", 5)
        await world.hold("old", 3)
        await world.hold("gone", 4)
        world.flavors(20, same=5, old=8, new=9)
        refilled = await world.publisher.refill()
        assert world.bus.living() == {"resourceflavor/same": 5, "resourceflavor/old": 8, "resourceflavor/new": 9}
        assert world.bus.held()["resourceflavor/gone"] == Tombstone(name="gone", uid="uid-gone", version=20)
        assert (refilled.position, refilled.epoch, refilled.ahead) == (world.bus.broker.sequence, 0, "")


async def test_refill_writes_nothing_twice_but_acknowledges_everything() -> None:
    async with running() as world:
        world.flavors(20, a=5, b=8)
        await world.publisher.refill()
        world.bus.puts.clear()
        world.acknowledged.clear()
        refilled = await world.publisher.refill()
        assert world.bus.puts == []
        assert sorted(world.acknowledged) == [("resourceflavor", "", "a", 5), ("resourceflavor", "", "b", 8)]
        assert refilled.position == world.bus.broker.sequence


async def test_the_same_version_projected_in_another_way_is_written_again() -> None:
    async with running() as world:
        await world.hold("default", 5)
        world.flavors(20, default=5)
        await world.publisher.refill()
        assert [[write.object.version for write in batch] for batch in world.bus.puts[1:]] == [[5]]


async def test_a_tombstone_that_is_there_is_not_written_again() -> None:
    async with running() as world:
        world.flavors(20, a=5)
        await world.publisher.refill()
        world.flavors(30)
        await until(lambda: world.bus.living() == {})
        writes = len(world.bus.puts)
        await world.publisher.refill()
        assert len(world.bus.puts) == writes


async def test_the_highest_epoch_announced_is_found() -> None:
    async with running() as world:
        await world.bus.open_epoch(shard="0", epoch=7, objects_position=0, why="test")
        assert (await world.publisher.refill()).epoch == 7


async def test_objects_ahead_of_the_lists_stop_the_refill() -> None:
    async with running() as world:
        await world.hold("a", 500)
        world.flavors(20, a=5)
        refilled = await world.publisher.refill()
        assert "500" in refilled.ahead
        assert len(world.bus.puts) == 1


async def test_own_writes_ahead_of_the_watch_are_no_reason_to_stop() -> None:
    async with running() as world:
        world.flavors(20, a=5)
        world.store.upsert("resourceflavor", raw(flavor("a", version=40)))
        await world.hold("a", 40)
        assert (await world.publisher.refill()).ahead == ""


async def test_objects_of_a_kind_that_was_never_listed_are_buried_at_their_own_version() -> None:
    async with running() as world:
        await world.hold("a", 5)
        await world.publisher.refill()
        assert world.bus.held()["resourceflavor/a"] == Tombstone(name="a", uid="uid-a", version=5)


async def test_an_object_that_is_listed_but_unreadable_is_not_buried() -> None:
    async with running() as world:
        await world.hold("a", 5)
        world.store.replace("resourceflavor", (), 20, keep=[("", "a")])
        await world.publisher.refill()
        assert world.bus.living() == {"resourceflavor/a": 5}


async def test_changes_are_published_with_the_trace_of_their_job() -> None:
    uid = "0123abcd-0000-4000-8000-00000000beef"
    async with running() as world:
        await world.publisher.refill()
        labels = {"kueue.x-k8s.io/job-uid": uid}
        world.store.upsert("workload", raw(workload(version=3, meta={"labels": labels})))
        await until(lambda: world.bus.living() == {"workload/team/w": 3})
        found = world.bus.held()["workload/team/w"]
        assert isinstance(found, Workload)
        assert found.job_uid == uid
        assert world.bus.puts[-1][0].trace.split("-")[1] == uid.replace("-", "")


async def test_a_burst_of_changes_of_one_object_is_one_write_of_the_last() -> None:
    async with running() as world:
        await world.publisher.refill()
        for version in range(1, 50):
            world.store.upsert("resourceflavor", raw(flavor(version=version)))
        await until(lambda: world.bus.living() == {"resourceflavor/default": 49})
        assert [len(batch) for batch in world.bus.puts] == [1]


async def test_many_objects_go_in_batches() -> None:
    async with running() as world:
        world.flavors(9000, **{f"f{n}": n + 1 for n in range(BATCH + 1)})
        await world.publisher.refill()
        assert [len(batch) for batch in world.bus.puts] == [BATCH, 1]


async def test_a_deletion_becomes_a_tombstone_and_a_new_object_replaces_it() -> None:
    async with running() as world:
        world.flavors(20, a=5)
        await world.publisher.refill()
        world.store.remove("resourceflavor", "", "a", version=25)
        await until(lambda: world.bus.living() == {})
        assert world.bus.held()["resourceflavor/a"] == Tombstone(name="a", uid="uid-a", version=25)
        world.store.upsert("resourceflavor", raw(flavor("a", version=30, uid="other")))
        await until(lambda: world.bus.living() == {"resourceflavor/a": 30})


async def test_a_deletion_and_a_new_object_in_one_batch_are_one_write() -> None:
    async with running() as world:
        world.flavors(20, a=5)
        await world.publisher.refill()
        world.store.remove("resourceflavor", "", "a", version=25)
        world.store.upsert("resourceflavor", raw(flavor("a", version=30, uid="other")))
        await until(lambda: world.bus.living() == {"resourceflavor/a": 30})
        assert len(world.bus.puts[-1]) == 1


async def test_kinds_that_are_not_on_the_bus_stay_off_it() -> None:
    async with running() as world:
        await world.publisher.refill()
        world.store.upsert("job", raw(job()))
        world.store.upsert("priorityclass", raw({"metadata": metadata("p", version=2), "value": 1}))
        world.store.upsert("resourceflavor", raw(flavor(version=3)))
        await until(lambda: world.bus.living() == {"resourceflavor/default": 3})
        assert list(world.bus.held()) == ["resourceflavor/default"]


async def test_published_says_whether_objects_holds_a_state() -> None:
    async with running() as world:
        world.flavors(20, a=5)
        published = world.publisher.published
        assert not published("resourceflavor", "", "a", 5)
        await world.publisher.refill()
        assert published("resourceflavor", "", "a", 5)
        assert not published("resourceflavor", "", "a", 6)
        world.store.upsert("resourceflavor", raw(flavor("a", version=6)))
        assert not published("resourceflavor", "", "a", 6)
        await until(lambda: published("resourceflavor", "", "a", 6))
        world.store.remove("resourceflavor", "", "a", version=25)
        world.store.observed("resourceflavor", 25)
        assert not published("resourceflavor", "", "a", 24)
        await until(lambda: published("resourceflavor", "", "a", 24))
        assert not published("resourceflavor", "", "a", 26)


async def test_acknowledgements_name_each_object_after_its_batch() -> None:
    async with running() as world:
        await world.publisher.refill()
        world.store.upsert("workload", raw(workload(version=3)))
        await until(lambda: world.acknowledged == [("workload", "team", "w", 3)])
        world.store.remove("workload", "team", "w", version=8)
        await until(lambda: world.acknowledged[1:] == [("workload", "team", "w", 8)])


async def test_an_object_that_cannot_be_projected_is_reported_and_the_others_go_on() -> None:
    usage = {"name": "main", "resourceUsage": {"cpu": "much"}, "flavors": {}}
    status = {"admission": {"clusterQueue": "cq", "podSetAssignments": [usage]}}
    async with running() as world:
        await world.publisher.refill()
        world.store.upsert("workload", raw(workload("bad", version=3, status=status)))
        world.store.upsert("workload", raw(workload("good", version=4)))
        await until(lambda: world.bus.living() == {"workload/team/good": 4})
        ((stored, error),) = world.unprojectable
        assert stored.name == "bad"
        assert "much" in error
        assert world.publisher.published("workload", "team", "bad", 3)


async def test_a_lost_stream_is_told_and_nothing_is_written_until_the_next_refill() -> None:
    async with running() as world:
        await world.publisher.refill()
        world.bus.broker.wipe()
        world.store.upsert("resourceflavor", raw(flavor(version=3)))
        await until(lambda: world.lost != [])
        assert not world.publisher.published("resourceflavor", "", "default", 3)
        world.store.upsert("resourceflavor", raw(flavor(version=4)))
        await world.bus.ensure_streams()
        await world.publisher.pause()
        assert world.bus.living() == {}
        await world.publisher.refill()
        assert world.bus.living() == {"resourceflavor/default": 4}
        world.store.upsert("resourceflavor", raw(flavor(version=5)))
        await until(lambda: world.bus.living() == {"resourceflavor/default": 5})


async def test_a_pause_drops_what_is_marked_and_the_refill_finds_it_again() -> None:
    async with running() as world:
        await world.publisher.refill()
        await world.publisher.pause()
        world.store.upsert("resourceflavor", raw(flavor(version=3)))
        assert world.bus.puts == []
        await world.publisher.refill()
        assert world.bus.living() == {"resourceflavor/default": 3}


async def test_a_batch_that_failed_is_tried_again_with_the_next_refill() -> None:
    async with running() as world:
        await world.publisher.refill()
        world.bus.fail_puts.append(StreamsLost("gone"))
        world.store.upsert("resourceflavor", raw(flavor(version=3)))
        await until(lambda: world.lost == ["gone"])
        await world.publisher.refill()
        assert world.bus.living() == {"resourceflavor/default": 3}


async def test_what_changes_during_a_refill_is_not_lost() -> None:
    async with running() as world:
        await world.hold("leaves", 3)
        await world.hold("alters", 4)
        world.flavors(20, leaves=3, alters=4, fresh=5)
        original = world.bus.load_objects

        async def load() -> dict[str, tuple[int, Object]]:
            held = await original()
            world.store.remove("resourceflavor", "", "leaves", version=25)
            world.store.remove("resourceflavor", "", "fresh", version=26)
            world.store.upsert("resourceflavor", raw(flavor("alters", version=27)))
            world.store.upsert("resourceflavor", raw(flavor("comes", version=28)))
            return held

        world.bus.load_objects = load  # type: ignore[method-assign]
        await world.publisher.refill()
        await until(lambda: world.bus.living() == {"resourceflavor/alters": 27, "resourceflavor/comes": 28})
        assert world.bus.held()["resourceflavor/leaves"].version == 25


async def test_labels_and_annotations_travel_only_where_they_are_read() -> None:
    keys = MarkKeys(frozenset({"team"}), frozenset({"example.com/cost"}))
    world = World()
    world.publisher = Publisher(
        world.bus,
        world.store,
        acknowledged=lambda *_: None,
        unprojectable=lambda *_: None,
        lost=world.lost.append,
        marks={"Workload": keys},
    )
    meta = {
        "labels": {"team": "a", "other": "b"},
        "annotations": {"example.com/cost": "red", "example.com/note": "long", names.PRIORITY_BOOST: "3"},
    }
    world.store.replace("workload", [read("workload", raw(workload(meta=meta)))], 1)
    queue = {"metadata": metadata("lq", namespace="team", labels={"team": "a"}), "spec": {"clusterQueue": "cq"}}
    world.store.replace("localqueue", [read("localqueue", raw(queue))], 1)
    await world.bus.ensure_streams()
    await world.publisher.refill()
    held = {write.name.kind: write.object for batch in world.bus.puts for write in batch}
    found, local = held["workload"], held["localqueue"]
    assert isinstance(found, Workload)
    assert isinstance(local, LocalQueue)
    assert found.labels == {"team": "a"}
    assert found.annotations == {"example.com/cost": "red", names.PRIORITY_BOOST: "3"}
    assert local.labels == {}


async def test_changes_after_a_batch_wait_for_each_other() -> None:
    world = World()
    await world.bus.ensure_streams()
    world.publisher = Publisher(
        world.bus,
        world.store,
        acknowledged=lambda *about: world.acknowledged.append(about),
        unprojectable=lambda *_: None,
        lost=world.lost.append,
        gather_s=0.2,
    )
    world.store.subscribe(world.publisher.changed)
    task = asyncio.create_task(world.publisher.run())
    try:
        await world.publisher.refill()
        world.bus.puts.clear()
        loop = asyncio.get_running_loop()
        began = loop.time()
        world.store.put(read("resourceflavor", raw(flavor("first", version=30))))
        await until(lambda: len(world.bus.puts) == 1)
        # After a silence nobody waits.
        assert loop.time() - began < 0.15
        for number in range(3):
            world.store.put(read("resourceflavor", raw(flavor(f"later{number}", version=31 + number))))
            await asyncio.sleep(0)
        await until(lambda: len(world.acknowledged) == 4)
        assert loop.time() - began >= 0.2
        assert [len(batch) for batch in world.bus.puts] == [1, 3]
    finally:
        task.cancel()
        await asyncio.wait({task})
