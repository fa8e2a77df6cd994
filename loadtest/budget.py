"""`python -m loadtest.budget`: what a workload may cost, kept true by a benchmark. Exit code 1 if a ratio is more than a fifth over its budget, 3 if none
is but the machine was too busy with other things for all of them to be judged.

Ratios, not seconds: API writes and bus messages per workload, CPU per admission in multiples of the reference (`reference.py`), which was measured beside
the load on the same processors, and memory per workload. `budget.yaml` holds them; `--update` writes what was measured, to be done on purpose and
with a reason in the commit.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import uvloop
import yaml
from rich.console import Console
from rich.table import Table

from loadtest import report as reports
from loadtest.memory import FIGURES as MEMORY
from loadtest.memory import in_a_process_of_its_own
from loadtest.run import measure
from loadtest.shape import load
from loadtest.target import own_stack

BUDGET = Path(__file__).resolve().parent / "budget.yaml"
SHAPE = "budget"
TOLERANCE = 1.2
MOST_BUSY_CPUS = 0.3
"""With more used by others a run takes longer, and with it grows all that is done so often a second: CPU and messages then say more about the others."""
OF_TIME = ("relative_cpu.", "messages_per_item.")
NOT_JUDGED = 3
HEAD = """\
# What one workload may cost; see docs/budget.md. Written by `python -m loadtest.budget --update`, on purpose and with a reason in the commit.
# `relative_cpu.<process>`: CPU per admission, in thousandths of the reference work (loadtest/reference.py).
"""


class Line(msgspec.Struct, frozen=True):
    """One ratio: `value` is None if it was not measured, which is as bad as too much. `calm`: others left the machine alone."""

    figure: str
    budget: float
    value: float | None
    calm: bool = True

    @property
    def met(self) -> bool:
        return self.value is not None and self.value <= self.budget * TOLERANCE

    @property
    def judged(self) -> bool:
        """What is met is met on a busy machine, too."""
        return self.met or self.calm or self.value is None or not self.figure.startswith(OF_TIME)

    @property
    def missed(self) -> bool:
        return self.judged and not self.met


def read(path: Path = BUDGET) -> dict[str, float]:
    """Figures and their budgets. Raises ValueError for anything else."""
    try:
        return msgspec.convert(yaml.safe_load(path.read_text()), dict[str, float])
    except msgspec.ValidationError as error:
        raise ValueError(f"{path}: {error}") from error


def compare(measured: Mapping[str, float], budget: Mapping[str, float], others_cpus: float = 0.0) -> tuple[Line, ...]:
    """In the order of the budget. `others_cpus`: CPUs that were busy with other things on average."""
    calm = others_cpus <= MOST_BUSY_CPUS
    return tuple(Line(figure, limit, measured.get(figure), calm) for figure, limit in budget.items())


def verdict(lines: tuple[Line, ...]) -> int:
    """Exit code."""
    if any(line.missed for line in lines):
        return 1
    return 0 if all(line.judged for line in lines) else NOT_JUDGED


def updated(measured: Mapping[str, float], budget: Mapping[str, float]) -> str:
    """The file with what was measured. Raises ValueError for a figure that was not."""
    if missing := sorted(set(budget) - set(measured)):
        raise ValueError(f"not measured: {', '.join(missing)}")
    # Three digits, and no exponent, which YAML would take for text.
    return HEAD + "".join(f"{figure}: {float(f'{measured[figure]:.3g}'):g}\n" for figure in budget)


async def ratios(console: Console) -> tuple[dict[str, float], reports.Report]:
    """All figures that a budget may name. Raises what Stack and Runner.prepare raise."""
    shape = load(SHAPE)
    async with own_stack(shape, console) as target:
        report = await measure(SHAPE, shape, target, console)
    memory = {name: await asyncio.to_thread(in_a_process_of_its_own, name) for name in MEMORY}
    return {**report.figures, **memory}, report


def show(lines: tuple[Line, ...], console: Console) -> None:
    table = Table("figure", "budget", "measured", "")
    for line in lines:
        value = "missing" if line.value is None else f"{line.value:.3g}"
        mark = "[green]✓[/]" if line.met else "[red]✗[/]" if line.missed else "[yellow]busy[/]"
        table.add_row(line.figure, f"{line.budget:.3g}", value, mark)
    console.print(table)


async def run(arguments: argparse.Namespace, console: Console) -> int:
    """Exit code."""
    budget = read()
    measured, report = await ratios(console)
    reports.write(report)
    if arguments.update:
        BUDGET.write_text(updated(measured, budget))
        return 0
    lines = compare(measured, budget, report.machine.others_cpus)
    show(lines, console)
    if verdict(lines) == NOT_JUDGED:
        console.print(f"{report.machine.others_cpus:.1f} CPUs were busy with other things: CPU and messages not judged")
    return verdict(lines)


def main(argv: list[str] | None = None) -> int:
    """Parse and run."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.budget", description="What a workload costs, against its budget."
    )
    parser.add_argument("--update", action="store_true", help="take what is measured as the budget")
    console = Console(stderr=True, highlight=False)
    return uvloop.run(run(parser.parse_args(argv), console))


if __name__ == "__main__":
    sys.exit(main())
