"""The configuration's words as settings of the decisions."""

from __future__ import annotations

import msgspec
import pytest

from shared.config.configuration import (
    AdmissionFairSharing,
    Configuration,
    Configured,
    DeviceAmount,
    DeviceClassMapping,
    DeviceSource,
    RequeuingStrategy,
    Resources,
    Transformation,
    WaitForPodsReady,
)
from shared.config.configuration import FairSharing as FairSharingSection
from shared.config.durations import Duration
from shared.config.fairness import FairnessSettings
from shared.config.feature_gates import resolve
from shared.config.gate_table import GATES
from shared.decide.cycle import CycleSettings
from shared.decide.requests import DEFAULT_RULES, DeviceMapping, pod_requests, transformed
from shared.decide.settings import FairSharing
from shared.model.admission_fair_sharing import AfsSettings
from shared.model.pending import OrderPolicy
from shared.runtime.decision_settings import (
    admission_fair_sharing,
    cycle_settings,
    fair_sharing,
    order_policy,
    pods_ready_limits,
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


OWN_SETTINGS = FairnessSettings(fair_sharing=True, afs=True)
FULL = Configuration(
    resources=Resources(
        quota_check_strategy="IgnoreUndeclared",
        device_class_mappings=(DeviceClassMapping(name="gpus", device_class_names=("gpu.example.com",)),),
    ),
    wait_for_pods_ready=WaitForPodsReady(
        block_admission=True, requeuing_strategy=RequeuingStrategy(timestamp="Creation", backoff_limit_count=3)
    ),
)
"""A configuration in which no gate is without effect for want of its section."""


def flat(value: object, path: str = "") -> dict[str, object]:
    """The settings of a Struct by their path."""
    if not isinstance(value, msgspec.Struct):
        return {path: value}
    fields = value.__struct_fields__
    found: dict[str, object] = {}
    for name in fields:
        found.update(flat(getattr(value, name), f"{path}.{name}"))
    return found


def everything(gates: dict[str, bool]) -> dict[str, object]:
    """All that the configuration says to the decisions."""
    said = Configured(configuration=FULL, gates=resolve(gates))
    return {
        **flat(request_rules(said), "requests"),
        **flat(order_policy(said), "line"),
        **flat(cycle_settings(said, OWN_SETTINGS), "cycle"),
        **flat(admission_fair_sharing(said, OWN_SETTINGS), "usage"),
        **flat(pods_ready_limits(said), "pods ready"),
    }


EFFECTS: dict[str, set[str]] = {
    "PartialAdmission": {"cycle.partial_admission"},
    "FlavorFungibility": {"cycle.search.flavor_fungibility", "cycle.preserve_scan_progress"},
    "FlavorFungibilityPreserveScanProgress": {"cycle.preserve_scan_progress"},
    "PrioritySortingWithinCohort": {"line.priority_within_cohort", "cycle.order.priority_within_cohort"},
    "PrioritizePreemptorWorkloads": {"cycle.order.prioritize_preemptors"},
    "SchedulingEquivalenceHashing": {"requests.equivalence_hashing", "line.equivalence_hashing"},
    "RecomputeAssignmentUponPreemptionTargetsOverlap": {"cycle.recompute_overlap"},
    "FairSharingPreemptWithinNominal": {"cycle.fair.preempt_within_nominal"},
    "FairSharingPrioritizeNonBorrowing": {"cycle.order.prioritize_non_borrowing"},
    "AdmissionFairSharing": {"usage.half_life_s", "usage.sampling_s", "usage.weights"},
    "ReclaimablePods": {"requests.reclaimable_pods"},
    "QuotaCheckStrategy": {"cycle.search.ignore_undeclared"},
    "PriorityBoost": {"requests.priority_boost"},
    "ConcurrentAdmission": {"cycle.search.concurrent_admission", "cycle.preemption_gates"},
    "MultiKueueOrchestratedPreemption": {"cycle.preemption_gates"},
    "AdmissionGatedBy": {"requests.admission_gates"},
    "ElasticJobsViaWorkloadSlices": {"cycle.elastic_slices"},
    "DisableWaitForPodsReady": {
        "line.by_eviction", "cycle.order.by_eviction", "cycle.block_admission", "pods ready.timeout_s",
        "pods ready.recovery_timeout_s", "pods ready.backoff_limit", "pods ready.backoff_base_s", "pods ready.backoff_max_s",
    },
    "KueueDRAIntegration": {"requests.devices", "requests.extended_resources"},
    "KueueDRAIntegrationExtendedResource": {"requests.extended_resources"},
    "KueueDRARejectWorkloadsWhenDRADisabled": {"requests.refuse_devices"},
}  # fmt: skip
"""Which settings each gate turns, when it is not at its default. No other gate says anything to the decisions."""


@pytest.mark.parametrize("gate", list(GATES))
def test_each_gate_turns_its_settings_and_no_others(gate: str) -> None:
    if GATES[gate].locked:
        pytest.skip("locked to its default")
    turned = {gate: not GATES[gate].default}
    # What needs a gate goes with it; what a gate needs comes with it.
    turned |= {other: False for other, row in GATES.items() if gate in row.needs and not turned[gate]}
    before = everything({needed: True for needed in GATES[gate].needs if turned[gate]})
    after = everything(turned | {needed: True for needed in GATES[gate].needs if turned[gate]})
    changed = {path for path in {*before, *after} if before.get(path) != after.get(path)}
    wanted = EFFECTS.get(gate, set())
    assert changed == wanted


def test_every_setting_of_the_cycle_is_turned_by_something() -> None:
    """A setting that neither a gate nor the file reaches has been forgotten here."""
    by_the_file = {
        "cycle.fair", "cycle.fair.strategies", "cycle.search.fair_sharing", "requests.exclude_prefixes",
        "requests.transformations", "requests.device_mappings",
    }  # fmt: skip
    reached = set().union(*EFFECTS.values()) | by_the_file
    known = {path for path in everything({}) if not path.startswith(("usage", "pods ready"))}
    assert known <= reached


def test_device_mappings() -> None:
    mappings = (
        DeviceClassMapping(name="gpus", device_class_names=("a", "b")),
        DeviceClassMapping(
            name="memory",
            device_class_names=("c",),
            sources=(DeviceSource(counter=DeviceAmount(name="m", driver="d")),),
        ),
    )
    assert request_rules(configured(Resources(device_class_mappings=mappings))).device_mappings == (
        DeviceMapping(resource="gpus", classes=("a", "b")),
        DeviceMapping(resource="memory", classes=("c",), sources=True),
    )


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
