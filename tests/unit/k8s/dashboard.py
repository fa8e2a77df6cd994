"""The dashboard that compose.yaml brings, for tests to look into: its panels, and what their expressions speak of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from tests.unit.k8s.rendered import ROOT

GRAFANA = ROOT / "compose" / "grafana"
DASHBOARD: dict[str, Any] = json.loads((GRAFANA / "dashboards" / "sluice.json").read_text())
_NAME = re.compile(r"\b(?:kueue|sluice|process|python)_\w+|\bup\b")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*""')


class Expression(msgspec.Struct, frozen=True):
    """Of a panel: the series it names and the labels it selects or groups by."""

    panel: str
    text: str
    series: frozenset[str]
    labels: frozenset[str]


def expression(panel: str, text: str) -> Expression:
    """Read one."""
    plain = _TEXT.sub('""', text)
    grouped = [label.strip() for found in _GROUPING.findall(plain) for label in found.split(",")]
    return Expression(
        panel, text, frozenset(_NAME.findall(plain)), frozenset(grouped) | frozenset(_MATCHER.findall(plain))
    )


def panels() -> list[dict[str, Any]]:
    """Those that show something."""
    return [p for p in DASHBOARD["panels"] if p["type"] != "row"]


def expressions() -> Iterator[Expression]:
    """Of all panels and variables."""
    for panel in panels():
        for target in panel["targets"]:
            yield expression(panel["title"], target["expr"])
    for variable in DASHBOARD["templating"]["list"]:
        yield expression(variable["name"], variable["query"]["query"])
