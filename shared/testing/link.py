"""The way between one simulated process and one simulated server: delays, broken connections, and a process that dies at any point of a call.

A server calls `there` before it acts on a request and `back` before it hands out the answer, so whatever happens in between is a commit whose answer
can be lost. Time is the event loop's; choices come from the random generator that is given, so one seed is one history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Literal

Way = Literal["there", "back"]


class Broken(Exception):
    """The connection broke: the request did not arrive, or its answer did not."""


class Link:
    """`delay_s`: least and most seconds one way takes. `passing(way, what)` is told of each passage and may kill the process or cut the link."""

    def __init__(
        self,
        random: Random,
        *,
        delay_s: tuple[float, float] = (0.0005, 0.003),
        passing: Callable[[Way, str], None] | None = None,
    ) -> None:
        self._random = random
        self.delay_s = delay_s
        self._passing = passing
        self._breaks: list[Callable[[], None]] = []
        self._never: asyncio.Future[None] | None = None
        self._cuts = 0
        self.down = False
        """While True nothing passes: every passage raises Broken."""
        self.dead = False
        """The process at our end was killed: nothing it waits for ever returns."""

    def on_break(self, tell: Callable[[], None]) -> None:
        """Have `tell` called, once, when the connection breaks next: for watches, subscriptions, consumers."""
        self._breaks.append(tell)

    def cut(self, *, down: bool = False) -> None:
        """Break what is open now; with `down` nothing passes until `mend`."""
        self.down = self.down or down
        self._cuts += 1
        breaks, self._breaks = self._breaks, []
        for tell in breaks:
            tell()

    def mend(self) -> None:
        """Let requests pass again."""
        self.down = False

    def kill(self) -> None:
        """The process at our end is gone: calls in flight never return, streams end."""
        self.dead = True
        self.cut(down=True)

    def passes(self, way: Way, what: str) -> bool:
        """For a server that keeps a queue of its own, and lets it wait for `draw`: may this set out? False: it is lost."""
        if self._passing is not None:
            self._passing(way, what)
        return not self.down and not self.dead

    def draw(self) -> float:
        """Seconds that one way takes."""
        return self._random.uniform(*self.delay_s)

    async def there(self, what: str) -> None:
        """The request travels. Raises Broken."""
        await self._pass("there", what)

    async def back(self, what: str) -> None:
        """The answer travels. Raises Broken: what was asked has been done all the same."""
        await self._pass("back", what)

    async def _pass(self, way: Way, what: str) -> None:
        if self._passing is not None:
            self._passing(way, what)
        cuts = self._cuts
        if not self.dead and not self.down:
            # As asyncio.sleep, at half its price: a timer that comes too late for a caller that is gone finds nobody, and no harm is done.
            loop = asyncio.get_running_loop()
            arrived = loop.create_future()
            loop.call_later(self.draw(), _arrive, arrived)
            await arrived
        if self.dead:
            if self._never is None:
                self._never = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._never)
        if self.down or cuts != self._cuts:
            raise Broken(what)


def _arrive(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)
