"""When and what to write about the past usage of a LocalQueue (admission fair sharing, core spec 8.3). This service alone writes it.

The record is computed by the model; here is only kept which one is on its way, so that it is asked for once and not computed anew with each look.
"""

from __future__ import annotations

import msgspec

from shared.api.quantity import Quantity
from shared.events.objects import LocalQueue
from shared.model.admission_fair_sharing import UsageRecord
from shared.model.world import World

PATIENCE_S = 60.0
"""A record that nobody has seen for so long is computed anew."""


class Sample(msgspec.Struct, frozen=True):
    """What to write now, or when to look again; neither: the queue takes no part."""

    record: UsageRecord | None = None
    again_at: float | None = None

    @property
    def consumed(self) -> dict[str, str] | None:
        """consumedResources; None if there is nothing to write."""
        if self.record is None:
            return None
        return {resource: str(Quantity(nano)) for resource, nano in sorted(self.record.consumed.items())}


class Sampling:
    """Which records are on their way, by key of the LocalQueue."""

    def __init__(self) -> None:
        self._asked: dict[str, UsageRecord] = {}

    def look(self, queue: LocalQueue, world: World, now: float) -> Sample:
        """The record that is due, if any."""
        name = queue.cluster_queue
        if world.afs is None or not world.orders_by_usage(name) or not world.activity(name).active:
            self._asked.pop(queue.key, None)
            return Sample()
        asked = self._asked.get(queue.key)
        if asked is not None and (queue.consumed_at == int(asked.updated) or now > asked.updated + PATIENCE_S):
            del self._asked[queue.key]
            asked = None
        due = world.afs.next_sample(queue.key)
        if due is not None and now < due:
            return Sample(again_at=due)
        if asked is None:
            asked = self._asked[queue.key] = world.afs.sampled(queue.key, int(now))
        return Sample(asked)

    def forget(self, key: str) -> None:
        """The LocalQueue is gone."""
        self._asked.pop(key, None)
