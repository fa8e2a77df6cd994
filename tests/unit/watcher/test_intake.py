"""From the API server into the watch copy: everything listed and watched, deletes that nobody saw, malformed objects, absent kinds, restores."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.watcher.intake import Intake, Malformed
from services.watcher.kinds import KINDS
from services.watcher.store import Store
from shared.kube import resources
from shared.kube.client import KubeClient
from shared.kube.list_watch import Timing
from tests.unit.kube.api_server import ApiServer, Document, client_of, until
from tests.unit.watcher.gateway_bus import GatewayStreams
from tests.unit.watcher.manifests import flavor, job, workload

QUICK = Timing(
    first_pause_s=0.01, longest_pause_s=0.05, first_not_served_pause_s=0.01, longest_not_served_pause_s=0.05, idle_s=5.0
)


class World:
    def __init__(self, api: ApiServer, client: KubeClient) -> None:
        self.api = api
        self.bus = GatewayStreams()
        self.store = Store()
        self.malformed: list[Malformed] = []
        self.rewound: list[str] = []
        self.intake = Intake(
            client, self.store, self.bus, malformed=self.malformed.append, rewound=self.rewound.append, timing=QUICK
        )

    def flavors(self) -> dict[str, int]:
        return {found.name: found.version for found in self.store.of_kind("resourceflavor")}

    async def watching(self) -> None:
        await until(lambda: self.api.watches == len(KINDS))


@asynccontextmanager
async def running(api: ApiServer) -> AsyncIterator[World]:
    async with client_of(api) as client:
        world = World(api, client)
        await world.bus.ensure_streams()
        task = asyncio.create_task(world.intake.run())
        try:
            yield world
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def bad_flavor(name: str = "bad") -> Document:
    return {"metadata": {"name": name}, "spec": {"nodeLabels": ["none"]}}


def bare(document: Document) -> Document:
    """Without uid and version: the API server gives its own."""
    kept = {key: value for key, value in document["metadata"].items() if key not in ("uid", "resourceVersion")}
    return {**document, "metadata": kept}


async def test_all_kinds_are_listed_then_watched() -> None:
    api = ApiServer()
    version = await api.put(resources.RESOURCE_FLAVORS, bare(flavor("a")))
    await api.put(resources.WORKLOADS, bare(workload()))
    await api.put(resources.JOBS, bare(job()))
    async with running(api) as world:
        await asyncio.wait_for(world.intake.synced.wait(), 5)
        assert world.flavors() == {"a": version}
        assert world.store.get("workload", "team", "w") is not None
        assert world.store.get("job", "team", "j") is not None
        await world.watching()
        newer = await api.put(resources.RESOURCE_FLAVORS, bare(flavor("a")))
        await until(lambda: world.flavors() == {"a": newer})
        await api.remove(resources.RESOURCE_FLAVORS, "", "a")
        await until(lambda: world.flavors() == {})
        assert world.store.version_of("resourceflavor") == api.version


async def test_only_the_pod_templates_that_are_ours_are_asked_for() -> None:
    api = ApiServer()
    async with running(api) as world:
        await world.watching()
    asked = [query for _, path, query, _ in api.requests if path.endswith("/podtemplates")]
    assert len(asked) >= 2
    assert all(query["labelSelector"] == "kueue.x-k8s.io/managed=true" for query in asked)


async def test_bookmarks_move_what_counts_as_seen() -> None:
    api = ApiServer()
    async with running(api) as world:
        await world.watching()
        version = await api.bookmark(resources.WORKLOADS)
        await until(lambda: world.store.version_of("workload") == version)


async def test_deletes_missed_while_away_are_found_by_the_next_list() -> None:
    api = ApiServer()
    await api.put(resources.RESOURCE_FLAVORS, bare(flavor("gone")))
    kept = await api.put(resources.RESOURCE_FLAVORS, bare(flavor("kept")))
    async with running(api) as world:
        await world.watching()
        await api.remove(resources.RESOURCE_FLAVORS, "", "gone", quietly=True)
        await api.forget_history()
        await api.break_watches()
        await until(lambda: world.flavors() == {"kept": kept})


async def test_a_malformed_object_is_reported_once_and_the_rest_goes_on() -> None:
    api = ApiServer()
    version = await api.put(resources.RESOURCE_FLAVORS, bad_flavor())
    good = await api.put(resources.RESOURCE_FLAVORS, bare(flavor("good")))
    async with running(api) as world:
        await asyncio.wait_for(world.intake.relist(), 5)
        await asyncio.wait_for(world.intake.relist(), 5)
        assert world.flavors() == {"good": good}
        (found,) = world.malformed
        assert (found.kind.token, found.reference.name, found.reference.version) == ("resourceflavor", "bad", version)
        assert "nodeLabels" in found.error
        await until(lambda: len(world.bus.broker.dead) == 1)
        (letter,) = world.bus.broker.dead
        assert (letter.service, letter.stream) == ("watcher", "KUBERNETES")
        assert letter.subject.endswith("/resourceflavors/bad")


async def test_an_object_that_turns_malformed_keeps_its_last_good_state_until_it_is_mended() -> None:
    api = ApiServer()
    good = await api.put(resources.RESOURCE_FLAVORS, bare(flavor("a")))
    async with running(api) as world:
        await world.watching()
        await api.put(resources.RESOURCE_FLAVORS, bad_flavor("a"))
        await until(lambda: len(world.malformed) == 1)
        assert world.flavors() == {"a": good}
        await asyncio.wait_for(world.intake.relist(), 5)
        assert world.flavors() == {"a": good}
        mended = await api.put(resources.RESOURCE_FLAVORS, bare(flavor("a")))
        await until(lambda: world.flavors() == {"a": mended})
        await api.put(resources.RESOURCE_FLAVORS, bad_flavor("a"))
        await until(lambda: len(world.malformed) == 2)


async def test_a_malformed_object_can_be_deleted() -> None:
    api = ApiServer()
    await api.put(resources.RESOURCE_FLAVORS, bare(flavor("a")))
    async with running(api) as world:
        await world.watching()
        await api.put(resources.RESOURCE_FLAVORS, bad_flavor("a"))
        await api.remove(resources.RESOURCE_FLAVORS, "", "a")
        await until(lambda: world.flavors() == {})


async def test_a_missing_stream_does_not_stop_the_reports() -> None:
    api = ApiServer()
    await api.put(resources.RESOURCE_FLAVORS, bad_flavor())
    async with running(api) as world:
        await until(lambda: len(world.malformed) == 1)
        await api.put(resources.RESOURCE_FLAVORS, bad_flavor("worse"))
        await until(lambda: len(world.malformed) == 2)


async def test_an_optional_kind_may_be_missing_and_appear_later() -> None:
    api = ApiServer()
    api.served = {kind.resource.plural for kind in KINDS.values()} - {"provisioningrequests"}
    async with running(api) as world:
        await asyncio.wait_for(world.intake.synced.wait(), 5)
        await until(lambda: "provisioningrequest" in world.intake.down)
        api.served = None
        await until(lambda: world.intake.down == {})


async def test_one_404_of_an_optional_kind_takes_nothing_away_but_several_do() -> None:
    api = ApiServer()
    request = {"metadata": {"namespace": "team", "name": "r"}, "spec": {"podSets": []}}
    await api.put(resources.PROVISIONING_REQUESTS, request)
    async with running(api) as world:
        await world.watching()
        dropped: list[int] = []
        world.store.subscribe(lambda change: dropped.append(world.intake._absences.get(change.kind, 0)))
        api.served = {"workloads"}
        await api.break_watches()
        await until(lambda: world.store.get("provisioningrequest", "team", "r") is None)
        assert dropped == [3]


async def test_a_required_kind_that_is_missing_is_waited_for_and_named() -> None:
    api = ApiServer()
    api.served = {kind.resource.plural for kind in KINDS.values()} - {"workloads"}
    async with running(api) as world:
        await until(lambda: "workload" in world.intake.down)
        assert not world.intake.synced.is_set()
        assert "404" in world.intake.down["workload"]
        api.served = None
        await asyncio.wait_for(world.intake.synced.wait(), 5)
        await until(lambda: world.intake.down == {})


async def test_relist_returns_with_lists_that_began_after_the_call() -> None:
    api = ApiServer()
    async with running(api) as world:
        await world.watching()
        version = await api.put(resources.RESOURCE_FLAVORS, bare(flavor("a")))
        await api.remove(resources.RESOURCE_FLAVORS, "", "a", quietly=True)
        version = await api.put(resources.COHORTS, {"metadata": {"name": "c"}, "spec": {}})
        await asyncio.wait_for(world.intake.relist(), 5)
        assert world.flavors() == {}
        assert world.store.version_of("resourceflavor") >= version


async def test_an_api_server_that_went_back_in_time_is_told_and_believed() -> None:
    api = ApiServer()
    await api.put(resources.RESOURCE_FLAVORS, bare(flavor("later")))
    async with running(api) as world:
        await world.watching()
        await api.restore(50)
        restored = await api.put(resources.RESOURCE_FLAVORS, bare(flavor("restored")))
        await until(lambda: world.flavors() == {"restored": restored})
        assert world.rewound
        assert "went back" not in world.rewound[0]
        assert "101" in " ".join(world.rewound)
