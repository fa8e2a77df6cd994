"""`sluice simulate STATE.yaml`: what the engine would decide about the objects of a file, and why the rest waits.

Nothing is contacted and nothing is changed. Reading the file is the work of `cli.cluster_dump`, deciding that of `shared.state.simulate`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Literal

import msgspec
import typer
import yaml

from cli.cluster_dump import read_dump
from shared.api.quantity import format_amount
from shared.config.configuration_file import ConfigurationError, load
from shared.config.fairness import FairnessSettings
from shared.decide.cycle import Admit, Preempt
from shared.events.commands import FlavorObstacle, PendingExplanation
from shared.runtime.decision_settings import admission_fair_sharing, cycle_settings, order_policy, request_rules
from shared.state import explain
from shared.state.simulate import Simulated, simulate

PASSED_OVER = "not looked at, as others like it or ahead of it had no success"


class Output(StrEnum):
    """How the answer is written."""

    TABLE = "table"
    JSON = "json"


class Decided(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One decision. An admission has flavors (pod set -> resource -> flavor), a preemption has a reason and a preemptor."""

    decision: Literal["admit", "preempt"]
    workload: str
    cluster_queue: str
    flavors: dict[str, dict[str, str]] = {}
    counts: dict[str, int] = {}
    """Pods by pod set: fewer than asked for after partial admission."""
    checks: tuple[str, ...] = ()
    """Admission checks that it waits for."""
    reason: str = ""
    preemptor: str = ""


class Waiting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A workload that still waits. Without `why` it was not looked at."""

    workload: str
    cluster_queue: str = ""
    reason: str = ""
    message: str = ""
    why: PendingExplanation | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """All that is told, as `-o json` prints it."""

    decisions: tuple[Decided, ...]
    waiting: tuple[Waiting, ...]
    unusable: tuple[str, ...]
    """Objects that could not be used, and why."""
    settled: bool
    """It came to rest by itself; else workloads evict each other in turn."""


def answer(result: Simulated, problems: Iterable[str] = ()) -> Answer:
    """What is told of a simulation. `problems`: objects that could not even be read."""
    waiting = [
        *(
            Waiting(
                workload=entry.key,
                cluster_queue=entry.cluster_queue,
                reason=str(entry.refusal.reason),
                message=entry.message,
                why=explain.of(entry.refusal),
            )
            for entry in result.refused
        ),
        *(
            Waiting(workload=one.key, cluster_queue=one.cluster_queue, reason=one.reason, message=one.message)
            for one in result.held
        ),
        *(Waiting(workload=key, message=PASSED_OVER) for key in result.passed_over),
    ]
    return Answer(
        decisions=tuple(_decided(decision) for decision in result.decisions),
        waiting=tuple(sorted(waiting, key=lambda one: one.workload)),
        unusable=(*result.faults, *problems),
        settled=result.settled,
    )


def _decided(decision: Admit | Preempt) -> Decided:
    if isinstance(decision, Preempt):
        return Decided(
            decision="preempt",
            workload=decision.key,
            cluster_queue=decision.cluster_queue,
            reason=decision.reason,
            preemptor=decision.preemptor,
        )
    pod_sets = decision.admission.pod_sets
    return Decided(
        decision="admit",
        workload=decision.key,
        cluster_queue=decision.cluster_queue,
        flavors={pod_set.name: dict(sorted(pod_set.flavors.items())) for pod_set in pod_sets},
        counts={pod_set.name: pod_set.count for pod_set in pod_sets},
        checks=decision.required_checks,
    )


def lines(told: Answer) -> Iterator[str]:
    """The answer as tables."""
    if told.decisions:
        head = ("DECISION", "WORKLOAD", "CLUSTERQUEUE", "DETAIL")
        yield from _table(
            head, [(one.decision, one.workload, one.cluster_queue, _detail(one)) for one in told.decisions]
        )
    else:
        yield "Nothing can be decided."
    if told.waiting:
        yield ""
        rows = [(one.workload, one.cluster_queue or "-", one.reason or "-", one.message) for one in told.waiting]
        yield from _table(("WAITING", "CLUSTERQUEUE", "REASON", "MESSAGE"), rows)
    amounts = [
        (one.workload, obstacle)
        for one in told.waiting
        if one.why is not None
        for obstacle in one.why.flavors
        if obstacle.requested
    ]
    if amounts:
        yield ""
        columns = ("POD SET", "FLAVOR", "RESOURCE", "ASKED", "FREE", "BORROWABLE", "MISSING", "PREEMPTABLE", "MAXIMUM")
        yield from _table(("WAITING", *columns), [(key, *_amounts(obstacle)) for key, obstacle in amounts])
    for why in told.unusable:
        yield f"unusable: {why}"
    if not told.settled:
        yield "It did not come to rest: workloads evict each other in turn."


def _detail(one: Decided) -> str:
    if one.decision == "preempt":
        return f"for {one.preemptor} ({one.reason})"
    flavors = "; ".join(
        f"{name} x{one.counts[name]}: {', '.join(f'{resource}={flavor}' for resource, flavor in chosen.items()) or 'no flavors'}"
        for name, chosen in one.flavors.items()
    )
    return f"{flavors}; waits for checks {', '.join(one.checks)}" if one.checks else flavors


def _amounts(obstacle: FlavorObstacle) -> tuple[str, ...]:
    resource = obstacle.resource
    amounts = (
        obstacle.earlier + obstacle.requested,
        obstacle.free,
        obstacle.borrowable,
        obstacle.missing,
        obstacle.preemptable,
        obstacle.maximum,
    )
    return (obstacle.pod_set, obstacle.flavor, resource, *(format_amount(resource, amount) for amount in amounts))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as their content."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def simulate_command(
    state: Annotated[
        typer.FileText,
        typer.Argument(help="YAML or JSON file with Kubernetes objects; - reads standard input.", encoding="utf-8"),
    ],
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print the answer.")] = Output.TABLE,
    fair_sharing: Annotated[bool, typer.Option("--fair-sharing", help="As with fairSharing configured.")] = False,
    configuration: Annotated[
        str, typer.Option("--config", metavar="FILE", help="Kueue's configuration, as the services are given it.")
    ] = "",
    feature_gates: Annotated[str, typer.Option("--feature-gates", metavar="A=true,B=false")] = "",
) -> None:
    """Print what the engine would decide about the objects of a file, and why the rest waits."""
    try:
        dump = read_dump(state.read())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        typer.secho(f"{state.name}: {error}", fg="red", err=True)
        raise typer.Exit(1) from None
    try:
        said = load(configuration, feature_gates)
    except ConfigurationError as error:
        typer.secho(str(error), fg="red", err=True)
        raise typer.Exit(1) from None
    fairness = FairnessSettings(fair_sharing=fair_sharing)
    result = simulate(
        dump.objects,
        time.time(),
        settings=cycle_settings(said, fairness),
        policy=order_policy(said),
        rules=request_rules(said),
        afs=admission_fair_sharing(said, fairness),
    )
    told = answer(result, dump.problems)
    if output is Output.JSON:
        typer.echo(msgspec.json.format(msgspec.json.encode(told), indent=2).decode())
        return
    for line in lines(told):
        typer.echo(line)
