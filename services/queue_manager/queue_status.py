"""The status that a ClusterQueue or LocalQueue should carry, against the one it carries (core spec 1.12). Pure."""

from __future__ import annotations

import msgspec

from shared.api import names
from shared.events.commands import SetQueueStatus
from shared.events.objects import ClusterQueue, Condition, LocalQueue
from shared.state.queues import QueueStatus


class StatusChange(msgspec.Struct, frozen=True):
    """A status to write. `urgent`: the queue became active or inactive, or for another reason; else only numbers moved."""

    command: SetQueueStatus
    urgent: bool


def status_change(kind: str, queue: ClusterQueue | LocalQueue, status: QueueStatus, now: float) -> StatusChange | None:
    """What to write, or None if the queue says it already."""
    old = next((c for c in queue.conditions if c.type == names.ACTIVE), None)
    wanted = status.active
    active = Condition(
        names.ACTIVE,
        wanted.active,
        wanted.reason,
        wanted.message,
        old.changed if old is not None and old.status is wanted.active else int(now),
        queue.generation,
    )
    unchanged = (
        queue.status_pending == status.pending
        and queue.status_reserving == status.reserving
        and queue.status_admitted == status.admitted
        and queue.status_reservation == status.reservation
        and queue.status_usage == status.usage
    )
    if unchanged and old == active:
        return None
    command = SetQueueStatus(
        id="",
        kind=kind,
        namespace=queue.namespace,
        name=queue.name,
        uid=queue.uid,
        version=queue.version,
        pending=status.pending,
        reserving=status.reserving,
        admitted=status.admitted,
        reservation=status.reservation,
        usage=status.usage,
        active=active,
    )
    urgent = old is None or (old.status, old.reason) != (active.status, active.reason)
    return StatusChange(command, urgent)
