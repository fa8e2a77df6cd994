"""`python -m tests.chaos`: the whole stack under load while it is broken again and again, then a preemption storm. Exit code 1 if a promise was broken.

1. A control plane, NATS on a small disk, every service as a process of its own, proxies between them.
2. Jobs that preempt and reclaim flow all the while; every kind of fault comes at least once, in an order drawn by the seed, and a rolling upgrade.
3. Each fault has time to be recovered from: the next one comes once everybody is ready and something was admitted.
4. The rest finishes; the judge, who saw the Kubernetes API and nothing else, has its say.
5. The storm (tests.chaos.storm).

A part that stalls ends the run at once; its logs are kept, and where is said.
"""

from __future__ import annotations

import argparse
import sys

import uvloop
from rich.console import Console

from tests.chaos.report import Report
from tests.chaos.run import Options, run_faults
from tests.chaos.storm import run_storm


async def chaos(options: Options, console: Console) -> int:
    """Exit code."""
    report = Report()
    if "faults" in options.parts:
        await run_faults(options, console, report)
    if "storm" in options.parts and not report.problems:
        await run_storm(options, console, report)
    console.print(report.table())
    for line in report.notes:
        console.print(line, soft_wrap=True)
    for problem in report.problems:
        console.print(f"[red]✗ {problem}[/]", soft_wrap=True)
    if not report.problems:
        console.print(f"[green]✓ nothing lost, nothing twice, quota held, all finished[/] (seed {options.seed})")
    return 1 if report.problems else 0


def main(argv: list[str] | None = None) -> int:
    """Parse and run."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--jobs", type=int, default=1000, help="Jobs of the faults' part (%(default)s)")
    parser.add_argument("--storm-jobs", type=int, default=200, help="Jobs of each priority in the storm (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of what happens when (%(default)s)")
    parser.add_argument("--parts", default="faults,storm", help="which parts to run (%(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only faults whose name contains this")
    parser.add_argument("--keep", default="", metavar="DIR", help="copy the logs there at the end, whatever the end is")
    a = parser.parse_args(argv)
    options = Options(
        jobs=a.jobs, storm_jobs=a.storm_jobs, seed=a.seed, parts=tuple(a.parts.split(",")), only=a.only, keep=a.keep
    )
    console = Console(stderr=True, highlight=False)
    return uvloop.run(chaos(options, console))


if __name__ == "__main__":
    sys.exit(main())
