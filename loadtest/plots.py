"""Plots of a report as SVG files beside it. Draws what the report holds and computes nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path

import leather

from loadtest.report import PLOTS, Report

MOST_POINTS = 240
WIDTH, HEIGHT = 900, 380
SHOWN_REQUESTS = 15
COLORS = ("#2c6fbb", "#d1603d", "#3a9a5b", "#8a56ac", "#c9a227", "#4bb0b5", "#a23b72", "#6b705c", "#e07a5f", "#1d3557")


def draw(report: Report, folder: Path) -> tuple[Path, ...]:
    """The files, in the order of `PLOTS`; earlier ones of the shape are replaced."""
    s = report.series
    charts = {
        "progress": _lines("items", {"created": s.created, "admitted": s.admitted, "finished": s.finished}),
        "depth": _lines("items that wait", {"waiting": s.waiting}),
        "usage": _lines("% of the nominal quota in use", {"in use": s.usage_percent}),
        "wait": _bars("seconds from creation to admission, mean", _waits(report)),
        "requests": _bars("API requests", _requests(report)),
        "cpu": _lines("% of one CPU", s.cpu),
        "memory": _lines("MiB resident", s.mib),
    }
    written = []
    for name in PLOTS:
        path = folder / f"{report.shape}-{name}.svg"
        charts[name].to_svg(str(path), width=WIDTH, height=HEIGHT)
        written.append(path)
    return tuple(written)


def _waits(report: Report) -> dict[str, float]:
    found = {name.partition(".")[2]: v for name, v in report.figures.items() if name.startswith("wait_s.")}
    if found or "admit_ms" not in report.durations:
        return found
    return {"all": report.durations["admit_ms"].mean / 1000}


def _requests(report: Report) -> dict[str, float]:
    return {f"{r.verb} {r.resource}": float(r.count) for r in report.requests[:SHOWN_REQUESTS]}


def _lines(title: str, named: Mapping[str, Sequence[float]]) -> leather.Chart:
    chart = leather.Chart(title)
    length = max((len(values) for values in named.values()), default=0)
    highest = max((max(values, default=0.0) for values in named.values()), default=0.0)
    chart.add_x_scale(0, max(length, 2))
    chart.add_y_scale(0, max(highest, 1.0))
    chart.add_x_axis(name="seconds")
    for (name, values), color in zip((named or {"nothing was seen": ()}).items(), cycle(COLORS), strict=False):
        step = max(1, len(values) // MOST_POINTS)
        points = [(x, round(y, 2)) for x, y in enumerate(values)][::step]
        chart.add_line(points or [(0, 0)], name=name, stroke_color=color)
    return chart


def _bars(title: str, named: Mapping[str, float]) -> leather.Chart:
    chart = leather.Chart(title)
    bars = [(round(value, 2), name) for name, value in named.items()] or [(0.0, "nothing was seen")]
    chart.add_x_scale(0, max(1.0, *(value for value, _ in bars)))
    chart.add_bars(bars, fill_color=COLORS[0])
    return chart
