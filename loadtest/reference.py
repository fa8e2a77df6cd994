"""A fixed piece of work whose CPU time says how fast a processor is, so that CPU figures of different machines and hours can be compared.

`python -m loadtest.reference` does it once a second until it is ended, and prints the milliseconds of each time: run beside a load, it slows down by what
slows the load down (a slower processor, a shared cache, a busy sibling thread). The work is of the kind that the services do: JSON in and out, small
objects, dictionaries, a heap. It must never be changed: all budgets are multiples of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from heapq import heappop, heappush
from statistics import median

import msgspec

EVERY_S = 1.0
ROUNDS = 60


class _Part(msgspec.Struct):
    name: str
    amount: int
    labels: dict[str, str]


class _Document(msgspec.Struct):
    name: str
    parts: list[_Part]


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Document)


def work() -> int:
    """The work; its result depends on all of it."""
    heap: list[tuple[int, str]] = []
    totals: dict[str, int] = {}
    for number in range(ROUNDS):
        parts = [_Part(f"part-{i}", (i * 7919 + number) % 101, {"app": f"a{i % 3}", "tier": "batch"}) for i in range(8)]
        document = _decoder.decode(_encoder.encode(_Document(f"document-{number}", parts)))
        for part in document.parts:
            key = f"{document.name}/{part.labels['app']}"
            totals[key] = totals.get(key, 0) + part.amount
            heappush(heap, (part.amount, key))
        while len(heap) > 16:
            heappop(heap)
    return sum(amount for amount, _ in heap) + sum(totals.values())


def measure() -> float:
    """Milliseconds of this thread's CPU time for the work once."""
    began = time.thread_time()
    work()
    return 1000 * (time.thread_time() - began)


class Beside:
    """`milliseconds`: the median of the measurements once the block is over; 0 if there was time for none."""

    milliseconds = 0.0


@contextlib.asynccontextmanager
async def beside() -> AsyncIterator[Beside]:
    """Measure in a process of its own for as long as the block lasts."""
    found = Beside()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "loadtest.reference", stdout=asyncio.subprocess.PIPE
    )
    try:
        yield found
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        told, _ = await process.communicate()
        values = [float(line) for line in told.split(b"\n")[:-1] if line]
        found.milliseconds = median(values) if values else 0.0


def main() -> None:
    """Until it is ended."""
    measure()
    while True:
        print(f"{measure():.4f}", flush=True)
        time.sleep(EVERY_S)


if __name__ == "__main__":
    main()
