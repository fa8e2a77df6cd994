"""The collector is set up for a process with much live state."""

from __future__ import annotations

import gc

from shared.runtime import collector


def test_it_collects_seldom_and_passes_over_what_is_loaded() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    try:
        collector.expect_large_state()
        assert gc.get_threshold() == collector.THRESHOLDS
        collector.state_is_loaded()
        assert gc.get_freeze_count() > frozen
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
