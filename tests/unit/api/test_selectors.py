import pytest

from shared.api.selectors import LabelSelector, LabelSelectorRequirement, matches, selector_errors


def requirement(operator: str, *values: str, key: str = "env") -> LabelSelector:
    return LabelSelector(match_expressions=(LabelSelectorRequirement(key=key, operator=operator, values=values),))


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        (None, {}, False),
        (None, {"env": "prod"}, False),
        (LabelSelector(), {}, True),
        (LabelSelector(), {"env": "prod"}, True),
        (LabelSelector(match_labels={"env": "prod"}), {"env": "prod", "x": "y"}, True),
        (LabelSelector(match_labels={"env": "prod"}), {"env": "dev"}, False),
        (LabelSelector(match_labels={"env": "prod"}), {}, False),
        (LabelSelector(match_labels={"env": "prod", "team": "a"}), {"env": "prod"}, False),
        (requirement("In", "prod", "dev"), {"env": "dev"}, True),
        (requirement("In", "prod", "dev"), {"env": "test"}, False),
        (requirement("In", "prod"), {}, False),
        (requirement("NotIn", "prod"), {"env": "dev"}, True),
        (requirement("NotIn", "prod"), {"env": "prod"}, False),
        (requirement("NotIn", "prod"), {}, True),
        (requirement("Exists"), {"env": ""}, True),
        (requirement("Exists"), {}, False),
        (requirement("DoesNotExist"), {}, True),
        (requirement("DoesNotExist"), {"env": ""}, False),
        (requirement("Near", "prod"), {"env": "prod"}, False),
    ],
)
def test_matches(selector: LabelSelector | None, labels: dict[str, str], expected: bool) -> None:
    assert matches(selector, labels) is expected


def test_labels_and_expressions_must_all_hold() -> None:
    both = LabelSelector(
        match_labels={"team": "a"},
        match_expressions=(LabelSelectorRequirement(key="env", operator="In", values=("prod",)),),
    )
    assert matches(both, {"team": "a", "env": "prod"})
    assert not matches(both, {"team": "a", "env": "dev"})
    assert not matches(both, {"team": "b", "env": "prod"})


@pytest.mark.parametrize(
    ("selector", "where"),
    [
        (LabelSelector(match_labels={"-a": "b"}), "matchLabels[-a]"),
        (LabelSelector(match_labels={"a": "b c"}), "matchLabels[a]"),
        (requirement("In"), "matchExpressions[0].values"),
        (requirement("NotIn"), "matchExpressions[0].values"),
        (requirement("Exists", "x"), "matchExpressions[0].values"),
        (requirement("DoesNotExist", "x"), "matchExpressions[0].values"),
        (requirement("Near", "x"), "matchExpressions[0].operator"),
        (requirement("In", "x y"), "matchExpressions[0].values"),
        (requirement("Exists", key="/"), "matchExpressions[0].key"),
    ],
)
def test_faults_are_named(selector: LabelSelector, where: str) -> None:
    assert any(error.startswith(where) for error in selector_errors(selector))


@pytest.mark.parametrize("selector", [None, LabelSelector(), requirement("In", "a", ""), requirement("Exists")])
def test_valid_selectors(selector: LabelSelector | None) -> None:
    assert selector_errors(selector) == []
