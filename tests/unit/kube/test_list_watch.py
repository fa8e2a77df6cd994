"""Lists and watches against everything that a server does to them."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec
import pytest
from aiohttp import web

from shared.kube import resources
from shared.kube.client import KubeClient
from shared.kube.list_watch import Bookmark, Changed, Deleted, Down, Item, Listed, ListWatch, ObjectReference, Timing
from tests.unit.kube.api_server import ApiServer, client_of, status, until

QUICK = Timing(
    first_pause_s=0.01, longest_pause_s=0.05, first_not_served_pause_s=0.01, longest_not_served_pause_s=0.05, idle_s=2.0
)


class Job(NamedTuple):
    name: str
    version: int


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    resource_version: str


class _Spec(msgspec.Struct):
    parallelism: int = 1


class _Object(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)


def decode(raw: bytes) -> Job:
    found = msgspec.json.decode(raw, type=_Object)
    return Job(found.metadata.name, int(found.metadata.resource_version))


def job(name: str, **spec: object) -> dict[str, object]:
    return {"metadata": {"namespace": "team", "name": name}, "spec": spec}


def lists(api: ApiServer) -> list[dict[str, str]]:
    """Queries of the lists, without those that only ask whether a version was reached."""
    return [query for _, _, query, _ in api.requests if not {"watch", "resourceVersion"} & set(query)]


class Follower:
    """Runs a ListWatch and keeps what it says."""

    def __init__(self, client: KubeClient, page_size: int = 500) -> None:
        self.malformed: list[tuple[ObjectReference, str]] = []
        self.seen: list[Item[Job]] = []
        self.watch = ListWatch(
            client, resources.JOBS, decode, lambda found: found.version,
            on_malformed=lambda reference, error: self.malformed.append((reference, error)), timing=QUICK, page_size=page_size,
        )  # fmt: skip

    async def run(self) -> None:
        async with contextlib.aclosing(self.watch.run()) as steps:
            async for items in steps:
                self.seen += items

    def names(self) -> dict[str, int]:
        """The collection as a reader of the items knows it."""
        known: dict[str, int] = {}
        for item in self.seen:
            match item:
                case Listed(items=items):
                    known = {found.name: found.version for found in items}
                case Changed(item=found):
                    known[found.name] = found.version
                case Deleted(reference=gone):
                    known.pop(gone.name, None)
        return known

    def lists(self) -> int:
        return sum(isinstance(item, Listed) for item in self.seen)


@asynccontextmanager
async def following(api: ApiServer, page_size: int = 500) -> AsyncIterator[Follower]:
    async with client_of(api) as client:
        follower = Follower(client, page_size)
        task = asyncio.create_task(follower.run())
        try:
            yield follower
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def test_a_list_in_pages_then_changes_and_deletes() -> None:
    api = ApiServer()
    for name in "abcde":
        await api.put(resources.JOBS, job(name))
    async with following(api, page_size=2) as follower:
        await until(lambda: api.watches == 1)
        await until(lambda: len(follower.seen) == 2)
        listed, opened = follower.seen
        assert isinstance(listed, Listed)
        assert opened == Bookmark(listed.version), "that the watch is open is news, though nothing happens"
        assert set(follower.names()) == set("abcde")
        version = await api.put(resources.JOBS, job("f"))
        await api.remove(resources.JOBS, "team", "a")
        await until(lambda: "a" not in follower.names())
        assert follower.names()["f"] == version
    limits = [query["limit"] for query in lists(api)]
    assert limits == ["2", "2", "2"]


async def test_a_deletion_carries_the_version_of_the_deletion() -> None:
    api = ApiServer()
    await api.put(resources.JOBS, job("a"))
    async with following(api) as follower:
        await until(lambda: api.watches == 1)
        version = await api.remove(resources.JOBS, "team", "a")
        await until(lambda: any(isinstance(item, Deleted) for item in follower.seen))
        assert Deleted(ObjectReference("team", "a", "uid-a", version)) in follower.seen


async def test_a_broken_watch_goes_on_where_it_was() -> None:
    api = ApiServer()
    await api.put(resources.JOBS, job("a"))
    async with following(api) as follower:
        await until(lambda: api.watches == 1)
        seen = await api.put(resources.JOBS, job("b"))
        await until(lambda: "b" in follower.names())
        await api.break_watches()
        missed = await api.put(resources.JOBS, job("c"))
        await until(lambda: follower.names().get("c") == missed)
        assert follower.lists() == 1
        assert any(isinstance(item, Down) for item in follower.seen)
    resumed = [query["resourceVersion"] for _, _, query, _ in api.requests if "watch" in query]
    assert resumed[-1] == str(seen)


async def test_a_bookmark_moves_the_place_to_resume_from() -> None:
    api = ApiServer()

    def resumed() -> list[str]:
        return [query["resourceVersion"] for _, _, query, _ in api.requests if "watch" in query]

    async with following(api) as follower:
        await until(lambda: api.watches == 1)
        version = await api.bookmark(resources.JOBS)
        await until(lambda: Bookmark(version) in follower.seen)
        await api.break_watches()
        await until(lambda: len(resumed()) == 2)
    assert resumed()[-1] == str(version)


async def test_gone_lists_again_and_so_finds_the_deletes_it_missed() -> None:
    api = ApiServer()
    await api.put(resources.JOBS, job("a"))
    await api.put(resources.JOBS, job("b"))
    async with following(api) as follower:
        await until(lambda: api.watches == 1)
        await api.remove(resources.JOBS, "team", "a", quietly=True)
        await api.forget_history()
        await api.break_watches()
        await until(lambda: follower.lists() == 2)
        assert set(follower.names()) == {"b"}


async def test_a_list_that_is_too_old_to_be_watched_at_once_is_not_repeated_in_a_tight_loop() -> None:
    api = ApiServer()
    await api.put(resources.JOBS, job("a"))
    api.oldest = api.version + 1
    async with following(api) as follower:
        await until(lambda: follower.lists() == 4)
        pauses = follower.watch._timing.first_pause_s * (1 + 2) * 0.8
        started = asyncio.get_running_loop().time()
        await until(lambda: follower.lists() == 6)
        assert asyncio.get_running_loop().time() - started >= pauses


async def test_gone_in_the_middle_of_a_list_begins_the_list_again() -> None:
    api = ApiServer()
    for name in "abc":
        await api.put(resources.JOBS, job(name))

    async def normal(_: web.Request) -> None:
        return None

    async def expired(_: web.Request) -> web.Response:
        return status(410, "Expired")

    api.faults += [normal, expired]
    async with following(api, page_size=2) as follower:
        await until(lambda: follower.lists() == 1)
        assert set(follower.names()) == set("abc")


async def test_a_malformed_object_in_a_list_is_reported_and_the_rest_goes_on() -> None:
    api = ApiServer()
    await api.put(resources.JOBS, job("a"))
    version = await api.put(resources.JOBS, job("bad", parallelism="many"))
    async with following(api) as follower:
        await until(lambda: follower.lists() == 1)
        listed = follower.seen[0]
        assert isinstance(listed, Listed)
        assert [found.name for found in listed.items] == ["a"]
        assert listed.malformed == (ObjectReference("team", "bad", "uid-bad", version),)
        ((reference, error),) = follower.malformed
        assert reference.name == "bad"
        assert "parallelism" in error


async def test_a_malformed_object_in_a_watch_is_reported_and_the_watch_goes_on_behind_it() -> None:
    api = ApiServer()
    async with following(api) as follower:
        await until(lambda: api.watches == 1)
        version = await api.put(resources.JOBS, job("bad", parallelism="many"))
        await api.put(resources.JOBS, job("good"))
        await until(lambda: "good" in follower.names())
        assert [(reference.name, reference.version) for reference, _ in follower.malformed] == [("bad", version)]
        assert not any(isinstance(item, Down) for item in follower.seen)


async def test_a_line_that_is_no_event_breaks_only_that_watch() -> None:
    api = ApiServer()
    async with following(api) as follower:
        await until(lambda: api.watches == 1)
        await api.send(resources.JOBS, b"<html>\n")
        await until(lambda: any(isinstance(item, Down) for item in follower.seen))
        api.objects.clear()
        await api.forget_history()
        await api.put(resources.JOBS, job("a"))
        await until(lambda: "a" in follower.names())


async def test_lines_may_come_in_pieces_and_several_at_once() -> None:
    api = ApiServer()
    event = json.dumps({"type": "ADDED", "object": {"metadata": {"name": "a", "resourceVersion": "200"}}}).encode()
    other = event.replace(b'"a"', b'"b"').replace(b"200", b"201")
    async with following(api) as follower:
        await until(lambda: api.watches == 1)
        await api.send(resources.JOBS, event + b"\n" + other[:20])
        await until(lambda: "a" in follower.names())
        assert "b" not in follower.names()
        await api.send(resources.JOBS, other[20:] + b"\n" + other.replace(b'"b"', b'"c"') + b"\n")
        await until(lambda: {"a", "b", "c"} <= set(follower.names()))


async def test_what_came_before_an_error_in_one_chunk_is_not_lost() -> None:
    api = ApiServer()
    event = json.dumps({"type": "ADDED", "object": {"metadata": {"name": "a", "resourceVersion": "101"}}}).encode()
    broken = json.dumps({"type": "ERROR", "object": {"code": 500, "reason": "InternalError"}}).encode()
    async with following(api) as follower:
        await until(lambda: api.watches == 1)
        await api.send(resources.JOBS, event + b"\n" + broken + b"\n")
        await until(lambda: any(isinstance(item, Down) for item in follower.seen))
        assert follower.names() == {"a": 101}


async def test_a_kind_that_is_not_served_is_told_apart_and_found_once_it_is() -> None:
    api = ApiServer()
    api.served = set()
    async with following(api) as follower:
        await until(lambda: len(follower.seen) >= 3)
        assert all(isinstance(item, Down) and item.not_served for item in follower.seen)
        api.served.add("jobs")
        await api.put(resources.JOBS, job("a"))
        await until(lambda: "a" in follower.names())


async def test_a_server_error_is_down_but_not_unserved() -> None:
    api = ApiServer()

    async def fault(_: web.Request) -> web.Response:
        return status(500, "InternalError", "etcd")

    api.faults.append(fault)
    async with following(api) as follower:
        await until(lambda: follower.lists() == 1)
        assert follower.seen[0] == Down("500 InternalError: etcd", not_served=False)


async def test_a_version_from_before_a_restore_lists_again() -> None:
    api = ApiServer()
    await api.put(resources.JOBS, job("a"))

    async def fault(_: web.Request) -> web.Response:
        return status(504, "Timeout", "Timeout: Too large resource version: 500, current: 3")

    async with following(api) as follower:
        await until(lambda: api.watches == 1)
        api.faults.append(fault)
        await api.break_watches()
        await until(lambda: follower.lists() == 2)


async def test_relist_lists_at_once_and_only_a_list_begun_afterwards_counts() -> None:
    api = ApiServer()
    await api.put(resources.JOBS, job("a"))
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_: web.Request) -> None:
        reached.set()
        await go_on.wait()

    api.faults.append(slow)
    async with following(api) as follower:
        await reached.wait()
        follower.watch.relist()
        go_on.set()
        await until(lambda: api.watches == 1)
        assert follower.lists() == 1
        assert len(lists(api)) == 2
        follower.watch.relist()
        await until(lambda: follower.lists() == 2)
        await until(lambda: api.watches == 1)


async def test_relist_ends_a_pause() -> None:
    api = ApiServer()
    api.served = set()
    async with client_of(api) as client:
        follower = Follower(client)
        follower.watch._timing = Timing(first_not_served_pause_s=3600, longest_not_served_pause_s=3600)
        task = asyncio.create_task(follower.run())
        await until(lambda: len(follower.seen) == 1)
        api.served = None
        follower.watch.relist()
        await until(lambda: follower.lists() == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_cancelling_ends_it() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        follower = Follower(client)
        task = asyncio.create_task(follower.run())
        await until(lambda: api.watches == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await api.put(resources.JOBS, job("a"))
        assert follower.names() == {}
