"""The one bounded wait for what can only be looked at again and again (files, other processes, kubectl)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PAUSE_S = 0.05


async def eventually(probe: Callable[[], Awaitable[T]], seconds: float, good: Callable[[T], bool] = bool) -> T:
    """The first answer of `probe` that is good; the last one after `seconds`, for the caller's assertion to show."""
    deadline = time.monotonic() + seconds
    answer = await probe()
    while not good(answer) and time.monotonic() < deadline:
        await asyncio.sleep(PAUSE_S)
        answer = await probe()
    return answer
