"""Runs seeds: one with its story, or a range with totals. `make simulate SEED=7`, `make simulate SEEDS=3000 FIRST=1`.

A range goes over as many processes as there are cores (`--processes`), each with seeds of its own; a seed depends on nothing but its number. The exit code
is 1 if a promise was broken. What breaks one is cut down to the steps it takes, and its story is told with the command that replays it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator

import msgspec

from shared.runtime.collector import expect_large_state
from tests.simulation.generators import mixed
from tests.simulation.progress import shown
from tests.simulation.scenario import Scenario
from tests.simulation.shortest import shortest
from tests.simulation.simulation import Report, simulate

LEAST_WORKLOADS = 200
LEAST_STEPS = 2000
LEAST_FAULTS = 20
MOST_SHORTENED = 3
"""Of so many failing seeds the shortest story is looked for; each takes about half a minute."""


def one(seed: int) -> Report:
    """Run one seed."""
    return simulate(mixed(seed))


def many(first: int, count: int, processes: int) -> Iterator[Report]:
    """Run a range, in the order in which they end."""
    seeds = range(first, first + count)
    if processes <= 1:
        expect_large_state()
        yield from map(one, seeds)
        return
    spawn = multiprocessing.get_context("spawn")
    # A seed is a second of much garbage that goes by itself: looking for cycles in between was a tenth of it.
    with spawn.Pool(processes, initializer=expect_large_state, maxtasksperchild=200) as pool:
        yield from pool.imap_unordered(one, seeds)


def told(report: Report) -> str:
    """What a failing seed says: the promises that were broken, the story behind the first, and how to see it again."""
    scenario = report.scenario
    lines = [f"seed {scenario.seed} ({scenario.name}; {', '.join(scenario.slots)})"]
    lines += [f"  broken: {violation}" for violation in report.violations[:3]]
    lines += ["  the story:", *(f"    {line}" for line in report.story)]
    lines += [f"  again: make simulate SEED={scenario.seed}"]
    return "\n".join(lines)


def told_shortly(report: Report) -> str:
    """The same of the shortest scenario that breaks the same promise, and what is left of the faults in it."""
    promise = report.violations[0].name
    found = report

    def breaks(scenario: Scenario) -> bool:
        nonlocal found
        tried = simulate(scenario)
        if not tried.violations or tried.violations[0].name != promise:
            return False
        found = tried
        return True

    scenario = shortest(report.scenario, breaks)
    whole = report.scenario
    lines = [
        f"  it takes {len(scenario.faults)} of {len(whole.faults)} faults and {len(scenario.load)} of {len(whole.load)} steps of users:"
    ]
    lines += [f"    {step}" for step in scenario.faults]
    return "\n".join([told(msgspec.structs.replace(found, scenario=scenario)), *lines])


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
        print(
            told_shortly(report) if report.violations else f"seed {asked.seed}: all promises kept, {report.steps} steps"
        )
        print(f"digest {report.digest}")
        return 1 if report.violations else 0
    began = time.perf_counter()
    reports: list[Report] = []
    failed = 0
    runs = many(asked.first, asked.seeds, asked.processes)
    for report in shown(runs, asked.seeds, "seeds", lambda report: bool(report.violations)):
        reports.append(report)
        if report.violations:
            failed += 1
            print(told_shortly(report) if failed <= MOST_SHORTENED else told(report), flush=True)
    seconds = time.perf_counter() - began
    print(totals(reports, seconds, sum(report.processor_s for report in reports)))
    return 1 if any(report.violations for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
