"""Why a workload waits: what the cluster said, what the engine finds now, what would help."""

from __future__ import annotations

from typing import Any

import yaml

from cli.cluster_dump import read_dump
from cli.ctl.explain import Explained, explained, lines
from cli.simulate import Decided, Waiting
from shared.decide.settings import DEFAULT_SETTINGS
from tests.unit.state.test_simulate import HELD, QUEUES, job

NOW = 1_800_000_000.0


def ask(name: str, text: str) -> Explained:
    items: list[dict[str, Any]] = [one for part in yaml.safe_load_all(QUEUES + text) for one in _flat(part)]
    (found,) = [one for one in items if one["kind"] == "Workload" and one["metadata"]["name"] == name]
    return explained(found, read_dump(QUEUES + text), NOW, DEFAULT_SETTINGS)


def _flat(part: Any) -> list[dict[str, Any]]:
    if isinstance(part, list):
        return [one for entry in part for one in _flat(entry)]
    return [one for entry in part["items"] for one in _flat(entry)] if "items" in part else [part]


def test_what_is_missing_and_what_preemption_could_give() -> None:
    told = ask("late", job("first", "2", 9, status=HELD) + job("late", "3", 9))
    assert isinstance(told.now, Waiting)
    assert told.now.reason == "WaitingForQuota"
    assert any("2 more free cpu in flavor default" in line for line in told.help)
    assert "Helps:" in "\n".join(lines(told))


def test_what_can_never_fit_says_how_much_less_to_ask_for() -> None:
    told = ask("huge", job("huge", "10"))
    assert isinstance(told.now, Waiting)
    assert any("3 is the most it can ever have" in line for line in told.help)


def test_what_fits_would_be_admitted_and_names_whom_it_evicts() -> None:
    told = ask("high", job("low", "2", status=HELD) + job("high", "3", 9))
    assert isinstance(told.now, Decided)
    assert told.evicts == ("ns/low",)
    assert told.help == ()


def test_a_workload_that_holds_its_quota_is_not_asked_about() -> None:
    told = ask("low", job("low", "2", status=HELD))
    assert told.now is None
    assert told.reason
