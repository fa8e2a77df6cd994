"""ClusterQueue of v1beta1: `cohort`, checks by name alone, older names of policies (core specification 1.8)."""

from typing import Annotated, Literal

from shared.api import names
from shared.api.cluster_queue import (
    PREFERENCE_RULE,
    RECLAIM_RULE,
    ClusterQueueSpecBase,
    ClusterQueueStatusBase,
    CohortName,
    FungibilityPreference,
    borrowing_rule,
)
from shared.api.meta import ObjectMeta
from shared.api.schema_hints import (
    LONG_AGO,
    ApiStruct,
    FlavorName,
    Time,
    always,
    atomic_list,
    list_map,
    required,
    rules,
    schema,
)
from shared.api.v1beta1.fair_sharing import FairSharingStatus

BorrowPolicy = Literal["MayStopSearch", "TryNextFlavor", "Borrow"]
PreemptPolicy = Literal["MayStopSearch", "TryNextFlavor", "Preempt"]


class FlavorFungibility(ApiStruct, frozen=True, kw_only=True):
    """Whether to settle for a flavor or to look at the next one."""

    when_can_borrow: Annotated[
        BorrowPolicy,
        schema("When the workload fits a flavor by borrowing; Borrow means MayStopSearch.", default="MayStopSearch"),
    ] = "MayStopSearch"
    when_can_preempt: Annotated[
        PreemptPolicy,
        schema("When the workload fits a flavor by preempting; Preempt means MayStopSearch.", default="TryNextFlavor"),
    ] = "TryNextFlavor"
    preference: Annotated[
        FungibilityPreference | None,
        schema("Which of the two is rather accepted when every flavor was tried; unset: BorrowingOverPreemption."),
    ] = None


class AdmissionCheckStrategyRule(ApiStruct, frozen=True, kw_only=True):
    """One check and the flavors it applies to."""

    name: Annotated[str, schema("Name of the AdmissionCheck.", minLength=1, maxLength=316)]
    on_flavors: Annotated[
        tuple[FlavorName, ...], atomic_list("Flavors it applies to; empty means all of this queue.")
    ] = ()


class AdmissionChecksStrategy(ApiStruct, frozen=True, kw_only=True):
    """Checks that have to be Ready before a workload is admitted."""

    admission_checks: Annotated[tuple[AdmissionCheckStrategyRule, ...], list_map("The checks.", "name")] = ()


class AdmissionScope(ApiStruct, frozen=True, kw_only=True):
    """Fair sharing between the LocalQueues of this queue."""

    admission_mode: Annotated[str, schema("Whether past usage of the LocalQueues orders admission.")]


class ClusterQueueSpec(ClusterQueueSpecBase, frozen=True, kw_only=True):
    """What the queue owns and how it gives it out."""

    cohort: CohortName = ""
    flavor_fungibility: Annotated[FlavorFungibility, schema(default={})] = FlavorFungibility()
    admission_checks: Annotated[
        tuple[str, ...],
        atomic_list("Checks for all flavors, by name; if there are any, admissionChecksStrategy counts for nothing."),
    ] = ()
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    admission_scope: AdmissionScope | None = None


class PendingWorkload(ApiStruct, frozen=True, kw_only=True):
    """A workload that waits."""

    name: Annotated[str, schema("Its name.")]
    namespace: Annotated[str, schema("Its namespace.")]


class PendingWorkloadsStatus(ApiStruct, frozen=True, kw_only=True):
    """Not filled any more; the visibility API has it."""

    cluster_queue_pending_workload: Annotated[
        tuple[PendingWorkload, ...], atomic_list("The first of the pending workloads.")
    ] = ()
    last_change_time: Annotated[Time, schema("When the list last changed.")] = required(LONG_AGO)


class ClusterQueueStatus(ClusterQueueStatusBase, frozen=True, kw_only=True):
    """What the queue holds at present."""

    fair_sharing: Annotated[FairSharingStatus | None, schema("Present with fair sharing only.")] = None
    pending_workloads_status: PendingWorkloadsStatus | None = None


ClusterQueueSpecField = Annotated[ClusterQueueSpec, rules(borrowing_rule("cohort"), PREFERENCE_RULE, RECLAIM_RULE)]


class ClusterQueue(ApiStruct, frozen=True, kw_only=True):
    """A cluster-wide pool of quota from which workloads are admitted."""

    api_version: str = always(names.V1BETA1_GROUP_VERSION)
    kind: str = always(names.CLUSTER_QUEUE)
    metadata: ObjectMeta = ObjectMeta()
    spec: ClusterQueueSpecField = ClusterQueueSpec()
    status: ClusterQueueStatus = ClusterQueueStatus()
