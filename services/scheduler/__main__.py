"""Wiring of the scheduler: `python -m services.scheduler`."""

from __future__ import annotations

from services.scheduler.service import Scheduler
from services.scheduler.settings import SchedulerSettings
from shared.runtime import collector
from shared.runtime.service import Context, run


async def serve(ctx: Context[SchedulerSettings]) -> None:
    """Run one scheduler on this context."""
    collector.expect_large_state()
    ctx.health.ready(True)
    scheduler = Scheduler(
        ctx.bus,
        ctx.settings,
        now=ctx.now,
        tracer=ctx.tracer,
        registry=ctx.metrics,
        ready=lambda is_ready, why: ctx.health.ready(is_ready, why, cause="feed"),
        loaded=collector.state_is_loaded,
        configured=ctx.configured,
    )
    await scheduler.run()


def main() -> None:
    """Entry point."""
    run("scheduler", SchedulerSettings, serve)


if __name__ == "__main__":
    main()
