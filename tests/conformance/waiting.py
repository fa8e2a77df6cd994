"""The list of cases that wait for a feature: data, by case id or by area."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.conformance.scenario import Case

DEFAULT_LIST = Path(__file__).with_name("waiting.yaml")


@dataclass(frozen=True)
class WaitingList:
    """`cases` maps an id, `areas` a whole area (ids not yet seen included) to the feature waited for."""

    cases: dict[str, str]
    areas: dict[str, str]

    def feature(self, case: Case) -> str | None:
        """The feature this case waits for, or None if it must pass."""
        return self.cases.get(case.id) or self.areas.get(case.area)


def read(path: Path = DEFAULT_LIST) -> WaitingList:
    """The list of a YAML file with the keys `cases` and `areas`."""
    raw = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    return WaitingList(raw.get("cases") or {}, raw.get("areas") or {})
