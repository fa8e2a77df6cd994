"""What Kueue's configuration and the gates say to the decisions: the one place that translates the words of the file into settings of `shared.decide`."""

from __future__ import annotations

from shared.config.configuration import Configured
from shared.config.fairness import FairnessSettings
from shared.decide.cycle import CycleSettings
from shared.decide.flavors import SearchSettings
from shared.decide.lifecycle_limits import PodsReadyLimits
from shared.decide.order import HeadOrder
from shared.decide.requests import DeviceMapping, RequestRules, Transformation
from shared.decide.settings import FairSharing
from shared.model.admission_fair_sharing import AfsSettings
from shared.model.pending import OrderPolicy

NOT_FAIR = FairnessSettings()


def request_rules(configured: Configured) -> RequestRules:
    """What a workload's pods count as."""
    resources, gates = configured.configuration.resources, configured.gates
    return RequestRules(
        exclude_prefixes=resources.exclude_resource_prefixes,
        transformations=tuple(
            Transformation(
                input=t.input,
                replace=t.strategy == "Replace",
                multiply_by=t.multiply_by,
                outputs=tuple((name, str(amount)) for name, amount in t.outputs.items()),
            )
            for t in resources.transformations
        ),
        reclaimable_pods=gates["ReclaimablePods"],
        priority_boost=gates["PriorityBoost"],
        equivalence_hashing=gates["SchedulingEquivalenceHashing"],
        admission_gates=gates["AdmissionGatedBy"],
        devices=gates["KueueDRAIntegration"],
        refuse_devices=gates["KueueDRARejectWorkloadsWhenDRADisabled"],
        extended_resources=gates["KueueDRAIntegrationExtendedResource"],
        device_mappings=tuple(
            DeviceMapping(resource=m.name, classes=m.device_class_names, sources=bool(m.sources))
            for m in resources.device_class_mappings
        ),
    )


def order_policy(configured: Configured) -> OrderPolicy:
    """The order of pending workloads."""
    return OrderPolicy(
        by_eviction=_by_eviction(configured),
        priority_within_cohort=configured.gates["PrioritySortingWithinCohort"],
        equivalence_hashing=configured.gates["SchedulingEquivalenceHashing"],
    )


def fair_sharing(configured: Configured, settings: FairnessSettings) -> FairSharing | None:
    """Whether cohorts are shared by weight, and whom that may preempt; None: they are not. The file wins over the settings."""
    section = configured.configuration.fair_sharing
    if section is None and not settings.fair_sharing:
        return None
    named = section.preemption_strategies if section is not None else tuple(settings.fair_sharing_strategies.split(","))
    within_nominal = configured.gates["FairSharingPreemptWithinNominal"]
    return (
        FairSharing(strategies=named, preempt_within_nominal=within_nominal)
        if named
        else FairSharing(preempt_within_nominal=within_nominal)
    )


def admission_fair_sharing(configured: Configured, settings: FairnessSettings) -> AfsSettings | None:
    """Whether and how LocalQueues take turns by past usage. The file wins over the settings."""
    if not configured.gates["AdmissionFairSharing"]:
        return None
    section = configured.configuration.admission_fair_sharing
    if section is None:
        return settings.admission_fair_sharing()
    return AfsSettings(
        half_life_s=float(section.usage_half_life_time),
        sampling_s=float(section.usage_sampling_interval),
        weights=section.resource_weights,
    )


def cycle_settings(configured: Configured, settings: FairnessSettings = NOT_FAIR) -> CycleSettings:
    """How a cycle searches, sorts and shares."""
    resources, gates = configured.configuration.resources, configured.gates
    wait = configured.wait_for_pods_ready
    ignore = gates["QuotaCheckStrategy"] and resources.quota_check_strategy == "IgnoreUndeclared"
    return CycleSettings(
        search=SearchSettings(
            ignore_undeclared=ignore,
            flavor_fungibility=gates["FlavorFungibility"],
            concurrent_admission=gates["ConcurrentAdmission"],
        ),
        order=HeadOrder(
            by_eviction=_by_eviction(configured),
            priority_within_cohort=gates["PrioritySortingWithinCohort"],
            prioritize_preemptors=gates["PrioritizePreemptorWorkloads"],
            prioritize_non_borrowing=gates["FairSharingPrioritizeNonBorrowing"],
        ),
        fair=fair_sharing(configured, settings),
        preserve_scan_progress=gates["FlavorFungibilityPreserveScanProgress"],
        partial_admission=gates["PartialAdmission"],
        recompute_overlap=gates["RecomputeAssignmentUponPreemptionTargetsOverlap"],
        preemption_gates=gates["ConcurrentAdmission"] or gates["MultiKueueOrchestratedPreemption"],
        elastic_slices=gates["ElasticJobsViaWorkloadSlices"],
        block_admission=wait is not None and wait.block_admission,
    )


def pods_ready_limits(configured: Configured) -> PodsReadyLimits | None:
    """How long pods may take and what then; None: nobody waits for them."""
    wait = configured.wait_for_pods_ready
    if wait is None:
        return None
    again = wait.requeuing_strategy
    return PodsReadyLimits(
        timeout_s=wait.timeout_s,
        recovery_timeout_s=wait.recovery_timeout_s,
        backoff_limit=again.backoff_limit_count,
        backoff_base_s=again.backoff_base_seconds,
        backoff_max_s=again.backoff_max_seconds,
    )


def _by_eviction(configured: Configured) -> bool:
    wait = configured.wait_for_pods_ready
    return wait is None or wait.requeuing_strategy.timestamp == "Eviction"
