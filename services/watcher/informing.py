"""One budget for all writes that only inform: status of queues, text of pending workloads, Events (R8).

The API server is the narrow pipe: what informs must leave it to what admits and evicts, however much there is to say. One rate for all of it, and in it a
share for each purpose; what one does not use, the others get. When there is more to say than that, it is left unsaid in this order:

1. Events, which are dropped: those that found too many waiting, and those that waited too long (`kubernetes_events`).
2. Text of pending workloads: the newest of each workload replaces the one that waits, and what the object says already is not written (`commands`).
3. Numbers of queues, likewise; they get the largest share, for people and programs wait for them.

While writes that admit, evict, start or stop queue up, all of this goes at a third of the rate. They never pass through here themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from enum import Enum
from typing import Protocol

from shared.kube.write_budget import WriteBudget


class Purpose(Enum):
    """What a write tells of."""

    QUEUES = "queues"
    PENDING = "pending"
    EVENTS = "events"


QUEUES_OF_STATUS = 0.6
"""Part of the rate for status that belongs to queues; the rest to pending text."""


WHILE_BUSY = 3
"""What a turn costs while the writes that matter queue up."""


class Budget(Protocol):
    """`async with budget.spend():` waits for its turn; the body then makes its one write."""

    def spend(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Wait until a write may be made."""
        ...


class Informing:
    """Hands out turns while `run` runs. Of the purposes that wait, the one that has had least of its share goes next (stride scheduling)."""

    def __init__(
        self,
        *,
        status_per_s: float,
        events_per_s: float,
        burst: int,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_busy`: do writes that admit, evict, start or stop queue up?"""
        self._is_busy = is_busy
        self._budget = WriteBudget(rate_per_s=status_per_s + events_per_s, burst=burst)
        shares = {
            Purpose.QUEUES: status_per_s * QUEUES_OF_STATUS,
            Purpose.PENDING: status_per_s * (1 - QUEUES_OF_STATUS),
            Purpose.EVENTS: events_per_s,
        }
        self._strides = {purpose: 1 / share for purpose, share in shares.items()}
        self._had = dict.fromkeys(Purpose, 0.0)
        """Turns that a purpose has had, each as long as its stride."""
        self._now = 0.0
        """Where the purpose stood that had the last turn: who was away does not come back with turns saved up."""
        self._waiting: dict[Purpose, deque[asyncio.Future[None]]] = {purpose: deque() for purpose in Purpose}
        self._asked = asyncio.Event()

    def of(self, purpose: Purpose) -> Budget:
        """The budget of one purpose."""
        return _Share(self, purpose)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._asked.wait()
            for _ in range(WHILE_BUSY if self._is_busy() else 1):
                async with self._budget.spend():
                    pass
            if not self._next():
                # Nobody waits any more: the token was not needed, and the next one asks anew.
                self._asked.clear()

    def _next(self) -> bool:
        asking = [purpose for purpose, queue in self._waiting.items() if _first(queue)]
        if not asking:
            return False
        purpose = min(asking, key=lambda one: self._had[one])
        self._now = self._had[purpose]
        self._had[purpose] += self._strides[purpose]
        self._waiting[purpose].popleft().set_result(None)
        if not any(_first(queue) for queue in self._waiting.values()):
            self._asked.clear()
        return True

    async def turn(self, purpose: Purpose) -> None:
        """Wait for a turn."""
        if not _first(self._waiting[purpose]):
            self._had[purpose] = max(self._had[purpose], self._now)
        turn = asyncio.get_running_loop().create_future()
        self._waiting[purpose].append(turn)
        self._asked.set()
        await turn


def _first(queue: deque[asyncio.Future[None]]) -> bool:
    """Whether anybody waits; those who gave up are taken out."""
    while queue and queue[0].done():
        queue.popleft()
    return bool(queue)


class _Share:
    def __init__(self, informing: Informing, purpose: Purpose) -> None:
        self._informing = informing
        self._purpose = purpose

    @contextlib.asynccontextmanager
    async def spend(self) -> AsyncIterator[None]:
        await self._informing.turn(self._purpose)
        yield
