"""One active gateway, and no Kueue beside it: both Leases, their order, and what is left when we go."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.watcher.standing import HOLDER, Standing, kueue_lease
from shared.config.configuration import LeaderElection
from shared.config.durations import Duration
from shared.kube.client import KubeClient
from shared.kube.lease import LeaderLease
from tests.unit.kube.api_server import ApiServer, client_of, until

NAMESPACE = "kueue-system"
ELECTION = LeaderElection(lease_duration=Duration(0.6), retry_period=Duration(0.05))
KUEUES = (NAMESPACE, "c1f6bfd2.kueue.x-k8s.io")


def own(client: KubeClient, name: str) -> LeaderLease:
    return LeaderLease(client, namespace=NAMESPACE, name="ours", identity=name, duration_s=0.3, renew_s=0.05)


def candidate(client: KubeClient, name: str, election: LeaderElection = ELECTION) -> Standing:
    return Standing(own(client, name), kueue_lease(client, election, NAMESPACE))


def kueue(client: KubeClient, duration_s: float = 0.6) -> LeaderLease:
    namespace, name = KUEUES
    return LeaderLease(
        client, namespace=namespace, name=name, identity="kueue-pod", duration_s=duration_s, renew_s=0.05
    )


@asynccontextmanager
async def running(one: Standing | LeaderLease) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(one.run())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def holder(api: ApiServer) -> str:
    return str(api.objects["leases"][KUEUES]["spec"]["holderIdentity"])


async def test_a_kueue_that_runs_is_waited_for() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        leader, ours = kueue(client), candidate(client, "a")
        async with running(leader):
            await until(lambda: leader.is_held)
            async with running(ours):
                await until(lambda: ours.behind == "Kueue (kueue-pod)")
                seen = api.version
                # Many renewals of Kueue's and ours later.
                await until(lambda: api.version > seen + 40)
                assert not ours.held.is_set()
                assert not ours.is_held
                assert holder(api) == "kueue-pod"
                leader.lost.set()
                await leader._release()
                await until(lambda: ours.held.is_set())
                assert ours.is_held
                assert holder(api) == HOLDER


async def test_a_kueue_that_comes_later_stands_by() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        ours, late = candidate(client, "a"), kueue(client)
        async with running(ours):
            await until(lambda: ours.is_held)
            async with running(late):
                await until(lambda: late.holder == HOLDER)
                seen = api.version
                await until(lambda: api.version > seen + 40)
                assert not late.held.is_set()
                assert ours.is_held


async def test_a_takeover_among_us_is_no_gap() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        first, second = candidate(client, "a"), candidate(client, "b")
        # It would take the Lease as soon as it is given up, and has to wait for long when it is not.
        waiting = kueue(client, duration_s=60)
        going = asyncio.create_task(first.run())
        await until(lambda: first.is_held)
        async with running(second), running(waiting):
            await until(lambda: second.behind == "a" and waiting.holder == HOLDER)
            going.cancel()
            await asyncio.wait({going})
            await until(lambda: second.is_held)
            assert holder(api) == HOLDER
            assert not waiting.held.is_set()


async def test_stopped_we_leave_kueues_lease_to_run_out() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        ours, next_one = candidate(client, "a"), kueue(client)
        async with running(ours):
            await until(lambda: ours.is_held)
        assert holder(api) == HOLDER
        assert api.objects["leases"][NAMESPACE, "ours"]["spec"]["holderIdentity"] == ""
        async with running(next_one):
            await until(lambda: next_one.is_held)
        assert not ours.is_held


async def test_who_loses_kueues_lease_is_not_active_any_more() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        ours = candidate(client, "a")
        async with running(ours) as task:
            await until(lambda: ours.is_held)
            document = api.objects["leases"][KUEUES]
            document["spec"]["holderIdentity"] = "somebody"
            document["metadata"]["resourceVersion"] = "1"
            await asyncio.wait_for(task, 5)
            assert not ours.is_held


async def test_without_leader_election_ours_is_enough() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        ours = candidate(client, "a", LeaderElection(leader_elect=False))
        async with running(ours):
            await until(lambda: ours.held.is_set())
            assert ours.is_held
            assert KUEUES not in api.objects["leases"]


async def test_the_configuration_names_it() -> None:
    api = ApiServer()
    async with client_of(api) as client:
        election = LeaderElection(resource_name="mine", resource_namespace="there", retry_period=Duration(0.05))
        ours = candidate(client, "a", election)
        async with running(ours):
            await until(lambda: ours.is_held)
        assert api.objects["leases"]["there", "mine"]["spec"]["holderIdentity"] == HOLDER
