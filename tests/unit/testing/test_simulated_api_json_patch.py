"""JSON patches as RFC 6902 has them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.testing.simulated_api.json_patch import PatchError, apply_json_patch

CASES: list[tuple[Any, list[Any], Any]] = [
    ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
    ({"a": 1}, [{"op": "add", "path": "/a", "value": 2}], {"a": 2}),
    ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
    ({"a": [1]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2]}),
    ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
    ({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
    ({"a": [{"b": 1}]}, [{"op": "remove", "path": "/a/0/b"}], {"a": [{}]}),
    ({"a": [1, 2]}, [{"op": "replace", "path": "/a/0", "value": 3}], {"a": [3, 2]}),
    ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": 1}),
    ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
    ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}),
    ({"x/y": {"m~n": 1}}, [{"op": "replace", "path": "/x~1y/m~0n", "value": 2}], {"x/y": {"m~n": 2}}),
    ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
    (
        {"a": 1},
        [{"op": "add", "path": "/b", "value": {}}, {"op": "add", "path": "/b/c", "value": 1}],
        {"a": 1, "b": {"c": 1}},
    ),
]


@pytest.mark.parametrize(("document", "operations", "expected"), CASES)
def test_operations(document: Any, operations: list[Any], expected: Any) -> None:
    assert apply_json_patch(document, operations) == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/none"},
        {"op": "replace", "path": "/none", "value": 1},
        {"op": "add", "path": "/none/a", "value": 1},
        {"op": "add", "path": "/list/3", "value": 1},
        {"op": "add", "path": "/list/x", "value": 1},
        {"op": "remove", "path": "/list/-"},
        {"op": "remove", "path": "/list/2"},
        {"op": "add", "path": "/text/a", "value": 1},
        {"op": "remove", "path": "/text/a"},
        {"op": "test", "path": "/text", "value": "other"},
        {"op": "copy", "from": "/none", "path": "/x"},
        {"op": "remove", "path": ""},
        {"op": "replace", "path": "", "value": []},
        {"op": "sing", "path": "/text"},
        {"op": "add", "path": "text", "value": 1},
        {"op": "add"},
        "add",
    ],
)
def test_what_is_refused(operation: Any) -> None:
    document: Any = {"list": [1, 2], "text": "a"}
    with pytest.raises(PatchError):
        apply_json_patch(document, [operation])
    assert document == {"list": [1, 2], "text": "a"}


def test_a_patch_is_a_list() -> None:
    with pytest.raises(PatchError):
        apply_json_patch({}, {"op": "add"})


VALUES = st.recursive(
    st.integers(0, 3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b/c", "d~e"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["a", "b/c", "d~e"]), VALUES), st.sampled_from(["a", "b/c", "d~e"]), VALUES)
def test_what_was_added_can_be_found_and_removed(document: Any, key: str, value: Any) -> None:
    path = "/" + key.replace("~", "~0").replace("/", "~1")
    added = apply_json_patch(document, [{"op": "add", "path": path, "value": value}])
    assert added[key] == value
    assert apply_json_patch(added, [{"op": "test", "path": path, "value": value}]) == added
    removed = apply_json_patch(added, [{"op": "remove", "path": path}])
    assert removed == {name: one for name, one in document.items() if name != key}
