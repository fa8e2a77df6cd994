import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.jobs.manifest import JsonObject
from shared.jobs.merge_patch import apply, diff


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({}, {}, {}),
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1}, {}, {"a": None}),
        ({}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, {"a": {"c": None}}),
        ({"a": [1, 2]}, {"a": [1]}, {"a": [1]}),
        ({"a": {"b": 1}}, {"a": [1]}, {"a": [1]}),
        ({"a": None}, {}, {}),
        ({"a": 1}, {"a": True}, {"a": True}),
        ({"a": 0}, {"a": False}, {"a": False}),
    ],
)
def test_diff(old: JsonObject, new: JsonObject, patch: JsonObject) -> None:
    assert diff(old, new) == patch


def test_apply_changes_neither_argument() -> None:
    target: JsonObject = {"a": {"b": 1}}
    patch: JsonObject = {"a": {"b": None, "c": 2}}
    assert apply(target, patch) == {"a": {"c": 2}}
    assert target == {"a": {"b": 1}}
    assert patch == {"a": {"b": None, "c": 2}}


_json = st.recursive(
    st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=1), inner, max_size=3)
    ),
    max_leaves=12,
)
_objects = st.dictionaries(st.text("abc", min_size=1, max_size=1), _json, max_size=3)


@given(_objects, _objects)
def test_applying_the_difference_gives_the_new_object(old: JsonObject, new: JsonObject) -> None:
    assert apply(old, diff(old, new)) == new
