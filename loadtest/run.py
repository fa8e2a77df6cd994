"""`python -m loadtest.run SHAPE`: starts what is to be tested, runs the shape, writes the report and its plots.

With `--external KUBECONFIG` nothing is started: whichever controller of the same API runs there is driven. What is known about it is told by further
options: the API users that it writes as and the API server's audit log (writes), the pids of its processes (CPU and memory).
Exit code 1 if items are unfinished, or if a threshold is missed and `--check` was given.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from devcluster.audit import AuditEvent, read_events
from loadtest import plots, pod_groups, webhook
from loadtest import report as reports
from loadtest.api_requests import Requests, difference, read_requests
from loadtest.api_writes import api_writes
from loadtest.figures import counts, durations, flat, pauses, steps
from loadtest.generator import Plan, plan
from loadtest.messages import Messages, read_messages
from loadtest.processes import ProcessUsage, Usage, busy_s
from loadtest.reference import beside
from loadtest.runner import Outcome, Runner
from loadtest.series import series
from loadtest.shape import Ending, Shape, load
from loadtest.target import Target, external, own_stack
from loadtest.thresholds import check
from loadtest.writes import count_writes, own_writes, path_writes, received, stamps
from shared.kube.client import KubeClient, connect
from shared.kube.errors import ApiError

CALL_TIMEOUT_S = 30.0
OWN_PROCESS = "load runner"


async def measure(
    name: str, shape: Shape, target: Target, console: Console, count: int | None = None
) -> reports.Report:
    """Run a shape against a target that is there. Raises what Runner.prepare raises."""
    planned = plan(shape, count)
    load_before = os.getloadavg()[0]
    usage = ProcessUsage(lambda: {**target.processes(), OWN_PROCESS: os.getpid()}, tree=target.own)
    client = await connect(str(target.kubeconfig), user_agent="sluice-loadtest", timeout_s=CALL_TIMEOUT_S)
    async with client:
        with _progress(console) as bars:
            total = len(planned.items)
            tasks = [bars.add_task(what, total=total) for what in ("created", "started", "finished")]

            def show(*done: int) -> None:
                for task, number in zip(tasks, done, strict=True):
                    bars.update(task, completed=number)

            mimic = shape.kind == "Workload"
            runner = Runner(
                client,
                planned,
                mimic=mimic,
                timeout_s=shape.timeout_seconds,
                progress=show,
                faults={fault: target.faults[fault] for fault in shape.faults},
                clients=shape.clients,
                ends=shape.ends,
            )
            await runner.prepare()
            requests, messages = await _requests(client), await read_messages(target.monitoring)
            usage.look()
            before, busy_before = time.monotonic(), busy_s()
            sampling = asyncio.create_task(usage.run())
            try:
                async with beside() as reference:
                    outcome = await runner.run()
            finally:
                sampling.cancel()
            usage.look()
            answered = difference(requests, await _requests(client))
            passed = Messages.between(messages, await read_messages(target.monitoring))
    used = usage.usage()
    others = busy_s() - busy_before - sum(process.cpu_s for process in used)
    around = reports.machine(load_before, max(0.0, others / (time.monotonic() - before)))
    report = _report(name, shape, target, planned, outcome, used, around)
    nominal = sum(queue.nominal_milli for queue in planned.queues)
    over_time = series(
        outcome.timelines, usage.samples, nominal_milli=nominal, began=outcome.began, ended=outcome.ended
    )
    more = {"services.peak_mib": usage.peak_together_mib(target.own)} if target.own else {}
    more |= relative_cpu(used, outcome.purposes.get("admission", 0), reference.milliseconds)
    more |= passed.per_item(len(planned.items))
    figures = {**report.figures, **more}
    return msgspec.structs.replace(
        report,
        requests=answered,
        series=over_time,
        figures=figures,
        checks=check(figures, shape.thresholds),
    )


def relative_cpu(usage: Iterable[Usage], admissions: int, reference_ms: float) -> dict[str, float]:
    """CPU per admission of each process, in thousandths of the reference work that was measured beside it; nothing without both."""
    if not admissions or not reference_ms:
        return {}
    relative = {f"relative_cpu.{p.name}": 1e6 * p.cpu_s / admissions / reference_ms for p in usage}
    return {"reference_ms": reference_ms, **relative}


async def _requests(client: KubeClient) -> Requests:
    """What the API server has answered so far; nothing if it does not say."""
    try:
        return read_requests(await client.discover("/metrics"))
    except ApiError:
        return Requests()


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description:>9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


def _report(
    name: str,
    shape: Shape,
    target: Target,
    planned: Plan,
    outcome: Outcome,
    usage: tuple[Usage, ...],
    around: reports.Machine,
) -> reports.Report:
    timelines, items = outcome.timelines, len(outcome.timelines)
    events = _events_of(target, outcome)
    written = count_writes(events, items)
    path = path_writes(events, timelines, target.users)
    lasted = durations(timelines)
    figures = {**counts(planned, timelines, outcome.began, outcome.ended), **flat(lasted)}
    figures |= pauses(timelines, outcome.faults)
    if outcome.usage_by_status is not None:
        figures["usage_percent.by_status"] = outcome.usage_by_status
    if target.audit_log is not None:
        plain, informing = own_writes(written, target.users)
        figures |= {
            "writes_per_item.all": plain / items,
            "writes_per_item.events": informing / items,
            "writes_per_item.path": sum(path.per_item) / max(len(path.per_item), 1),
            "writes_per_item.path_events": path.events / max(len(path.per_item), 1),
            "writes_on_path.max": float(max(path.per_item, default=0)),
        }
        figures |= api_writes(
            written,
            outcome.purposes,
            users=target.users,
            items=items,
            wall_s=max(figures["wall_s"], 1.0),
            foreign=outcome.played,
        )
    if target.own:
        figures["services.cpu_s"] = sum(p.cpu_s for p in usage if p.name in target.own)
    for process in usage:
        figures |= {f"cpu_s.{process.name}": process.cpu_s, f"peak_mib.{process.name}": process.peak_mib}
    return reports.Report(
        shape=name,
        title=shape.title,
        target=target.name,
        kind=shape.kind,
        items=items,
        began=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(outcome.began)),
        machine=around,
        figures=figures,
        durations=lasted,
        steps=steps(timelines, stamps(events, timelines, target.users)),
        writes=written,
        writes_on_path={what: n / max(len(path.per_item), 1) for what, n in path.by_type.items()},
        processes=usage,
        checks=(),
        problems=outcome.problems,
    )


def _events_of(target: Target, outcome: Outcome) -> list[AuditEvent]:
    """The writes from the first creation to the last end."""
    if target.audit_log is None:
        return []
    return [e for e in read_events(target.audit_log) if outcome.began <= received(e) <= outcome.ended]


async def run(arguments: argparse.Namespace, console: Console) -> int:
    """Exit code."""
    if arguments.shape == webhook.NAME:
        return await webhook.run(arguments, console)
    if arguments.shape == pod_groups.NAME:
        return await pod_groups.run(arguments, console)
    try:
        shape = load(arguments.shape)
    except ValueError as error:
        console.print(f"[red]{error}[/]", soft_wrap=True)
        return 2
    if arguments.timeout:
        shape = msgspec.structs.replace(shape, timeout_seconds=arguments.timeout)
    name = Path(arguments.shape).stem
    if arguments.external:
        try:
            target = _external(arguments)
        except ValueError as error:
            console.print(f"[red]{error}[/]", soft_wrap=True)
            return 2
        report = await measure(name, shape, target, console, arguments.count)
    else:
        webhooks = shape.webhooks if arguments.webhooks is None else arguments.webhooks
        async with own_stack(shape, console, webhooks=webhooks) as target:
            report = await measure(name, shape, target, console, arguments.count)
    _, as_text = reports.write(report)
    plots.draw(report, as_text.parent)
    _show(report, console)
    console.print(f"Report: {as_text}", soft_wrap=True)
    return exit_code(report, checked=arguments.check, ends=shape.ends)


def _external(arguments: argparse.Namespace) -> Target:
    """Raises ValueError."""
    return external(
        arguments.external,
        name=arguments.name,
        users=tuple(arguments.user),
        audit_log=arguments.audit_log,
        processes=dict(arguments.process),
    )


def _named_pid(text: str) -> tuple[str, int]:
    name, _, pid = text.partition("=")
    if not name or not pid.isdecimal():
        raise ValueError(text)
    return name, int(pid)


def exit_code(report: reports.Report, *, checked: bool, ends: Ending = "finished") -> int:
    """1 if items are unfinished that were to finish, or if thresholds count and one is missed."""
    is_cut_short = any(name.startswith("pause_s.") for name in report.figures)
    left = report.figures.get("unstarted" if ends == "started" else "unfinished", 0.0)
    return 1 if (left and not is_cut_short) or (checked and not report.passed) else 0


def _show(report: reports.Report, console: Console) -> None:
    for name in ("start_ms", "admit_ms", "finish_ms"):
        if (found := report.durations.get(name)) is not None:
            console.print(f"{name}: p50 {found.p50:.0f}, p99 {found.p99:.0f}, max {found.max:.0f} ({found.count})")
    for one in report.checks:
        value = "missing" if one.value is None else f"{one.value:.2f}"
        mark = "[green]✓[/]" if one.met else "[red]✗[/]"
        console.print(f"{mark} {one.figure}: {value}, {one.limit}")
    for problem in report.problems[: reports.SHOWN_PROBLEMS]:
        console.print(f"[red]{problem}[/]", soft_wrap=True)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def main(argv: list[str] | None = None) -> int:
    """Parse and run."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.run", description="Run a load shape and write a report.")
    parser.add_argument("shape", help="name of a shape in loadtest/shapes, a YAML file, webhook, or pod-groups")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a threshold of the shape is missed")
    parser.add_argument("--count", type=_positive, metavar="N", help="only the first N items")
    parser.add_argument(
        "--timeout", type=_positive, metavar="S", help="end after this many seconds, whatever the shape says"
    )
    parser.add_argument(
        "--webhooks", action=argparse.BooleanOptionalAction, default=None,
        help="whether the API server asks admission webhooks, whatever the shape says",
    )  # fmt: skip
    other = parser.add_argument_group("another controller")
    other.add_argument("--external", type=Path, metavar="KUBECONFIG", help="start nothing; drive what runs there")
    other.add_argument("--name", default="external", help="what the report calls it")
    other.add_argument("--user", action="append", default=[], help="an API user that it writes as (repeatable)")
    other.add_argument("--audit-log", type=Path, metavar="FILE", help="the API server's audit log, Metadata level")
    other.add_argument(
        "--process", type=_named_pid, action="append", default=[], metavar="NAME=PID",
        help="a process of it, its children included (repeatable)",
    )  # fmt: skip
    console = Console(stderr=True, highlight=False)
    return uvloop.run(run(parser.parse_args(argv), console))


if __name__ == "__main__":
    sys.exit(main())
