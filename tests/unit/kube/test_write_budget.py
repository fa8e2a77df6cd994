"""The bucket of tokens, on a clock of its own."""

import asyncio

import pytest

from shared.kube.write_budget import WriteBudget


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_then_the_rate() -> None:
    clock = Clock()
    budget = WriteBudget(rate_per_s=10, burst=3, clock=clock)
    assert [budget.try_spend() for _ in range(5)] == [True, True, True, False, False]
    clock.now += 0.25
    assert [budget.try_spend() for _ in range(3)] == [True, True, False]


def test_unused_tokens_do_not_pile_up_beyond_the_burst() -> None:
    clock = Clock()
    budget = WriteBudget(rate_per_s=10, burst=3, clock=clock)
    assert budget.try_spend()
    clock.now += 3600
    assert [budget.try_spend() for _ in range(4)] == [True, True, True, False]


async def test_who_waits_gets_tokens_in_order_and_not_faster_than_the_rate() -> None:
    budget = WriteBudget(rate_per_s=100, burst=1)
    order: list[int] = []

    async def write(number: int) -> None:
        async with budget.spend():
            order.append(number)

    loop = asyncio.get_running_loop()
    started = loop.time()
    await asyncio.gather(*(write(number) for number in range(6)))
    assert order == list(range(6))
    assert loop.time() - started >= 0.045


async def test_nobody_overtakes_who_waits() -> None:
    clock = Clock()
    budget = WriteBudget(rate_per_s=1000, burst=1, clock=clock)
    assert budget.try_spend()
    waiting = asyncio.ensure_future(budget.spend().__aenter__())
    await asyncio.sleep(0)
    clock.now += 1
    assert not budget.try_spend()
    await asyncio.wait_for(waiting, 5)


async def test_a_failed_write_costs_its_token_and_blocks_nobody() -> None:
    budget = WriteBudget(rate_per_s=1000, burst=1)
    with pytest.raises(RuntimeError):
        async with budget.spend():
            raise RuntimeError("refused")
    async with asyncio.timeout(5), budget.spend():
        pass


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 1), (1, 0)])
def test_a_budget_of_nothing_is_refused(rate: float, burst: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        WriteBudget(rate_per_s=rate, burst=burst)
