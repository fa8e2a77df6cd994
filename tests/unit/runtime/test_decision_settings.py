"""The configuration's words as settings of the decisions."""

from __future__ import annotations

from shared.config.configuration import (
    AdmissionFairSharing,
    Configuration,
    Configured,
    RequeuingStrategy,
    Resources,
    Transformation,
    WaitForPodsReady,
)
from shared.config.configuration import FairSharing as FairSharingSection
from shared.config.durations import Duration
from shared.config.fairness import FairnessSettings
from shared.config.feature_gates import resolve
from shared.decide.cycle import CycleSettings
from shared.decide.requests import DEFAULT_RULES, pod_requests, transformed
from shared.decide.settings import FairSharing
from shared.model.admission_fair_sharing import AfsSettings
from shared.model.pending import OrderPolicy
from shared.runtime.decision_settings import (
    admission_fair_sharing,
    cycle_settings,
    fair_sharing,
    order_policy,
    request_rules,
)
from tests.unit.model.builders import pod_set


def configured(resources: Resources | None = None, **gates: bool) -> Configured:
    return Configured(configuration=Configuration(resources=resources or Resources()), gates=resolve(gates))


def test_defaults_are_the_defaults() -> None:
    assert request_rules(Configured()) == DEFAULT_RULES
    assert order_policy(Configured()) == OrderPolicy()
    assert cycle_settings(Configured()) == CycleSettings()


def test_resources_count_as_the_file_says() -> None:
    outputs: dict[str, str | int | float] = {"x.com/mem": "5Gi", "x.com/credits": 15}
    resources = Resources(
        exclude_resource_prefixes=("net.",),
        transformations=(Transformation(input="g.com/mig", strategy="Replace", outputs=outputs),),
    )
    rules = request_rules(configured(resources))
    asked = pod_requests(pod_set(requests={"g.com/mig": "2", "net.x/vpc": "1", "cpu": "1"}))
    assert transformed(asked, rules) == {"x.com/mem": 10 * 2**30, "x.com/credits": 30, "cpu": 1000}


def test_multiplied_and_retained() -> None:
    transformation = Transformation(input="a", multiply_by="b", outputs={"c": "1"})
    (rule,) = request_rules(configured(Resources(transformations=(transformation,)))).transformations
    assert (rule.replace, rule.multiply_by, rule.outputs) == (False, "b", (("c", "1"),))


def test_gates_of_requests() -> None:
    rules = request_rules(configured(ReclaimablePods=False, PriorityBoost=True, SchedulingEquivalenceHashing=False))
    assert (rules.reclaimable_pods, rules.priority_boost, rules.equivalence_hashing) == (False, True, False)
    assert not order_policy(configured(SchedulingEquivalenceHashing=False)).equivalence_hashing


def test_gates_of_the_cycle() -> None:
    settings = cycle_settings(
        configured(
            FlavorFungibility=False,
            FlavorFungibilityPreserveScanProgress=False,
            PartialAdmission=False,
            PrioritySortingWithinCohort=False,
            PrioritizePreemptorWorkloads=True,
        )
    )
    assert not settings.search.flavor_fungibility
    assert not settings.preserve_scan_progress
    assert not settings.partial_admission
    assert not settings.order.priority_within_cohort
    assert settings.order.prioritize_preemptors
    assert not order_policy(configured(PrioritySortingWithinCohort=False)).priority_within_cohort


def test_undeclared_resources_are_ignored_only_with_the_gate() -> None:
    resources = Resources(quota_check_strategy="IgnoreUndeclared")
    assert cycle_settings(configured(resources)).search.ignore_undeclared
    assert not cycle_settings(configured(resources, QuotaCheckStrategy=False)).search.ignore_undeclared


def test_order_by_creation() -> None:
    wait = WaitForPodsReady(requeuing_strategy=RequeuingStrategy(timestamp="Creation"))
    by_creation = Configured(configuration=Configuration(wait_for_pods_ready=wait))
    assert not order_policy(by_creation).by_eviction
    assert not cycle_settings(by_creation).order.by_eviction
    off = Configured(
        configuration=Configuration(wait_for_pods_ready=wait), gates=resolve({"DisableWaitForPodsReady": True})
    )
    assert order_policy(off).by_eviction


def test_fair_sharing_of_the_file_wins_over_the_settings() -> None:
    own = FairnessSettings(fair_sharing=True, fair_sharing_strategies="LessThanInitialShare")
    assert fair_sharing(Configured(), FairnessSettings()) is None
    assert fair_sharing(Configured(), own) == FairSharing(strategies=("LessThanInitialShare",))
    named = Configuration(fair_sharing=FairSharingSection(preemption_strategies=("LessThanOrEqualToFinalShare",)))
    gates = resolve({"FairSharingPreemptWithinNominal": False, "FairSharingPrioritizeNonBorrowing": False})
    both = Configured(configuration=named, gates=gates)
    assert fair_sharing(both, own) == FairSharing(
        strategies=("LessThanOrEqualToFinalShare",), preempt_within_nominal=False
    )
    assert cycle_settings(both, own).fair == fair_sharing(both, own)
    assert not cycle_settings(both, own).order.prioritize_non_borrowing
    unnamed = Configured(configuration=Configuration(fair_sharing=FairSharingSection()))
    assert fair_sharing(unnamed, FairnessSettings()) == FairSharing()


def test_admission_fair_sharing_of_the_file_wins_over_the_settings() -> None:
    own = FairnessSettings(afs=True, afs_half_life_s=60.0, afs_sampling_s=5.0, afs_weights={"cpu": 2.0})
    assert admission_fair_sharing(Configured(), FairnessSettings()) is None
    assert admission_fair_sharing(Configured(), own) == AfsSettings(
        half_life_s=60.0, sampling_s=5.0, weights={"cpu": 2.0}
    )
    assert admission_fair_sharing(configured(AdmissionFairSharing=False), own) is None
    section = AdmissionFairSharing(usage_half_life_time=Duration(600), resource_weights={"memory": 0.0})
    file = Configured(configuration=Configuration(admission_fair_sharing=section))
    assert admission_fair_sharing(file, own) == AfsSettings(
        half_life_s=600.0, sampling_s=300.0, weights={"memory": 0.0}
    )
