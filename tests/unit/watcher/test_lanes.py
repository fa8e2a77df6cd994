"""Order within a lane, urgency between lanes, retries, the gate."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from services.watcher import lanes as lanes_module
from services.watcher.lanes import LaneKey, Lanes, TryAgain, Urgency
from shared.events.streams import DELIVERY_LIMIT
from shared.kube.errors import Unreachable

A, B, C = (LaneKey("Job", "ns", name) for name in "abc")
UNREACHABLE = Unreachable(0, "Unreachable", "no answer")


class Log:
    def __init__(self) -> None:
        self.done: list[str] = []

    def item(self, name: str) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            self.done.append(name)

        return run


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "_FIRST_DELAY_S", 0.001)


@pytest.fixture
async def lanes() -> AsyncIterator[Lanes]:
    made = Lanes(1)
    running = asyncio.create_task(made.run())
    yield made
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def idle(lanes: Lanes) -> None:
    async with asyncio.timeout(10):
        await lanes.idle()


async def test_a_lane_keeps_its_order_whatever_is_urgent_in_it(lanes: Lanes) -> None:
    log = Log()
    lanes.submit(A, log.item("a1"), urgency=Urgency.STATUS)
    lanes.submit(A, log.item("a2"), urgency=Urgency.STOP)
    lanes.submit(A, log.item("a3"), urgency=Urgency.START)
    lanes.resume()
    await idle(lanes)
    assert log.done == ["a1", "a2", "a3"]


async def test_urgent_lanes_go_first(lanes: Lanes) -> None:
    log = Log()
    lanes.submit(A, log.item("status"), urgency=Urgency.STATUS)
    lanes.submit(B, log.item("start"), urgency=Urgency.START)
    lanes.submit(C, log.item("before"), urgency=Urgency.STATUS)
    lanes.submit(C, log.item("stop"), urgency=Urgency.STOP)
    lanes.resume()
    await idle(lanes)
    assert log.done == ["before", "stop", "start", "status"]


async def test_nothing_runs_before_the_gate_opens_and_after_it_closes(lanes: Lanes) -> None:
    log = Log()
    lanes.submit(A, log.item("a"), urgency=Urgency.STOP)
    await asyncio.sleep(0)
    assert log.done == []
    lanes.resume()
    await idle(lanes)
    await lanes.pause()
    lanes.submit(A, log.item("b"), urgency=Urgency.STOP)
    await asyncio.sleep(0)
    assert log.done == ["a"]
    lanes.resume()
    await idle(lanes)
    assert log.done == ["a", "b"]


async def test_pause_waits_for_what_is_in_flight(lanes: Lanes) -> None:
    started, may_end, log = asyncio.Event(), asyncio.Event(), Log()

    async def slow() -> None:
        started.set()
        await may_end.wait()
        log.done.append("slow")

    lanes.submit(A, slow, urgency=Urgency.STOP)
    lanes.submit(A, log.item("next"), urgency=Urgency.STOP)
    lanes.resume()
    await started.wait()
    pausing = asyncio.create_task(lanes.pause())
    await asyncio.sleep(0)
    assert not pausing.done()
    may_end.set()
    async with asyncio.timeout(10):
        await pausing
    assert log.done == ["slow"]


async def test_one_lane_never_overlaps_and_lanes_run_side_by_side() -> None:
    made = Lanes(4)
    running = asyncio.create_task(made.run())
    inside: dict[LaneKey, int] = {A: 0, B: 0}
    both = asyncio.Event()

    def item(key: LaneKey) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            inside[key] += 1
            assert inside[key] == 1
            if all(inside.values()):
                both.set()
            await both.wait()
            inside[key] -= 1

        return run

    for key in (A, A, B):
        made.submit(key, item(key), urgency=Urgency.START)
    made.resume()
    await idle(made)
    assert both.is_set()
    running.cancel()


async def test_named_work_is_queued_once_and_again_while_it_runs(lanes: Lanes) -> None:
    log, started, may_end = Log(), asyncio.Event(), asyncio.Event()

    async def run() -> None:
        log.done.append("look")
        started.set()
        await may_end.wait()

    for _ in range(3):
        lanes.submit(A, run, urgency=Urgency.STATUS, name="look")
    lanes.resume()
    await started.wait()
    for _ in range(3):
        lanes.submit(A, run, urgency=Urgency.STATUS, name="look")
    may_end.set()
    await idle(lanes)
    assert log.done == ["look", "look"]


async def test_unanswered_work_stays_at_the_head_for_ever(lanes: Lanes) -> None:
    log, attempts = Log(), 0

    async def unanswered() -> None:
        nonlocal attempts
        attempts += 1
        if attempts <= DELIVERY_LIMIT + 2:
            raise UNREACHABLE
        log.done.append("first")

    async def given_up(error: Exception, attempts: int) -> None:
        log.done.append("given up")

    lanes.submit(A, unanswered, urgency=Urgency.STATUS, give_up=given_up)
    lanes.submit(A, log.item("second"), urgency=Urgency.STATUS)
    lanes.resume()
    await idle(lanes)
    assert log.done == ["first", "second"]


async def test_poison_is_given_up_after_the_delivery_limit_and_the_lane_goes_on(lanes: Lanes) -> None:
    log, attempts = Log(), 0

    async def poison() -> None:
        nonlocal attempts
        attempts += 1
        raise KeyError("poison")

    async def given_up(error: Exception, count: int) -> None:
        log.done.append(f"given up after {count}: {error!r}")

    lanes.submit(A, poison, urgency=Urgency.STATUS, give_up=given_up)
    lanes.submit(A, log.item("next"), urgency=Urgency.STATUS)
    lanes.resume()
    await idle(lanes)
    assert attempts == DELIVERY_LIMIT
    assert log.done == [f"given up after {DELIVERY_LIMIT}: KeyError('poison')", "next"]


async def test_named_work_that_fails_blocks_nobody(lanes: Lanes) -> None:
    log, attempts = Log(), 0

    async def waits() -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise TryAgain("not yet")
        log.done.append("looked")

    lanes.submit(A, waits, urgency=Urgency.STOP, name="look")
    lanes.submit(A, log.item("other"), urgency=Urgency.STATUS)
    lanes.resume()
    await idle(lanes)
    assert log.done == ["other", "looked"]


async def test_work_for_later_runs_then_or_when_asked_for_sooner(lanes: Lanes) -> None:
    log = Log()
    lanes.resume()
    lanes.later(A, log.item("late"), delay_s=0.01, urgency=Urgency.STOP, name="look")
    await idle(lanes)
    assert log.done == ["late"]
    lanes.later(A, log.item("too late"), delay_s=3600, urgency=Urgency.STOP, name="look")
    lanes.submit(A, log.item("now"), urgency=Urgency.STOP, name="look")
    await idle(lanes)
    assert log.done == ["late", "now"]
    assert lanes.waiting == 0


async def test_what_is_put_off_on_purpose_does_not_count_as_waiting() -> None:
    log, closed = Log(), Lanes(1)
    closed.submit(A, log.item("now"), urgency=Urgency.STATUS, name="now")
    closed.later(A, log.item("then"), delay_s=3600, urgency=Urgency.STATUS, name="then")
    assert closed.waiting == 1
