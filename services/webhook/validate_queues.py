"""Validation of ClusterQueue, Cohort and ResourceFlavor beyond their schemas (core specification 1.2, 1.4, 1.5). Pure; all faults at once."""

from __future__ import annotations

from collections.abc import Iterator

from services.webhook.field_errors import FieldError, duplicate, invalid, not_supported
from services.webhook.validate_quota import group_errors, immutable, total_errors, weight_errors
from shared.api.cluster_queue import ClusterQueue
from shared.api.cohort import Cohort
from shared.api.resource_flavor import ResourceFlavor
from shared.api.selectors import selector_errors
from shared.api.validation import label_key_errors, label_value_errors


def cluster_queue_errors(queue: ClusterQueue, old: ClusterQueue | None) -> Iterator[FieldError]:
    """Faults of a ClusterQueue that is created (no `old`) or updated."""
    spec = queue.spec
    yield from group_errors(
        spec.resource_groups, parent=spec.cohort_name, parent_field="cohort", lending_within_nominal=True
    )
    yield from total_errors(spec.resource_groups)
    yield from (
        invalid("spec.namespaceSelector", spec.namespace_selector, e) for e in selector_errors(spec.namespace_selector)
    )
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
    yield from _check_errors(queue, old)
    if old is not None and spec.concurrent_admission_policy != old.spec.concurrent_admission_policy:
        yield immutable("spec.concurrentAdmissionPolicy", spec.concurrent_admission_policy)


def _flavors(queue: ClusterQueue) -> list[str]:
    return [f.name for g in queue.spec.resource_groups for f in g.flavors]


def _check_errors(queue: ClusterQueue, old: ClusterQueue | None) -> Iterator[FieldError]:
    strategy = queue.spec.admission_checks_strategy
    if strategy is None:
        return
    flavors = _flavors(queue)
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
    for key, value in flavor.spec.node_labels.items():
        yield from (invalid("spec.nodeLabels", key, detail) for detail in label_key_errors(key))
        yield from (invalid("spec.nodeLabels", value, detail) for detail in label_value_errors(value))
    seen: set[tuple[str, str]] = set()
    for i, taint in enumerate(flavor.spec.node_taints):
        path = f"spec.nodeTaints[{i}]"
        yield from (invalid(f"{path}.key", taint.key, detail) for detail in label_key_errors(taint.key))
        yield from (invalid(f"{path}.value", taint.value, detail) for detail in label_value_errors(taint.value))
        if (taint.key, taint.effect) in seen:
            yield duplicate(path, {"key": taint.key, "effect": taint.effect})
        seen.add((taint.key, taint.effect))
    for i, toleration in enumerate(flavor.spec.tolerations):
        if toleration.key:
            path = f"spec.tolerations[{i}].key"
            yield from (invalid(path, toleration.key, detail) for detail in label_key_errors(toleration.key))
