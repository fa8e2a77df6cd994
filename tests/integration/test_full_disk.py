"""A NATS whose disk was full: what it says, what it does not do by itself, and that a new start is the cure."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from devcluster.nats_server import NatsServer
from shared.bus.interface import Appended
from shared.bus.jetstream import JetStreamError
from shared.bus.nats_bus import connect
from shared.bus.publishing import Ack, Outgoing
from shared.bus.server_health import unwritable
from shared.events.streams import decisions_of
from tests.chaos.disk import SmallDisk
from tests.contract.bus.messages import batch
from tests.eventually import eventually
from tests.integration.small_disk import small_disk

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

MIB = 64
WITHIN_S = 30.0


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[tuple[SmallDisk, NatsServer]]:
    async with (
        small_disk(tmp_path / "nats" / "jetstream", MIB) as disk,
        NatsServer(tmp_path / "nats", launcher=disk.launcher) as nats,
    ):
        yield disk, nats


async def test_a_disk_that_was_full(small: tuple[SmallDisk, NatsServer]) -> None:
    disk, nats = small
    host, _, port = nats.monitoring.removeprefix("http://").partition(":")
    gateway = await connect("watcher", nats.url, "watcher", nats.password("watcher"), gateway=True)
    scheduler = await connect("scheduler", nats.url, "scheduler", nats.password("scheduler"))
    try:
        await gateway.ensure_streams()
        await gateway.open_epoch(shard="0", epoch=1, objects_position=0, why="test")
        assert await scheduler.append(batch(1)) == Appended(2)
        disk.fill()

        async def write_fails() -> bool:
            event = Outgoing("sluice.events.team-a.workload.admitted.w", bytes(100_000))
            return not isinstance(await gateway._publisher.try_one(event, timeout_s=1), Ack)

        assert await eventually(write_fails, WITHIN_S)
        assert unwritable(host, int(port), disk.inside) == "", "no room yet"
        disk.clear()
        # Room alone does not mend it, nor does a purge or an update.
        assert "write error" in unwritable(host, int(port), disk.inside)
        with contextlib.suppress(JetStreamError, TimeoutError):
            await gateway._js.purge_below("EVENTS", 1 << 40)
        await gateway.ensure_streams()
        assert await write_fails()
        assert "write error" in unwritable(host, int(port), disk.inside)
        seen = gateway.reconnects
        await nats.restart()
        await gateway.wait_reconnect(seen)
        assert unwritable(host, int(port), disk.inside) == ""
        assert not await write_fails()
        assert (await gateway._js.stream_info(decisions_of("0", 1).name)).state.last_seq == 2
    finally:
        await gateway.close()
        await scheduler.close()
