"""Leader election: one at a time, taken over only after its full duration, lost cleanly, released on stop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from shared.kube import resources
from shared.kube.client import KubeClient
from shared.kube.errors import ApiError
from shared.kube.lease import LeaderLease, LeaseLost
from tests.unit.kube.api_server import ApiServer, Document, client_of, status, until


def candidate(client: KubeClient, name: str) -> LeaderLease:
    return LeaderLease(client, namespace="ns", name="role", identity=name, duration_s=0.3, renew_s=0.05)


@asynccontextmanager
async def standing(lease: LeaderLease) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(lease.run())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def record(api: ApiServer) -> Document:
    return api.objects["leases"][("ns", "role")]


async def test_the_first_candidate_makes_and_holds_it() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        lease = candidate(client, "a")
        async with standing(lease):
            await until(lambda: lease.is_held)
            version = api.version
            await until(lambda: api.version > version)
            spec = record(api)["spec"]
            assert spec["holderIdentity"] == "a"
            assert spec["leaseDurationSeconds"] == 1
            assert spec["renewTime"] >= spec["acquireTime"]


async def test_a_second_candidate_waits_and_takes_a_released_one_at_once() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        first, second = candidate(client, "a"), candidate(client, "b")
        async with standing(first):
            await until(lambda: first.is_held)
            async with standing(second):
                await until(lambda: second.holder == "a")
                assert not second.is_held
                first_task_done = asyncio.get_running_loop().time()
                await _stop(first, api)
                await until(lambda: second.is_held)
                assert asyncio.get_running_loop().time() - first_task_done < 5
                assert record(api)["spec"]["holderIdentity"] == "b"
                assert record(api)["spec"]["leaseTransitions"] == 2


async def _stop(lease: LeaderLease, api: ApiServer) -> None:
    lease.lost.set()
    await lease._release()
    assert record(api)["spec"]["holderIdentity"] == ""


async def test_a_silent_holder_is_replaced_after_the_duration_and_not_before() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        dead = {"holderIdentity": "dead", "leaseDurationSeconds": 1, "renewTime": "2020-01-01T00:00:00.000000Z"}
        await api.put(resources.LEASES, {"metadata": {"namespace": "ns", "name": "role"}, "spec": dead})
        lease = candidate(client, "a")
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with standing(lease):
            await until(lambda: lease.is_held)
        # Its own clock counts, however old the renewal claims to be.
        assert loop.time() - started >= 1.0


async def test_a_process_that_was_stopped_does_not_believe_to_hold_it() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        lease = candidate(client, "a")
        async with standing(lease):
            await until(lambda: lease.is_held)
            # Half a renewal before others may have it.
            lease._renewed_at = asyncio.get_running_loop().time() - 0.28
            assert not lease.is_held
            assert not lease.lost.is_set(), "its timers have not run yet"


@pytest.mark.parametrize("silent", [False, True])
async def test_who_cannot_renew_is_in_doubt_before_others_may_take_it_and_holds_it_again_after(silent: bool) -> None:
    api = ApiServer()
    never = asyncio.Event()

    async def fault(_: web.Request) -> web.Response:
        if silent:
            await never.wait()
        return status(500, "InternalError")

    async with client_of(api) as client:
        client.timeout_s = 0.1
        lease = candidate(client, "a")
        async with standing(lease) as task:
            await until(lambda: lease.is_held)
            api.faults += [fault] * 1000
            await until(lambda: not lease.is_held)
            assert not lease.lost.is_set()
            assert not task.done()
            with pytest.raises(ApiError):
                await lease.save({"x": "1"})
            api.faults.clear()
            await until(lambda: lease.is_held)
            await lease.save({"x": "2"})
            assert record(api)["metadata"]["annotations"] == {"x": "2"}
            assert record(api)["spec"]["leaseTransitions"] == 1
        never.set()


async def test_in_doubt_it_is_lost_to_whoever_took_it_meanwhile() -> None:
    api = ApiServer()

    async def fault(request: web.Request) -> web.Response:
        return status(500, "InternalError")

    async with client_of(api) as client:
        lease = candidate(client, "a")
        async with standing(lease) as task:
            await until(lambda: lease.is_held)
            api.faults += [fault] * 1000
            await until(lambda: not lease.is_held)
            thief = record(api)
            await api.put(resources.LEASES, {**thief, "spec": {**thief["spec"], "holderIdentity": "b"}})
            api.faults.clear()
            await asyncio.wait_for(task, 5)
            assert lease.lost.is_set()
            assert not lease.is_held
            with pytest.raises(LeaseLost):
                await lease.save({"x": "1"})
        assert record(api)["spec"]["holderIdentity"] == "b"


async def test_one_failed_renewal_is_made_up_for() -> None:
    api = ApiServer()

    async def fault(_: web.Request) -> web.Response:
        return status(500, "InternalError")

    async with client_of(api) as client:
        lease = candidate(client, "a")
        async with standing(lease):
            await until(lambda: lease.is_held)
            api.faults.append(fault)
            await until(lambda: not api.faults)
            version = api.version
            await until(lambda: api.version > version)
            assert lease.is_held


async def test_who_is_replaced_notices_with_the_next_renewal() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        lease = candidate(client, "a")
        async with standing(lease) as task:
            await until(lambda: lease.is_held)
            thief = record(api)
            await api.put(resources.LEASES, {**thief, "spec": {**thief["spec"], "holderIdentity": "b"}})
            await asyncio.wait_for(task, 5)
            assert lease.lost.is_set()
        assert record(api)["spec"]["holderIdentity"] == "b"


async def test_a_foreign_annotation_does_not_cost_the_lease() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        lease = candidate(client, "a")
        async with standing(lease):
            await until(lambda: lease.is_held)
            held = record(api)
            metadata = {**held["metadata"], "annotations": {"foreign": "1"}}
            changed = await api.put(resources.LEASES, {**held, "metadata": metadata})
            await until(lambda: api.version > changed)
            assert lease.is_held


async def test_annotations_are_saved_at_once_and_found_by_the_next_holder() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        first = candidate(client, "a")
        async with standing(first):
            await until(lambda: first.is_held)
            await first.save({"epoch": "7"})
            assert record(api)["metadata"]["annotations"] == {"epoch": "7"}
            first.annotations["applied"] = "3"
            await until(lambda: record(api)["metadata"]["annotations"].get("applied") == "3")
        second = candidate(client, "b")
        async with standing(second):
            await until(lambda: second.is_held)
            assert second.annotations == {"epoch": "7", "applied": "3"}


async def test_a_save_that_fails_says_so() -> None:
    api = ApiServer()

    async def fault(_: web.Request) -> web.Response:
        return status(500, "InternalError")

    async with client_of(api) as client:
        lease = LeaderLease(client, namespace="ns", name="role", identity="a", duration_s=60, renew_s=30)
        async with standing(lease):
            await until(lambda: lease.is_held)
            api.faults.append(fault)
            with pytest.raises(ApiError):
                await lease.save({"epoch": "1"})
            await lease.save({})
            assert record(api)["metadata"]["annotations"] == {"epoch": "1"}


async def test_stopping_releases_it() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        lease = candidate(client, "a")
        async with standing(lease):
            await until(lambda: lease.is_held)
        assert record(api)["spec"]["holderIdentity"] == ""
        assert lease.lost.is_set()


async def test_two_candidates_are_never_both_active() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        leases = [candidate(client, name) for name in "abc"]
        async with standing(leases[0]), standing(leases[1]), standing(leases[2]):
            await until(lambda: any(lease.is_held for lease in leases))
            version = api.version
            await until(lambda: api.version > version + 5)
            assert sum(lease.is_held for lease in leases) == 1
