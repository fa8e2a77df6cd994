"""Scenario files: reading them, and what running one case can say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class Mismatch(AssertionError):
    """The product did something else than the case expects."""


class NotCovered(Exception):
    """The runner knows no way to do this step or to check this expectation."""


class Unavailable(NotCovered):
    """What the case needs cannot be had on this machine; the text says what."""


@dataclass(frozen=True)
class Case:
    """One case as read, with the area (the file's name) it belongs to."""

    area: str
    id: str
    raw: dict[str, Any]


def read_folder(folder: Path) -> Iterator[tuple[str, list[Case]]]:
    """(area, cases) of every *.json file of the folder, by name."""
    for path in sorted(folder.glob("*.json")):
        cases = json.loads(path.read_text(encoding="utf-8"))["cases"]
        yield path.stem, [Case(path.stem, case["id"], case) for case in cases]


def demand_equal(what: str, actual: Any, expected: Any) -> None:
    """Raise Mismatch with both sides unless they are equal."""
    if actual != expected:
        raise Mismatch(f"{what}: expected {expected!r}, got {actual!r}")
