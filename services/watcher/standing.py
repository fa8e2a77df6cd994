"""Which gateway is active: the one that holds Sluice's Lease and, with it, the Lease that elects Kueue's leader.

1. Stand for Sluice's Lease: one gateway among ours.
2. Holding it, stand for Kueue's. A Kueue that runs renews it and stays the leader; once it has stopped, the Lease is ours. A Kueue that starts, or still
   runs as a standby, waits from then on.
3. Active while both are held. Either one lost ends the process.
4. Stopped: ours is given up, so that another of our gateways takes over at once. Kueue's runs out by itself: all of ours hold it under one name, so
   that a restart or a takeover among us is no gap for Kueue to slip into.
"""

from __future__ import annotations

import asyncio

from shared.config.configuration import LeaderElection
from shared.kube.client import KubeClient
from shared.kube.lease import LeaderLease

HOLDER = "sluice-watcher"
"""In Kueue's Lease. Which of ours it is, our own Lease says."""


def kueue_lease(client: KubeClient, election: LeaderElection, namespace: str) -> LeaderLease | None:
    """As the configuration file names it; None where leader election is off."""
    if not election.leader_elect:
        return None
    return LeaderLease(
        client,
        namespace=election.resource_namespace or namespace,
        name=election.resource_name,
        identity=HOLDER,
        duration_s=election.lease_duration,
        renew_s=election.retry_period,
        release=False,
    )


class Standing:
    """One candidate. `run()` until lost or cancelled."""

    def __init__(self, own: LeaderLease, kueue: LeaderLease | None) -> None:
        self._own = own
        self._kueue = kueue
        self.held = asyncio.Event()

    @property
    def is_held(self) -> bool:
        """Both, beyond doubt."""
        return self._own.is_held and (self._kueue is None or self._kueue.is_held)

    @property
    def behind(self) -> str:
        """Who is active instead of us."""
        if self._kueue is not None and self._own.is_held:
            return f"Kueue ({self._kueue.holder or 'not seen yet'})"
        return self._own.holder or "nobody"

    async def run(self) -> None:
        """Returns when one of the Leases is lost."""
        tasks = {asyncio.create_task(self._own.run()), asyncio.create_task(self._then())}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _then(self) -> None:
        await self._own.held.wait()
        if self._kueue is None:
            self.held.set()
            # Lost is what the first task ends with.
            await self._own.lost.wait()
            return
        taking, waiting = asyncio.create_task(self._kueue.run()), asyncio.create_task(self._kueue.held.wait())
        try:
            await asyncio.wait({taking, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if self._kueue.held.is_set():
                self.held.set()
            await taking
        finally:
            taking.cancel()
            waiting.cancel()
            await asyncio.wait({taking, waiting})
