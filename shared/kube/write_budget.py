"""A rate for writes that inform but do not decide: queue status, pending text, Events (R8).

A bucket of tokens: `rate_per_s` of them come back each second, up to `burst`. What waits does so in order. Writes that admit, evict, start
or stop never pass through here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable


class WriteBudget:
    """`async with budget.spend():` waits for a token; `try_spend()` takes one or says no."""

    def __init__(self, *, rate_per_s: float, burst: int, clock: Callable[[], float] | None = None) -> None:
        if rate_per_s <= 0 or burst < 1:
            raise ValueError(f"a write budget needs a positive rate and burst, not {rate_per_s} and {burst}")
        self._rate = rate_per_s
        self._burst = float(burst)
        self._tokens = float(burst)
        self._clock = clock
        self._filled: float | None = None
        self._turn = asyncio.Lock()

    def try_spend(self) -> bool:
        """Take a token if there is one and nobody waits for it."""
        self._refill()
        if self._tokens < 1 or self._turn.locked():
            return False
        self._tokens -= 1
        return True

    @contextlib.asynccontextmanager
    async def spend(self) -> AsyncIterator[None]:
        """Wait until there is a token and take it; the body then makes its one write."""
        async with self._turn:
            self._refill()
            while self._tokens < 1:
                await asyncio.sleep((1 - self._tokens) / self._rate)
                self._refill()
            self._tokens -= 1
        yield

    def _refill(self) -> None:
        now = self._clock() if self._clock else asyncio.get_running_loop().time()
        if self._filled is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
