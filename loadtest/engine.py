"""The engine benchmark: `python -m loadtest.engine [--only NAME]` writes loadtest/reports/engine.json.

Why it exists: the figures that the engine must reach are measured the same way on every machine, pure (no bus) and on one core. Times are CPU time of
the process, so that other work on the machine does not count. Every measurement runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from loadtest import engine_searches as searches
from loadtest.engine_run import Result, Run
from loadtest.engine_shapes import BASELINE, DISTINCT, HUNDRED_QUEUES, LARGE, Shape
from shared.runtime import collector

REPORT = Path(__file__).parent / "reports" / "engine.json"
Figures = dict[str, float]

GOALS: dict[str, tuple[str, float]] = {
    "baseline_admissions_per_s": (">=", 5000),
    "large_admissions_per_s": (">=", 2000),
    "distinct_admissions_per_s": (">=", 1500),
    "cost_growth_100_to_1000_queues": ("<", 1.5),
    "preemption_10000_candidates_ms": ("<=", 20),
    "tournament_1000_queues_ms": ("<=", 20),
    "pending_100000_mb": ("<=", 250),
}
"""What each figure must reach."""


def _run(shape: Shape) -> Result:
    collector.expect_large_state()
    collector.state_is_loaded()
    return Run(shape).run()


def _shape_figures(shape: Shape) -> Figures:
    result = _run(shape)
    return {
        f"{shape.name}_admissions_per_s": round(result.admissions_per_s),
        f"{shape.name}_cost_us": round(result.cost_us, 1),
        f"{shape.name}_admissions": result.admissions,
        f"{shape.name}_evictions": result.evictions,
        f"{shape.name}_cycles": result.cycles,
        f"{shape.name}_opening_s": round(result.opening_s, 2),
        f"{shape.name}_finished": result.finished,
    }


MEASUREMENTS: dict[str, Callable[[], Figures]] = {
    "baseline": lambda: _shape_figures(BASELINE),
    "distinct": lambda: _shape_figures(DISTINCT),
    "hundred_queues": lambda: _shape_figures(HUNDRED_QUEUES),
    "large": lambda: _shape_figures(LARGE),
    "preemption": lambda: {"preemption_10000_candidates_ms": round(searches.preemption_ms(), 2)},
    "tournament": lambda: {"tournament_1000_queues_ms": round(searches.tournament_ms(), 2)},
    "memory": lambda: {"pending_100000_mb": round(searches.pending_mb(), 1)},
}


def main(arguments: list[str] | None = None) -> int:
    """Measure and write the report; 1 if a measured figure misses its goal."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.engine", description=__doc__)
    parser.add_argument("--only", choices=sorted(MEASUREMENTS), action="append", help="measure only this")
    parser.add_argument("--in-process", choices=sorted(MEASUREMENTS), help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, default=REPORT)
    options = parser.parse_args(arguments)
    if options.in_process:
        print(json.dumps(MEASUREMENTS[options.in_process]()))
        return 0
    figures: Figures = {}
    for name in options.only or MEASUREMENTS:
        done = subprocess.run(
            [sys.executable, "-m", "loadtest.engine", "--in-process", name], check=True, capture_output=True, text=True
        )
        figures.update(json.loads(done.stdout))
        print(f"{name}: {done.stdout.strip()}", flush=True)
    if "large_cost_us" in figures and "hundred_queues_cost_us" in figures:
        growth = figures["large_cost_us"] / figures["hundred_queues_cost_us"]
        figures["cost_growth_100_to_1000_queues"] = round(growth, 2)
    options.report.parent.mkdir(parents=True, exist_ok=True)
    options.report.write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    missed = [
        name for name, (sign, goal) in GOALS.items() if name in figures and not _reached(figures[name], sign, goal)
    ]
    for name in missed:
        print(f"{name} = {figures[name]}, wanted {GOALS[name][0]} {GOALS[name][1]}", file=sys.stderr)
    return 1 if missed else 0


def _reached(figure: float, sign: str, goal: float) -> bool:
    return {">=": figure >= goal, "<=": figure <= goal, "<": figure < goal}[sign]


if __name__ == "__main__":
    sys.exit(main())
