"""The contract of lists and watches: nothing is missed, nothing comes twice, and what is too old is said to be."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shared.kube import errors
from shared.kube.list_watch import Changed, Deleted, Item, Listed, ListWatch, ObjectReference, reference_of
from shared.kube.resources import LOCAL_QUEUES
from tests.contract.kube.server import CONFIG_MAPS, WITHIN_S, Caller, Server, local_queue, told, version
from tests.contract.kube.writing import api
from tests.eventually import eventually

__all__ = ["api"]


async def make(api: Caller, *names: str, **metadata: object) -> list[int]:
    """LocalQueues of these names; their versions."""
    return [version(await api.create(LOCAL_QUEUES, local_queue(name, **metadata))) for name in names]


class Listing:
    async def test_all_in_order_at_a_version(self, api: Caller) -> None:
        versions = await make(api, "b", "a", "c")
        listed = await api.list(LOCAL_QUEUES)
        assert [one["metadata"]["name"] for one in listed["items"]] == ["a", "b", "c"]
        assert listed["kind"] == "LocalQueueList"
        assert version(listed) >= max(versions)
        assert not listed["metadata"].get("continue")

    async def test_pages_show_one_moment(self, api: Caller) -> None:
        await make(api, "a", "b", "c", "d", "e")
        first = await api.list(LOCAL_QUEUES, limit="2")
        await api.delete(LOCAL_QUEUES, "c")
        await make(api, "aa", "f")
        await api.patch(LOCAL_QUEUES, "e", {"metadata": {"labels": {"x": "y"}}})
        found = [one["metadata"]["name"] for one in first["items"]]
        page = first
        while page["metadata"].get("continue"):
            page = await api.list(LOCAL_QUEUES, limit="2", **{"continue": page["metadata"]["continue"]})
            assert version(page) == version(first)
            found += [one["metadata"]["name"] for one in page["items"]]
        assert found == ["a", "b", "c", "d", "e"]
        assert "labels" not in page["items"][-1]["metadata"]

    async def test_a_token_that_is_none(self, api: Caller) -> None:
        with pytest.raises(errors.Refused):
            await api.list(LOCAL_QUEUES, limit="2", **{"continue": "nonsense"})

    @pytest.mark.parametrize(
        ("selector", "names"),
        [
            ("x=1", ["a"]),
            ("x==1,y", []),
            ("x!=1", ["b", "c"]),
            ("x", ["a", "b"]),
            ("!x", ["c"]),
            ("x in (1,2)", ["a", "b"]),
            ("x notin (1), y=1", ["b"]),
        ],
    )
    async def test_labels_select(self, api: Caller, selector: str, names: list[str]) -> None:
        await make(api, "a", labels={"x": "1"})
        await make(api, "b", labels={"x": "2", "y": "1"})
        await make(api, "c")
        listed = await api.list(LOCAL_QUEUES, labelSelector=selector)
        assert [one["metadata"]["name"] for one in listed["items"]] == names

    async def test_a_selector_that_is_none(self, api: Caller) -> None:
        with pytest.raises(errors.Refused):
            await api.list(LOCAL_QUEUES, labelSelector="x in 1")

    async def test_names_select(self, api: Caller) -> None:
        await make(api, "a", "b")
        listed = await api.list(LOCAL_QUEUES, fieldSelector="metadata.name=b")
        assert [one["metadata"]["name"] for one in listed["items"]] == ["b"]


class Watching:
    async def test_every_change_after_the_list_in_order(self, api: Caller) -> None:
        await make(api, "before")
        since = (await api.list(LOCAL_QUEUES))["metadata"]["resourceVersion"]
        async with api.watching(LOCAL_QUEUES, resourceVersion=since) as events:
            (first,) = await make(api, "a")
            second = version(
                await api.patch(LOCAL_QUEUES, "a", {"status": {"pendingWorkloads": 1}}, subresource="status")
            )
            await api.delete(LOCAL_QUEUES, "a")
            came = await events.first(3)
        assert [told(event) for event in came] == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
        versions = [version(event["object"]) for event in came]
        assert versions[:2] == [first, second]
        assert versions[2] > second
        assert came[2]["object"]["status"] == {"pendingWorkloads": 1}

    async def test_what_happened_while_nobody_watched(self, api: Caller) -> None:
        await make(api, "a", "b")
        since = (await api.list(LOCAL_QUEUES))["metadata"]["resourceVersion"]
        await api.delete(LOCAL_QUEUES, "a")
        await make(api, "c")
        await api.patch(LOCAL_QUEUES, "b", {"metadata": {"labels": {"x": "y"}}})
        async with api.watching(LOCAL_QUEUES, resourceVersion=since) as events:
            came = await events.first(3)
        assert [told(event) for event in came] == [("DELETED", "a"), ("ADDED", "c"), ("MODIFIED", "b")]
        async with api.watching(LOCAL_QUEUES, resourceVersion=str(version(came[1]["object"]))) as events:
            assert told((await events.first(1))[0]) == ("MODIFIED", "b")

    async def test_two_watches_are_told_the_same(self, api: Caller) -> None:
        since = (await api.list(LOCAL_QUEUES))["metadata"]["resourceVersion"]
        async with (
            api.watching(LOCAL_QUEUES, resourceVersion=since) as one,
            api.watching(LOCAL_QUEUES, resourceVersion=since) as two,
        ):
            await make(api, "a", "b")
            assert await one.first(2) == await two.first(2)

    async def test_a_deletion_that_waits_for_a_finalizer_is_a_change(self, api: Caller) -> None:
        await make(api, "a", finalizers=["a.b/c"])
        since = (await api.list(LOCAL_QUEUES))["metadata"]["resourceVersion"]
        async with api.watching(LOCAL_QUEUES, resourceVersion=since) as events:
            await api.delete(LOCAL_QUEUES, "a")
            await api.patch(LOCAL_QUEUES, "a", {"metadata": {"finalizers": None}})
            marked, gone = await events.first(2)
        assert (marked["type"], gone["type"]) == ("MODIFIED", "DELETED")
        assert "deletionTimestamp" in marked["object"]["metadata"]
        assert version(gone["object"]) > version(marked["object"])

    async def test_a_selected_object_comes_and_goes(self, api: Caller) -> None:
        since = (await api.list(LOCAL_QUEUES))["metadata"]["resourceVersion"]
        async with api.watching(LOCAL_QUEUES, resourceVersion=since, labelSelector="x=1") as events:
            await make(api, "a", "b")
            for labels in ({"x": "1"}, {"x": "1", "y": "1"}, {"x": "2"}, {"x": "3"}):
                last = await api.patch(LOCAL_QUEUES, "a", {"metadata": {"labels": labels}})
            await api.patch(LOCAL_QUEUES, "a", {"metadata": {"labels": {"x": "1"}}})
            came = await events.first(4)
        assert [told(event) for event in came] == [
            ("ADDED", "a"),
            ("MODIFIED", "a"),
            ("DELETED", "a"),
            ("ADDED", "a"),
        ]
        left = came[2]["object"]
        assert version(came[1]["object"]) < version(left) < version(last)
        assert left["metadata"]["labels"]["x"] == "1"

    async def test_without_a_version_what_is_there_comes_first(self, api: Caller) -> None:
        await make(api, "b", "a")
        async with api.watching(LOCAL_QUEUES) as events:
            assert sorted(told(event) for event in await events.first(2)) == [("ADDED", "a"), ("ADDED", "b")]
            await make(api, "c")
            assert told((await events.first(3))[2]) == ("ADDED", "c")

    async def test_a_watch_ends_when_it_was_said_to(self, api: Caller) -> None:
        since = (await api.list(LOCAL_QUEUES))["metadata"]["resourceVersion"]
        async with (
            api.watching(LOCAL_QUEUES, resourceVersion=since, timeoutSeconds="4", allowWatchBookmarks="true") as events,
            asyncio.timeout(WITHIN_S),
        ):
            await make(api, "a")
            (created,) = await events.first(1)
            await events.ended.wait()
        assert len(events.all) == 1
        assert all(version(one["object"]) >= version(created["object"]) for one in events.bookmarks)

    async def test_a_version_that_is_too_old(self, server: Server, api: Caller) -> None:
        await make(api, "a")
        too_old = await server.expired_version()
        async with api.watching(LOCAL_QUEUES, resourceVersion=str(too_old)) as events:
            (came,) = await events.first(1)
        assert came["type"] == "ERROR"
        assert (came["object"]["code"], came["object"]["reason"]) == (410, "Expired")

    async def test_a_list_at_a_version_that_was_never_reached(self, api: Caller) -> None:
        beyond = int((await api.list(LOCAL_QUEUES))["metadata"]["resourceVersion"]) + 1_000_000
        with pytest.raises(errors.ServerTimeout, match="Too large resource version"):
            await api.list(LOCAL_QUEUES, limit="1", resourceVersion=str(beyond))

    async def test_a_version_that_was_never_reached(self, api: Caller) -> None:
        """No error and no event, not even a bookmark: a server whose data was restored looks like a quiet one."""
        since = (await api.list(LOCAL_QUEUES))["metadata"]["resourceVersion"]
        beyond = str(int(since) + 1_000_000)
        async with api.watching(
            LOCAL_QUEUES, resourceVersion=beyond, timeoutSeconds="4", allowWatchBookmarks="true"
        ) as events:
            await make(api, "a")
            async with asyncio.timeout(WITHIN_S):
                await events.ended.wait()
        assert not events.all
        assert not events.bookmarks

    async def test_only_the_namespace_and_the_kind_asked_for(self, server: Server, api: Caller) -> None:
        since = (await api.list(LOCAL_QUEUES))["metadata"]["resourceVersion"]
        async with api.watching(LOCAL_QUEUES, resourceVersion=since) as events:
            await server.client.create(CONFIG_MAPS, api.namespace, b'{"metadata":{"name":"a"}}')
            await server.client.create(CONFIG_MAPS, "default", b'{"metadata":{"generateName":"a-"}}')
            await make(api, "a")
            assert told((await events.first(1))[0]) == ("ADDED", "a")

    async def test_our_own_list_and_watch(self, server: Server, api: Caller) -> None:
        """ListWatch ends with what is there, whatever happens between its pages."""
        await make(api, "a", "b", "c")
        async with following(server) as found:
            await api.delete(LOCAL_QUEUES, "b")
            (last,) = await make(api, "d")
            assert await eventually(found.names, WITHIN_S, lambda names: names == ["a", "c", "d"]) == ["a", "c", "d"]
        assert found.versions["d"] == last


class Restarting:
    async def test_a_watch_breaks_and_our_own_goes_on(self, server: Server, api: Caller) -> None:
        await make(api, "a", "b")
        since = (await api.list(LOCAL_QUEUES))["metadata"]["resourceVersion"]

        async def watch_until_the_end() -> None:
            async with api.watching(LOCAL_QUEUES, resourceVersion=since) as events:
                await server.restart()
                await events.ended.wait()

        async with following(server) as found:
            await eventually(found.names, WITHIN_S, lambda names: names == ["a", "b"])
            with pytest.raises(errors.Unreachable):
                await watch_until_the_end()
            await api.delete(LOCAL_QUEUES, "a")
            await make(api, "c")
            assert await eventually(found.names, 3 * WITHIN_S, lambda names: names == ["b", "c"]) == ["b", "c"]


class Followed:
    """The names and versions that a ListWatch of LocalQueues has told of."""

    def __init__(self) -> None:
        self.versions: dict[str, int] = {}

    async def names(self) -> list[str]:
        return sorted(self.versions)

    def take(self, item: Item[ObjectReference]) -> None:
        match item:
            case Listed(items=items):
                self.versions = {one.name: one.version for one in items}
            case Changed(item=one):
                self.versions[one.name] = one.version
            case Deleted(reference=gone):
                self.versions.pop(gone.name, None)


@asynccontextmanager
async def following(server: Server) -> AsyncIterator[Followed]:
    """A ListWatch of the test's namespace, with pages of two, while the block runs."""
    found = Followed()

    def malformed(reference: ObjectReference, why: str) -> None:
        raise AssertionError(f"{reference.name}: {why}")

    watch = ListWatch(
        server.client,
        LOCAL_QUEUES,
        reference_of,
        lambda one: one.version,
        on_malformed=malformed,
        namespace=server.namespace,
        page_size=2,
    )

    async def follow() -> None:
        async with contextlib.aclosing(watch.run()) as steps:
            async for items in steps:
                for item in items:
                    found.take(item)

    task = asyncio.create_task(follow())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()
