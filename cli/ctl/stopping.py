"""`stop` and `resume` of workloads, LocalQueues and ClusterQueues: one merge patch each."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.ctl import completing
from cli.ctl.cluster import Cluster, Json, Session
from cli.ctl.flags import on_cluster
from cli.ctl.printing import DryRun, Style, said, show
from shared.kube.resources import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS, Resource

ActiveWorkload = Annotated[str, typer.Argument(help="Its name.", autocompletion=completing.active_workloads)]
StoppedWorkload = Annotated[str, typer.Argument(help="Its name.", autocompletion=completing.stopped_workloads)]
RunningLocalQueue = Annotated[str, typer.Argument(help="Its name.", autocompletion=completing.running_local_queues)]
StoppedLocalQueue = Annotated[str, typer.Argument(help="Its name.", autocompletion=completing.stopped_local_queues)]
RunningClusterQueue = Annotated[str, typer.Argument(help="Its name.", autocompletion=completing.running_cluster_queues)]
StoppedClusterQueue = Annotated[str, typer.Argument(help="Its name.", autocompletion=completing.stopped_cluster_queues)]
KeepRunning = Annotated[
    bool, typer.Option("--keep-already-running", help="Let admitted workloads finish; only stop new admissions.")
]


@on_cluster
def stop_workload(
    cluster: Cluster,
    style: Style,
    how: DryRun,
    name: ActiveWorkload,
) -> None:
    """Stop a workload: it is evicted and waits until it is resumed."""
    _change(cluster, style, how, WORKLOADS, name, {"active": False}, "stopped")


@on_cluster
def resume_workload(
    cluster: Cluster,
    style: Style,
    how: DryRun,
    name: StoppedWorkload,
) -> None:
    """Let a stopped workload queue again."""
    _change(cluster, style, how, WORKLOADS, name, {"active": True}, "resumed")


@on_cluster
def stop_local_queue(
    cluster: Cluster,
    style: Style,
    how: DryRun,
    name: RunningLocalQueue,
    keep_already_running: KeepRunning = False,
) -> None:
    """Stop a LocalQueue and evict what it runs."""
    _change(cluster, style, how, LOCAL_QUEUES, name, {"stopPolicy": _policy(keep_already_running)})


@on_cluster
def resume_local_queue(
    cluster: Cluster,
    style: Style,
    how: DryRun,
    name: StoppedLocalQueue,
) -> None:
    """Let a LocalQueue go on."""
    _change(cluster, style, how, LOCAL_QUEUES, name, {"stopPolicy": "None"})


@on_cluster
def stop_cluster_queue(
    cluster: Cluster,
    style: Style,
    how: DryRun,
    name: RunningClusterQueue,
    keep_already_running: KeepRunning = False,
) -> None:
    """Stop a ClusterQueue and evict what it runs."""
    _change(cluster, style, how, CLUSTER_QUEUES, name, {"stopPolicy": _policy(keep_already_running)})


@on_cluster
def resume_cluster_queue(
    cluster: Cluster,
    style: Style,
    how: DryRun,
    name: StoppedClusterQueue,
) -> None:
    """Let a ClusterQueue go on."""
    _change(cluster, style, how, CLUSTER_QUEUES, name, {"stopPolicy": "None"})


def _policy(keep_running: bool) -> str:
    return "Hold" if keep_running else "HoldAndDrain"


def _change(
    cluster: Cluster, style: Style, how: DryRun, resource: Resource, name: str, spec: Json, done: str = ""
) -> None:
    async def work(session: Session) -> Json:
        if how is DryRun.CLIENT:
            current = await session.get(resource, name)
            return {**current, "spec": {**current.get("spec", {}), **spec}}
        return await session.patch(resource, name, {"spec": spec}, dry_run=how is DryRun.SERVER)

    changed = cluster.run(work)
    if style.format:
        show(changed, style)
    else:
        said(resource, name, done, how)
