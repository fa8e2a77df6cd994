"""Pieces that several projections share: identity, times, amounts, conditions, owners, selectors, tolerations. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TypedDict

from shared.api.conditions import Condition
from shared.api.meta import ObjectMeta
from shared.api.pods import Toleration
from shared.api.schema_hints import RawQuantity
from shared.api.selectors import LabelSelector
from shared.events import objects


def seconds(when: datetime | None) -> int:
    """Whole seconds since the epoch; 0 for no time."""
    return int(when.timestamp()) if when is not None else 0


class Identity(TypedDict):
    """The fields that every projection has."""

    namespace: str
    name: str
    uid: str
    version: int
    generation: int
    created: int
    deleting: bool
    finalizers: tuple[str, ...]


def identity(metadata: ObjectMeta) -> Identity:
    """Who it is, and in which state."""
    return {
        "namespace": metadata.namespace,
        "name": metadata.name,
        "uid": metadata.uid,
        "version": int(metadata.resource_version),
        "generation": metadata.generation,
        "created": seconds(metadata.creation_timestamp),
        "deleting": metadata.deletion_timestamp is not None,
        "finalizers": metadata.finalizers,
    }


def texts(amounts: Mapping[str, RawQuantity]) -> dict[str, str]:
    """Quantities by resource as text, unread."""
    return {resource: str(amount) for resource, amount in amounts.items()}


def condition_of(condition: Condition) -> objects.Condition:
    """Status Unknown counts as not true."""
    return objects.Condition(
        condition.type,
        condition.status == "True",
        condition.reason,
        condition.message,
        seconds(condition.last_transition_time),
        condition.observed_generation,
    )


def conditions_of(conditions: Iterable[Condition]) -> tuple[objects.Condition, ...]:
    return tuple(condition_of(condition) for condition in conditions)


def owners_of(metadata: ObjectMeta) -> tuple[objects.Owner, ...]:
    return tuple(
        objects.Owner(owner.api_version, owner.kind, owner.name, owner.uid, owner.controller)
        for owner in metadata.owner_references
    )


def selector_of(selector: LabelSelector | None) -> objects.Selector | None:
    """None stays None: it matches nothing."""
    if selector is None:
        return None
    return objects.Selector(
        selector.match_labels,
        tuple(objects.Requirement(r.key, r.operator, r.values) for r in selector.match_expressions),
    )


def toleration_of(toleration: Toleration) -> objects.Toleration:
    """An unset operator means Equal."""
    return objects.Toleration(toleration.key, toleration.operator or "Equal", toleration.value, toleration.effect)
