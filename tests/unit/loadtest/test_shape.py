"""Shapes are read strictly, and those that ship are what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.generator import plan
from loadtest.shape import SHAPES, Threshold, load

SHAPE = """
title: one
kind: Job
cohorts:
  - className: c
    count: 1
    queuesSets:
      - {className: q, count: 1, nominalQuota: "1", workloadsSets: []}
"""


def write(folder: Path, text: str) -> str:
    file = folder / "shape.yaml"
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize("name", sorted(path.stem for path in SHAPES.glob("*.yaml")))
def test_every_shipped_shape_makes_items_with_different_names(name: str) -> None:
    shape = load(name)
    keys = [item.key for item in plan(shape).items]
    assert keys
    assert len(set(keys)) == len(keys)
    if shape.faults:
        assert {t.figure for t in shape.thresholds} == {f"pause_s.{fault}" for fault in shape.faults}
    else:
        assert any(t.figure == "unfinished" and t.max == 0 for t in shape.thresholds)


def test_recovery_has_ten_thousand_that_wait() -> None:
    assert len(plan(load("recovery")).items) == 10_000


def test_latency_is_500_jobs_of_one_pod_every_300_ms() -> None:
    items = plan(load("latency")).items
    assert len(items) == 500
    assert [round(item.due_s * 1000) for item in items[:3]] == [300, 600, 900]
    assert {item.milli for item in items} == {100}


def test_latency_demands_what_was_promised() -> None:
    limits = {t.figure: t.max for t in load("latency").thresholds}
    assert limits["start_ms.p50"] == 80
    assert limits["start_ms.p99"] == 250
    assert limits["writes_per_item.path"] == 5


def test_small_is_1000_workloads_in_6_queues() -> None:
    planned = plan(load("small"))
    assert len(planned.items) == 1000
    assert len(planned.queues) == 6


def test_a_file_is_a_shape_too(tmp_path: Path) -> None:
    assert load(write(tmp_path, SHAPE)).title == "one"


def test_a_name_that_is_none_says_which_there_are() -> None:
    with pytest.raises(ValueError, match=r"no such shape \(there are: .*latency"):
        load("nothing")


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("count: 1\n", "count: 0\n", r"\$\.cohorts\[0\]\.count"),
        ("kind: Job", "kind: Pod", r"\$\.kind"),
        ("title: one", "title: one\nspeed: 3", "speed"),
        ("className: q, ", "", "className"),
    ],
)
def test_what_is_wrong_is_named_with_its_file_and_place(tmp_path: Path, old: str, new: str, place: str) -> None:
    file = write(tmp_path, SHAPE.replace(old, new))
    with pytest.raises(ValueError, match=place) as caught:
        load(file)
    assert str(caught.value).startswith(file)


def test_broken_yaml_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"shape\.yaml"):
        load(write(tmp_path, "title: [unclosed"))


def test_a_threshold_without_a_limit_is_none() -> None:
    with pytest.raises(ValueError, match="give max or min"):
        Threshold(figure="wall_s")
