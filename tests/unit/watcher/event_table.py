"""Kueue's table of Events (kueue_events.yaml), for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

TABLE: dict[str, list[dict[str, Any]]] = yaml.safe_load((Path(__file__).parent / "kueue_events.yaml").read_text())
TYPES = {"N": "Normal", "W": "Warning"}


def row_of(kind: str, reason: str) -> dict[str, Any] | None:
    """The row of an Event of this reason on such an object."""
    row: dict[str, Any]
    # What a Job tells, every kind of job does.
    of_kind = TABLE.get(kind, ()) if kind in TABLE and kind != "Pod" else (*TABLE["Job"], *TABLE.get(kind, ()))
    for row in (*of_kind, *TABLE["Any"]):
        head, any_end, _ = row["reason"].partition("*")
        if reason == row["reason"] or (any_end and reason.startswith(head)):
            return row
    return None


def fault(kind: str, reason: str, type_: str) -> str:
    """What is wrong with such an Event; empty if nothing is."""
    row = row_of(kind, reason)
    if row is None:
        return f"Kueue has no Event {reason} on a {kind}"
    if "later" in row:
        return f"{reason} on a {kind} is said to wait for {row['later']}"
    return "" if TYPES[row["type"]] == type_ else f"{reason} on a {kind} is {row['type']}, not {type_}"
