"""Whether a Workload still stands for its job (job specification 8.1).

Too strict a comparison deletes and makes Workloads in a loop, too lax a one lets a job use more than it was admitted for. Compared are
counts, tolerations and containers, by position; names, selectors, labels and annotations are not. Quantities are equal by value, an empty list or
map equals a missing one.
"""

from collections.abc import Sequence

from shared.api.quantity import QuantityError, parse
from shared.jobs.manifest import JsonObject, items, replaced, section
from shared.jobs.protocol import JobPodSet

_CONTAINER_LISTS = ("initContainers", "containers")


def same_pod_sets(one: Sequence[JobPodSet], other: Sequence[JobPodSet], *, ignore_tolerations: bool = False) -> bool:
    """Both lists ask for the same pods."""
    return len(one) == len(other) and all(
        _shape(a, ignore_tolerations) == _shape(b, ignore_tolerations) for a, b in zip(one, other, strict=True)
    )


def without_duplicate_env(pod_set: JobPodSet) -> JobPodSet:
    """The pod set with each variable of a container named once: the last value wins, at the first one's place (7.3)."""
    template = pod_set.template
    for key in _CONTAINER_LISTS:
        containers = items(template, "spec", key)
        if any(_has_duplicates(container) for container in containers):
            template = replaced(template, ("spec", key), [_deduplicated(container) for container in containers])
    if template is pod_set.template:
        return pod_set
    return JobPodSet(
        name=pod_set.name,
        count=pod_set.count,
        min_count=pod_set.min_count,
        template=template,
        topology_request=pod_set.topology_request,
    )


def _has_duplicates(container: JsonObject) -> bool:
    env = items(container, "env")
    return len({entry.get("name") for entry in env}) < len(env)


def _deduplicated(container: JsonObject) -> JsonObject:
    by_name = {entry.get("name"): entry for entry in items(container, "env")}
    return replaced(container, ("env",), list(by_name.values()))


def _shape(pod_set: JobPodSet, ignore_tolerations: bool) -> object:
    spec = section(pod_set.template, "spec")
    return (
        pod_set.count,
        pod_set.min_count,
        None if ignore_tolerations else _normal(spec.get("tolerations")),
        [_container(container) for container in items(spec, "initContainers")],
        [_container(container) for container in items(spec, "containers")],
    )


def _container(container: JsonObject) -> object:
    result = dict(container)
    result["resources"] = {
        key: {name: _amount(amount) for name, amount in section(container, "resources", key).items()}
        for key in ("requests", "limits")
        if section(container, "resources", key)
    } | {"claims": section(container, "resources").get("claims")}
    return _normal(result)


def _amount(raw: object) -> object:
    if isinstance(raw, str | int | float):
        try:
            return parse(raw).nano
        except QuantityError:
            return raw
    return raw


def _normal(value: object) -> object:
    """Without what is empty: None, `{}` and `[]` all mean not set."""
    if isinstance(value, dict):
        cleaned = {key: _normal(inner) for key, inner in value.items()}
        return {key: inner for key, inner in cleaned.items() if inner is not None} or None
    if isinstance(value, list):
        return [_normal(inner) for inner in value] or None
    return value
