"""Runs scenario files against the product: `python -m tests.conformance.run DIR [--self-check] [--try-waiting]`.

Prints one line per area and a total, `area: P passed, F failed, W waiting`. A case is run unless the waiting list names it or its
area; what the runner cannot do counts as waiting, and is an error unless listed. Exit status 1 on any failure or on a
waiting case that is not listed, but not where a machine lacks what a case needs: then the line of the area
says so. `--self-check` alters one leaf of what each passing case expects and demands a failure.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2s
from pathlib import Path
from typing import Any

from tests.conformance import cycle, expectations, preemption, requests, waiting
from tests.conformance.engine import Engine
from tests.conformance.live import LIVE
from tests.conformance.scenario import Case, Mismatch, NotCovered, Unavailable, read_folder

Json = dict[str, Any]


@dataclass
class Tally:
    """Counts of one area, and what to say about single cases."""

    passed: int = 0
    failed: int = 0
    waiting: int = 0
    unlisted: int = 0
    unavailable: dict[str, int] = field(default_factory=dict)
    """What this machine lacks: how many of the waiting cases need it."""
    notes: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.waiting += other.waiting
        self.unlisted += other.unlisted
        for lack, count in other.unavailable.items():
            self.unavailable[lack] = self.unavailable.get(lack, 0) + count

    def line(self, name: str) -> str:
        lacks = "".join(f" ({count} NOT RUN: {lack})" for lack, count in self.unavailable.items())
        return f"{name}: {self.passed} passed, {self.failed} failed, {self.waiting} waiting{lacks}"


def run_case(case: Case) -> None:
    """Run one case; raises Mismatch if it fails and NotCovered if the runner cannot run it."""
    if "request" in case.raw:
        requests.run(case)
        return
    engine = Engine(case)
    for step in case.raw["steps"]:
        if step["do"] == "cycle":
            cycle.run(engine)
        elif step["do"] in preemption.STEPS:
            preemption.STEPS[step["do"]](engine, step)
        else:
            engine.do(step)
        expectations.check(engine, step.get("expect") or {})
    expectations.check(engine, case.raw.get("expect") or {})


def verdict(case: Case) -> tuple[str, str]:
    """("passed" | "failed" | "waiting" | "unavailable", why)."""
    try:
        run_case(case)
    except Unavailable as lack:
        return "unavailable", str(lack)
    except NotCovered as gap:
        return "waiting", f"not covered: {gap}"
    except Mismatch as mismatch:
        return "failed", str(mismatch)
    except Exception as error:  # noqa: BLE001 - whatever a case makes the product raise is a failure of that case
        return "failed", f"{type(error).__name__}: {error}"
    return "passed", ""


def run_area(cases: list[Case], waiting_list: waiting.WaitingList, *, self_check: bool, try_waiting: bool) -> Tally:
    """All cases of one file."""
    tally = Tally()
    for case in cases:
        feature = waiting_list.feature(case)
        if feature is not None:
            tally.waiting += 1
            if try_waiting:
                tally.notes.append(f"{case.id} waits for {feature}: would be {' '.join(verdict(case))}")
            continue
        result, why = verdict(case)
        if result == "passed" and self_check:
            unnoticed = survivor(case)
            if unnoticed:
                result, why = "failed", f"self-check: {unnoticed} altered, and it still passes"
        if result == "passed":
            tally.passed += 1
            continue
        if result == "unavailable":
            tally.waiting += 1
            tally.unavailable[why] = tally.unavailable.get(why, 0) + 1
            continue
        tally.notes.append(f"{case.id} {result}: {why}")
        if result == "waiting":
            tally.waiting += 1
            tally.unlisted += 1
        else:
            tally.failed += 1
    return tally


def survivor(case: Case) -> str | None:
    """Alter one leaf of the expectation, chosen by the case's id; its path if the case does not fail then."""
    paths = list(leaf_paths(case.raw))
    if not paths:
        return "nothing (no expectation)"
    chosen = paths[int(blake2s(case.id.encode()).hexdigest(), 16) % len(paths)]
    altered = copy.deepcopy(case.raw)
    parent: Any = altered
    for step in chosen[:-1]:
        parent = parent[step]
    parent[chosen[-1]] = alter(parent[chosen[-1]])
    result, _ = verdict(Case(case.area, case.id, altered))
    return None if result == "failed" else "/".join(map(str, chosen))


def leaf_paths(raw: Json) -> Iterator[tuple[str | int, ...]]:
    """Paths of all leaves of the expectations; an empty list or map is a leaf too."""
    for index, step in enumerate(raw.get("steps") or ()):
        if "expect" in step:
            yield from _leaves(step["expect"], ("steps", index, "expect"))
    yield from _leaves(raw.get("expect") or {}, ("expect",), top=True)


def _leaves(value: Any, path: tuple[str | int, ...], top: bool = False) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict) and (value or top):
        for key, child in value.items():
            yield from _leaves(child, (*path, key))
    elif isinstance(value, list) and value:
        for index, child in enumerate(value):
            yield from _leaves(child, (*path, index))
    else:
        yield path


def alter(value: Any) -> Any:
    """Something else of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return f"{value}-altered"
    if isinstance(value, list):
        return ["altered"]
    return {"altered": "altered"} if isinstance(value, dict) else "altered"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.run", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--self-check", action="store_true", help="alter one leaf of each expectation")
    parser.add_argument("--try-waiting", action="store_true", help="also say what waiting cases would do")
    parser.add_argument("--waiting-list", type=Path, default=waiting.DEFAULT_LIST)
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        print(f"{options.folder}: no such folder", file=sys.stderr)
        return 2
    waiting_list = waiting.read(options.waiting_list)
    total = Tally()
    try:
        for area, cases in read_folder(options.folder):
            tally = run_area(cases, waiting_list, self_check=options.self_check, try_waiting=options.try_waiting)
            for note in tally.notes:
                print(f"  {note}", file=sys.stderr)
            print(tally.line(area))
            total.add(tally)
    finally:
        LIVE.stop()
    print(total.line("total"))
    return 1 if total.failed or total.unlisted else 0


if __name__ == "__main__":
    sys.exit(main())
