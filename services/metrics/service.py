"""Prometheus series of the whole system, from the log and the objects.

1. Follow all that is on the bus.
2. Reset: forget the objects; what was counted stays counted.
3. The first replay counts nothing: a change is only known to have happened while we watched. A later one counts what it missed, between the
   states before and after it.
4. Afterwards each change of a workload, each settled preemption is counted or observed once.
5. Gauges are computed from the newest objects when they are scraped.

Any number of these may run; each counts for itself.
"""

from __future__ import annotations

from services.metrics import handlers
from services.metrics.gauges import StateCollector
from services.metrics.settings import MetricsSettings, with_configuration
from shared.bus.interface import CaughtUp, FeedItem, Logged, ObjectChanged, Reset, Settled
from shared.runtime.service import Context
from shared.telemetry.metrics import Recorder

KINDS = ("workload", "clusterqueue", "localqueue", "cohort")


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


async def serve(context: Context[MetricsSettings]) -> None:
    """Run until cancelled."""
    memory = handlers.Memory()
    recorder = Recorder(context.metrics, context.settings.replica_role)
    context.metrics.register(StateCollector(memory.objects, with_configuration(context.settings, context.configured)))
    async for items in context.bus.feed(kinds=KINDS, decisions=True, outcomes=True):
        for item in items:
            fold(memory, recorder, item)
        context.health.ready(memory.live, "replaying")
