"""Reading the decision log of one epoch, as the gateway does: in order, from where it stopped, live.

An epoch whose stream is gone is over: the iteration waits, and its reader learns of the end from the check of the streams.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from shared.bus.connection import Connection
from shared.bus.consumer import HEARTBEAT_S, Received, Source
from shared.bus.interface import Logged, StreamsLost
from shared.bus.jetstream import TROUBLE, JetStream
from shared.bus.publishing import BACKOFF_S
from shared.events import decisions, subjects
from shared.events.codec import MalformedMessage, UnknownVersion

logger = logging.getLogger(__name__)


async def follow(
    connection: Connection,
    *,
    consumers: tuple[str, ...],
    shard: str,
    epoch: int,
    after: int,
    made: str,
    run_of_server: Callable[[], str],
    move_aside: Callable[[str, Received, str], Awaitable[None]],
) -> AsyncIterator[list[Logged]]:
    """Entries behind `after`. `made`: when the stream was made, empty for whichever is there; `run_of_server`: which run of which server alone holds
    it. Raises StreamsLost if entries that were not read are gone, or those that were read are not there any more, or may not be, or the stream is
    another one of that name, and UnknownVersion for an entry that is for a gateway of another release."""
    activity = asyncio.Event()
    stream = subjects.decisions_stream(shard, epoch)
    jetstream = JetStream(connection)
    source = Source(
        connection,
        stream=stream,
        consumers=consumers,
        filters=(subjects.decisions(shard, epoch),),
        contiguous=True,
        on_activity=activity.set,
    )
    source.position = after
    reconnects, server, trouble = connection.reconnects, run_of_server(), 0
    try:
        while True:
            activity.clear()
            await connection.wait_connected()
            if reconnects != connection.reconnects:
                reconnects = connection.reconnects
                if run_of_server() != server:
                    raise StreamsLost(f"{stream}: the server was started again, and may have lost what was read")
                source.break_off("the connection was lost")
            source.check_alive(connection.now())
            if not source.is_open and not source.missed:
                try:
                    await source.resume()
                    # Asked after the consumer was made: it is on this stream, or gone with an earlier one.
                    found_made = (await jetstream.stream_info(stream)).created
                    trouble = 0
                except TROUBLE as error:
                    logger.info("%s is not ready: %s", stream, error or type(error).__name__)
                    await asyncio.sleep(BACKOFF_S[min(trouble, len(BACKOFF_S) - 1)])
                    trouble += 1
                    continue
                if made and found_made != made:
                    raise StreamsLost(f"{stream} was made anew")
                made = found_made
            found = []
            for message in await source.take():
                try:
                    found.append(Logged(decisions.codec.decode(message.payload), message.sequence))
                except UnknownVersion:
                    raise
                except MalformedMessage as error:
                    await move_aside(stream, message, str(error))
            if found:
                yield found
                continue
            if source.missed:
                raise StreamsLost(f"{stream}: {source.broken}")
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    await activity.wait()
            except TimeoutError:
                continue
    finally:
        await source.close()
