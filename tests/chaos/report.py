"""What a run of chaos has to tell at its end: per fault how often, the pauses of admissions; what was broken."""

from __future__ import annotations

from collections import defaultdict

from rich.table import Table


class Report:
    """Grows while the parts run."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.notes: list[str] = []
        self._pauses: dict[str, list[float]] = defaultdict(list)

    def fault(self, name: str, pause_s: float) -> None:
        """It was done, and admissions paused for so long."""
        self._pauses[name].append(pause_s)

    @property
    def count(self) -> int:
        return sum(len(pauses) for pauses in self._pauses.values())

    def table(self) -> Table:
        """Per fault, the longest pause first."""
        table = Table("fault", "times", "longest pause of admissions", title=f"{self.count} faults")
        for name, pauses in sorted(self._pauses.items(), key=lambda item: -max(item[1])):
            table.add_row(name, str(len(pauses)), f"{max(pauses):.1f} s")
        return table
