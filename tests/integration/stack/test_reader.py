"""The user of external tools, on the running stack: sees events, can do nothing else. (The other users: tests/integration/bus.)"""

from __future__ import annotations

import nats
import pytest
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError

from devcluster.stack import Stack
from tests.eventually import eventually

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]


async def test_the_reader_can_neither_publish_nor_use_jetstream(stack: Stack) -> None:
    errors: list[Exception] = []

    async def on_error(error: Exception) -> None:
        errors.append(error)

    reader = await nats.connect(stack.reader_url, inbox_prefix="_INBOX_events_reader", error_cb=on_error)
    try:
        for subject in (
            "sluice.events.default.x",
            "sluice.objects.workload.default.x",
            "sluice.commands.scheduler.x.y.z.w",
        ):
            await reader.publish(subject, b"forged")
        await reader.flush()
        for call in (
            "INFO",
            "STREAM.NAMES",
            "STREAM.INFO.EVENTS",
            "STREAM.MSG.GET.OBJECTS",
            "CONSUMER.CREATE.EVENTS.mine",
        ):
            with pytest.raises((NatsTimeoutError, NoRespondersError)):
                await reader.request(f"$JS.API.{call}", b"{}", timeout=0.3)
        for subject in (">", "sluice.objects.>", "$JS.>", "_INBOX_watcher.>"):
            await reader.subscribe(subject)
        await reader.flush()

        async def violations() -> int:
            return sum("permissions violation" in str(e).lower() for e in errors)

        assert await eventually(violations, 5, lambda count: count >= 7) >= 7
    finally:
        await reader.close()
