"""Typed writes that spend no quota, asked of the gateway by the services that own them.

The stream keeps the newest command per writer, type and object, and the gateway deletes it once its outcome is published: what is there is what is open.
Commands are level-triggered: their writer compares what is with what should be, and asks again after a `rejected`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from shared.events import subjects
from shared.events.codec import Codec
from shared.events.objects import Condition, QueueUsage, Toleration


class _Command(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t"):
    id: str
    """Unique per attempt, made by the writer; names the command in its outcome and in Nats-Msg-Id."""
    kind: str
    """Kind token of the target, as in `objects.KINDS`."""
    namespace: str = ""
    name: str
    uid: str = ""
    """When given, only this object is meant."""
    incarnation: str = ""
    """When given, the workload must still be in this state (R2)."""
    version: int = 0
    """resourceVersion of the projection that the writer looked at."""
    trace: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`, or the bare name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class FlavorObstacle(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a pod set did not simply get one flavor (or one resource of it). Amounts in base units, as they were when it was looked at."""

    pod_set: str
    flavor: str = ""
    resource: str = ""
    code: str
    """What stopped it, one of the codes of `model.refusal.FlavorReason` or, for a pod set as a whole, of `PodSetRefusal`."""
    detail: str = ""
    requested: int = 0
    earlier: int = 0
    """Of earlier pod sets of the same workload, on top of `requested`."""
    free: int = 0
    """What the ClusterQueue could take."""
    borrowable: int = 0
    """The part of `free` that would be borrowed."""
    missing: int = 0
    preemptable: int = 0
    """What preemption could give of `missing`."""
    preemption: str = ""
    """no_candidates, within_cluster_queue, reclaim, or empty where policies rule it out."""
    maximum: int = 0
    """Most it could ever have, with all it may borrow."""
    limit: str = ""
    """borrowing_limit, when that is what keeps it from more."""


class PendingExplanation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a workload that was looked at stays pending; the message of the condition says the same in words."""

    stopped_by: str
    """A code of `model.refusal.Stop`; or never_fits, no_matching_flavor, no_placement, no_quota, where flavors tell more."""
    names: tuple[str, ...] = ()
    """Checks, queues or namespaces that `stopped_by` is about."""
    count: int = 0
    """Workloads that `stopped_by` is about."""
    detail: str = ""
    flavors: tuple[FlavorObstacle, ...] = ()


class ReportPending(_Command, frozen=True, kw_only=True, omit_defaults=True, tag="commands.ReportPending/1"):
    """QuotaReserved=False with this reason; nothing is written if the workload holds a reservation or already says so."""

    reason: str
    message: str
    why: PendingExplanation | None = None
    """The facts behind the message; None where it is not a head that was looked at."""
    requests: dict[str, dict[str, int]] | None = None
    """status.resourceRequests: pod set -> resource -> total in base units; None leaves it alone."""
    event: bool = True
    """Emit a Warning event whose reason is that of the condition."""
    gated: bool = False
    """It would have to preempt but a gate is closed: BlockedOnPreemptionGates goes with it."""


class Evict(_Command, frozen=True, kw_only=True, omit_defaults=True, tag="commands.Evict/1"):
    """Evicted=True and all that goes with it in one write (core spec 2.4)."""

    reason: str
    message: str
    cause: str = ""
    clear_requeue_state: bool = False
    clear_deactivation_target: bool = False
    requeue_count: int | None = None
    requeue_at: int | None = None


class Unreserve(_Command, frozen=True, kw_only=True, omit_defaults=True, tag="commands.Unreserve/1"):
    """Give the reservation of a workload back that is not admitted."""

    reason: str
    message: str
    event: str = ""
    """Emit a Normal event of this reason, if not empty."""


class MarkRequeued(_Command, frozen=True, kw_only=True, omit_defaults=True, tag="commands.MarkRequeued/1"):
    """Requeued=True with this reason; an expired requeueAt goes in the same write."""

    reason: str
    message: str
    clear_requeue_at: bool = False


class SetRequeueAt(_Command, frozen=True, kw_only=True, omit_defaults=True, tag="commands.SetRequeueAt/1"):
    """status.requeueState.requeueAt (seconds), only ever moved later; None clears the time, `clear_state` the whole state."""

    at: int | None = None
    clear_state: bool = False


class SyncChecks(_Command, frozen=True, kw_only=True, omit_defaults=True, tag="commands.SyncChecks/1"):
    """The list of admission checks: missing ones are added as Pending, others removed, sorted by name."""

    checks: tuple[str, ...]


class SyncAdmitted(_Command, frozen=True, kw_only=True, omit_defaults=True, tag="commands.SyncAdmitted/1"):
    """Set Admitted to what reservation and check states say."""


class SetDeactivationTarget(
    _Command, frozen=True, kw_only=True, omit_defaults=True, tag="commands.SetDeactivationTarget/1"
):
    """DeactivationTarget=True: the order to deactivate. `event` is a Warning with this reason, if not empty."""

    reason: str
    message: str
    event: str = ""
    clear_past_execution: bool = False


class SetActive(_Command, frozen=True, kw_only=True, omit_defaults=True, tag="commands.SetActive/1"):
    """spec.active."""

    active: bool


class SetPriority(_Command, frozen=True, kw_only=True, omit_defaults=True, tag="commands.SetPriority/1"):
    """spec.priority, after the value of its WorkloadPriorityClass changed."""

    priority: int


class FinishWorkload(_Command, frozen=True, kw_only=True, omit_defaults=True, tag="commands.FinishWorkload/1"):
    """Finished=True."""

    reason: str
    message: str


class SetFinalizer(_Command, frozen=True, kw_only=True, omit_defaults=True, tag="commands.SetFinalizer/1"):
    """Add or remove `kueue.x-k8s.io/resource-in-use`."""

    present: bool


class SetQueueStatus(_Command, frozen=True, kw_only=True, omit_defaults=True, tag="commands.SetQueueStatus/1"):
    """The status of a ClusterQueue or LocalQueue, whole. Only `active` is compared with lastTransitionTime in mind."""

    pending: int
    reserving: int
    admitted: int
    reservation: QueueUsage
    usage: QueueUsage
    active: Condition
    weighted_share: int | None = None
    """status.fairSharing.weightedShare of a ClusterQueue; None: no fair sharing, the field is removed."""
    consumed: dict[str, str] | None = None
    """admissionFairSharingStatus.consumedResources of a LocalQueue; None leaves it alone."""
    consumed_at: int = 0
    """admissionFairSharingStatus.lastUpdate, seconds since the epoch."""


class SetCohortStatus(_Command, frozen=True, kw_only=True, omit_defaults=True, tag="commands.SetCohortStatus/1"):
    """The status of a Cohort, whole."""

    weighted_share: int | None = None
    """status.fairSharing.weightedShare; None: no fair sharing, the field is removed."""


class SetCheckActive(_Command, frozen=True, kw_only=True, omit_defaults=True, tag="commands.SetCheckActive/1"):
    """The Active condition of an AdmissionCheck that its controller owns."""

    active: Condition


class PodSetUpdate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a check adds to the pods of a pod set at start."""

    name: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class SetCheckState(_Command, frozen=True, kw_only=True, omit_defaults=True, tag="commands.SetCheckState/1"):
    """The state of one admission check of a workload."""

    check: str
    state: Literal["Pending", "Ready", "Retry", "Rejected"]
    message: str = ""
    requeue_after_s: int | None = None
    pod_set_updates: tuple[PodSetUpdate, ...] = ()


class TemplateSource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A PodTemplate to make of a pod set of the workload, with the flavor's labels and tolerations; templates themselves never cross the bus."""

    name: str
    pod_set: str
    count: int


class CreateProvisioningRequest(
    _Command, frozen=True, kw_only=True, omit_defaults=True, tag="commands.CreateProvisioningRequest/1"
):
    """Make missing PodTemplates, then the ProvisioningRequest `name` (target kind `provisioningrequest`), then hand the templates over to it."""

    workload: str
    """Name of the workload, in the same namespace."""
    workload_uid: str
    check: str
    class_name: str
    parameters: dict[str, str] = {}
    templates: tuple[TemplateSource, ...] = ()


class DeleteProvisioningRequest(
    _Command, frozen=True, kw_only=True, omit_defaults=True, tag="commands.DeleteProvisioningRequest/1"
):
    """Delete the target; its PodTemplates go with it."""


Command = (
    ReportPending
    | Evict
    | Unreserve
    | MarkRequeued
    | SetRequeueAt
    | SyncChecks
    | SyncAdmitted
    | SetDeactivationTarget
    | SetActive
    | SetPriority
    | FinishWorkload
    | SetFinalizer
    | SetQueueStatus
    | SetCohortStatus
    | SetCheckActive
    | SetCheckState
    | CreateProvisioningRequest
    | DeleteProvisioningRequest
)
codec: Codec[Command] = Codec("commands", Command)


def type_token(command: Command) -> str:
    """The `<type>` token of its subject: the tag's name in lower case with dashes, plus the check's name for SetCheckState (one command per check)."""
    name = type(command).__name__
    dashed = "".join(f"-{c.lower()}" if c.isupper() else c for c in name).lstrip("-")
    return f"{dashed}:{command.check}" if isinstance(command, SetCheckState) else dashed


def subject_of(writer: str, command: Command) -> str:
    """Where this writer publishes it."""
    return subjects.command(writer, type_token(command), command.kind, command.namespace, command.name)
