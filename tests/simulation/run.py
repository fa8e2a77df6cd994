"""Runs seeds: one with its story, or a range with totals. `make simulate SEED=7`, `make simulate SEEDS=3000 FIRST=1`.

A range goes over as many processes as there are cores (`--processes`), each with seeds of its own; a seed depends on nothing but its number. The exit code
is 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator

from tests.simulation.generators import mixed
from tests.simulation.world import Report, simulate

LEAST_WORKLOADS = 200
LEAST_STEPS = 2000
LEAST_FAULTS = 20


def one(seed: int) -> Report:
    """Run one seed."""
    return simulate(mixed(seed))


def many(first: int, count: int, processes: int) -> Iterator[Report]:
    """Run a range, in the order in which they end."""
    seeds = range(first, first + count)
    if processes <= 1:
        yield from map(one, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=200) as pool:
        yield from pool.imap_unordered(one, seeds)


def told(report: Report) -> str:
    """What a failing seed says: the promises that were broken, and the story behind the first."""
    scenario = report.scenario
    lines = [f"seed {scenario.seed} ({scenario.name}; {', '.join(scenario.slots)})"]
    lines += [f"  broken: {violation}" for violation in report.violations[:3]]
    lines += ["  the story:", *(f"    {line}" for line in report.story)]
    return "\n".join(lines)


def totals(reports: list[Report], seconds: float, processor_s: float) -> str:
    """Figures of a range."""
    faults: Counter[str] = Counter()
    broken: Counter[str] = Counter()
    for report in reports:
        faults += report.faults
        broken.update({report.violations[0].name: 1} if report.violations else {})
    whole = [report for report in reports if not report.violations]
    failed = sorted(report.scenario.seed for report in reports if report.violations)
    lines = [
        f"{len(reports)} seeds, {len(failed)} broken{': ' + ', '.join(map(str, failed)) if failed else ''}",
        *(f"  {name}: {count}" for name, count in broken.most_common()),
        f"{len(reports) / seconds * 60:.0f} seeds/minute, {len(reports) / processor_s * 60:.0f} for each core",
    ]
    if whole:
        lines.append(
            f"at least {min(r.workloads for r in whole)} workloads, {min(r.steps for r in whole)} steps and "
            f"{min(r.faults.total() for r in whole)} faults a seed; {sum(r.admissions for r in whole)} admissions, "
            f"{sum(r.evictions for r in whole)} evictions in all"
        )
    lines += ["faults:", *(f"  {count:7d} {name}" for name, count in faults.most_common())]
    return "\n".join(lines)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this one and print its story")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    asked = parser.parse_args()
    if asked.seed is not None:
        report = one(asked.seed)
        print(told(report) if report.violations else f"seed {asked.seed}: all promises kept, {report.steps} steps")
        print(f"digest {report.digest}")
        return 1 if report.violations else 0
    began = time.perf_counter()
    reports: list[Report] = []
    for report in many(asked.first, asked.seeds, asked.processes):
        reports.append(report)
        if report.violations:
            print(told(report), flush=True)
    seconds = time.perf_counter() - began
    print(totals(reports, seconds, sum(report.processor_s for report in reports)))
    return 1 if any(report.violations for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
