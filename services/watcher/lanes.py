"""One lane per key: writes about one job and its Workloads never overlap, and keep their order; lanes run side by side, the urgent ones first.

Each work item is retried by its lane: while the API server cannot be reached, for ever; after any other error up to the delivery limit, then its
`give_up` decides. No exception ends a lane, and a gate stops all of them between two items when an epoch ends.

What happens to one item:
 1. `submit` puts it at the end of its lane; a named item that waits there already is not queued twice.
 2. A free worker takes the most urgent lane that is not busy; a lane is as urgent as the most urgent item in it (its order stays).
 3. The item runs. Done: the next one. Failed and ordered: it stays at the head and the lane rests for a back-off. Failed and named (it can be
    computed anew): it goes back to the end of the lane after the back-off, so that it blocks nobody.
"""

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from enum import IntEnum
from typing import NamedTuple

from shared.events.streams import DELIVERY_LIMIT
from shared.kube.errors import Unavailable

logger = logging.getLogger(__name__)

_FIRST_DELAY_S = 0.05
_LONGEST_DELAY_S = 15.0
_LONGEST_REST_S = 2.0
"""An unreachable API server is asked again at least this often."""


class Urgency(IntEnum):
    """Lower goes first (R2)."""

    STOP = 0
    START = 1
    STATUS = 2


class TryAgain(Exception):
    """The item cannot do its work yet and is to run again after a back-off; the text says what it waits for."""


class LaneKey(NamedTuple):
    """The owning job of a group of objects, or an object that stands alone."""

    kind: str
    namespace: str
    name: str


Run = Callable[[], Awaitable[None]]
GiveUp = Callable[[Exception, int], Awaitable[None]]


class _Item:
    __slots__ = ("attempts", "give_up", "name", "run", "urgency")

    def __init__(self, run: Run, urgency: Urgency, name: str, give_up: GiveUp | None) -> None:
        self.run = run
        self.urgency = urgency
        self.name = name
        self.give_up = give_up
        self.attempts = 0


class _Lane:
    __slots__ = ("busy", "failures", "items", "key", "rest", "waiting")

    def __init__(self, key: LaneKey) -> None:
        self.key = key
        self.items: deque[_Item] = deque()
        self.busy = False
        self.rest: asyncio.TimerHandle | None = None
        self.waiting: dict[str, asyncio.TimerHandle] = {}
        """Named items that come back after their back-off."""
        self.failures: dict[str, int] = {}
        """Failures in a row, per named item."""


class Lanes:
    """See the module. `workers` items run at once. All methods belong to one event loop."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._lanes: dict[LaneKey, _Lane] = {}
        self._ready: list[tuple[int, int, _Lane]] = []
        self._turn = 0
        self._in_flight = 0
        self._open = False
        self._idle: deque[asyncio.Future[None]] = deque()
        """Workers without work: each lane that becomes ready wakes one, not all."""
        self._settled = asyncio.Event()

    def submit(
        self, key: LaneKey, run: Run, *, urgency: Urgency, name: str = "", give_up: GiveUp | None = None
    ) -> None:
        """Queue `run` in the lane of `key`. `name`: this item only needs to run once more, whatever happened since it was queued."""
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
        if name:
            timer = lane.waiting.pop(name, None)
            if timer is not None:
                timer.cancel()
            queued = next((item for item in lane.items if item.name == name and not self._runs(lane, item)), None)
            if queued is not None:
                queued.urgency = min(queued.urgency, urgency)
                self._make_ready(lane)
                return
        lane.items.append(_Item(run, urgency, name, give_up))
        self._make_ready(lane)

    def later(self, key: LaneKey, run: Run, *, delay_s: float, urgency: Urgency, name: str) -> None:
        """Queue a named item after a time, unless it is queued before."""
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
        if name not in lane.waiting:
            self._later(lane, _Item(run, urgency, name, None), delay_s)

    async def run(self) -> None:
        """The workers, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work())

    def resume(self) -> None:
        """Open the gate (it is closed at first)."""
        self._open = True
        for _ in self._ready:
            self._wake_one()

    async def pause(self) -> None:
        """Close the gate; returns when no item runs any more."""
        self._open = False
        while self._in_flight:
            self._settled.clear()
            await self._settled.wait()

    async def idle(self) -> None:
        """Returns when nothing is queued, runs or waits for another attempt."""
        while self._in_flight or self._lanes:
            self._settled.clear()
            await self._settled.wait()

    @property
    def waiting(self) -> int:
        """Items queued or waiting for another attempt; those that were put off on purpose, perhaps for days, are not among them."""
        return sum(len(lane.items) + len(lane.waiting.keys() & lane.failures.keys()) for lane in self._lanes.values())

    @staticmethod
    def _runs(lane: _Lane, item: _Item) -> bool:
        return lane.busy and lane.items[0] is item

    def _make_ready(self, lane: _Lane) -> None:
        if lane.busy or lane.rest is not None or not lane.items:
            return
        self._turn += 1
        # A lane may stand here more than once, with an older urgency; stale entries are skipped when taken.
        heapq.heappush(self._ready, (min(item.urgency for item in lane.items), self._turn, lane))
        if self._open:
            self._wake_one()

    def _wake_one(self) -> None:
        while self._idle:
            sleeper = self._idle.popleft()
            if not sleeper.done():
                sleeper.set_result(None)
                return

    async def _take(self) -> _Lane:
        while True:
            while self._open and self._ready:
                lane = heapq.heappop(self._ready)[2]
                if lane.items and not lane.busy and lane.rest is None:
                    return lane
            sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(sleeper)
            await sleeper

    async def _work(self) -> None:
        while True:
            lane = await self._take()
            lane.busy = True
            self._in_flight += 1
            try:
                await self._attempt(lane, lane.items[0])
            finally:
                lane.busy = False
                self._in_flight -= 1
                self._after(lane)

    async def _attempt(self, lane: _Lane, item: _Item) -> None:
        item.attempts += 1
        try:
            await item.run()
        except Exception as error:  # noqa: BLE001 - whatever an item does, the lane goes on (R9)
            await self._failed(lane, item, error)
        else:
            lane.items.popleft()
            lane.failures.pop(item.name, None)

    async def _failed(self, lane: _Lane, item: _Item, error: Exception) -> None:
        unreachable = isinstance(error, Unavailable)
        expected = unreachable or isinstance(error, TryAgain)
        logger.log(
            logging.INFO if expected else logging.WARNING,
            "work failed",
            exc_info=None if expected else error,
            extra={"lane": "/".join(lane.key), "item": item.name, "attempt": item.attempts, "error": str(error)},
        )
        if item.name:
            lane.items.popleft()
            failures = lane.failures[item.name] = lane.failures.get(item.name, 0) + 1
            self._later(lane, item, _delay(failures, _LONGEST_DELAY_S))
            return
        if not expected and item.attempts >= DELIVERY_LIMIT:
            try:
                if item.give_up is not None:
                    await item.give_up(error, item.attempts)
            except Exception as again:  # noqa: BLE001 - not even giving up may end the lane; it is tried again
                logger.warning("giving up failed", extra={"lane": "/".join(lane.key), "error": str(again)})
            else:
                lane.items.popleft()
                return
        delay = _delay(item.attempts, _LONGEST_REST_S)
        lane.rest = asyncio.get_running_loop().call_later(delay, self._rested, lane)

    def _later(self, lane: _Lane, item: _Item, delay: float) -> None:
        def again() -> None:
            lane.waiting.pop(item.name, None)
            self.submit(lane.key, item.run, urgency=item.urgency, name=item.name, give_up=item.give_up)

        old = lane.waiting.pop(item.name, None)
        if old is not None:
            old.cancel()
        lane.waiting[item.name] = asyncio.get_running_loop().call_later(delay, again)

    def _rested(self, lane: _Lane) -> None:
        lane.rest = None
        self._make_ready(lane)

    def _after(self, lane: _Lane) -> None:
        if lane.items:
            self._make_ready(lane)
        elif not lane.waiting:
            self._lanes.pop(lane.key, None)
        self._settled.set()


def _delay(attempts: int, longest: float) -> float:
    return float(min(_FIRST_DELAY_S * 2 ** (min(attempts, 16) - 1), longest))
