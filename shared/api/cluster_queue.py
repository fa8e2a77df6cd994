"""ClusterQueue: a pool of quota with its queueing, flavor and preemption policy."""

from typing import Annotated, Literal

from shared.api import names
from shared.api.conditions import ConditionList
from shared.api.meta import ObjectMeta
from shared.api.quota_groups import FairSharing, FairSharingStatus, ResourceGroups
from shared.api.schema_hints import (
    ApiStruct,
    FlavorName,
    Int32,
    Name253,
    RawQuantity,
    ResourceName,
    Rule,
    always,
    list_map,
    required,
    rules,
    schema,
    set_list,
)
from shared.api.selectors import LabelSelectorField

QueueingStrategy = Literal["StrictFIFO", "BestEffortFIFO"]
StopPolicy = Literal["None", "Hold", "HoldAndDrain"]
FungibilityPolicy = Literal["MayStopSearch", "TryNextFlavor"]
FungibilityPreference = Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"]
ReclaimPolicy = Literal["Never", "LowerPriority", "Any"]
BorrowWithinCohortPolicy = Literal["Never", "LowerPriority"]
WithinQueuePolicy = Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"]
AdmissionMode = Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]
MigrationMode = Literal["TryPreferredFlavors", "RetainFirstAdmission"]

CohortName = Annotated[Name253, schema("Cohort it shares unused quota with; need not exist as an object.")]
StopPolicyField = Annotated[
    StopPolicy,
    schema("Hold admits nothing new; HoldAndDrain also evicts what is admitted.", default="None"),
]


class FlavorFungibility(ApiStruct, frozen=True, kw_only=True):
    """Whether to settle for a flavor or to look at the next one."""

    when_can_borrow: Annotated[
        FungibilityPolicy, schema("When the workload fits a flavor by borrowing.", default="MayStopSearch")
    ] = "MayStopSearch"
    when_can_preempt: Annotated[
        FungibilityPolicy, schema("When the workload fits a flavor by preempting.", default="TryNextFlavor")
    ] = "TryNextFlavor"
    preference: Annotated[
        FungibilityPreference | None,
        schema("Which of the two is rather accepted when every flavor was tried; unset: BorrowingOverPreemption."),
    ] = None


class BorrowWithinCohort(ApiStruct, frozen=True, kw_only=True):
    """Whether a workload may preempt in the cohort although it borrows."""

    policy: Annotated[BorrowWithinCohortPolicy, schema("Whom it may preempt.", default="Never")] = "Never"
    max_priority_threshold: Annotated[
        Int32 | None, schema("Only workloads up to this priority may be preempted; unset means no such limit.")
    ] = None


class Preemption(ApiStruct, frozen=True, kw_only=True):
    """Whom pending workloads of this queue may evict."""

    reclaim_within_cohort: Annotated[
        ReclaimPolicy, schema("Workloads of the cohort that use more than their nominal quota.", default="Never")
    ] = "Never"
    borrow_within_cohort: Annotated[BorrowWithinCohort, schema(default={})] = BorrowWithinCohort()
    within_cluster_queue: Annotated[WithinQueuePolicy, schema("Workloads of the same queue.", default="Never")] = (
        "Never"
    )


class AdmissionCheckStrategyRule(ApiStruct, frozen=True, kw_only=True):
    """One check and the flavors it applies to."""

    name: Annotated[str, schema("Name of the AdmissionCheck.", minLength=1, maxLength=316)]
    on_flavors: Annotated[
        tuple[FlavorName, ...], set_list("Flavors it applies to; empty means all of this queue.", maxItems=64)
    ] = ()


class AdmissionChecksStrategy(ApiStruct, frozen=True, kw_only=True):
    """Checks that have to be Ready before a workload is admitted."""

    admission_checks: Annotated[
        tuple[AdmissionCheckStrategyRule, ...], list_map("The checks.", "name", minItems=1, maxItems=64)
    ] = ()


class AdmissionScope(ApiStruct, frozen=True, kw_only=True):
    """Fair sharing between the LocalQueues of this queue."""

    admission_mode: Annotated[AdmissionMode, schema("Whether past usage of the LocalQueues orders admission.")]


class MigrationConstraints(ApiStruct, frozen=True, kw_only=True):
    last_acceptable_flavor_name: Annotated[
        FlavorName, schema("Least preferred flavor that a workload may be migrated to.")
    ] = ""


class ConcurrentAdmissionMigration(ApiStruct, frozen=True, kw_only=True):
    """Whether an admitted workload still tries for better flavors."""

    mode: Annotated[MigrationMode, schema("TryPreferredFlavors goes on trying, RetainFirstAdmission stays.")] = (
        required("TryPreferredFlavors")
    )
    constraints: Annotated[MigrationConstraints | None, schema("Limits of the migration.")] = None


class ConcurrentAdmissionPolicy(ApiStruct, frozen=True, kw_only=True):
    """Tries several flavors of a workload at the same time."""

    migration: ConcurrentAdmissionMigration


class ClusterQueueSpecBase(ApiStruct, frozen=True, kw_only=True):
    """What both versions say alike."""

    resource_groups: ResourceGroups = ()
    queueing_strategy: Annotated[
        QueueingStrategy,
        schema("Whether a workload that does not fit blocks those behind it.", default="BestEffortFIFO"),
    ] = "BestEffortFIFO"
    namespace_selector: Annotated[
        LabelSelectorField | None, schema("Namespaces that may use it; unset means none, {} means all.")
    ] = None
    preemption: Annotated[Preemption, schema(default={})] = Preemption()
    stop_policy: StopPolicyField = "None"
    fair_sharing: FairSharing | None = None


class ClusterQueueSpec(ClusterQueueSpecBase, frozen=True, kw_only=True):
    """What the queue owns and how it gives it out."""

    cohort_name: CohortName = ""
    flavor_fungibility: Annotated[FlavorFungibility, schema(default={})] = FlavorFungibility()
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    admission_scope: AdmissionScope | None = None
    concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None


class ResourceUsage(ApiStruct, frozen=True, kw_only=True):
    """Usage of one resource in one flavor."""

    name: Annotated[ResourceName, schema("The resource.")]
    total: Annotated[RawQuantity, schema("What is used, borrowed quota included.")] = always("0")
    borrowed: Annotated[RawQuantity, schema("How much of it exceeds the nominal quota.")] = always("0")


class FlavorUsage(ApiStruct, frozen=True, kw_only=True):
    """Usage of one flavor."""

    name: Annotated[FlavorName, schema("Name of the ResourceFlavor.")]
    resources: Annotated[tuple[ResourceUsage, ...], list_map("Usage per resource.", "name", maxItems=64)]


class ClusterQueueStatusBase(ApiStruct, frozen=True, kw_only=True):
    """What both versions say alike."""

    conditions: ConditionList = ()
    flavors_reservation: Annotated[
        tuple[FlavorUsage, ...], list_map("Quota held by workloads with a reservation.", "name", maxItems=64)
    ] = ()
    flavors_usage: Annotated[
        tuple[FlavorUsage, ...], list_map("Quota held by admitted workloads.", "name", maxItems=64)
    ] = ()
    pending_workloads: Annotated[Int32, schema("Workloads waiting.")] = always(0)
    reserving_workloads: Annotated[Int32, schema("Workloads with quota reserved.")] = always(0)
    admitted_workloads: Annotated[Int32, schema("Workloads admitted and not finished.")] = always(0)


class ClusterQueueStatus(ClusterQueueStatusBase, frozen=True, kw_only=True):
    """What the queue holds at present."""

    fair_sharing: Annotated[FairSharingStatus | None, schema("Present with fair sharing only.")] = None


PREFERENCE_RULE = (
    "!has(self.flavorFungibility) || !has(self.flavorFungibility.preference) || "
    "(self.flavorFungibility.whenCanBorrow == 'TryNextFlavor' && "
    "self.flavorFungibility.whenCanPreempt == 'TryNextFlavor')",
    "flavorFungibility.preference needs whenCanBorrow and whenCanPreempt to be TryNextFlavor",
    ".flavorFungibility.preference",
)
RECLAIM_RULE = (
    "!has(self.preemption) || self.preemption.reclaimWithinCohort != 'Never' || "
    "!has(self.preemption.borrowWithinCohort) || self.preemption.borrowWithinCohort.policy == 'Never'",
    "borrowWithinCohort needs a reclaimWithinCohort other than Never",
    ".preemption",
)


def borrowing_rule(cohort: str) -> Rule:
    """No borrowing without a cohort, which stands in the field of that name."""
    return (
        f"has(self.{cohort}) || !has(self.resourceGroups) || self.resourceGroups.all(rg, "
        "rg.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit))))",
        f"borrowingLimit must be nil when {cohort} is empty",
        ".resourceGroups",
    )


ClusterQueueSpecField = Annotated[ClusterQueueSpec, rules(borrowing_rule("cohortName"), PREFERENCE_RULE, RECLAIM_RULE)]


class ClusterQueue(ApiStruct, frozen=True, kw_only=True):
    """A cluster-wide pool of quota from which workloads are admitted."""

    api_version: str = always(names.GROUP_VERSION)
    kind: str = always(names.CLUSTER_QUEUE)
    metadata: ObjectMeta = ObjectMeta()
    spec: ClusterQueueSpecField = ClusterQueueSpec()
    status: ClusterQueueStatus = ClusterQueueStatus()
