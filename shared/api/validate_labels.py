"""Faults of labels, annotations, label selectors, taints and tolerations, wherever they stand (Kubernetes' rules for them). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from shared.api.field_errors import FieldError, duplicate, forbidden, invalid, required, too_long
from shared.api.pods import Taint, Toleration
from shared.api.selectors import LabelSelector, LabelSelectorRequirement
from shared.api.validation import label_key_errors, label_value_errors

KEY = "format=k8s-label-key"
VALUE = "format=k8s-label-value"
MAX_ANNOTATIONS_BYTES = 256 * 1024


def name_errors(path: str, name: str) -> Iterator[FieldError]:
    """Faults of the name of a label, or of anything that is spelled like one."""
    yield from (invalid(path, name, detail, KEY) for detail in label_key_errors(name))


def label_errors(path: str, labels: Mapping[str, str]) -> Iterator[FieldError]:
    """Faults of labels or of a node selector; all at the path of the map."""
    for key, value in labels.items():
        yield from name_errors(path, key)
        yield from (invalid(path, value, detail, VALUE) for detail in label_value_errors(value))


def annotation_errors(path: str, annotations: Mapping[str, str]) -> Iterator[FieldError]:
    """Faults of annotations; upper case is allowed in the prefix of a key."""
    for key in annotations:
        yield from (invalid(path, key, detail, KEY) for detail in label_key_errors(key.lower()))
    if sum(len(k.encode()) + len(v.encode()) for k, v in annotations.items()) > MAX_ANNOTATIONS_BYTES:
        yield too_long(path, MAX_ANNOTATIONS_BYTES)


def selector_errors(path: str, selector: LabelSelector | None) -> Iterator[FieldError]:
    """Faults of a label selector."""
    if selector is None:
        return
    yield from label_errors(f"{path}.matchLabels", selector.match_labels)
    for i, requirement in enumerate(selector.match_expressions):
        yield from _requirement_errors(f"{path}.matchExpressions[{i}]", requirement)


def _requirement_errors(path: str, requirement: LabelSelectorRequirement) -> Iterator[FieldError]:
    operator = requirement.operator
    if operator in ("In", "NotIn"):
        if not requirement.values:
            yield required(f"{path}.values", f"must be given when operator is {operator}")
    elif operator in ("Exists", "DoesNotExist"):
        if requirement.values:
            yield forbidden(f"{path}.values", f"may not be given when operator is {operator}")
    else:
        yield invalid(f"{path}.operator", operator, "must be In, NotIn, Exists or DoesNotExist")
    yield from name_errors(f"{path}.key", requirement.key)
    for i, value in enumerate(requirement.values):
        yield from (invalid(f"{path}.values[{i}]", value, detail, VALUE) for detail in label_value_errors(value))


def taint_errors(path: str, taints: Iterable[Taint]) -> Iterator[FieldError]:
    """Faults of taints; one key may have several effects, each once."""
    seen: set[tuple[str, str]] = set()
    for i, taint in enumerate(taints):
        at = f"{path}[{i}]"
        yield from name_errors(f"{at}.key", taint.key)
        details = label_value_errors(taint.value)
        if details:
            yield invalid(f"{at}.value", taint.value, "; ".join(details))
        if (taint.key, taint.effect) in seen:
            yield duplicate(at, {"key": taint.key, "effect": taint.effect})
        seen.add((taint.key, taint.effect))


def toleration_errors(path: str, tolerations: Iterable[Toleration]) -> Iterator[FieldError]:
    """Faults of the keys of tolerations; the rest the schema refuses. An empty key tolerates every taint."""
    for i, toleration in enumerate(tolerations):
        if toleration.key:
            yield from name_errors(f"{path}[{i}].key", toleration.key)
