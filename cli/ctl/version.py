"""`version`: of this command, and of the controller in the cluster if one is installed there."""

from __future__ import annotations

from importlib.metadata import version

import typer

from cli.ctl.cluster import Cluster, Session
from cli.ctl.flags import on_cluster
from shared.kube.errors import ApiError
from shared.kube.resources import DEPLOYMENTS

NAMESPACE = "kueue-system"
CONTROLLERS = (
    ("kueue-controller-manager", "manager", "Kueue Controller Manager"),
    ("sluice-scheduler", "", "Sluice"),
)
"""Deployment, container (empty: the first), and what it is called."""


@on_cluster
def show_version(cluster: Cluster) -> None:
    """Print versions."""
    typer.echo(f"Client Version: v{version('sluice')}")

    async def images(session: Session) -> None:
        for name, container, title in CONTROLLERS:
            try:
                found = await session.get(DEPLOYMENTS, name, NAMESPACE)
            except ApiError:
                continue
            for one in found["spec"]["template"]["spec"]["containers"]:
                if not container or one["name"] == container:
                    typer.echo(f"{title} Image: {one['image']}")
                    break

    cluster.run(images)
