"""Names that a shell completes: asked of the cluster that the flags typed so far name. Whatever goes wrong completes nothing."""

from __future__ import annotations

from collections.abc import Callable

import typer

from cli.ctl.cluster import Cluster, ClusterFlags, CommandError, Json, Session
from shared.kube.resources import CLUSTER_QUEUES, LOCAL_QUEUES, NAMESPACES, WORKLOADS, Resource

MOST = 100
TIMEOUT_S = 3.0

Completer = Callable[[typer.Context, str], list[str]]


def names_of(resource: Resource, keep: Callable[[Json], bool] = lambda _: True) -> Completer:
    """Completes names of objects of the resource, in the namespace meant."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        async def read(session: Session) -> list[str]:
            found: list[str] = []
            async for page in session.pages(resource, limit=500):
                found += (one["metadata"]["name"] for one in page if keep(one))
                if len(found) > MOST * 10:
                    break
            return [name for name in found if name.startswith(incomplete)][:MOST]

        try:
            return Cluster(_flags(ctx)).run(read)
        except (CommandError, TimeoutError, KeyError):
            return []

    return complete


def _flags(ctx: typer.Context) -> ClusterFlags:
    typed = ctx.params
    return ClusterFlags(
        kubeconfig=typed.get("kubeconfig") or "",
        context=typed.get("context") or "",
        namespace=typed.get("namespace") or "",
        request_timeout_s=TIMEOUT_S,
    )


def is_active(workload: Json) -> bool:
    """Is it not stopped?"""
    return bool(workload["spec"].get("active", True))


def is_running(queue: Json) -> bool:
    """Is the queue not stopped?"""
    return str(queue["spec"].get("stopPolicy", "None")) == "None"


cluster_queues = names_of(CLUSTER_QUEUES)
local_queues = names_of(LOCAL_QUEUES)
workloads = names_of(WORKLOADS)
namespaces = names_of(NAMESPACES)
active_workloads = names_of(WORKLOADS, is_active)
stopped_workloads = names_of(WORKLOADS, lambda one: not is_active(one))
running_cluster_queues = names_of(CLUSTER_QUEUES, is_running)
stopped_cluster_queues = names_of(CLUSTER_QUEUES, lambda one: not is_running(one))
running_local_queues = names_of(LOCAL_QUEUES, is_running)
stopped_local_queues = names_of(LOCAL_QUEUES, lambda one: not is_running(one))
