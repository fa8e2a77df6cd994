"""What a manifest becomes in a chart: the same tree, with nodes for values and conditions in it, and its text as a template.

`merged` finds the conditions: it lays variants of one object (the same object of several overlays) over each other and keeps what differs apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

NAMESPACE = "kueue-system"
"""In the manifests; in the chart the namespace of the release."""
_RELEASE = "{{ .Release.Namespace }}"
Node = Any
"""A dict, list, scalar, or one of the nodes below."""


class ChartError(ValueError):
    """The manifests differ in a way that the chart has no words for."""


class Inline(msgspec.Struct, frozen=True):
    """A scalar that is a template's expression; `text` with its braces."""

    text: str


class Values(msgspec.Struct, frozen=True):
    """A map or list out of the values, under its key or as the rest of a list; nothing at all where it is empty."""

    expression: str


class When(msgspec.Struct, frozen=True):
    """An entry of a map or list only under a condition; else `otherwise`, unless that is None."""

    condition: str
    node: Node
    otherwise: Node = None


Variant = tuple[str, Node]
"""A condition, and the object as it is then."""


def merged(base: Node, *variants: Variant) -> Node:
    """`base`, with what each variant has besides or instead under its condition. Two variants may not differ in the same place."""
    different = [(condition, node) for condition, node in variants if node != base]
    if not different:
        return base
    result = _merged_inside(base, different)
    if result is not None:
        return result
    if len(different) > 1:
        raise ChartError(f"{[condition for condition, _ in different]} all change {base!r}")
    condition, node = different[0]
    return When(condition, node, base)


def _merged_inside(base: Node, variants: list[Variant]) -> Node:
    """A map or list with conditions inside; None where it has to be replaced as a whole."""
    whole = [base, *(node for _, node in variants)]
    if all(isinstance(one, dict) for one in whole):
        merged_map = _merged_maps(base, variants)
        # Where every entry has a condition there may be none, which YAML reads as null.
        return merged_map if any(not isinstance(v, When) for v in merged_map.values()) else None
    if all(isinstance(one, list) for one in whole):
        # Arguments of a command: the order says something, and each alone means little.
        if all(isinstance(item, str) for one in whole for item in one):
            return None
        merged_list = _merged_lists(base, variants)
        return merged_list if any(not isinstance(item, When) for item in merged_list) else None
    return None


def _merged_maps(base: dict[str, Node], variants: list[Variant]) -> dict[str, Node]:
    result: dict[str, Node] = {}
    for key, value in base.items():
        there = [(condition, node[key]) for condition, node in variants if key in node]
        gone = [condition for condition, node in variants if key not in node]
        result[key] = When(f"not ({_any(gone)})", merged(value, *there)) if gone else merged(value, *there)
    for condition, node in variants:
        for key in node.keys() - base.keys():
            if key in result:
                raise ChartError(f"two variants add {key!r}")
            result[key] = When(condition, node[key])
    return result


def _merged_lists(base: list[Node], variants: list[Variant]) -> list[Node]:
    """Items are the same when their names are, or else when they are equal."""
    result: list[Node] = []
    for item in base:
        there = [(c, found) for c, node in variants if (found := _same(item, node)) is not None]
        gone = [c for c, node in variants if _same(item, node) is None]
        result.append(When(f"not ({_any(gone)})", merged(item, *there)) if gone else merged(item, *there))
    for condition, node in variants:
        result += [When(condition, item) for item in node if _same(item, base) is None]
    return result


def _same(item: Node, among: list[Node]) -> Node:
    name = item.get("name") if isinstance(item, dict) else None
    if name is None:
        return item if item in among else None
    return next((other for other in among if isinstance(other, dict) and other.get("name") == name), None)


def _any(conditions: list[str]) -> str:
    return conditions[0] if len(conditions) == 1 else f"or {' '.join(f'({c})' for c in conditions)}"


# Text.


def text(node: Node) -> str:
    """One object as a template, without the `---` before it."""
    return "".join(f"{line}\n" for line in _map(node, 0))


def _map(node: dict[str, Node], indent: int) -> Iterator[str]:
    pad = " " * indent
    for key, value in node.items():
        match value:
            case When(condition, then, otherwise):
                yield f"{pad}{{{{- if {condition} }}}}"
                yield from _map({key: then}, indent)
                if otherwise is not None:
                    yield f"{pad}{{{{- else }}}}"
                    yield from _map({key: otherwise}, indent)
                yield f"{pad}{{{{- end }}}}"
            case Values(expression):
                yield f"{pad}{{{{- with {expression} }}}}"
                yield f"{pad}{_scalar(key)}:"
                yield f"{pad}  {{{{- toYaml . | nindent {indent + 2} }}}}"
                yield f"{pad}{{{{- end }}}}"
            case dict() if value:
                yield f"{pad}{_scalar(key)}:"
                yield from _map(value, indent + 2)
            case list() if value:
                yield f"{pad}{_scalar(key)}:"
                yield from _list(value, indent + 2)
            case _:
                yield f"{pad}{_scalar(key)}: {_scalar(value)}"


def _list(items: list[Node], indent: int) -> Iterator[str]:
    pad = " " * indent
    for item in items:
        match item:
            case When(condition, then, otherwise):
                yield f"{pad}{{{{- if {condition} }}}}"
                yield from _list([then], indent)
                if otherwise is not None:
                    yield f"{pad}{{{{- else }}}}"
                    yield from _list([otherwise], indent)
                yield f"{pad}{{{{- end }}}}"
            case Values(expression):
                yield f"{pad}{{{{- with {expression} }}}}"
                yield f"{pad}{{{{- toYaml . | nindent {indent} }}}}"
                yield f"{pad}{{{{- end }}}}"
            case dict() if item:
                yield from _dashed(list(_map(item, indent + 2)), indent)
            case list() if item:
                raise ChartError("a list in a list")
            case _:
                yield f"{pad}- {_scalar(item)}"


def _dashed(lines: list[str], indent: int) -> Iterator[str]:
    """The dash before the first line; on a line of its own where that is a condition."""
    pad = " " * indent
    if lines[0].lstrip().startswith("{{-"):
        yield f"{pad}-"
        yield from lines
        return
    yield f"{pad}- {lines[0].lstrip()}"
    yield from lines[1:]


def _scalar(value: Node) -> str:
    if isinstance(value, Inline):
        return value.text
    if isinstance(value, str) and "\n" in value:
        written = yaml.safe_dump(value, default_style='"', width=1_000_000)
    else:
        written = yaml.safe_dump(value, default_flow_style=True, width=1_000_000)
    written = written.removesuffix("\n").removesuffix("\n...")
    # What looks like a template in a manifest is one of Prometheus.
    return written.replace("{{", '{{ "{{" }}').replace(NAMESPACE, _RELEASE)
