"""What a service's connection to the bus does, as Prometheus series: how far behind its readers are, and the bus's own counters.

Reads when it is asked; keeps nothing. The names are `sluice_bus_*`, the same in every service.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from shared.bus.counters import Counters

PREFIX = "sluice_bus_"
MEANING = {
    "resets": "Replays of a feed, the first one included.",
    "resumes": "Consumers made anew behind the last message read.",
    "malformed": "Messages that could not be decoded.",
    "dead_letters": "Messages moved aside.",
    "decoded": "Messages read.",
    "appended": "Batches appended to the log of decisions.",
    "races_lost": "Appends that the fence refused.",
    "appends_unknown": "Appends without an answer.",
    "appends_refused": "Appends for which there was no room.",
    "objects_written": "States of objects written.",
    "objects_skipped": "States of objects that were there already, or in a newer version.",
    "objects_conflicts": "Writes of objects that found another state than the one known.",
}


class Measured(Protocol):
    """The part of a bus that is looked at."""

    @property
    def counters(self) -> Counters: ...

    @property
    def connected(self) -> bool: ...

    @property
    def behind(self) -> Mapping[str, int]: ...


class BusCollector(Collector):
    """For a registry."""

    def __init__(self, bus: Measured) -> None:
        self._bus = bus

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily(PREFIX + "connected", "1 while connected.", value=float(self._bus.connected))
        lag = GaugeMetricFamily(PREFIX + "lag_messages", "Messages that are yet to be read.", labels=("consumer",))
        for consumer, count in sorted(self._bus.behind.items()):
            lag.add_metric((consumer,), count)
        yield lag
        for name, value in msgspec.structs.asdict(self._bus.counters).items():
            yield CounterMetricFamily(PREFIX + name, MEANING[name], value=value)
