"""The table of feature gates: default, stage, lock, and which others each one needs (core rules, section 10). Values only."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

import msgspec


class Stage(enum.Enum):
    """How far a feature has come."""

    ALPHA = "Alpha"
    BETA = "Beta"
    GA = "GA"
    DEPRECATED = "Deprecated"


class Gate(msgspec.Struct, frozen=True):
    """`since`: release of the current stage or default."""

    name: str
    default: bool
    stage: Stage
    since: str
    needs: tuple[str, ...] = ()
    locked: bool = False


_TAS = "TopologyAwareScheduling"
_DRA = "KueueDRAIntegration"

_ALPHA, _BETA = Stage.ALPHA, Stage.BETA

_ROWS: tuple[Gate, ...] = (
    # Scheduling, queueing, quota
    Gate("PartialAdmission", True, _BETA, "0.5"),
    Gate("FlavorFungibility", True, _BETA, "0.5"),
    Gate("FlavorFungibilityPreserveScanProgress", True, _BETA, "0.20", ("FlavorFungibility",)),
    Gate("PrioritySortingWithinCohort", True, _BETA, "0.6"),
    Gate("PrioritizePreemptorWorkloads", False, _ALPHA, "0.20"),
    Gate("SchedulingEquivalenceHashing", True, _BETA, "0.18"),
    Gate("RecomputeAssignmentUponPreemptionTargetsOverlap", True, _BETA, "0.20"),
    Gate("FairSharingPreemptWithinNominal", True, _BETA, "0.17"),
    Gate("FairSharingPrioritizeNonBorrowing", True, _BETA, "0.17"),
    Gate("AdmissionFairSharing", True, _BETA, "0.15"),
    Gate("ReclaimablePods", True, _BETA, "0.15"),
    Gate("QuotaCheckStrategy", True, _BETA, "0.19"),
    Gate("PriorityBoost", False, _ALPHA, "0.17"),
    Gate("ConcurrentAdmission", False, _ALPHA, "0.18"),
    Gate("AdmissionGatedBy", True, _BETA, "0.19"),
    Gate("ElasticJobsViaWorkloadSlices", True, _BETA, "0.18"),
    Gate("ElasticJobsViaWorkloadSlicesWithTAS", False, _ALPHA, "0.17", ("ElasticJobsViaWorkloadSlices", _TAS)),
    Gate("RejectUpdatesToCQWithInvalidOnFlavors", False, _ALPHA, "0.18"),
    Gate("UnadmittedWorkloadsObservability", True, _BETA, "0.19"),
    Gate("UnadmittedWorkloadsExplicitStatus", False, _BETA, "0.19", ("UnadmittedWorkloadsObservability",)),
    Gate("DisableWaitForPodsReady", False, _ALPHA, "0.19"),
    Gate("FailureRecoveryPolicy", False, _ALPHA, "0.15"),
    Gate("FinishOrphanedWorkloads", True, _BETA, "0.18"),
    Gate("WorkloadPriorityClassDefaulting", True, _BETA, "0.20"),
    Gate("SchedulerLibraryIntegration", False, _ALPHA, "0.19"),
    # Resources and DRA
    Gate(_DRA, True, _BETA, "0.18"),
    Gate("KueueDRAIntegrationExtendedResource", True, _BETA, "0.19", (_DRA,)),
    Gate("KueueDRAIntegrationPartitionableDevices", True, _BETA, "0.19", (_DRA,)),
    Gate("KueueDRAIntegrationConsumableCapacity", False, _ALPHA, "0.19", (_DRA,)),
    Gate("KueueDRARejectWorkloadsWhenDRADisabled", True, _BETA, "0.18"),
    Gate("WorkloadValidateResourcesAreNonNegative", True, _BETA, "0.20"),
    Gate("VectorizedResourceRequests", True, _BETA, "0.19"),
    # Topology-aware scheduling
    Gate(_TAS, True, _BETA, "0.14"),
    Gate("TASProfileMixed", True, _BETA, "0.15", (_TAS,)),
    Gate("TASBalancedPlacement", False, _ALPHA, "0.15", (_TAS,)),
    Gate("TASMultiLayerTopology", True, _BETA, "0.19", (_TAS,)),
    Gate("TASRespectNodeAffinityPreferred", False, _ALPHA, "0.18", (_TAS,)),
    Gate("TASHandleOverlappingFlavors", True, _BETA, "0.18", (_TAS,)),
    Gate("TASRecomputeAssignmentWithinSchedulingCycle", True, _BETA, "0.19", (_TAS,)),
    Gate("TASFailedNodeReplacement", True, _BETA, "0.14", (_TAS,)),
    Gate("TASFailedNodeReplacementFailFast", True, _BETA, "0.14", (_TAS, "TASFailedNodeReplacement")),
    Gate("TASReplaceNodeOnPodTermination", True, _BETA, "0.14", (_TAS, "TASFailedNodeReplacement")),
    Gate(
        "TASReplaceNodeDueToNotReadyOverFixedTime", False, Stage.DEPRECATED, "0.19", (_TAS, "TASFailedNodeReplacement")
    ),
    Gate("TASReplaceNodeOnNodeTaints", True, _BETA, "0.17", (_TAS,)),
    Gate("SkipReassignmentForPodOwnedWorkloads", True, _BETA, "0.19"),
    Gate("TASAssignmentsEncodingByHostnamePrefix", True, _BETA, "0.19"),
    Gate("TASValidateWorkloadSliceSize", True, _BETA, "0.20"),
    Gate("TASCacheNodeMatchResults", True, _BETA, "0.19"),
    Gate("TASCachingRemainingResources", True, _BETA, "0.19"),
    Gate("TASCacheTopologyTree", True, _BETA, "0.20"),
    # MultiKueue and admission checks
    Gate("MultiKueue", True, _BETA, "0.9"),
    Gate("MultiKueueAdaptersForCustomJobs", True, _BETA, "0.15"),
    Gate("MultiKueueClusterProfile", False, _ALPHA, "0.15"),
    Gate("MultiKueueOrchestratedPreemption", False, _ALPHA, "0.17"),
    Gate("MultiKueueIncrementalDispatcherConfig", True, _BETA, "0.19"),
    Gate("MultiKueueIncrementalDispatcherRespectConfigOrder", True, _BETA, "0.19"),
    Gate("MultiKueueKubeConfigPathValidation", True, _BETA, "0.20"),
    Gate("MultiKueueManagerQuotaAutomation", False, _ALPHA, "0.18"),
    Gate("MultiKueueRemoteSpecSync", True, _BETA, "0.20"),
    Gate("CleanupProvisioningRequestsOnEviction", True, _BETA, "0.19"),
    # Integrations, webhooks, observability
    Gate("ManagedJobsNamespaceSelectorAlwaysRespected", True, Stage.GA, "0.19", locked=True),
    Gate("TLSOptions", True, Stage.GA, "0.20", locked=True),
    Gate("WorkloadRequestUseMergePatch", False, _ALPHA, "0.14"),
    Gate("RemoveFinalizersWithStrictPatch", True, _BETA, "0.17"),
    Gate("AssignQueueLabelsForPods", True, _BETA, "0.17"),
    Gate("WorkloadIdentifierAnnotations", True, _BETA, "0.18"),
    Gate("ShortWorkloadNames", False, _ALPHA, "0.17"),
    Gate("FastQuotaReleaseInPodIntegration", False, _ALPHA, "0.17"),
    Gate("WorkloadValidationForPodSetMetadata", True, _BETA, "0.20"),
    Gate("LWSImmutableGroupSize", True, _BETA, "0.20"),
    Gate("PodIntegrationValidateGroupOwner", True, _BETA, "0.18"),
    Gate("SkipAncestorCheckForDeletedWorkloads", True, _BETA, "0.20"),
    Gate("ValidateRayAndSparkJobUpdates", True, _BETA, "0.18"),
    Gate("DeferRayServiceFinalizationForRedisCleanup", True, _BETA, "0.19"),
    Gate("SparkApplicationIntegration", False, _ALPHA, "0.17"),
    Gate("VisibilityOnDemand", True, _BETA, "0.9"),
    Gate("LocalQueueMetrics", True, _BETA, "0.17"),
    Gate("CustomMetricLabels", False, _ALPHA, "0.17"),
    Gate("MetricForWorkloadCreationLatency", True, _BETA, "0.18"),
    Gate("MetricsForCohorts", True, _BETA, "0.18"),
)

GATES: Final[Mapping[str, Gate]] = {gate.name: gate for gate in _ROWS}
"""By name, in the order of the table."""
