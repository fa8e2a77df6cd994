"""Shapes are read strictly, and those that ship are what they say."""

from __future__ import annotations

from pathlib import Path

import msgspec
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
        judged = {t.figure for t in shape.thresholds}
        assert all(judged & {f"pause_s.{fault}", f"fault_s.{fault}"} for fault in shape.faults)
    else:
        left = "unfinished" if shape.ends == "finished" else "unstarted"
        assert any(t.figure == left and t.max == 0 for t in shape.thresholds)


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


def by_class(name: str) -> dict[str, tuple[int, int, float]]:
    """(items, milli-cpu, seconds of run time) of each class of a shape."""
    found: dict[str, tuple[int, int, float]] = {}
    for item in plan(load(name)).items:
        count = found.get(item.class_name, (0, 0, 0.0))[0]
        found[item.class_name] = (count + 1, item.milli, item.runtime_s)
    return found


def test_baseline_is_the_one_of_kueues_suite() -> None:
    assert by_class("baseline") == {
        "small": (10_500, 1_000, 0.2),
        "medium": (3_000, 5_000, 0.5),
        "large": (1_500, 20_000, 1.0),
    }
    planned = plan(load("baseline"))
    assert len(planned.queues) == 30
    assert {queue.cohort for queue in planned.queues} == {f"cohort-{n}" for n in range(5)}
    assert {(queue.nominal_milli, queue.most_milli) for queue in planned.queues} == {(20_000, 120_000)}
    last = {name: max(i.due_s for i in planned.items if i.class_name == name) for name in by_class("baseline")}
    assert last == {"small": 35.0, "medium": 50.0, "large": 60.0}
    # 66 s of each queue's nominal quota.
    work = sum(item.milli * item.runtime_s for item in planned.items if item.namespace == planned.queues[0].name)
    assert work / planned.queues[0].nominal_milli == pytest.approx(66)


def test_large_scale_is_the_one_of_kueues_suite() -> None:
    assert by_class("large-scale") == {
        "small": (35_000, 1_000, 0.15),
        "medium": (11_000, 5_000, 0.35),
        "large": (4_000, 20_000, 0.7),
    }
    assert len(plan(load("large-scale")).queues) == 1_000


def test_burst_is_2000_jobs_without_pods_by_20_clients_at_once() -> None:
    shape = load("burst")
    planned = plan(shape)
    assert (shape.kind, shape.clients, shape.ends, len(planned.queues)) == ("Job", 20, "started", 1)
    assert {(item.due_s, item.milli) for item in planned.items} == {(0.0, 0)}
    assert len(planned.items) == 2_000
    spec = msgspec.json.decode(planned.items[0].body)["spec"]
    assert spec["parallelism"] == 0
    assert "completions" not in spec


def test_deep_queue_has_100000_that_wait() -> None:
    assert len(plan(load("deep-queue")).items) == 100_000


def test_the_goals_of_baseline_are_judged() -> None:
    limits = {t.figure: t.max for t in load("baseline").thresholds}
    assert limits["wall_s"] == 180
    assert (limits["wait_s.large"], limits["wait_s.medium"], limits["wait_s.small"]) == (15, 45, 100)
    assert limits["api_writes.per_admission"] == 1.05
    assert limits["api_writes.informational_per_s"] == 30
    assert limits["services.cpu_s"] == 75


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
