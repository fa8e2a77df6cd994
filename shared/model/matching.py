"""Label selectors, taints and node affinity, by the rules of Kubernetes.

Why it exists: namespaces are matched against ClusterQueues and pods against flavors with the same few operators.
Malformed expressions raise MalformedSelector; nothing here looks at quota.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shared.model.sources import RequirementSource, SelectorSource, TaintSource, TolerationSource

_BLOCKING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


class MalformedSelector(ValueError):
    """An expression that Kubernetes would refuse."""


def selector_matches(selector: SelectorSource | None, labels: Mapping[str, str]) -> bool:
    """A label selector against labels: None matches nothing, an empty one everything."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.labels.items()) and all(
        requirement_matches(requirement, labels) for requirement in selector.expressions
    )


def requirement_matches(requirement: RequirementSource, labels: Mapping[str, str]) -> bool:
    """One expression; Gt and Lt (node affinity) compare integers. Raises MalformedSelector."""
    operator, values = requirement.operator, requirement.values
    value = labels.get(requirement.key)
    if operator in ("In", "NotIn"):
        if not values:
            raise MalformedSelector(f"operator {operator} on key {requirement.key!r} needs values")
        return (value in values) == (operator == "In")
    if operator in ("Exists", "DoesNotExist"):
        if values:
            raise MalformedSelector(f"operator {operator} on key {requirement.key!r} takes no values")
        return (value is not None) == (operator == "Exists")
    if operator in ("Gt", "Lt"):
        return _compares(requirement, value)
    raise MalformedSelector(f"operator {operator!r} on key {requirement.key!r} is unknown")


def _compares(requirement: RequirementSource, value: str | None) -> bool:
    if len(requirement.values) != 1 or not _is_integer(requirement.values[0]):
        raise MalformedSelector(f"operator {requirement.operator} on key {requirement.key!r} needs one integer")
    if value is None or not _is_integer(value):
        return False
    bound = int(requirement.values[0])
    return int(value) > bound if requirement.operator == "Gt" else int(value) < bound


def _is_integer(text: str) -> bool:
    return text.lstrip("+-").isdecimal() and len(text) < 20


def tolerates(toleration: TolerationSource, taint: TaintSource) -> bool:
    """Does this toleration accept this taint? An empty effect or (with Exists) an empty key accepts all of them."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.key == taint.key and toleration.value == taint.value
    return toleration.operator == "Exists"


def untolerated_taint(taints: Iterable[TaintSource], *tolerations: Iterable[TolerationSource]) -> TaintSource | None:
    """The first NoSchedule or NoExecute taint that none of the tolerations accepts."""
    for taint in taints:
        if taint.effect in _BLOCKING_EFFECTS and not any(
            tolerates(toleration, taint) for group in tolerations for toleration in group
        ):
            return taint
    return None


def affinity_matches(
    node_selector: Mapping[str, str],
    terms: tuple[tuple[RequirementSource, ...], ...] | None,
    labels: Mapping[str, str],
) -> bool:
    """Node selector and required affinity against a flavor's labels, looking only at keys the flavor defines.

    Terms are ORed. If a term has no expression left on the flavor's own keys it accepts any flavor, and with it the whole
    affinity. Raises MalformedSelector for an expression that is looked at.
    """
    if any(key in labels and labels[key] != value for key, value in node_selector.items()):
        return False
    if terms is None:
        return True
    own_terms = [[expression for expression in term if expression.key in labels] for term in terms]
    if not own_terms or not all(own_terms):
        return True
    return any(all(requirement_matches(expression, labels) for expression in term) for term in own_terms)
