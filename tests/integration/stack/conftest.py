"""One whole Sluice for the tests of this folder that leave it in order; those that break things start their own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from cli.observe import Observer, observing
from devcluster.options import ClusterOptions, NodeGroup
from devcluster.stack import Stack
from shared.kube.client import KubeClient

NODES = (
    NodeGroup(name="node", count=2, labels={"node-type": "on-demand"}),
    NodeGroup(name="spot", count=1, labels={"node-type": "spot"}),
)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stack() -> AsyncIterator[Stack]:
    """Control plane, NATS and every service, with pods of half a second."""
    async with Stack(ClusterOptions(nodes=NODES, default_pod_seconds=0.5, audit=True)) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def watched(stack: Stack) -> AsyncIterator[tuple[KubeClient, Observer]]:
    """An administrator's client and an observer of the shared stack."""
    async with observing(stack.cluster.kubeconfig) as pair:
        yield pair
