"""Selectors, taints and affinity."""

from __future__ import annotations

import pytest

from shared.events.objects import Requirement, Selector, Taint, Toleration
from shared.model.matching import (
    MalformedSelector,
    affinity_matches,
    requirement_matches,
    selector_matches,
    tolerates,
    untolerated_taint,
)


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        (None, {}, False),
        (Selector(), {}, True),
        (Selector({"a": "1"}), {"a": "1", "b": "2"}, True),
        (Selector({"a": "1"}), {"a": "2"}, False),
        (Selector({}, (Requirement("a", "In", ("1", "2")),)), {"a": "2"}, True),
        (Selector({}, (Requirement("a", "In", ("1",)),)), {}, False),
        (Selector({}, (Requirement("a", "NotIn", ("1",)),)), {}, True),
        (Selector({}, (Requirement("a", "Exists"),)), {"a": ""}, True),
        (Selector({}, (Requirement("a", "DoesNotExist"),)), {"a": ""}, False),
    ],
)
def test_label_selector(selector: Selector | None, labels: dict[str, str], matches: bool) -> None:
    assert selector_matches(selector, labels) is matches


@pytest.mark.parametrize(
    ("operator", "bound", "value", "matches"),
    [("Gt", "5", "6", True), ("Gt", "5", "5", False), ("Lt", "5", "-1", True), ("Lt", "5", "x", False)],
)
def test_integer_comparisons(operator: str, bound: str, value: str, matches: bool) -> None:
    assert requirement_matches(Requirement("a", operator, (bound,)), {"a": value}) is matches
    assert requirement_matches(Requirement("a", operator, (bound,)), {}) is False


@pytest.mark.parametrize(
    "requirement",
    [
        Requirement("a", "In"),
        Requirement("a", "Exists", ("1",)),
        Requirement("a", "Gt", ("x",)),
        Requirement("a", "Lt", ("1", "2")),
        Requirement("a", "Near", ("1",)),
    ],
)
def test_malformed_expressions(requirement: Requirement) -> None:
    with pytest.raises(MalformedSelector, match="'a'"):
        requirement_matches(requirement, {"a": "1"})


@pytest.mark.parametrize(
    ("toleration", "accepts"),
    [
        (Toleration("k", "Equal", "v", "NoSchedule"), True),
        (Toleration("k", "", "v"), True),
        (Toleration("k", "Equal", "w"), False),
        (Toleration("k", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("", "Equal", "v"), False),
        (Toleration("k", "Exists", "", "NoExecute"), False),
        (Toleration("k", "Odd", "v"), False),
    ],
)
def test_toleration(toleration: Toleration, accepts: bool) -> None:
    assert tolerates(toleration, Taint("k", "v", "NoSchedule")) is accepts


def test_only_hard_taints_matter_and_any_list_may_tolerate() -> None:
    hard, soft = Taint("k", "v", "NoExecute"), Taint("s", "", "PreferNoSchedule")
    assert untolerated_taint((soft,), ()) is None
    assert untolerated_taint((soft, hard), ()) is hard
    assert untolerated_taint((hard,), (), (Toleration("k", "Exists"),)) is None


LABELS = {"zone": "a", "gen": "3"}


@pytest.mark.parametrize(
    ("node_selector", "terms", "matches"),
    [
        ({}, None, True),
        ({"zone": "a"}, None, True),
        ({"zone": "b"}, None, False),
        ({"disk": "ssd"}, None, True),
        ({}, ((Requirement("zone", "In", ("a",)),),), True),
        ({}, ((Requirement("zone", "In", ("b",)),),), False),
        ({}, ((Requirement("zone", "In", ("b",)),), (Requirement("gen", "Gt", ("2",)),)), True),
        ({}, ((Requirement("zone", "In", ("b",)),), (Requirement("disk", "Exists"),)), True),
        ({}, ((Requirement("disk", "Odd", ("?",)),),), True),
        ({}, (), True),
        ({"zone": "b"}, ((Requirement("disk", "Exists"),),), False),
    ],
)
def test_affinity_looks_only_at_the_flavors_own_keys(
    node_selector: dict[str, str], terms: tuple[tuple[Requirement, ...], ...] | None, matches: bool
) -> None:
    assert affinity_matches(node_selector, terms, LABELS) is matches
