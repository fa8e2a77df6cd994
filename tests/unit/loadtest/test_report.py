"""One format, as JSON and as Markdown."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from loadtest.percentiles import distribution
from loadtest.processes import Usage
from loadtest.report import SHOWN_PROBLEMS, Report, machine, markdown, read, write
from loadtest.thresholds import Check
from loadtest.writes import WriteCount


def report(**changes: object) -> Report:
    made = Report(
        shape="tiny",
        title="a few",
        target="sluice",
        kind="Job",
        items=4,
        began="2026-01-01T00:00:00Z",
        machine=machine(0.5, 1.25),
        figures={"wall_s": 10.0, "start_ms.p50": 2.0, "cpu_s.watcher": 2.5},
        durations={"start_ms": distribution([1.0, 2.0, 3.0, 4.0])},
        steps={},
        writes=(WriteCount("watcher", "patch", "jobs", 4, 1, 1.0),),
        writes_on_path={"patch jobs": 1.0},
        processes=(Usage("watcher", 2.5, 99.6, 1),),
        checks=(Check("start_ms.p50", "at most 80", 2.0, True),),
        problems=(),
    )
    return msgspec.structs.replace(made, **changes)


def rows(text: str, title: str) -> list[list[str]]:
    """Cells of the table under a title, without its head."""
    section = text.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    made = report()
    as_json, as_text = write(made, tmp_path / "new")
    assert (as_json.name, as_text.name) == ("tiny.json", "tiny.md")
    assert read(as_json) == made
    assert as_text.read_text() == markdown(made)


def test_a_new_run_replaces_the_old_report(tmp_path: Path) -> None:
    write(report(items=1), tmp_path)
    as_json, _ = write(report(items=2), tmp_path)
    assert read(as_json).items == 2


def test_the_tables_show_the_numbers() -> None:
    text = markdown(report())
    assert rows(text, "Durations") == [["start_ms", "4", "2.5", "2.0", "4.0", "4.0", "4.0", "4.0"]]
    assert rows(text, "All API writes") == [["watcher", "patch", "jobs", "4", "1", "1.00"]]
    assert rows(text, "API writes per item on the path") == [["patch jobs", "1.00"]]
    assert rows(text, "Processes") == [["watcher", "2.5", "25", "100", "1"]]


def test_figures_that_have_a_table_of_their_own_are_not_repeated() -> None:
    assert rows(markdown(report()), "Figures") == [["wall_s", "10.00"]]


@pytest.mark.parametrize(("check", "passed", "shown"), [
    (Check("x", "at most 1", 1.0, True), True, ["x", "at most 1", "1.00", "met"]),
    (Check("x", "at most 1", 1.5, False), False, ["x", "at most 1", "1.50", "**missed**"]),
    (Check("x", "at most 1", None, False), False, ["x", "at most 1", "missing", "**missed**"]),
])  # fmt: skip
def test_missed_thresholds_stand_out(check: Check, passed: bool, shown: list[str]) -> None:
    made = report(checks=(check,))
    assert made.passed is passed
    assert rows(markdown(made), "Thresholds") == [shown]


def test_it_says_how_busy_the_machine_was_otherwise() -> None:
    assert "of which 1.2 were busy with other things" in markdown(report())


def test_problems_are_listed_but_not_without_end() -> None:
    text = markdown(report(problems=tuple(f"p{n}" for n in range(SHOWN_PROBLEMS + 3))))
    assert "- p0\n" in text
    assert "- and 3 more" in text
    assert "## Problems" not in markdown(report())
