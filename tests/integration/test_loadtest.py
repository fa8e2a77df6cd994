"""A load of a few items on a stack of its own: every figure that a report promises is there, and the numbers agree with each other."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from loadtest import budget
from loadtest import report as reports
from loadtest.run import measure
from loadtest.shape import load
from loadtest.target import own_stack
from loadtest.thresholds import check

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]

COUNT = 20


async def run(shape_name: str) -> reports.Report:
    shape = load(shape_name)
    console = Console(file=io.StringIO())
    async with own_stack(shape, console) as target:
        return await measure(shape_name, shape, target, console, COUNT)


async def test_twenty_jobs() -> None:
    report = await run("latency")
    figures = report.figures
    assert report.problems == ()
    assert (figures["created"], figures["finished"], figures["failed"]) == (COUNT, COUNT, 0)
    assert figures["started_unheld"] == 0
    for name in ("create_ms", "start_ms", "admit_ms", "finish_ms"):
        assert report.durations[name].count == COUNT
    start = report.durations["start_ms"]
    assert 0 < start.p50 <= start.p99 <= start.max
    # A pod runs a second.
    assert report.durations["finish_ms"].p50 > 1000

    assert sum(d.mean for d in report.steps.values()) == pytest.approx(start.mean, rel=0.01)
    assert {d.count for d in report.steps.values()} == {COUNT}

    # Every Job has its Workload, an admission and a start; anything beyond five writes would be a waste.
    assert report.writes_on_path["create workloads"] == 1
    assert report.writes_on_path["patch workloads/status"] >= 1
    assert report.writes_on_path["patch jobs"] == 1
    assert 3 <= figures["writes_per_item.path"] <= 5
    created = [w for w in report.writes if (w.verb, w.resource) == ("create", "jobs")]
    assert [w.count for w in created] == [COUNT]

    used = {usage.name: usage for usage in report.processes}
    assert {"watcher", "scheduler", "webhook", "nats-server", "kube-apiserver", "etcd", "load runner"} <= set(used)
    assert used["watcher"].cpu_s > 0
    assert used["watcher"].starts == 1

    judged = {c.figure: c.value for c in check(figures, load("latency").thresholds)}
    assert None not in judged.values()
    assert json.loads(json.dumps(figures)) == figures


async def test_twenty_workloads_without_jobs() -> None:
    report = await run("small")
    figures = report.figures
    assert report.problems == ()
    assert (figures["created"], figures["finished"]) == (COUNT, COUNT)
    assert report.durations["admit_ms"].count == COUNT
    assert "start_ms" not in report.durations
    assert figures["usage.cq"] > 0
    assert figures["usage_percent"] >= figures["usage.cq"]
    assert 0 <= figures["idle_percent"] <= 100
    assert 0 <= figures["wait_s.small"] < figures["wall_s"]
    # One write each, refused ones and those for nothing included.
    assert 1 <= figures["api_writes.per_admission"] <= 1.2
    assert figures["services.cpu_s"] > 0
    assert figures["messages_per_item.sent"] > 3
    assert figures["relative_cpu.watcher"] > 0
    assert {"PATCH", "POST"} <= {r.verb for r in report.requests}
    assert report.series.finished[-1] == COUNT
    finished = [w for w in report.writes if w.resource == "workloads/status" and "sluice" not in w.user]
    assert sum(w.count - w.failed for w in finished) >= COUNT
    assert "kube-controller-manager" not in {usage.name for usage in report.processes}


async def test_a_workload_costs_no_more_than_its_budget() -> None:
    """The benchmark that CI runs: ratios, of which none may be a fifth over its budget. Where others keep the machine busy, writes and memory are judged."""
    console = Console(file=io.StringIO())
    measured, report = await budget.ratios(console)
    assert report.problems == ()
    lines = budget.compare(measured, budget.read(), report.machine.others_cpus)
    assert [f"{line.figure}: {line.value}, budget {line.budget}" for line in lines if line.missed] == []
