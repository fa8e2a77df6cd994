"""Wiring of the scheduler: `python -m services.scheduler`."""

from __future__ import annotations

import gc

from services.scheduler.service import Scheduler
from services.scheduler.settings import SchedulerSettings
from shared.runtime.service import Context, run


async def serve(ctx: Context[SchedulerSettings]) -> None:
    """Run one scheduler on this context."""
    # Much lives long and little is garbage: looking for cycles seldom costs a few MB and saves a third of a busy scheduler's time.
    gc.set_threshold(200_000, 50, 1000)
    ctx.health.ready(True)
    scheduler = Scheduler(
        ctx.bus,
        ctx.settings,
        now=ctx.now,
        tracer=ctx.tracer,
        registry=ctx.metrics,
        ready=lambda is_ready, why: ctx.health.ready(is_ready, why, cause="feed"),
        loaded=_freeze,
        configured=ctx.configured,
    )
    await scheduler.run()


def _freeze() -> None:
    """What was loaded stays: keep the garbage collector from walking it again and again."""
    gc.collect()
    gc.freeze()


def main() -> None:
    """Entry point."""
    run("scheduler", SchedulerSettings, serve)


if __name__ == "__main__":
    main()
