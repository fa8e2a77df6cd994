"""`create localqueue|clusterqueue|resourceflavor`."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.ctl import completing, quota_flags, taint_flags
from cli.ctl.cluster import Cluster, CommandError, Json, Session
from cli.ctl.flags import on_cluster
from cli.ctl.printing import DryRun, Style, said, show
from shared.kube.errors import NotFound
from shared.kube.resources import CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS, Resource

Name = Annotated[str, typer.Argument(help="Its name.")]
Quota = Annotated[
    list[str] | None, typer.Option(help="FLAVOR:RESOURCE=QUANTITY;RESOURCE=QUANTITY, with commas or repeated.")
]


@on_cluster
def local_queue(
    cluster: Cluster,
    style: Style,
    how: DryRun,
    name: Name,
    clusterqueue: Annotated[
        str,
        typer.Option(
            "--clusterqueue", "-c", help="The ClusterQueue it is for.", autocompletion=completing.cluster_queues
        ),
    ],
    ignore_unknown_cq: Annotated[
        bool, typer.Option("--ignore-unknown-cq", "-i", help="The ClusterQueue need not exist.")
    ] = False,
) -> None:
    """Create a LocalQueue."""

    async def work(session: Session) -> Json:
        if not ignore_unknown_cq:
            try:
                await session.get(CLUSTER_QUEUES, clusterqueue)
            except NotFound as error:
                raise CommandError(error.message) from error
        manifest = _manifest(LOCAL_QUEUES, name, {"clusterQueue": clusterqueue}, session.namespace)
        return await _create(session, LOCAL_QUEUES, manifest, how)

    _tell(LOCAL_QUEUES, cluster.run(work), style, how)


@on_cluster
def cluster_queue(
    cluster: Cluster,
    style: Style,
    how: DryRun,
    name: Name,
    cohort: Annotated[str, typer.Option(help="The cohort it belongs to.")] = "",
    queuing_strategy: Annotated[str, typer.Option(help="StrictFIFO or BestEffortFIFO.")] = "BestEffortFIFO",
    namespace_selector: Annotated[str, typer.Option(help="Labels of namespaces, k=v,k=v; none: all.")] = "",
    reclaim_within_cohort: Annotated[str, typer.Option(help="Never, LowerPriority or Any.")] = "Never",
    preemption_within_cluster_queue: Annotated[
        str, typer.Option(help="Never, LowerPriority or LowerOrNewerEqualPriority.")
    ] = "Never",
    nominal_quota: Quota = None,
    borrowing_limit: Quota = None,
    lending_limit: Quota = None,
) -> None:
    """Create a ClusterQueue."""
    groups = quota_flags.resource_groups(
        quota_flags.amounts(nominal_quota or ()),
        quota_flags.amounts(borrowing_limit or ()),
        quota_flags.amounts(lending_limit or ()),
    )
    labels = taint_flags.pairs(namespace_selector, "namespace-selector")
    spec: Json = {
        **({"cohortName": cohort} if cohort else {}),
        "queueingStrategy": queuing_strategy,
        "namespaceSelector": {"matchLabels": labels} if labels else {},
        "preemption": {
            "reclaimWithinCohort": reclaim_within_cohort,
            "withinClusterQueue": preemption_within_cluster_queue,
        },
        **({"resourceGroups": groups} if groups else {}),
    }
    manifest = _manifest(CLUSTER_QUEUES, name, spec)
    _tell(CLUSTER_QUEUES, cluster.run(lambda session: _create(session, CLUSTER_QUEUES, manifest, how)), style, how)


@on_cluster
def resource_flavor(
    cluster: Cluster,
    style: Style,
    how: DryRun,
    name: Name,
    node_labels: Annotated[str, typer.Option(help="k=v,k=v")] = "",
    node_taints: Annotated[list[str] | None, typer.Option(help="KEY[=VALUE]:EFFECT, with commas or repeated.")] = None,
    tolerations: Annotated[
        list[str] | None, typer.Option(help="KEY[=VALUE][:EFFECT] or :EFFECT, with commas or repeated.")
    ] = None,
) -> None:
    """Create a ResourceFlavor."""
    fields = {
        "nodeLabels": taint_flags.pairs(node_labels, "node-labels"),
        "nodeTaints": taint_flags.taints(node_taints or ()),
        "tolerations": taint_flags.tolerations(tolerations or ()),
    }
    manifest = _manifest(RESOURCE_FLAVORS, name, {field: value for field, value in fields.items() if value})
    _tell(RESOURCE_FLAVORS, cluster.run(lambda session: _create(session, RESOURCE_FLAVORS, manifest, how)), style, how)


async def _create(session: Session, resource: Resource, manifest: Json, how: DryRun) -> Json:
    if how is DryRun.CLIENT:
        return manifest
    return await session.create(resource, manifest, dry_run=how is DryRun.SERVER)


def _manifest(resource: Resource, name: str, spec: Json, namespace: str = "") -> Json:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def _tell(resource: Resource, made: Json, style: Style, how: DryRun) -> None:
    if style.format:
        show(made, style)
    else:
        said(resource, made["metadata"]["name"], "created", how)
