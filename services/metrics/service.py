"""Prometheus series of the whole system, from the log and the objects.

1. Follow all that is on the bus.
2. Reset: forget the objects; what was counted stays counted.
3. The first replay counts nothing: a change is only known to have happened while we watched. A later one counts what it missed, between the
   states before and after it.
4. Afterwards each change of a workload, each settled preemption is counted or observed once.
5. Gauges are computed from the newest objects when they are scraped.

Any number of these may run. One is the leader, by lease: it counts; the others publish gauges, with another `replica_role`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from services.metrics import handlers
from services.metrics.gauges import BuildInfo, StateCollector
from services.metrics.settings import MetricsSettings, with_configuration
from services.metrics.view import Objects, View
from shared.bus.interface import CaughtUp, FeedItem, Lease, Logged, ObjectChanged, Reset, Settled
from shared.config.configuration import Configured
from shared.config.custom_labels import custom_labels
from shared.runtime.service import Context
from shared.telemetry.metrics import FOLLOWER, LEADER, STANDALONE, Recorder

KINDS = ("workload", "clusterqueue", "localqueue", "cohort")
LEASE = "metrics"
CHECK_S = 0.5
"""How often a leader looks whether it still is."""


def fold(memory: handlers.Memory, recorder: Recorder, item: FeedItem) -> None:
    """Steps 2 to 4 for one item."""
    match item:
        case Reset():
            memory.reset()
        case ObjectChanged():
            handlers.object_changed(memory, recorder, item)
        case Logged():
            handlers.logged(memory, recorder, item)
        case Settled():
            handlers.settled(memory, recorder, item)
        case CaughtUp():
            memory.caught_up(recorder)


def viewer(settings: MetricsSettings, configured: Configured) -> Callable[[Objects], View]:
    """Makes the view of objects that the configuration asks for."""
    selector = configured.configuration.metrics.local_queue_metrics.local_queue_selector
    return lambda objects: View(
        objects,
        with_configuration(settings, configured),
        custom_labels(configured),
        selector.selector() if selector is not None else None,
    )


def fixed_role(settings: MetricsSettings, configured: Configured) -> str:
    """The role that needs no election; empty where one decides."""
    elected = configured.configuration.leader_election.leader_elect
    return settings.replica_role or ("" if elected else STANDALONE)


async def serve(context: Context[MetricsSettings]) -> None:
    """Run until cancelled."""
    settings, configured = context.settings, context.configured
    memory = handlers.Memory(viewer(settings, configured))
    fixed = fixed_role(settings, configured)
    lease = None if fixed else context.bus.lease(LEASE)

    def role() -> str:
        return fixed if lease is None else LEADER if lease.held else FOLLOWER

    recorder = Recorder(context.metrics, role, memory.view.custom.names)
    context.metrics.register(StateCollector(memory.view, role))
    context.metrics.register(BuildInfo(settings.git_version, settings.git_commit, settings.build_date))
    try:
        async with asyncio.TaskGroup() as tasks:
            if lease is not None:
                tasks.create_task(_stand(lease, recorder))
            async for items in context.bus.feed(kinds=KINDS, decisions=True, outcomes=True):
                for item in items:
                    fold(memory, recorder, item)
                context.health.ready(memory.live, "replaying")
    finally:
        if lease is not None:
            # Until it expires nobody would count.
            await lease.release()


async def _stand(lease: Lease, recorder: Recorder) -> None:
    """Ask for the lease again and again; with it go the series that were counted as its holder."""
    while True:
        await lease.wait_until_held()
        while lease.held:  # noqa: ASYNC110 - a lease is judged when it is asked; nothing tells of its end
            await asyncio.sleep(CHECK_S)
        recorder.clear()
