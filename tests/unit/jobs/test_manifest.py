from shared.jobs.manifest import JsonObject, items, number, replaced, section, text, texts

JOB: JsonObject = {"a": {"b": {"c": "x", "n": 1}}, "l": [{"k": 1}, "no", None], "null": None}


def test_reading_what_is_not_there() -> None:
    assert section(JOB, "a", "b") == {"c": "x", "n": 1}
    assert section(JOB, "a", "b", "c", "d") == {}
    assert section(JOB, "null", "b") == {}
    assert text(JOB, "a", "b", "c") == "x"
    assert text(JOB, "a", "b", "n") == ""
    assert texts(JOB, "a", "b") == {"c": "x"}
    assert items(JOB, "l") == [{"k": 1}]
    assert items(JOB, "a") == []


def test_replacing_copies_only_the_path() -> None:
    changed = replaced(JOB, ("a", "b", "c"), "y")
    assert text(changed, "a", "b", "c") == "y"
    assert text(JOB, "a", "b", "c") == "x"
    assert changed["l"] is JOB["l"]


def test_what_is_empty_is_removed() -> None:
    assert replaced(JOB, ("a", "b", "c"), None)["a"] == {"b": {"n": 1}}
    assert "a" not in replaced({}, ("a", "b"), {})
    assert "l" not in replaced(JOB, ("l",), [])
    assert replaced({"a": 1}, ("a", "b"), 2) == {"a": {"b": 2}}


def test_number() -> None:
    job: JsonObject = {"spec": {"a": 3, "b": True, "c": "3", "d": None, "e": 0}}
    assert [number(job, "spec", key, default=7) for key in "abcdef"] == [3, 7, 7, 7, 0, 7]
    assert number({}, "spec", "a", default=1) == 1
