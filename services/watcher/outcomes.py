"""Publishes outcomes, many at a time, and only then lets go of what they answer: a command is deleted, an entry of the log may be purged.

Lanes hand an outcome over and go on; if the process dies before it is out, the decision or command is found again and answered anew.
"""

import asyncio
import logging
from collections.abc import Callable

from shared.bus.interface import GatewayBus, OpenCommand, StreamsLost
from shared.events.outcomes import Outcome

logger = logging.getLogger(__name__)

_MOST_AT_ONCE = 256
_PAUSE_S = 1.0


class _Answer:
    __slots__ = ("command", "done", "outcome")

    def __init__(self, outcome: Outcome, command: OpenCommand | None, done: Callable[[], None] | None) -> None:
        self.outcome = outcome
        self.command = command
        self.done = done


class OutcomePublisher:
    """`put` never waits; `run` publishes until cancelled."""

    def __init__(self, bus: GatewayBus, *, may_speak: Callable[[], bool] = lambda: True, gather_s: float = 0.0) -> None:
        """`may_speak`: are we the active gateway, beyond doubt? One that is not any more would contradict the one that is. `gather_s`: distance between
        two batches."""
        self._gather_s = gather_s
        self._bus = bus
        self._may_speak = may_speak
        self._queue: asyncio.Queue[_Answer] = asyncio.Queue()

    def put(
        self, outcome: Outcome, *, command: OpenCommand | None = None, done: Callable[[], None] | None = None
    ) -> None:
        """Publish `outcome`; then close `command`, then call `done`."""
        self._queue.put_nowait(_Answer(outcome, command, done))

    async def run(self) -> None:
        """Publish what is put, in order."""
        while True:
            answers = [await self._queue.get()]
            while len(answers) < _MOST_AT_ONCE and not self._queue.empty():
                answers.append(self._queue.get_nowait())
            await self._publish(answers)
            await asyncio.sleep(self._gather_s)

    async def _publish(self, answers: list[_Answer]) -> None:
        commands = [answer.command for answer in answers if answer.command is not None]
        while True:
            if not self._may_speak():
                await asyncio.sleep(_PAUSE_S)
                continue
            try:
                await self._bus.settle([answer.outcome for answer in answers])
                if commands:
                    await self._bus.close_commands(commands)
                break
            except StreamsLost as error:
                # What they answer went with the streams: decisions are void, commands will be asked for anew under other sequences.
                logger.warning("outcomes dropped", extra={"count": len(answers), "error": str(error)})
                break
            except Exception as error:  # noqa: BLE001 - identical outcomes may be published twice, so the batch is simply tried again
                logger.warning("cannot publish outcomes", extra={"count": len(answers), "error": str(error)})
                await asyncio.sleep(_PAUSE_S)
        for answer in answers:
            if answer.done is not None:
                answer.done()
