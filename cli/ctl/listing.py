"""`list` of LocalQueues, ClusterQueues, ResourceFlavors and pods, and what all lists share: pages, the table, and what is said when nothing is there."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

import msgspec
import typer

from cli.ctl import completing
from cli.ctl.cluster import Cluster, CommandError, Json, Session
from cli.ctl.flags import on_cluster
from cli.ctl.job_pods import pod_selector
from cli.ctl.job_reference import find_job
from cli.ctl.printing import Style, age, show, table
from shared.kube.resources import CLUSTER_QUEUES, LOCAL_QUEUES, PODS, RESOURCE_FLAVORS, Resource

Everywhere = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Of all namespaces.")]
Selector = Annotated[str, typer.Option("--selector", "-l", help="Label selector, as kubectl has it.")]
FieldSelector = Annotated[str, typer.Option(help="Field selector, as kubectl has it.")]
ClusterQueueName = Annotated[
    str,
    typer.Option("--clusterqueue", "-c", help="Only of this ClusterQueue.", autocompletion=completing.cluster_queues),
]


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """What to list, and how a row is made of a page: `rows(session, objects)`, one row per object, in order. `wide` are the columns that only `-o wide`
    shows, and `wide_cells` what an object has in them."""

    resource: Resource
    head: tuple[str, ...]
    rows: Callable[[Session, list[Json]], Awaitable[list[tuple[str, ...]]]]
    wide: tuple[str, ...] = ()
    wide_cells: Callable[[Json], tuple[str, ...]] = lambda _: ()
    keep: Callable[[Json], bool] = lambda _: True
    everywhere: bool = False
    selector: str = ""
    field_selector: str = ""


def run(cluster: Cluster, style: Style, listing: Listing) -> None:
    """Print it: page by page as a table, or as a List in the format of the style. Raises CommandError."""
    limit = _limit()

    async def work(session: Session) -> None:
        query = {"labelSelector": listing.selector, "fieldSelector": listing.field_selector}
        asked = {name: value for name, value in query.items() if value}
        found: list[Json] = []
        printed = 0
        async for page in session.pages(listing.resource, limit=limit, everywhere=listing.everywhere, query=asked):
            kept = [with_kind(one, listing.resource) for one in page if listing.keep(one)]
            if style.format:
                found += kept
            elif kept:
                rows = await listing.rows(session, kept)
                if style.wide:
                    rows = [(*row, *listing.wide_cells(one)) for one, row in zip(kept, rows, strict=True)]
                head = (*listing.head, *listing.wide) if style.wide else listing.head
                _print(listing, head, kept, rows, with_head=not printed)
                printed += len(rows)
        if style.format:
            show(found, style)
        elif not printed:
            here = (
                f" in {session.namespace} namespace" if listing.resource.namespaced and not listing.everywhere else ""
            )
            typer.echo(f"No resources found{here}." if here else "No resources found", err=True)

    cluster.run(work)


def _print(
    listing: Listing,
    head: tuple[str, ...],
    objects: Sequence[Json],
    rows: Sequence[tuple[str, ...]],
    *,
    with_head: bool,
) -> None:
    if not listing.everywhere:
        table(head, rows, with_head=with_head)
        return
    placed = [(one["metadata"].get("namespace", ""), *row) for one, row in zip(objects, rows, strict=True)]
    table(("NAMESPACE", *head), placed, with_head=with_head)


def _limit() -> int:
    text = os.environ.get("KUEUECTL_LIST_REQUEST_LIMIT", "100")
    try:
        return int(text)
    except ValueError:
        raise CommandError("invalid list request limit") from None


def with_kind(found: Json, resource: Resource) -> Json:
    """Items of a list do not say what they are; this one does."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, **found}


@on_cluster
def local_queues(
    cluster: Cluster,
    style: Style,
    clusterqueue: ClusterQueueName = "",
    selector: Selector = "",
    field_selector: FieldSelector = "",
    all_namespaces: Everywhere = False,
) -> None:
    """List LocalQueues."""

    async def rows(_: Session, objects: list[Json]) -> list[tuple[str, ...]]:
        return [
            (one["metadata"]["name"], one["spec"].get("clusterQueue", ""), *_counts(one), _age(one)) for one in objects
        ]

    listing = Listing(
        resource=LOCAL_QUEUES,
        head=("NAME", "CLUSTERQUEUE", "PENDING WORKLOADS", "ADMITTED WORKLOADS", "AGE"),
        rows=rows,
        wide=("RESERVING WORKLOADS", "ACTIVE", "STOP POLICY"),
        wide_cells=lambda one: (_reserving(one), str(_is_active(one)).lower(), _stop_policy(one)),
        keep=lambda one: not clusterqueue or one["spec"].get("clusterQueue") == clusterqueue,
        everywhere=all_namespaces,
        selector=selector,
        field_selector=field_selector,
    )
    run(cluster, style, listing)


@on_cluster
def cluster_queues(
    cluster: Cluster,
    style: Style,
    active: Annotated[list[str] | None, typer.Option(help="true or false: only those that are, or are not.")] = None,
    selector: Selector = "",
    field_selector: FieldSelector = "",
) -> None:
    """List ClusterQueues."""
    wanted = {word.lower() for text in active or () for word in text.split(",")}
    if len(wanted) > 1:
        raise CommandError("only one active flag can be provided")
    if wanted - {"true", "false"}:
        raise CommandError(f"invalid --active {', '.join(wanted)}: true or false")

    async def rows(_: Session, objects: list[Json]) -> list[tuple[str, ...]]:
        return [
            (
                one["metadata"]["name"],
                one["spec"].get("cohortName", ""),
                *_counts(one),
                str(_is_active(one)).lower(),
                _age(one),
            )
            for one in objects
        ]

    listing = Listing(
        resource=CLUSTER_QUEUES,
        head=("NAME", "COHORT", "PENDING WORKLOADS", "ADMITTED WORKLOADS", "ACTIVE", "AGE"),
        rows=rows,
        wide=("STRATEGY", "RESERVING WORKLOADS", "STOP POLICY"),
        wide_cells=lambda one: (one["spec"].get("queueingStrategy", ""), _reserving(one), _stop_policy(one)),
        keep=lambda one: not wanted or wanted == {str(_is_active(one)).lower()},
        selector=selector,
        field_selector=field_selector,
    )
    run(cluster, style, listing)


@on_cluster
def resource_flavors(
    cluster: Cluster, style: Style, selector: Selector = "", field_selector: FieldSelector = ""
) -> None:
    """List ResourceFlavors."""

    async def rows(_: Session, objects: list[Json]) -> list[tuple[str, ...]]:
        return [
            (
                one["metadata"]["name"],
                ", ".join(f"{k}={v}" for k, v in sorted((one.get("spec") or {}).get("nodeLabels", {}).items())),
                _age(one),
            )
            for one in objects
        ]

    listing = Listing(
        resource=RESOURCE_FLAVORS,
        head=("NAME", "NODE LABELS", "AGE"),
        rows=rows,
        wide=("NODE TAINTS", "TOLERATIONS", "TOPOLOGY"),
        wide_cells=_flavor,
        selector=selector,
        field_selector=field_selector,
    )
    run(cluster, style, listing)


@on_cluster
def pods(
    cluster: Cluster,
    style: Style,
    for_: Annotated[str, typer.Option("--for", metavar="TYPE[.GROUP]/NAME", help="The job whose pods are meant.")],
    selector: Selector = "",
    field_selector: FieldSelector = "",
    all_namespaces: Everywhere = False,
) -> None:
    """List the pods of a job."""

    async def job_selector(session: Session) -> str:
        resource, job = await find_job(session, for_)
        return pod_selector(resource, job)

    async def rows(_: Session, objects: list[Json]) -> list[tuple[str, ...]]:
        return [_pod(one) for one in objects]

    own = cluster.run(job_selector)
    listing = Listing(
        resource=PODS,
        head=("NAME", "READY", "STATUS", "RESTARTS", "AGE"),
        rows=rows,
        wide=("IP", "NODE"),
        wide_cells=lambda one: (
            (one.get("status") or {}).get("podIP", "<none>"),
            (one.get("spec") or {}).get("nodeName", "<none>"),
        ),
        everywhere=all_namespaces,
        selector=",".join(filter(None, (own, selector))),
        field_selector=field_selector,
    )
    run(cluster, style, listing)


def _pod(pod: Json) -> tuple[str, ...]:
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or []
    ready = sum(1 for one in containers if one.get("ready"))
    restarts = sum(int(one.get("restartCount", 0)) for one in containers)
    waiting = next(
        (one["state"]["waiting"].get("reason", "") for one in containers if "waiting" in one.get("state", {})), ""
    )
    shown = (
        "Terminating"
        if pod["metadata"].get("deletionTimestamp")
        else waiting or status.get("reason") or status.get("phase", "")
    )
    total = len((pod.get("spec") or {}).get("containers") or ())
    return pod["metadata"]["name"], f"{ready}/{total}", shown, str(restarts), _age(pod)


def _counts(queue: Json) -> tuple[str, str]:
    status = queue.get("status") or {}
    return str(status.get("pendingWorkloads", 0)), str(status.get("admittedWorkloads", 0))


def _reserving(queue: Json) -> str:
    return str((queue.get("status") or {}).get("reservingWorkloads", 0))


def _stop_policy(queue: Json) -> str:
    return str(queue["spec"].get("stopPolicy", "None"))


def _flavor(flavor: Json) -> tuple[str, ...]:
    spec = flavor.get("spec") or {}
    return (
        ", ".join(_taint(one) for one in spec.get("nodeTaints") or ()),
        ", ".join(_taint(one) for one in spec.get("tolerations") or ()),
        spec.get("topologyName", ""),
    )


def _taint(found: Json) -> str:
    """`key=value:effect`, as `create resourceflavor` takes them."""
    value = f"={found['value']}" if found.get("value") else ""
    effect = f":{found['effect']}" if found.get("effect") else ""
    return f"{found.get('key', '')}{value}{effect}"


def _is_active(queue: Json) -> bool:
    conditions = (queue.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Active" and one["status"] == "True" for one in conditions)


def _age(found: Json) -> str:
    return age(found["metadata"].get("creationTimestamp"))
