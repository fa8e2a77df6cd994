"""A small disk for a test. Skips the test where the machine does not let us mount one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.chaos.disk import NoSmallDisk, SmallDisk


@asynccontextmanager
async def small_disk(place: Path, mib: int) -> AsyncIterator[SmallDisk]:
    """Mounted at `place`, for processes that its launcher starts, until the end of the block."""
    disk = SmallDisk(place, mib)
    try:
        await disk.mount()
    except NoSmallDisk as error:
        pytest.skip(f"no small disk on this machine: {error}")
    try:
        yield disk
    finally:
        await disk.unmount()
