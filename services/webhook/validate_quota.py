"""Validation of resource groups and weights, which ClusterQueue and Cohort share (core specification 1.2 and 1.4). Pure."""

from __future__ import annotations

from collections.abc import Iterator

from shared.api.field_errors import FieldError, duplicate, invalid, too_many
from shared.api.quantity import QuantityError, parse
from shared.api.quota_groups import FairSharing, ResourceGroup, ResourceQuota
from shared.api.validation import label_key_errors

MAX_FLAVORS = 256
MAX_RESOURCES = 256
MAX_COMBINATIONS = 512


def group_errors(
    groups: tuple[ResourceGroup, ...], *, parent: str, parent_field: str, lending_within_nominal: bool
) -> Iterator[FieldError]:
    """Faults of `spec.resourceGroups`. `parent` is the cohort's name (empty: no limits may be set), `parent_field` what users call it."""
    seen_resources: set[str] = set()
    seen_flavors: set[str] = set()
    for i, group in enumerate(groups):
        base = f"spec.resourceGroups[{i}]"
        for j, resource in enumerate(group.covered_resources):
            path = f"{base}.coveredResources[{j}]"
            yield from (invalid(path, resource, detail) for detail in label_key_errors(resource))
            if resource in seen_resources:
                yield duplicate(path, resource)
            seen_resources.add(resource)
        for j, flavor in enumerate(group.flavors):
            path = f"{base}.flavors[{j}]"
            if flavor.name in seen_flavors:
                yield duplicate(f"{path}.name", flavor.name)
            seen_flavors.add(flavor.name)
            for k, quota in enumerate(flavor.resources):
                at = f"{path}.resources[{k}]"
                if k < len(group.covered_resources) and quota.name != group.covered_resources[k]:
                    yield invalid(f"{at}.name", quota.name, "must match the name in coveredResources")
                yield from _quota_errors(at, quota, parent, parent_field, lending_within_nominal)


def total_errors(groups: tuple[ResourceGroup, ...]) -> Iterator[FieldError]:
    """Faults of the size of all groups of a ClusterQueue together."""
    flavors = sum(len(g.flavors) for g in groups)
    resources = sum(len(g.covered_resources) for g in groups)
    if flavors > MAX_FLAVORS:
        yield too_many("spec.resourceGroups", flavors, MAX_FLAVORS)
    if resources > MAX_RESOURCES:
        yield too_many("spec.resourceGroups", resources, MAX_RESOURCES)
    for i, group in enumerate(groups):
        combinations = len(group.flavors) * len(group.covered_resources)
        if combinations > MAX_COMBINATIONS:
            yield too_many(f"spec.resourceGroups[{i}]", combinations, MAX_COMBINATIONS)


def _quota_errors(
    at: str, quota: ResourceQuota, parent: str, parent_field: str, lending_within_nominal: bool
) -> Iterator[FieldError]:
    nominal = parse(quota.nominal_quota)
    if nominal.is_negative():
        yield invalid(f"{at}.nominalQuota", quota.nominal_quota, "must be greater than or equal to 0")
    limits = {"borrowingLimit": quota.borrowing_limit, "lendingLimit": quota.lending_limit}
    for field, limit in limits.items():
        if limit is None:
            continue
        if parse(limit).is_negative():
            yield invalid(f"{at}.{field}", limit, "must be greater than or equal to 0")
        if not parent:
            yield invalid(f"{at}.{field}", limit, f"must be nil when {parent_field} is empty")
    if lending_within_nominal and quota.lending_limit is not None and nominal < parse(quota.lending_limit):
        yield invalid(f"{at}.lendingLimit", quota.lending_limit, "must be less than or equal to the nominalQuota")


def weight_errors(fair_sharing: FairSharing | None) -> Iterator[FieldError]:
    """A weight is 0, or more than a billionth."""
    if fair_sharing is None:
        return
    try:
        weight = parse(fair_sharing.weight)
    except QuantityError as error:
        yield invalid("spec.fairSharing", fair_sharing.weight, str(error))
        return
    if weight.is_negative():
        yield invalid("spec.fairSharing", fair_sharing.weight, "must be greater than or equal to 0")
    elif 0 < weight.nano <= 1:
        yield invalid("spec.fairSharing", fair_sharing.weight, "when not 0, it must be greater than 1n (10^-9)")
