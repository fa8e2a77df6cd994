"""LimitRanges and RuntimeClasses as effective requests see them, summarised per namespace (core rules 3.1 and 3.5).

Why it exists: defaults fill in what pod templates leave open, bounds refuse what they ask too much of; several LimitRanges of a
namespace act as one. Quantities stay text here (defaults are copied into templates) and are compared exactly. Nothing is applied here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from shared.api.quantity import parse
from shared.model.sources import LimitItemSource

CONTAINER = "Container"
POD = "Pod"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """All items of one type in a namespace as one."""

    max: Mapping[str, str] = {}
    min: Mapping[str, str] = {}
    default: Mapping[str, str] = {}
    default_request: Mapping[str, str] = {}

    def exceeded(self, highest: Mapping[str, int], lowest: Mapping[str, int]) -> tuple[str, ...]:
        """Resources out of bounds, sorted; amounts in nano-units. What is missing on either side is not checked."""
        above = {name for name, raw in self.max.items() if name in highest and highest[name] > parse(raw).nano}
        below = {name for name, raw in self.min.items() if name in lowest and lowest[name] < parse(raw).nano}
        return tuple(sorted(above | below))


NO_LIMITS = Limits()


def merged(items: Iterable[LimitItemSource], type_: str) -> Limits:
    """The items of one type: the smallest max, the largest min, the first default met. Raises QuantityError."""
    highest: dict[str, str] = {}
    lowest: dict[str, str] = {}
    default: dict[str, str] = {}
    default_request: dict[str, str] = {}
    for item in items:
        if item.type != type_:
            continue
        for name, raw in item.max.items():
            if name not in highest or parse(raw) < parse(highest[name]):
                highest[name] = raw
        for name, raw in item.min.items():
            if name not in lowest or parse(raw) > parse(lowest[name]):
                lowest[name] = raw
        default = {**item.default, **default}
        default_request = {**item.default_request, **default_request}
    return Limits(max=highest, min=lowest, default=default, default_request=default_request)


class PodRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a namespace and the cluster add to pod templates and demand of them."""

    container: Limits = NO_LIMITS
    pod: Limits = NO_LIMITS
    overheads: Mapping[str, Mapping[str, str]] = {}
    """RuntimeClass -> overhead.podFixed; only classes that have one."""


NO_RULES = PodRules()


def pod_rules(items: Iterable[LimitItemSource], overheads: Mapping[str, Mapping[str, str]]) -> PodRules:
    """The rules of a namespace with these items of its LimitRanges, in list order. Raises QuantityError."""
    listed = tuple(items)
    return PodRules(container=merged(listed, CONTAINER), pod=merged(listed, POD), overheads=overheads)
