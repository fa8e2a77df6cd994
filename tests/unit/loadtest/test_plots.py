"""Plots as files that are whole SVG documents."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from loadtest.api_requests import RequestCount
from loadtest.plots import draw
from loadtest.report import PLOTS, markdown
from loadtest.series import Series
from tests.unit.loadtest.test_report import report


def texts(path: Path) -> list[str]:
    return [element.text for element in ET.parse(path).iter() if element.text and element.text.strip()]


def test_every_plot_of_a_report_is_drawn_and_named_in_the_markdown(tmp_path: Path) -> None:
    made = report(
        series=Series(
            created=[1.0, 2.0], admitted=[0.0, 1.0], finished=[0.0, 1.0], waiting=[1.0, 1.0], usage_percent=[0.0, 50.0],
            cpu={f"process {n}": [10.0, 20.0] for n in range(14)}, mib={"watcher": [50.0, 60.0]},
        ),
        requests=(RequestCount("PATCH", "workloads/status", 7),),
    )  # fmt: skip
    drawn = draw(made, tmp_path)
    assert [path.name for path in drawn] == [f"tiny-{name}.svg" for name in PLOTS]
    assert all(f"]({path.name})" in markdown(made) for path in drawn)
    by_name = dict(zip(PLOTS, drawn, strict=True))
    assert {"created", "admitted", "finished"} <= set(texts(by_name["progress"]))
    assert "PATCH workloads/status" in texts(by_name["requests"])
    assert {f"process {n}" for n in range(14)} <= set(texts(by_name["cpu"]))


def test_a_report_of_nothing_is_drawn_too(tmp_path: Path) -> None:
    drawn = draw(report(series=Series()), tmp_path)
    assert len(drawn) == len(PLOTS)
    assert "nothing was seen" in texts(drawn[-1]) + texts(drawn[PLOTS.index("requests")])
    assert "## Plots" not in markdown(report(series=Series()))


def test_waits_are_those_of_the_classes_if_there_are_any(tmp_path: Path) -> None:
    by_class = draw(report(figures={"wait_s.small": 3.25, "wall_s": 1.0}), tmp_path)[PLOTS.index("wait")]
    assert "small" in texts(by_class)


def test_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    for path in draw(report(), tmp_path):
        content = path.read_text()
        assert "<script" not in content
        assert "href" not in content
