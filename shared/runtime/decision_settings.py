"""What Kueue's configuration and the gates say to the decisions: the one place that translates the words of the file into settings of `shared.decide`."""

from __future__ import annotations

from shared.config.configuration import Configured
from shared.decide.cycle import CycleSettings
from shared.decide.flavors import SearchSettings
from shared.decide.order import HeadOrder
from shared.decide.requests import RequestRules, Transformation
from shared.model.pending import OrderPolicy


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
    )


def order_policy(configured: Configured) -> OrderPolicy:
    """The order of pending workloads."""
    return OrderPolicy(
        by_eviction=_by_eviction(configured),
        priority_within_cohort=configured.gates["PrioritySortingWithinCohort"],
        equivalence_hashing=configured.gates["SchedulingEquivalenceHashing"],
    )


def cycle_settings(configured: Configured) -> CycleSettings:
    """How a cycle searches and sorts."""
    resources, gates = configured.configuration.resources, configured.gates
    ignore = gates["QuotaCheckStrategy"] and resources.quota_check_strategy == "IgnoreUndeclared"
    return CycleSettings(
        search=SearchSettings(ignore_undeclared=ignore, flavor_fungibility=gates["FlavorFungibility"]),
        order=HeadOrder(
            by_eviction=_by_eviction(configured),
            priority_within_cohort=gates["PrioritySortingWithinCohort"],
            prioritize_preemptors=gates["PrioritizePreemptorWorkloads"],
        ),
        preserve_scan_progress=gates["FlavorFungibilityPreserveScanProgress"],
        partial_admission=gates["PartialAdmission"],
    )


def _by_eviction(configured: Configured) -> bool:
    wait = configured.wait_for_pods_ready
    return wait is None or wait.requeuing_strategy.timestamp == "Eviction"
