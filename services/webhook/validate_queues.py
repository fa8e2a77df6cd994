"""Validation of ClusterQueue, Cohort and ResourceFlavor beyond their schemas (core specification 1.2, 1.4, 1.5). Pure; all faults at once."""

from __future__ import annotations

from collections.abc import Iterator

from services.webhook.validate_quota import group_errors, total_errors, weight_errors
from shared.api.cluster_queue import ClusterQueue, ConcurrentAdmissionMigration
from shared.api.cohort import Cohort
from shared.api.field_errors import FieldError, forbidden, immutable, invalid, not_supported
from shared.api.resource_flavor import ResourceFlavor
from shared.api.validate_labels import label_errors, selector_errors, taint_errors, toleration_errors
from shared.config.feature_gates import FeatureGates

MAX_CONCURRENT_FLAVORS = 16


def cluster_queue_errors(queue: ClusterQueue, old: ClusterQueue | None, gates: FeatureGates) -> Iterator[FieldError]:
    """Faults of a ClusterQueue that is created (no `old`) or updated."""
    spec = queue.spec
    yield from group_errors(
        spec.resource_groups, parent=spec.cohort_name, parent_field="cohort", lending_within_nominal=True
    )
    yield from total_errors(spec.resource_groups)
    yield from selector_errors("spec.namespaceSelector", spec.namespace_selector)
    fungibility = spec.flavor_fungibility
    if fungibility.preference and (fungibility.when_can_borrow, fungibility.when_can_preempt) != (
        "TryNextFlavor",
        "TryNextFlavor",
    ):
        detail = "can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor"
        yield invalid("spec.flavorFungibility.preference", fungibility.preference, detail)
    preemption = spec.preemption
    if preemption.reclaim_within_cohort == "Never" and preemption.borrow_within_cohort.policy != "Never":
        yield invalid("spec.preemption", preemption, "reclaimWithinCohort=Never and borrowWithinCohort.policy!=Never")
    yield from weight_errors(spec.fair_sharing)
    keep_invalid = not gates["RejectUpdatesToCQWithInvalidOnFlavors"]
    yield from _check_errors(queue, old if keep_invalid else None)
    if spec.concurrent_admission_policy is not None and gates["ConcurrentAdmission"]:
        yield from _concurrent_errors(queue, spec.concurrent_admission_policy.migration)
    if old is not None and spec.concurrent_admission_policy != old.spec.concurrent_admission_policy:
        yield immutable("spec.concurrentAdmissionPolicy", spec.concurrent_admission_policy)


def _flavors(queue: ClusterQueue) -> list[str]:
    return [f.name for g in queue.spec.resource_groups for f in g.flavors]


def _check_errors(queue: ClusterQueue, old: ClusterQueue | None) -> Iterator[FieldError]:
    strategy = queue.spec.admission_checks_strategy
    if strategy is None:
        return
    flavors = _flavors(queue)
    if not flavors:
        # Nothing to compare with yet; whoever adds the first flavor is told then. Published manifests begin so.
        return
    kept: dict[str, frozenset[str]] = {}
    if old is not None and old.spec.admission_checks_strategy is not None and set(flavors) == set(_flavors(old)):
        # What was stored before the rule existed must not block unrelated changes.
        kept = {c.name: frozenset(c.on_flavors) for c in old.spec.admission_checks_strategy.admission_checks}
    for i, check in enumerate(strategy.admission_checks):
        if kept.get(check.name) == frozenset(check.on_flavors):
            continue
        for j, flavor in enumerate(check.on_flavors):
            if flavor not in flavors:
                path = f"spec.admissionChecksStrategy.admissionChecks[{i}].onFlavors[{j}]"
                yield not_supported(path, flavor, sorted(flavors))


def _concurrent_errors(queue: ClusterQueue, migration: ConcurrentAdmissionMigration) -> Iterator[FieldError]:
    """Variants of a workload are one per flavor: that needs one list of flavors, and nothing that waits for a place in the queue."""
    groups = queue.spec.resource_groups
    if len(groups) != 1:
        yield invalid("spec.resourceGroups", len(groups), "concurrentAdmissionPolicy needs exactly one resource group")
    elif len(groups[0].flavors) > MAX_CONCURRENT_FLAVORS:
        detail = f"concurrentAdmissionPolicy allows at most {MAX_CONCURRENT_FLAVORS} flavors"
        yield invalid("spec.resourceGroups[0].flavors", len(groups[0].flavors), detail)
    if queue.spec.queueing_strategy == "StrictFIFO":
        yield invalid("spec.queueingStrategy", "StrictFIFO", "cannot be used with concurrentAdmissionPolicy")
    if migration.constraints is None:
        return
    path = "spec.concurrentAdmissionPolicy.migration.constraints"
    if migration.mode != "TryPreferredFlavors":
        yield forbidden(path, "may only be set when mode is TryPreferredFlavors")
    last = migration.constraints.last_acceptable_flavor_name
    if last and last not in _flavors(queue):
        yield invalid(f"{path}.lastAcceptableFlavorName", last, "must be a flavor of this ClusterQueue")


def cohort_errors(cohort: Cohort) -> Iterator[FieldError]:
    """Faults of a Cohort."""
    yield from group_errors(
        cohort.spec.resource_groups,
        parent=cohort.spec.parent_name,
        parent_field="parent",
        lending_within_nominal=False,
    )
    yield from weight_errors(cohort.spec.fair_sharing)


def resource_flavor_errors(flavor: ResourceFlavor) -> Iterator[FieldError]:
    """Faults of a ResourceFlavor."""
    yield from label_errors("spec.nodeLabels", flavor.spec.node_labels)
    yield from taint_errors("spec.nodeTaints", flavor.spec.node_taints)
    yield from toleration_errors("spec.tolerations", flavor.spec.tolerations)
