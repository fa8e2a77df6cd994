"""The status that a ClusterQueue, LocalQueue or Cohort should carry, against the one it carries (core spec 1.12). Pure."""

from __future__ import annotations

import msgspec

from services.queue_manager.consumption import Sample
from shared.api import names
from shared.events.commands import SetCohortStatus, SetQueueStatus
from shared.events.objects import ClusterQueue, Cohort, Condition, LocalQueue
from shared.state.queues import QueueStatus

NO_SAMPLE = Sample()


class StatusChange(msgspec.Struct, frozen=True):
    """A status to write. `urgent`: the queue became active or inactive, or for another reason, or its past usage is due; else only numbers moved."""

    command: SetQueueStatus
    urgent: bool


def status_change(
    kind: str,
    queue: ClusterQueue | LocalQueue,
    status: QueueStatus,
    now: float,
    *,
    share: int | None = None,
    sample: Sample = NO_SAMPLE,
) -> StatusChange | None:
    """What to write, or None if the queue says it already. `share`: weighted share of a ClusterQueue; `sample`: past usage of a LocalQueue."""
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
    if isinstance(queue, ClusterQueue):
        unchanged = unchanged and queue.weighted_share == share
    if unchanged and old == active and sample.record is None:
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
        weighted_share=share,
        consumed=sample.consumed,
        consumed_at=int(sample.record.updated) if sample.record is not None else 0,
    )
    urgent = old is None or (old.status, old.reason) != (active.status, active.reason)
    return StatusChange(command, urgent or sample.record is not None)


def cohort_change(cohort: Cohort, share: int | None) -> SetCohortStatus | None:
    """What to write about the share of a Cohort, or None if it says so already."""
    if cohort.weighted_share == share or cohort.deleting:
        return None
    return SetCohortStatus(
        id="", kind="cohort", name=cohort.name, uid=cohort.uid, version=cohort.version, weighted_share=share
    )
