"""Label selectors: their shape and what they match.

A selector that is absent matches nothing, an empty one everything; callers hold `LabelSelector | None` for that.
"""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from shared.api.schema_hints import ApiStruct, atomic_list, schema
from shared.api.validation import label_key_errors, label_value_errors


class LabelSelectorRequirement(ApiStruct, frozen=True, kw_only=True):
    """One test of one label."""

    key: Annotated[str, schema("The label looked at.")]
    operator: Annotated[str, schema("In, NotIn, Exists or DoesNotExist.")]
    values: Annotated[tuple[str, ...], atomic_list("What In and NotIn compare with; empty for the others.")] = ()


class LabelSelector(ApiStruct, frozen=True, kw_only=True):
    """All of matchLabels and matchExpressions have to hold; an empty selector matches everything."""

    match_labels: Annotated[dict[str, str], schema("Labels that must be there with these values.")] = msgspec.field(
        default_factory=dict
    )
    match_expressions: Annotated[tuple[LabelSelectorRequirement, ...], atomic_list("Tests that must all hold.")] = ()


LabelSelectorField = Annotated[LabelSelector, schema(x_kubernetes_map_type="atomic")]


def matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether the labels satisfy the selector. None matches nothing; an unknown operator never matches."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        requirement_matches(requirement, labels) for requirement in selector.match_expressions
    )


def requirement_matches(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    """NotIn holds for a missing label, as in Kubernetes."""
    present = requirement.key in labels
    match requirement.operator:
        case "In":
            return present and labels[requirement.key] in requirement.values
        case "NotIn":
            return not present or labels[requirement.key] not in requirement.values
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
        case _:
            return False


def selector_errors(selector: LabelSelector | None) -> list[str]:
    """What is wrong with the selector, one text per fault; empty when it is valid."""
    if selector is None:
        return []
    errors: list[str] = []
    for key, value in selector.match_labels.items():
        errors += [f"matchLabels[{key}]: {text}" for text in (*label_key_errors(key), *label_value_errors(value))]
    for index, requirement in enumerate(selector.match_expressions):
        at = f"matchExpressions[{index}]"
        errors += [f"{at}.key: {text}" for text in label_key_errors(requirement.key)]
        match requirement.operator:
            case "In" | "NotIn":
                if not requirement.values:
                    errors.append(f"{at}.values: must be given when operator is {requirement.operator}")
            case "Exists" | "DoesNotExist":
                if requirement.values:
                    errors.append(f"{at}.values: must be empty when operator is {requirement.operator}")
            case other:
                errors.append(f"{at}.operator: {other!r} is not one of In, NotIn, Exists, DoesNotExist")
        for value in requirement.values:
            errors += [f"{at}.values: {text}" for text in label_value_errors(value)]
    return errors
