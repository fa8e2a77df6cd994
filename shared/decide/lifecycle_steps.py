"""What can come next in the life of a workload: one Struct per step, each naming the service that executes it (values only).

Why it exists: the rules (`shared.decide.lifecycle`, `shared.decide.lifecycle_limits`) and the services that turn steps into commands share them.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

Service = Literal["queue_manager", "preemptor"]


class ReleaseFinalizer(msgspec.Struct, frozen=True, gc=False):
    """It is being deleted and nobody else looks after it: the finalizer goes."""

    service: ClassVar[Service] = "queue_manager"


class Finish(msgspec.Struct, frozen=True, gc=False):
    """Finished=True."""

    service: ClassVar[Service] = "queue_manager"
    reason: str
    message: str


class SetRequeueAt(msgspec.Struct, frozen=True, gc=False):
    """requeueState.requeueAt: a later time, or None to clear it; `clear_state` clears the whole state."""

    service: ClassVar[Service] = "queue_manager"
    at: int | None = None
    clear_state: bool = False


class MarkRequeued(msgspec.Struct, frozen=True, gc=False):
    """Requeued=True."""

    service: ClassVar[Service] = "queue_manager"
    reason: str
    message: str
    clear_requeue_at: bool = False


class Unreserve(msgspec.Struct, frozen=True, gc=False):
    """QuotaReserved=False and no admission, for a workload that is not admitted; `event` is the reason of a Normal event."""

    service: ClassVar[Service] = "queue_manager"
    reason: str
    message: str
    event: str = ""


class SyncChecks(msgspec.Struct, frozen=True, gc=False):
    """The list of admission checks should be exactly this."""

    service: ClassVar[Service] = "queue_manager"
    checks: tuple[str, ...]


class SyncAdmitted(msgspec.Struct, frozen=True, gc=False):
    """Admitted does not say what reservation and checks say."""

    service: ClassVar[Service] = "queue_manager"


class ReportPending(msgspec.Struct, frozen=True, gc=False):
    """QuotaReserved=False should give this reason."""

    service: ClassVar[Service] = "queue_manager"
    reason: str
    message: str


class SetActive(msgspec.Struct, frozen=True, gc=False):
    """spec.active."""

    service: ClassVar[Service] = "preemptor"
    active: bool


class Evict(msgspec.Struct, frozen=True, gc=False):
    """Evicted=True and what goes with it."""

    service: ClassVar[Service] = "preemptor"
    reason: str
    message: str
    cause: str = ""
    clear_requeue_state: bool = False
    clear_deactivation_target: bool = False
    requeue_count: int | None = None
    requeue_at: int | None = None
    """Seconds since the epoch."""


class SetDeactivationTarget(msgspec.Struct, frozen=True, gc=False):
    """DeactivationTarget=True; `event` is the reason of a Warning event."""

    service: ClassVar[Service] = "preemptor"
    reason: str
    message: str
    event: str = ""
    clear_past_execution: bool = False
    """The time of all admissions so far is forgotten in the same write."""


Step = (
    ReleaseFinalizer
    | Finish
    | SetRequeueAt
    | MarkRequeued
    | Unreserve
    | SyncChecks
    | SyncAdmitted
    | ReportPending
    | SetActive
    | Evict
    | SetDeactivationTarget
)


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The next step, if any, and when to look again even if nothing changes (seconds since the epoch)."""

    step: Step | None = None
    again_at: int | None = None


NOTHING = Verdict()
