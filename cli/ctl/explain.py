"""`explain WORKLOAD`: why it waits, in full, with what would help.

The engine that decides in the cluster decides here as well, over the objects as they are now, so the answer needs nothing but the right to read queues and
workloads. The words of the condition are what the cluster said when it last looked; the rest is what it would find now.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated

import msgspec
import typer

from cli.cluster_dump import Dump, read_dump
from cli.ctl import completing
from cli.ctl.cluster import Cluster, CommandError, Json, Session
from cli.ctl.flags import on_cluster
from cli.ctl.listing import with_kind
from cli.simulate import Answer, Decided, Waiting, answer
from shared.api.quantity import format_amount
from shared.decide.cycle import CycleSettings
from shared.decide.settings import FairSharing
from shared.events.commands import FlavorObstacle
from shared.kube.errors import ApiError
from shared.kube.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    LOCAL_QUEUES,
    NAMESPACES,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    WORKLOADS,
)
from shared.state.simulate import simulate

READ = (NAMESPACES, TOPOLOGIES, RESOURCE_FLAVORS, ADMISSION_CHECKS, COHORTS, CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS)


class Explained(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer, as `-o json` prints it."""

    workload: str
    queue: str = ""
    reason: str = ""
    message: str = ""
    """Of the condition that says where it stands."""
    since: str = ""
    now: Decided | Waiting | None = None
    """What the engine finds now; None: it holds its quota, is finished, or is not looked at."""
    evicts: tuple[str, ...] = ()
    """Workloads that would go for it."""
    help: tuple[str, ...] = ()


@on_cluster
def explain_workload(
    cluster: Cluster,
    name: Annotated[
        str,
        typer.Argument(
            metavar="WORKLOAD", help="Name of the Workload, or of its job.", autocompletion=completing.workloads
        ),
    ],
    output: Annotated[str, typer.Option("--output", "-o", help="json; else text.")] = "",
    fair_sharing: Annotated[bool, typer.Option("--fair-sharing", help="As with fairSharing configured.")] = False,
) -> None:
    """Say why a workload waits, in full, with what would help."""
    if output not in ("", "text", "json"):
        raise CommandError(f"-o {output}: json or text")
    told = cluster.run(lambda session: _explain(session, name, fair_sharing))
    if output == "json":
        typer.echo(msgspec.json.format(msgspec.json.encode(told), indent=2))
        return
    for line in lines(told):
        typer.echo(line)


async def _explain(session: Session, name: str, fair: bool) -> Explained:
    items: list[Json] = []
    for resource in READ:
        try:
            items += [with_kind(one, resource) for one in await session.all(resource, everywhere=True)]
        except ApiError as error:
            typer.echo(f"{resource.plural} cannot be read, the answer does without: {error.message}", err=True)
    workload = _find(items, session.namespace, name)
    dump = read_dump(msgspec.json.encode(items).decode())
    return explained(workload, dump, time.time(), CycleSettings(fair=FairSharing() if fair else None))


def _find(items: list[Json], namespace: str, name: str) -> Json:
    for one in items:
        metadata = one["metadata"]
        if one["kind"] != WORKLOADS.kind or metadata.get("namespace") != namespace:
            continue
        if metadata["name"] == name or name in {owner["name"] for owner in metadata.get("ownerReferences") or ()}:
            return one
    raise CommandError(f'workloads.kueue.x-k8s.io "{name}" not found in namespace {namespace}')


def explained(workload: Json, dump: Dump, now: float, settings: CycleSettings) -> Explained:
    """Why this workload of the dump stands where it does. `now` in seconds since the epoch."""
    metadata, spec = workload["metadata"], workload.get("spec") or {}
    key = f"{metadata['namespace']}/{metadata['name']}"
    condition = _standing((workload.get("status") or {}).get("conditions") or [])
    waits = condition.get("type") != "Finished" and condition.get("status") != "True"
    told = answer(simulate(dump.objects, now, settings=settings), dump.problems) if waits else None
    found, evicts = _about(told, key) if told is not None else (None, ())
    return Explained(
        workload=key,
        queue=spec.get("queueName", ""),
        reason=condition.get("reason", ""),
        message=condition.get("message", ""),
        since=condition.get("lastTransitionTime", ""),
        now=found,
        evicts=evicts,
        help=tuple(_help(found)) if isinstance(found, Waiting) else (),
    )


def _standing(conditions: list[Json]) -> Json:
    """The condition that says most: Finished, Admitted, an eviction under way, then QuotaReserved."""
    by_type = {one["type"]: one for one in conditions}
    for type_ in ("Finished", "Admitted", "QuotaReserved"):
        if by_type.get(type_, {}).get("status") == "True":
            return by_type[type_]
    return by_type.get("QuotaReserved") or by_type.get("Evicted") or {}


def _about(told: Answer, key: str) -> tuple[Decided | Waiting | None, tuple[str, ...]]:
    evicts = tuple(one.workload for one in told.decisions if one.preemptor == key)
    for waiting in told.waiting:
        if waiting.workload == key:
            return waiting, evicts
    admitted = [one for one in told.decisions if one.workload == key and one.decision == "admit"]
    return (admitted[0] if admitted else None), evicts


def _help(waiting: Waiting) -> Iterator[str]:
    why = waiting.why
    if why is None:
        return
    for one in why.flavors:
        if one.resource:
            yield from _for_flavor(one)
    if not any(one.resource for one in why.flavors) and why.names:
        yield f"it waits for {', '.join(why.names)}"


def _for_flavor(one: FlavorObstacle) -> Iterator[str]:
    where = f"{one.resource} in flavor {one.flavor} (pod set {one.pod_set})"

    def amount(value: int) -> str:
        return format_amount(one.resource, value)

    asked = one.earlier + one.requested
    if one.maximum and asked > one.maximum:
        yield f"ask for {amount(asked - one.maximum)} less {where}, or raise its quota: {amount(one.maximum)} is the most it can ever have"
    elif one.missing:
        yield f"{amount(one.missing)} more free {where}; {amount(one.free)} of {amount(asked)} is free now"
        if one.preemptable:
            yield f"preemption could give {amount(one.preemptable)} of it ({one.preemption.replace('_', ' ')})"
    if one.limit == "borrowing_limit":
        yield f"a higher borrowingLimit of the ClusterQueue for {where}"


def lines(told: Explained) -> Iterator[str]:
    """The answer for people."""
    yield f"Workload:  {told.workload}"
    yield f"Queue:     {told.queue or '-'}"
    yield f"Said:      {told.reason or 'nothing yet'}" + (f", since {told.since}" if told.since else "")
    if told.message:
        yield f"           {told.message}"
    match told.now:
        case None:
            yield "Now:       nothing to decide about it"
        case Decided():
            yield "Now:       it fits and would be admitted"
        case Waiting() as waiting:
            yield f"Now:       {waiting.reason or 'waits'}: {waiting.message}"
    for victim in told.evicts:
        yield f"Evicts:    {victim}"
    for index, line in enumerate(told.help):
        yield ("Helps:     " if not index else "           ") + line
