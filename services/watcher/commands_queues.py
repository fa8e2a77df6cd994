"""What commands about queues, checks and finalizers make of their objects: pure functions, object in, merge patch out (empty: nothing to write)."""

from datetime import UTC, datetime

from msgspec.structs import replace

from services.watcher.patches import Refusal, status_patch
from services.watcher.store import Stored
from shared.api import conditions, names
from shared.api.admission_check import AdmissionCheck
from shared.api.cluster_queue import ClusterQueue, FlavorUsage, ResourceUsage
from shared.api.cohort import Cohort
from shared.api.conditions import Conditions
from shared.api.local_queue import (
    AdmissionFairSharingStatus,
    LocalQueue,
    LocalQueueFairSharingStatus,
    LocalQueueFlavorUsage,
    LocalQueueResourceUsage,
)
from shared.api.quantity import format_amount
from shared.api.quota_groups import FairSharingStatus
from shared.events import commands, objects
from shared.jobs.manifest import JsonObject


def plan_queue_status(command: commands.SetQueueStatus, stored: Stored, now: datetime) -> JsonObject | Refusal:
    """The status of a ClusterQueue or LocalQueue."""
    queue = stored.object
    if isinstance(queue, ClusterQueue):
        return _with_counts(
            command,
            status_patch(
                queue.status,
                replace(
                    queue.status,
                    conditions=_with_active(queue.status.conditions, command.active, queue.metadata.generation, now),
                    flavors_reservation=_usage(command.reservation),
                    flavors_usage=_usage(command.usage),
                    pending_workloads=command.pending,
                    reserving_workloads=command.reserving,
                    admitted_workloads=command.admitted,
                    fair_sharing=_share(command.weighted_share),
                ),
            ),
        )
    if isinstance(queue, LocalQueue):
        return _with_counts(
            command,
            status_patch(
                queue.status,
                replace(
                    queue.status,
                    conditions=_with_active(queue.status.conditions, command.active, queue.metadata.generation, now),
                    flavors_reservation=_local_usage(command.reservation),
                    flavors_usage=_local_usage(command.usage),
                    pending_workloads=command.pending,
                    reserving_workloads=command.reserving,
                    admitted_workloads=command.admitted,
                    fair_sharing=_consumption(command, queue.status.fair_sharing),
                ),
            ),
        )
    return Refusal(f"a {stored.kind} has no queue status")


def plan_cohort_status(command: commands.SetCohortStatus, stored: Stored) -> JsonObject | Refusal:
    """The status of a Cohort."""
    cohort = stored.object
    if not isinstance(cohort, Cohort):
        return Refusal(f"a {stored.kind} has no status of a cohort")
    return status_patch(cohort.status, replace(cohort.status, fair_sharing=_share(command.weighted_share)))


def _share(weighted: int | None) -> FairSharingStatus | None:
    return None if weighted is None else FairSharingStatus(weighted_share=weighted)


def _consumption(
    command: commands.SetQueueStatus, present: LocalQueueFairSharingStatus | None
) -> LocalQueueFairSharingStatus | None:
    if command.consumed is None:
        return present
    return LocalQueueFairSharingStatus(
        weighted_share=0,
        admission_fair_sharing_status=AdmissionFairSharingStatus(
            consumed_resources=dict(command.consumed), last_update=datetime.fromtimestamp(command.consumed_at, UTC)
        ),
    )


def _with_counts(command: commands.SetQueueStatus, patch: JsonObject) -> JsonObject:
    """Counts go with every write: a queue that never had a workload is to show 0, which read back looks like nothing."""
    status = patch.get("status")
    if isinstance(status, dict):
        status["pendingWorkloads"] = command.pending
        status["reservingWorkloads"] = command.reserving
        status["admittedWorkloads"] = command.admitted
    return patch


def plan_check_active(
    command: commands.SetCheckActive, stored: Stored, now: datetime, *, provisions: bool = True
) -> JsonObject | Refusal:
    """The Active condition of an AdmissionCheck. `provisions`: the cluster has ProvisioningRequests; without them no check of theirs can work."""
    check = stored.object
    if not isinstance(check, AdmissionCheck):
        return Refusal(f"a {stored.kind} has no Active condition of a check")
    needs_them = check.spec.controller_name == names.PROVISIONING_REQUEST_CONTROLLER
    if command.active.status and needs_them and not provisions:
        return Refusal(names.PROVISIONING_NOT_SERVED)
    return status_patch(
        check.status,
        replace(
            check.status,
            conditions=_with_active(check.status.conditions, command.active, check.metadata.generation, now),
        ),
    )


def plan_finalizer(command: commands.SetFinalizer, stored: Stored) -> JsonObject | Refusal:
    """The finalizer that keeps an object while it is in use."""
    present = stored.object.metadata.finalizers
    if command.present == (names.RESOURCE_IN_USE in present):
        return {}
    if command.present and stored.object.metadata.deletion_timestamp is not None:
        return Refusal("the object is being deleted")
    if command.present:
        return {"metadata": {"finalizers": [*present, names.RESOURCE_IN_USE]}}
    return {"metadata": {"finalizers": [f for f in present if f != names.RESOURCE_IN_USE]}}


def _with_active(present: Conditions, active: objects.Condition, generation: int, now: datetime) -> Conditions:
    condition = conditions.make(
        names.ACTIVE,
        active.status,
        active.reason,
        active.message,
        now=now,
        observed_generation=active.observed_generation or generation,
    )
    return conditions.set_condition(present, condition)


def _usage(usage: objects.QueueUsage) -> tuple[FlavorUsage, ...]:
    return tuple(
        FlavorUsage(
            name=flavor,
            resources=tuple(
                ResourceUsage(
                    name=resource,
                    total=format_amount(resource, total),
                    borrowed=format_amount(resource, borrowed),
                )
                for resource, total, borrowed in rows
            ),
        )
        for flavor, rows in _by_flavor(usage).items()
    )


def _local_usage(usage: objects.QueueUsage) -> tuple[LocalQueueFlavorUsage, ...]:
    return tuple(
        LocalQueueFlavorUsage(
            name=flavor,
            resources=tuple(
                LocalQueueResourceUsage(name=resource, total=format_amount(resource, total))
                for resource, total, _ in rows
            ),
        )
        for flavor, rows in _by_flavor(usage).items()
    )


def _by_flavor(usage: objects.QueueUsage) -> dict[str, list[tuple[str, int, int]]]:
    """The rows of each flavor; flavors and resources keep the order they came in."""
    result: dict[str, list[tuple[str, int, int]]] = {}
    for flavor, resource, total, borrowed in usage.rows:
        result.setdefault(flavor, []).append((resource, total, borrowed))
    return result
