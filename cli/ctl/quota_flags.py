"""Quota on the command line: `FLAVOR:RESOURCE=QUANTITY;RESOURCE=QUANTITY`, several with commas, into resource groups of a ClusterQueue.

What is named several times for a flavor is merged and must name the same resources. Flavors with the same resources form one resource group; a resource in
two groups is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from cli.ctl.cluster import CommandError, Json
from shared.api.quantity import parse

_ENTRY = re.compile(r"^([a-z0-9][a-z0-9\-\.]{0,252}):((\w+[\.-]?)*\/?\w+=\w+;)*(\w+[\.-]?)*\/?\w+=\w+;?$")

Amounts = dict[str, dict[str, str]]
"""flavor -> resource -> quantity."""


def amounts(entries: Iterable[str]) -> Amounts:
    """The entries of one flag. Raises CommandError."""
    found: Amounts = {}
    for entry in (part for text in entries for part in text.split(",")):
        if not _ENTRY.match(entry):
            raise CommandError(f"invalid resources specification: {entry}")
        flavor, _, listed = entry.partition(":")
        named: dict[str, str] = {}
        for pair in filter(None, listed.split(";")):
            resource, _, quantity = pair.partition("=")
            try:
                parse(quantity)
            except ValueError:
                raise CommandError(f"invalid resource quota: {flavor}:{pair}") from None
            named[resource] = quantity
        if flavor in found and set(found[flavor]) != set(named):
            raise CommandError(f"invalid flavor: {flavor} names other resources than before")
        found.setdefault(flavor, {}).update(named)
    return found


def resource_groups(nominal: Amounts, borrowing: Amounts, lending: Amounts) -> list[Json]:
    """`spec.resourceGroups`. Raises CommandError."""
    flavors: dict[str, tuple[str, ...]] = {}
    for given in (nominal, borrowing, lending):
        for flavor, named in given.items():
            resources = tuple(named)
            if set(flavors.setdefault(flavor, resources)) != set(resources):
                raise CommandError(f"invalid flavor: {flavor} must name the same resources in every quota flag")
    groups: dict[frozenset[str], list[str]] = {}
    for flavor, resources in flavors.items():
        groups.setdefault(frozenset(resources), []).append(flavor)
    seen: set[str] = set()
    for group in groups:
        if seen & group:
            raise CommandError(f"invalid resource group: {', '.join(sorted(seen & group))} in more than one")
        seen |= group
    return [
        {
            "coveredResources": list(flavors[names[0]]),
            "flavors": [
                {
                    "name": name,
                    "resources": [
                        {
                            "name": resource,
                            "nominalQuota": nominal.get(name, {}).get(resource, "0"),
                            **_limit("borrowingLimit", borrowing, name, resource),
                            **_limit("lendingLimit", lending, name, resource),
                        }
                        for resource in flavors[names[0]]
                    ],
                }
                for name in names
            ],
        }
        for names in groups.values()
    ]


def _limit(field: str, given: Amounts, flavor: str, resource: str) -> Json:
    quantity = given.get(flavor, {}).get(resource)
    return {} if quantity is None else {field: quantity}
