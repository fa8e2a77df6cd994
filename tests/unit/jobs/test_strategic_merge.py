from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.jobs.manifest import JsonObject
from shared.jobs.strategic_merge import strategic_merge
from tests.unit.jobs.round_trip import TEMPLATES


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({}, {"a": 1}, {"a": 1}),
        ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({"a": [1]}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "b"}]}),
        ({"args": ["a"]}, {"args": []}, {"args": []}),
        ({}, {"containers": [{"name": "a"}]}, {"containers": [{"name": "a"}]}),
        (
            {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]},
            {"containers": [{"name": "c"}, {"name": "a", "image": "2"}]},
            {"containers": [{"name": "a", "image": "2"}, {"name": "b"}, {"name": "c"}]},
        ),
        (
            {"volumeMounts": [{"mountPath": "/a", "name": "x"}]},
            {"volumeMounts": [{"mountPath": "/a", "name": "y"}]},
            {"volumeMounts": [{"mountPath": "/a", "name": "y"}]},
        ),
        ({"env": [{"name": "a", "value": "1"}]}, {"env": ["no object"]}, {"env": [{"name": "a", "value": "1"}]}),
    ],
)
def test_merge(target: JsonObject, patch: JsonObject, result: JsonObject) -> None:
    assert strategic_merge(target, patch) == result


def test_lists_inside_items_of_lists() -> None:
    target: Any = {"containers": [{"name": "a", "env": [{"name": "x", "value": "1"}, {"name": "y", "value": "1"}]}]}
    patch: Any = {"containers": [{"name": "a", "env": [{"name": "y", "value": "2"}, {"name": "z", "value": "2"}]}]}
    merged: Any = strategic_merge(target, patch)
    assert [(e["name"], e["value"]) for e in merged["containers"][0]["env"]] == [("x", "1"), ("y", "2"), ("z", "2")]
    assert target["containers"][0]["env"][1]["value"] == "1"


@given(TEMPLATES, TEMPLATES)
def test_twice_is_as_once(target: JsonObject, patch: JsonObject) -> None:
    once = strategic_merge(target, patch)
    assert strategic_merge(once, patch) == once


@given(TEMPLATES, st.just({}))
def test_an_empty_patch_changes_nothing(target: JsonObject, patch: JsonObject) -> None:
    assert strategic_merge(target, patch) == target
