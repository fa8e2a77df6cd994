"""The garbage collector of a process that holds a cluster in memory.

Why it exists: with the defaults of Python the collector looks through 100,000 live workloads again and again, which costs more than deciding about them.
It frees nothing itself, and says nothing about how much memory a process may take.
"""

from __future__ import annotations

import gc

THRESHOLDS = (200_000, 50, 1000)
"""Allocations before the young generation is looked through, and how often the older ones are."""


def expect_large_state() -> None:
    """Collect seldom. To be called once, before anything is read."""
    gc.set_threshold(*THRESHOLDS)


def state_is_loaded() -> None:
    """What lives now will go on living: look through it no more. To be called when a process has caught up."""
    gc.collect()
    gc.freeze()
