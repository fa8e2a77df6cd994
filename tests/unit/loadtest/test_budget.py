"""Budgets: what is compared, when it fails, and that the shipped one is whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.budget import BUDGET, MOST_BUSY_CPUS, SHAPE, TOLERANCE, Line, compare, read, updated, verdict
from loadtest.memory import FIGURES
from loadtest.shape import load

OWN_SERVICES = ("watcher", "webhook", "queue_manager", "scheduler", "preemptor", "provisioning_request", "metrics")


@pytest.mark.parametrize(
    ("value", "met"), [(0.0, True), (1.0, True), (1.2, True), (1.21, False), (9.0, False), (None, False)]
)
def test_a_fifth_over_budget_is_too_much_and_so_is_nothing_at_all(value: float | None, met: bool) -> None:
    assert Line("x", 1.0, value).met is met


def test_figures_are_compared_in_the_order_of_the_budget() -> None:
    lines = compare({"b": 2.0, "a": 1.0, "c": 9.0}, {"a": 1.0, "b": 1.0, "missing": 1.0})
    assert [(line.figure, line.value, line.met) for line in lines] == [
        ("a", 1.0, True),
        ("b", 2.0, False),
        ("missing", None, False),
    ]


@pytest.mark.parametrize(
    ("figure", "value", "others", "code"),
    [
        ("relative_cpu.watcher", 1.0, 2.0, 0),
        ("relative_cpu.watcher", 1.3, 0.0, 1),
        ("relative_cpu.watcher", 1.3, MOST_BUSY_CPUS, 1),
        ("relative_cpu.watcher", 1.3, MOST_BUSY_CPUS + 0.1, 3),
        ("messages_per_item.sent", 1.3, 1.0, 3),
        # These do not depend on how long it takes.
        ("api_writes.per_admission", 1.3, 1.0, 1),
        ("memory.pending.watcher", 1.3, 1.0, 1),
    ],
)
def test_on_a_busy_machine_what_grows_with_time_is_not_judged(
    figure: str, value: float, others: float, code: int
) -> None:
    assert verdict(compare({figure: value}, {figure: 1.0}, others)) == code


def test_what_was_not_measured_is_missed_on_any_machine() -> None:
    assert verdict(compare({}, {"relative_cpu.watcher": 1.0}, 2.0)) == 1


@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.floats(0.001, 1e6), min_size=1),
    st.floats(1.0, TOLERANCE * 0.999),
)
def test_what_was_taken_as_the_budget_is_met_by_all_that_is_not_a_fifth_more(
    measured: dict[str, float], factor: float
) -> None:
    # Three digits are kept.
    budget = {figure: float(f"{value:.3g}") for figure, value in measured.items()}
    lines = compare({figure: value * factor * 0.99 for figure, value in measured.items()}, budget)
    assert all(line.met for line in lines)


def test_an_update_writes_what_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "budget.yaml"
    file.write_text(updated({"a": 1.23456, "b": 2000.0, "other": 5.0}, {"b": 1.0, "a": 1.0}))
    assert read(file) == {"b": 2000.0, "a": 1.23}
    with pytest.raises(ValueError, match="not measured: gone"):
        updated({"a": 1.0}, {"a": 1.0, "gone": 1.0})


def test_a_budget_that_is_none_names_its_file(tmp_path: Path) -> None:
    file = tmp_path / "budget.yaml"
    file.write_text("a: much")
    with pytest.raises(ValueError, match=r"budget\.yaml"):
        read(file)


def test_the_shipped_budget_names_every_service_and_every_memory_figure() -> None:
    budget = read()
    assert {f"relative_cpu.{name}" for name in OWN_SERVICES} <= set(budget)
    assert set(FIGURES) <= set(budget)
    assert budget["api_writes.per_admission"] <= 1.05
    assert {"messages_per_item.sent", "messages_per_item.delivered"} <= set(budget)
    assert all(value > 0 for value in budget.values())


def test_what_is_written_again_is_what_ships() -> None:
    budget = read()
    assert BUDGET.read_text() == updated(budget, budget)
    assert load(SHAPE).kind == "Workload"
