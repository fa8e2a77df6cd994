"""The one report format of all shapes: a Struct, written as JSON for programs and as Markdown for people. Measures nothing itself."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from pathlib import Path

import msgspec

from loadtest.api_requests import RequestCount
from loadtest.percentiles import Distribution
from loadtest.processes import Usage
from loadtest.series import Series
from loadtest.thresholds import Check
from loadtest.writes import WriteCount

REPORTS = Path(__file__).resolve().parent / "reports"
FORMAT = 2
SHOWN_PROBLEMS = 20
SHOWN_REQUESTS = 40
PLOTS = ("progress", "depth", "usage", "wait", "requests", "cpu", "memory")
"""Of each shape, beside its report: `<shape>-<plot>.svg`."""


class Machine(msgspec.Struct, frozen=True):
    """Where it ran, and how busy that was: `others_cpus`, the CPUs that processes used on average which do not belong to the run; load averages over
    one minute before and after (the run's own load included)."""

    cpus: int
    system: str
    python: str
    others_cpus: float
    load_before: float
    load_after: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `figures` hold everything that a threshold may refer to. Durations are milliseconds unless named `_s`.
    `writes_on_path` are per item, by `verb resource`."""

    format: int = FORMAT
    shape: str
    title: str
    target: str
    kind: str
    items: int
    began: str
    machine: Machine
    figures: dict[str, float]
    durations: dict[str, Distribution]
    steps: dict[str, Distribution]
    writes: tuple[WriteCount, ...]
    writes_on_path: dict[str, float]
    processes: tuple[Usage, ...]
    checks: tuple[Check, ...]
    problems: tuple[str, ...]
    requests: tuple[RequestCount, ...] = ()
    """Everybody's, as the API server counted them."""
    series: Series = Series()

    @property
    def passed(self) -> bool:
        return all(check.met for check in self.checks)


def machine(load_before: float, others_cpus: float) -> Machine:
    """This machine, now."""
    system = f"{platform.system()} {platform.machine()}"
    return Machine(os.cpu_count() or 1, system, platform.python_version(), others_cpus, load_before, os.getloadavg()[0])


def write(report: Report, folder: Path = REPORTS) -> tuple[Path, Path]:
    """The JSON and the Markdown file, named after the shape; earlier ones are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    as_json, as_text = folder / f"{report.shape}.json", folder / f"{report.shape}.md"
    as_json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    as_text.write_text(markdown(report))
    return as_json, as_text


def read(path: Path) -> Report:
    """A report from its JSON. Raises msgspec.ValidationError for another format."""
    return msgspec.json.decode(path.read_bytes(), type=Report)


def markdown(report: Report) -> str:
    """For people."""
    m = report.machine
    parts = [
        f"# {report.shape}: {report.title}",
        f"{report.items} items of kind {report.kind} against {report.target}, {report.began}. {m.cpus} CPUs ({m.system}, Python {m.python}), "
        f"of which {m.others_cpus:.1f} were busy with other things; load average {m.load_before:.1f} before, {m.load_after:.1f} after. "
        "Control plane, controller and load runner share this machine: compare figures within one run, or of runs made right after each other.",
    ]
    if report.checks:
        parts.append(_section("Thresholds", ("figure", "limit", "value", ""), [_check_row(c) for c in report.checks]))
    header = ("ms", "count", "mean", "p50", "p90", "p95", "p99", "max")
    parts.append(_section("Durations", header, [_row(n, d) for n, d in report.durations.items()]))
    if report.steps:
        parts.append(
            _section("Steps, by the API server's audit log", header, [_row(n, d) for n, d in report.steps.items()])
        )
    shown_elsewhere = ("cpu_s.", "peak_mib.", *(f"{name}." for name in report.durations))
    others = [(n, f"{v:.2f}") for n, v in report.figures.items() if not n.startswith(shown_elsewhere)]
    parts.append(_section("Figures", ("figure", "value"), others))
    if report.writes_on_path:
        per_item = [(name, f"{value:.2f}") for name, value in report.writes_on_path.items()]
        parts.append(_section("API writes per item on the path", ("write", "per item"), per_item))
    if report.writes:
        columns = ("user", "verb", "resource", "count", "of these failed", "per item")
        parts.append(_section("All API writes", columns, [_write_row(w) for w in report.writes]))
    if report.processes:
        heads = ("process", "CPU s", "% of one CPU", "peak MiB", "starts")
        wall = report.figures.get("wall_s", 0.0)
        parts.append(_section("Processes", heads, [_process_row(u, wall) for u in report.processes]))
    if report.requests:
        counted = [(r.verb, r.resource, str(r.count)) for r in report.requests[:SHOWN_REQUESTS]]
        parts.append(_section("API requests of everybody", ("verb", "resource", "count"), counted))
    if report.series.created:
        parts.append("\n\n".join(["## Plots", *(f"![{name}]({report.shape}-{name}.svg)" for name in PLOTS)]))
    if report.problems:
        shown = [f"- {problem}" for problem in report.problems[:SHOWN_PROBLEMS]]
        if len(report.problems) > SHOWN_PROBLEMS:
            shown.append(f"- and {len(report.problems) - SHOWN_PROBLEMS} more")
        parts.append("\n".join(["## Problems", "", *shown]))
    return "\n\n".join(parts) + "\n"


def _section(title: str, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"## {title}", "", _line(header), _line(("---",) * len(header)), *(_line(row) for row in rows)]
    return "\n".join(lines)


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _row(name: str, found: Distribution) -> tuple[str, ...]:
    numbers = (found.mean, found.p50, found.p90, found.p95, found.p99, found.max)
    return (name, str(found.count), *(f"{number:.1f}" for number in numbers))


def _check_row(check: Check) -> tuple[str, ...]:
    value = "missing" if check.value is None else f"{check.value:.2f}"
    return (check.figure, check.limit, value, "met" if check.met else "**missed**")


def _write_row(found: WriteCount) -> tuple[str, ...]:
    return (found.user, found.verb, found.resource, str(found.count), str(found.failed), f"{found.per_item:.2f}")


def _process_row(found: Usage, wall_s: float) -> tuple[str, ...]:
    share = f"{100 * found.cpu_s / wall_s:.0f}" if wall_s else ""
    return (found.name, f"{found.cpu_s:.1f}", share, f"{found.peak_mib:.0f}", str(found.starts))
