"""The child of `sluice all-in-one` that answers for all: /readyz, /metrics, and one line when everything is ready."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping

import aiohttp

from shared.runtime import overview
from shared.runtime.overview import Address, Overview
from shared.telemetry import logs

POLL_S = 0.03
TELL_S = 15.0
"""After so long without being ready, say what is missing."""


async def run(parts: Mapping[str, str], health: Address, metrics: Address | None, started: float) -> int:
    """Until told to end. `started`: monotonic time of the start, for the line."""
    logs.setup("all-in-one", "WARNING")
    task = asyncio.create_task(_tell(parts, health, metrics, started))
    try:
        await overview.run(parts, health, metrics)
    except OSError as error:
        sys.stderr.write(f"sluice all-in-one: {error}\n")
        return 1
    finally:
        task.cancel()
    return 0


async def _tell(parts: Mapping[str, str], health: Address, metrics: Address | None, started: float) -> None:
    page = f", metrics http://{_text(metrics)}/metrics" if metrics is not None else ""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=1)) as session:
        shown = Overview(parts, session)
        told = time.monotonic()
        while missing := await shown.missing():
            if time.monotonic() - told > TELL_S:
                told = time.monotonic()
                for name, why in missing.items():
                    sys.stderr.write(f"not ready: {name}: {why}\n")
            await asyncio.sleep(POLL_S)
    print(f"ready in {time.monotonic() - started:.2f} s: http://{_text(health)}/readyz{page}", flush=True)


def _text(address: Address) -> str:
    return f"[{address.host}]:{address.port}" if ":" in address.host else f"{address.host}:{address.port}"
