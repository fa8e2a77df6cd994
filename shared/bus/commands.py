"""Taking commands: what is on the stream is what is open. Malformed ones get their outcome here, so that the gateway only sees commands.

Also the delivery limit, which is ours to keep: JetStream would only stop to deliver (R9).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from shared.bus.connection import Connection
from shared.bus.consumer import HEARTBEAT_S, Received, Source
from shared.bus.interface import OpenCommand
from shared.bus.jetstream import TROUBLE as TROUBLE
from shared.bus.jetstream import JetStream
from shared.bus.publishing import BACKOFF_S
from shared.events import commands, streams, subjects
from shared.events.codec import UnknownVersion

log = logging.getLogger(__name__)

STREAM = "COMMANDS"


class DeliveryCounter:
    """Counts failed attempts per message: `failed` until it says that the limit is reached, then move the message aside and `forget` it."""

    def __init__(self, limit: int = streams.DELIVERY_LIMIT) -> None:
        self.limit = limit
        self._failures: dict[tuple[str, int], int] = {}

    def attempts(self, stream: str, sequence: int) -> int:
        return self._failures.get((stream, sequence), 0)

    def failed(self, stream: str, sequence: int) -> bool:
        """One more attempt failed; True if it was the last one."""
        count = self._failures[stream, sequence] = self.attempts(stream, sequence) + 1
        return count >= self.limit

    def forget(self, stream: str, sequence: int) -> None:
        """It was handled or moved aside."""
        self._failures.pop((stream, sequence), None)


def open_command(message: Received, stream: str) -> OpenCommand:
    """The command in a message of that lifetime of the stream. Raises ValueError if it is none, or its content gives it another subject."""
    writer = subjects.parse_command(message.subject).writer
    command = commands.codec.decode(message.payload)
    if commands.subject_of(writer, command) != message.subject:
        raise ValueError(f"a {type(command).__name__} for {command.kind} {command.key} under another subject")
    return OpenCommand(command, writer, message.subject, message.sequence, stream=stream)


async def follow(
    connection: Connection,
    *,
    consumers: tuple[str, ...],
    lifetime_of: Callable[[str], str],
    reject: Callable[[Received, str, str], Awaitable[None]],
) -> AsyncIterator[list[OpenCommand]]:
    """Open commands, then live. A break is mended behind the last one that was taken; in another lifetime (`Streams.lifetime_of`) the stream is read
    from its start: sequences say nothing any more, and what is open is there. `reject`: (message, lifetime, why). Raises UnknownVersion for a command
    that is for a gateway of another release."""
    activity = asyncio.Event()
    jetstream = JetStream(connection)
    source = Source(
        connection, stream=STREAM, consumers=consumers, filters=("sluice.commands.>",), on_activity=activity.set
    )
    lifetime, reconnects, trouble = "", connection.reconnects, 0
    try:
        while True:
            activity.clear()
            await connection.wait_connected()
            if reconnects != connection.reconnects:
                reconnects = connection.reconnects
                source.break_off("the connection was lost")
            source.check_alive(connection.now())
            if not source.is_open:
                try:
                    info = await jetstream.stream_info(STREAM)
                    found_in = lifetime_of(info.created)
                    same = found_in == lifetime and info.state.last_seq >= source.position and not source.missed
                    await (source.resume() if same else source.open())
                    trouble = 0
                except TROUBLE as error:
                    log.info("%s is not ready: %s", STREAM, error or type(error).__name__)
                    await asyncio.sleep(BACKOFF_S[min(trouble, len(BACKOFF_S) - 1)])
                    trouble += 1
                    continue
                lifetime = found_in
                if reconnects != connection.reconnects:
                    # Whether the consumer is of before or after is not known: make another one.
                    continue
            found = []
            for message in await source.take():
                try:
                    found.append(open_command(message, lifetime))
                except UnknownVersion:
                    raise
                except ValueError as error:
                    await reject(message, lifetime, str(error))
            if found:
                yield found
                continue
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    await activity.wait()
            except TimeoutError:
                continue
    finally:
        await source.close()
