"""The bus's counters and the lag of its readers, as a scrape shows them."""

from __future__ import annotations

import msgspec
from prometheus_client import CollectorRegistry

from shared.bus.counters import Counters
from shared.runtime.bus_metrics import MEANING, PREFIX, BusCollector


class Bus(msgspec.Struct):
    counters: Counters
    connected: bool
    behind: dict[str, int]


def test_every_counter_has_a_meaning_and_no_other() -> None:
    assert set(MEANING) == {f.name for f in msgspec.structs.fields(Counters)}


def test_a_scrape_shows_what_is_now() -> None:
    bus = Bus(Counters(decoded=7), True, {"scheduler-0-objects": 3})
    registry = CollectorRegistry()
    registry.register(BusCollector(bus))
    assert registry.get_sample_value(PREFIX + "decoded_total") == 7
    assert registry.get_sample_value(PREFIX + "connected") == 1
    assert registry.get_sample_value(PREFIX + "lag_messages", {"consumer": "scheduler-0-objects"}) == 3
    bus.counters.decoded, bus.connected, bus.behind = 9, False, {}
    assert registry.get_sample_value(PREFIX + "decoded_total") == 9
    assert registry.get_sample_value(PREFIX + "connected") == 0
    assert registry.get_sample_value(PREFIX + "lag_messages", {"consumer": "scheduler-0-objects"}) is None
