"""Variants laid over each other: read as a template under one condition, the result is that variant again; and what cannot be said is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cli.chart.nodes import ChartError, Inline, Values, When, merged, text

CONDITION = re.compile(r"^\s*\{\{- if (.*) \}\}$")


def chosen(template: str, true: set[str]) -> Any:
    """The document for the conditions that hold; knows `if`, `else`, `end` and `not (...)`, which is all that `text` writes for a When."""
    lines: list[str] = []
    open_: list[bool] = []
    for line in template.splitlines():
        found = CONDITION.match(line)
        if found:
            negated = re.fullmatch(r"not \((.*)\)", found[1])
            open_.append(negated[1] not in true if negated else found[1] in true)
        elif line.strip() == "{{- else }}":
            open_[-1] = not open_[-1]
        elif line.strip() == "{{- end }}":
            open_.pop()
        elif all(open_):
            lines.append(line)
    assert not open_
    return yaml.safe_load("\n".join(lines))


scalars = st.sampled_from(["a", "true", "8081", "0.0.0.0", "", "x: y", "- z", "two\nlines", 3, 0.5, True])
keys = st.sampled_from(["k", "l", "m", "name:x"])
named = st.lists(st.sampled_from(["one", "two", "three"]), unique=True).flatmap(
    lambda names: st.tuples(*(st.builds(lambda n, v: {"name": n, "value": v}, st.just(n), scalars) for n in names))
)
words = st.lists(st.sampled_from(["p", "q"]), max_size=2)
objects = st.dictionaries(
    keys,
    st.recursive(
        st.one_of(scalars, named.map(list), words),
        lambda inner: st.dictionaries(keys, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)


def normal(node: Any) -> Any:
    """Lists of named items in the order of names: additions stand at the end."""
    match node:
        case dict():
            return {k: normal(v) for k, v in node.items()}
        case list() if node and all(isinstance(item, dict) for item in node):
            return sorted((normal(item) for item in node), key=lambda item: str(item["name"]))
        case _:
            return node


@given(objects, objects)
def test_each_side_comes_out_again(base: Any, other: Any) -> None:
    both = text({"it": merged(base, ("other", other))})
    assert normal(chosen(both, set())) == {"it": normal(base)}
    assert normal(chosen(both, {"other"})) == {"it": normal(other)}


@given(objects)
def test_what_is_the_same_has_no_condition(base: Any) -> None:
    assert merged(base, ("other", base)) == base


BASE = {"kept": 1, "args": ["a", "b"], "env": [{"name": "x", "value": "1"}], "deep": {"kept": 2, "n": 1}}
FIRST = {**BASE, "env": [*BASE["env"], {"name": "y", "value": "2"}], "args": ["a", "c"]}  # type: ignore[misc]
SECOND = {**BASE, "env": [*BASE["env"], {"name": "z", "value": "3"}], "deep": {"kept": 2, "n": 5}}  # type: ignore[misc]


@pytest.mark.parametrize(
    ("true", "names", "arguments", "deep"),
    [
        (set(), ["x"], ["a", "b"], 1),
        ({"first"}, ["x", "y"], ["a", "c"], 1),
        ({"second"}, ["x", "z"], ["a", "b"], 5),
        ({"first", "second"}, ["x", "y", "z"], ["a", "c"], 5),
    ],
)
def test_variants_that_touch_different_places_go_together(
    true: set[str], names: list[str], arguments: list[str], deep: int
) -> None:
    made = chosen(text(merged(BASE, ("first", FIRST), ("second", SECOND))), true)
    assert [variable["name"] for variable in made["env"]] == names
    assert (made["args"], made["deep"]) == (arguments, {"kept": 2, "n": deep})


@pytest.mark.parametrize(
    "others",
    [({"kept": 2}, {"kept": 3}), ({"kept": 1, "new": 1}, {"kept": 1, "new": 2})],
)
def test_variants_that_touch_the_same_place_are_refused(others: tuple[Any, Any]) -> None:
    with pytest.raises(ChartError):
        merged({"kept": 1}, ("first", others[0]), ("second", others[1]))


def test_values_stand_where_they_belong() -> None:
    node = {
        "replicas": Inline("{{ .Values.replicas }}"),
        "labels": Values(".Values.labels"),
        "list": [1, Values(".Values.more")],
        "items": [{"name": When("given", "x")}],
    }
    assert text(node).splitlines() == [
        "replicas: {{ .Values.replicas }}",
        "{{- with .Values.labels }}",
        "labels:",
        "  {{- toYaml . | nindent 2 }}",
        "{{- end }}",
        "list:",
        "  - 1",
        "  {{- with .Values.more }}",
        "  {{- toYaml . | nindent 2 }}",
        "  {{- end }}",
        "items:",
        "  -",
        "    {{- if given }}",
        "    name: x",
        "    {{- end }}",
    ]


def test_namespace_is_the_releases_and_foreign_templates_stay_what_they_are() -> None:
    written = text({"host": "nats.kueue-system.svc", "summary": "{{ $labels.service }} is gone"})
    assert written == "host: nats.{{ .Release.Namespace }}.svc\nsummary: '{{ \"{{\" }} $labels.service }} is gone'\n"


def test_a_list_in_a_list_has_no_form_here() -> None:
    with pytest.raises(ChartError):
        text({"k": [[1]]})
