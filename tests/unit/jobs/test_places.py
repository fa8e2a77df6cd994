import pytest

from shared.jobs.manifest import JsonObject
from shared.jobs.places import Place, at, nested, put

DEEP: JsonObject = {"a": [{"b": 1}, {"c": {"d": 2}}], "e": {"f": {}}}


@pytest.mark.parametrize(
    ("place", "found"),
    [
        (("a", 0), {"b": 1}),
        (("a", 1, "c"), {"d": 2}),
        (("a", 2), {}),
        (("a", "b"), {}),
        (("a", 0, "b"), {}),
        (("e", 0), {}),
        (("e", "f", "g"), {}),
        (("x", "y"), {}),
    ],
)
def test_at(place: Place, found: JsonObject) -> None:
    assert at(DEEP, place) == found


def test_put_replaces_in_a_copy() -> None:
    changed = put(DEEP, ("a", 1, "c", "d"), 3)
    assert changed == {"a": [{"b": 1}, {"c": {"d": 3}}], "e": {"f": {}}}
    assert DEEP["a"] == [{"b": 1}, {"c": {"d": 2}}]


def test_put_makes_maps_on_the_way_and_takes_keys_away() -> None:
    assert put({}, ("a", "b"), 1) == {"a": {"b": 1}}
    assert put({"a": None}, ("a", "b"), 1) == {"a": {"b": 1}}
    assert put(DEEP, ("a",), None) == {"e": {"f": {}}}
    assert put(DEEP, ("a", 0), {}) == {"a": [{}, {"c": {"d": 2}}], "e": {"f": {}}}


def test_items_must_be_there() -> None:
    with pytest.raises(IndexError):
        put(DEEP, ("a", 2, "x"), 1)
    for place in (("e", 0), ("a", "b", "c")):
        with pytest.raises(TypeError):
            put(DEEP, place, 1)


def test_nested() -> None:
    assert nested(("a", "b"), True) == {"a": {"b": True}}
    with pytest.raises(ValueError, match="key"):
        nested((), 1)
