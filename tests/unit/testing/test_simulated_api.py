"""What a simulated API server does beyond the contract with the real one: faults, links, time, other writers, going back."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from shared.jobs.manifest import JsonObject
from shared.kube import errors
from shared.kube.client import KubeClient
from shared.kube.lease import LeaderLease
from shared.kube.list_watch import Listed, ListWatch, reference_of
from shared.kube.resources import JOBS, LEASES, LOCAL_QUEUES, NAMESPACES, PROVISIONING_REQUESTS, WORKLOADS
from shared.testing.link import Link
from shared.testing.simulated_api import Call, Commit, Fault, Late, Refuse, SimulatedApi, TimeOut

NOW = 1_700_000_000.5
QUEUE: JsonObject = {"metadata": {"name": "lq", "namespace": "default"}, "spec": {"clusterQueue": "cq"}}


@pytest.fixture
def api() -> SimulatedApi:
    return SimulatedApi(lambda: NOW, random.Random(1), gc_delay_s=(0.0, 0.01))


def json(document: object) -> bytes:
    return msgspec.json.encode(document)


async def stop(client: KubeClient, state: str) -> None:
    await client.patch(LOCAL_QUEUES, "default", "lq", json({"spec": {"stopPolicy": state}}))


def policy(api: SimulatedApi) -> object:
    document: Any = api.get(LOCAL_QUEUES, "default", "lq")
    return document["spec"]["stopPolicy"]


def only(verb: str, fault: Fault) -> Callable[[Call], Fault | None]:
    """The fault, for the first call of this verb."""
    left = [fault]
    return lambda call: left.pop() if call.verb == verb and left else None


class TestFaults:
    @pytest.mark.parametrize(
        ("status", "kind"),
        [
            (403, errors.Forbidden),
            (429, errors.TooManyRequests),
            (500, errors.ServerTimeout),
            (503, errors.ServerTimeout),
        ],
    )
    async def test_a_refused_call_is_not_carried_out(
        self, api: SimulatedApi, status: int, kind: type[errors.ApiError]
    ) -> None:
        api.create(LOCAL_QUEUES, QUEUE)
        api.fault = only("patch", Refuse(status, retry_after=9))
        client = api.client()
        with pytest.raises(kind) as caught:
            await stop(client, "Hold")
        assert (caught.value.status, caught.value.retry_after) == (status, 9)
        assert policy(api) == "None"
        await stop(client, "Hold")
        assert policy(api) == "Hold"

    async def test_a_short_429_is_waited_out_by_the_client(self, api: SimulatedApi) -> None:
        api.create(LOCAL_QUEUES, QUEUE)
        api.fault = only("patch", Refuse(429))
        await stop(api.client(), "Hold")
        assert policy(api) == "Hold"

    @pytest.mark.parametrize("committed", [False, True])
    async def test_no_answer_says_nothing_about_the_call(self, api: SimulatedApi, committed: bool) -> None:
        api.create(LOCAL_QUEUES, QUEUE)
        api.fault = only("patch", TimeOut(committed))
        with pytest.raises(errors.Unreachable):
            await stop(api.client(timeout_s=0.02), "Hold")
        assert policy(api) == ("Hold" if committed else "None")

    async def test_a_late_call_is_carried_out_after_the_caller_gave_up(self, api: SimulatedApi) -> None:
        api.create(LOCAL_QUEUES, QUEUE)
        landed = asyncio.Event()
        api.subscribe(lambda _: landed.set())
        api.fault = only("patch", Late(0.05))
        with pytest.raises(errors.Unreachable):
            await stop(api.client(timeout_s=0.01), "Hold")
        assert policy(api) == "None"
        await asyncio.wait_for(landed.wait(), 2)
        assert policy(api) == "Hold"

    async def test_a_late_call_that_has_become_impossible_disturbs_nobody(self, api: SimulatedApi) -> None:
        made: Any = api.create(LOCAL_QUEUES, QUEUE)
        api.fault = only("delete", Late(0.01))
        client = api.client()
        late = asyncio.create_task(client.delete(LOCAL_QUEUES, "default", "lq", uid=made["metadata"]["uid"]))
        await asyncio.sleep(0)
        api.delete(LOCAL_QUEUES, "default", "lq")
        with pytest.raises(errors.NotFound):
            await late

    async def test_a_fault_is_told_the_call(self, api: SimulatedApi) -> None:
        calls: list[Call] = []

        def note(call: Call) -> None:
            calls.append(call)

        api.fault = note
        api.create(LOCAL_QUEUES, QUEUE)
        client = api.client(user="somebody")
        await client.patch(LOCAL_QUEUES, "default", "lq", b'{"status":{"pendingWorkloads":1}}', subresource="status")
        await client.list_page(LOCAL_QUEUES)
        assert calls == [
            Call("patch", LOCAL_QUEUES, "default", "lq", "status", "somebody"),
            Call("list", LOCAL_QUEUES, "", "", "", "somebody"),
        ]

    async def test_a_refused_watch_does_not_open(self, api: SimulatedApi) -> None:
        api.fault = only("watch", Refuse(503))
        with pytest.raises(errors.ServerTimeout):
            await anext(api.client().watch(JOBS, "", query={}, idle_s=1))
        assert api.open_watches() == 0

    async def test_a_server_that_is_down_answers_nothing(self, api: SimulatedApi) -> None:
        client = api.client()
        api.down = True
        with pytest.raises(errors.Unreachable):
            await client.list_page(JOBS)
        api.down = False
        await client.list_page(JOBS)

    async def test_a_kind_that_is_not_served(self, api: SimulatedApi) -> None:
        api.not_served.add("provisioningrequests")
        client = api.client()
        with pytest.raises(errors.NotFound):
            await client.list_page(PROVISIONING_REQUESTS)
        with pytest.raises(errors.NotFound):
            await anext(client.watch(PROVISIONING_REQUESTS, "", query={}, idle_s=1))


class TestLinks:
    async def test_a_call_passes_before_and_after_it_is_carried_out(self, api: SimulatedApi) -> None:
        api.create(LOCAL_QUEUES, QUEUE)
        passages: list[tuple[str, str, object]] = []
        link = Link(random.Random(1), passing=lambda way, what: passages.append((way, what, policy(api))))
        await stop(api.client(link), "Hold")
        what = "patch localqueues default/lq"
        assert passages == [("there", what, "None"), ("back", what, "Hold")]

    @pytest.mark.parametrize(("at", "done"), [("there", "None"), ("back", "Hold")])
    async def test_a_link_that_is_cut(self, api: SimulatedApi, at: str, done: str) -> None:
        api.create(LOCAL_QUEUES, QUEUE)
        link = Link(random.Random(1), passing=lambda way, _: link.cut(down=True) if way == at else None)
        with pytest.raises(errors.Unreachable):
            await stop(api.client(link), "Hold")
        assert policy(api) == done

    async def test_a_killed_process_is_never_answered(self, api: SimulatedApi) -> None:
        api.create(LOCAL_QUEUES, QUEUE)
        link = Link(random.Random(1), passing=lambda way, _: link.kill() if way == "back" else None)
        task = asyncio.create_task(stop(api.client(link, timeout_s=60), "Hold"))
        await asyncio.wait({task}, timeout=0.05)
        assert not task.done()
        assert policy(api) == "Hold"
        task.cancel()

    async def test_a_cut_link_ends_its_watches_only(self, api: SimulatedApi) -> None:
        first, second = Link(random.Random(1)), Link(random.Random(2))
        watches = [api.client(link).watch(JOBS, "", query={}, idle_s=9) for link in (first, second)]
        for watch in watches:
            assert await anext(watch) == []
        first.cut()
        with pytest.raises(errors.Unreachable):
            await anext(watches[0])
        api.create(JOBS, {"metadata": {"name": "a", "namespace": "default"}, "spec": {}})
        assert len(await anext(watches[1])) == 1
        await watches[1].aclose()
        assert api.open_watches() == 0

    async def test_events_that_travel_when_the_link_is_cut_are_lost(self, api: SimulatedApi) -> None:
        link = Link(random.Random(1))
        watch = api.client(link).watch(NAMESPACES, "", query={"resourceVersion": str(api.version)}, idle_s=9)
        assert await anext(watch) == []
        link.delay_s = (0.05, 0.05)
        api.create(NAMESPACES, {"metadata": {"name": "a"}})
        step = asyncio.create_task(anext(watch))
        await asyncio.sleep(0.01)
        link.cut()
        with pytest.raises(errors.Unreachable):
            await step


class TestWatches:
    async def test_bookmarks_come_by_the_clock_and_before_the_end(self) -> None:
        api = SimulatedApi(lambda: NOW, random.Random(1), bookmark_s=0.02)
        version = str(api.version)
        query = {"resourceVersion": version, "timeoutSeconds": "3", "allowWatchBookmarks": "true"}
        watch = api.client().watch(JOBS, "", query=query, idle_s=9)
        assert await anext(watch) == []
        api.create(NAMESPACES, {"metadata": {"name": "a"}})
        for _ in range(2):
            (line,) = await anext(watch)
            event = msgspec.json.decode(line)
            assert event["type"] == "BOOKMARK"
            assert event["object"]["metadata"]["resourceVersion"] == str(api.version)
        await watch.aclose()

    async def test_silence_is_noticed_by_the_reader_alone(self, api: SimulatedApi) -> None:
        watch = api.client().watch(NAMESPACES, "", query={"resourceVersion": str(api.version)}, idle_s=0.05)
        assert await anext(watch) == []
        api.silence_watches(NAMESPACES)
        api.create(NAMESPACES, {"metadata": {"name": "a"}})
        with pytest.raises(errors.Unreachable, match="nothing came"):
            await anext(watch)

    async def test_broken_watches_are_those_of_the_kind(self, api: SimulatedApi) -> None:
        client = api.client()
        jobs, namespaces = (client.watch(one, "", query={}, idle_s=9) for one in (JOBS, NAMESPACES))
        await anext(jobs)
        await anext(namespaces)
        api.break_watches(JOBS)
        with pytest.raises(errors.Unreachable):
            await anext(jobs)
        assert len(await anext(namespaces)) == 1
        await namespaces.aclose()

    async def test_an_event_is_encoded_once_for_all(self, api: SimulatedApi) -> None:
        query = {"resourceVersion": str(api.version)}
        watches = [api.client().watch(NAMESPACES, "", query=query, idle_s=9) for _ in range(2)]
        for watch in watches:
            await anext(watch)
        api.create(NAMESPACES, {"metadata": {"name": "a"}})
        (one,), (two,) = [await anext(watch) for watch in watches]
        assert one is two
        for watch in watches:
            await watch.aclose()


class TestOldVersions:
    async def test_a_continue_token_ends_with_a_compaction(self, api: SimulatedApi) -> None:
        for name in ("a", "b", "c"):
            api.create(NAMESPACES, {"metadata": {"name": name}})
        client = api.client()
        page = msgspec.json.decode(await client.list_page(NAMESPACES, query={"limit": "2"}))
        token = page["metadata"]["continue"]
        api.create(NAMESPACES, {"metadata": {"name": "d"}})
        rest = msgspec.json.decode(await client.list_page(NAMESPACES, query={"limit": "9", "continue": token}))
        assert [one["metadata"]["name"] for one in rest["items"]] == ["c", "default"]
        api.compact()
        with pytest.raises(errors.Gone):
            await client.list_page(NAMESPACES, query={"limit": "2", "continue": token})

    async def test_data_restored_from_a_backup(self, api: SimulatedApi) -> None:
        api.create(LOCAL_QUEUES, QUEUE)
        kept = api.create(NAMESPACES, {"metadata": {"name": "kept"}})
        backup = api.version
        client = api.client()
        watch = client.watch(LOCAL_QUEUES, "", query={"resourceVersion": str(backup)}, idle_s=9)
        await anext(watch)
        await stop(client, "Hold")
        api.delete(NAMESPACES, "", "kept")
        api.create(NAMESPACES, {"metadata": {"name": "later"}})
        beyond = api.version
        api.restore_to(backup)
        assert api.version == backup
        assert policy(api) == "None"
        assert api.get(NAMESPACES, "", "kept") == kept
        assert api.get(NAMESPACES, "", "later") is None
        assert all(commit.version <= backup for commit in api.history)
        with pytest.raises(errors.Unreachable):
            await anext(watch)
        with pytest.raises(errors.ServerTimeout, match="Too large"):
            await client.list_page(NAMESPACES, query={"resourceVersion": str(beyond)})
        await stop(client, "HoldAndDrain")
        assert api.version == backup + 1

    async def test_our_own_list_and_watch_notices_a_restore(self, api: SimulatedApi) -> None:
        backup = api.version
        api.create(NAMESPACES, {"metadata": {"name": "later"}})
        held: set[str] = set()
        watch = ListWatch(
            api.client(), NAMESPACES, reference_of, lambda one: one.version, on_malformed=lambda one, why: None
        )
        async with contextlib.aclosing(watch.run()) as steps, asyncio.timeout(5):
            async for items in steps:
                for item in items:
                    if isinstance(item, Listed):
                        held = {one.name for one in item.items}
                if held == {"default", "later"} and api.version > backup:
                    api.restore_to(backup)
                elif held == {"default"}:
                    break

    async def test_what_is_owned_is_collected_after_a_restore_too(self, api: SimulatedApi) -> None:
        owner: Any = api.create(LOCAL_QUEUES, QUEUE)
        reference = {"apiVersion": "v1", "kind": "LocalQueue", "name": "lq", "uid": owner["metadata"]["uid"]}
        metadata = {"name": "w", "namespace": "default", "ownerReferences": [reference]}
        api.create(WORKLOADS, {"metadata": metadata, "spec": {}})
        backup = api.version
        api.delete(LOCAL_QUEUES, "default", "lq")
        api.collect_garbage()
        assert api.get(WORKLOADS, "default", "w") is None
        api.restore_to(backup)
        assert api.get(WORKLOADS, "default", "w") is not None
        api.delete(LOCAL_QUEUES, "default", "lq")
        api.collect_garbage()
        assert api.get(WORKLOADS, "default", "w") is None

    async def test_a_restart_leaves_calls_in_flight_without_an_answer(self, api: SimulatedApi) -> None:
        api.create(LOCAL_QUEUES, QUEUE)
        link = Link(random.Random(1), passing=lambda way, _: api.restart() if way == "back" else None)
        with pytest.raises(errors.Unreachable):
            await stop(api.client(link), "Hold")
        assert policy(api) == "Hold"


class TestOtherWriters:
    def test_they_need_no_loop(self, api: SimulatedApi) -> None:
        made: Any = api.create(JOBS, {"metadata": {"name": "j", "namespace": "default"}, "spec": {"suspend": True}})
        assert made["metadata"]["creationTimestamp"] == api.timestamp() == "2023-11-14T22:13:20Z"
        patched: Any = api.write(JOBS, "default", "j", {"status": {"active": 2}}, subresource="status")
        assert patched["status"] == {"active": 2}
        with pytest.raises(errors.AlreadyExists):
            api.create(JOBS, made | {"metadata": {"name": "j", "namespace": "default"}})
        with pytest.raises(errors.Conflict):
            api.delete(JOBS, "default", "j", uid="another")
        api.delete(JOBS, "default", "j")
        assert list(api.objects(JOBS)) == []
        with pytest.raises(errors.NotFound):
            api.write(JOBS, "default", "j", {})

    async def test_each_commit_is_told_with_its_writer(self, api: SimulatedApi) -> None:
        told: list[Commit] = []
        api.subscribe(told.append)
        api.create(LOCAL_QUEUES, QUEUE, user="one")
        client = api.client(user="two")
        await client.patch(LOCAL_QUEUES, "default", "lq", b'{"status":{"pendingWorkloads":1}}', subresource="status")
        await client.patch(LOCAL_QUEUES, "default", "lq", b'{"spec":{"clusterQueue":"cq"}}')
        api.delete(LOCAL_QUEUES, "default", "lq", user="three")
        assert [(one.verb, one.user, one.subresource) for one in told] == [
            ("create", "one", ""),
            ("update", "two", "status"),
            ("delete", "three", ""),
        ]
        assert [one.version for one in told] == list(range(told[0].version, api.version + 1))
        assert told[0].old is None
        assert told[1].old is told[0].new
        assert told[2].new is None
        assert (told[2].namespace, told[2].name) == ("default", "lq")
        assert api.history[-3:] == told

    def test_a_subscriber_must_not_write(self, api: SimulatedApi) -> None:
        api.subscribe(lambda commit: api.delete(NAMESPACES, "", "default") if commit.verb == "create" else None)
        with pytest.raises(RuntimeError):
            api.create(LOCAL_QUEUES, QUEUE)
        assert api.get(NAMESPACES, "", "default") is not None


async def test_a_lease_passes_from_one_candidate_to_the_next(api: SimulatedApi) -> None:
    links = [Link(random.Random(seed)) for seed in (1, 2)]
    one, two = (
        LeaderLease(
            api.client(link, timeout_s=0.1), namespace="default", name="l", identity=name, duration_s=0.3, renew_s=0.05
        )
        for link, name in zip(links, ("one", "two"), strict=True)
    )
    first = asyncio.create_task(one.run())
    await asyncio.wait_for(one.held.wait(), 2)
    second = asyncio.create_task(two.run())
    links[0].cut(down=True)
    await asyncio.wait_for(two.held.wait(), 5)
    # Cut off it knows nothing of the other one, but not to write any more.
    assert (one.is_held, one.lost.is_set()) == (False, False)
    links[0].mend()
    await asyncio.wait_for(first, 2)
    assert one.lost.is_set()
    lease: Any = api.get(LEASES, "default", "l")
    assert lease["spec"]["holderIdentity"] == "two"
    second.cancel()
    await asyncio.wait({second})
    lease = api.get(LEASES, "default", "l")
    assert lease["spec"]["holderIdentity"] == ""


async def test_one_seed_is_one_history() -> None:
    async def history() -> bytes:
        api = SimulatedApi(lambda: NOW, random.Random(7), gc_delay_s=(0.0, 0.0))
        client = api.client(Link(random.Random(8), delay_s=(0.0, 0.0)))
        for number in range(20):
            await client.create(
                LOCAL_QUEUES, "default", json({"metadata": {"generateName": f"q{number}-"}, "spec": {}})
            )
        api.delete(NAMESPACES, "", "default")
        api.collect_garbage()
        return json([(one.version, one.verb, one.name, one.old, one.new) for one in api.history])

    assert await history() == await history()
