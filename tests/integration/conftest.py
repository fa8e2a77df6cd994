"""The control plane that integration tests share: one for the whole session, because each start costs seconds.

Tests keep apart by namespaces and names of their own, and leave the shared cluster's parts running; a test that
disturbs them starts its own DevCluster.
"""

from collections.abc import AsyncIterator

import pytest_asyncio

from devcluster.cluster import DevCluster
from devcluster.options import ClusterOptions, NodeGroup

NODES = (
    NodeGroup(name="node", count=3),
    NodeGroup(name="gpu", count=1, resources={"nvidia.com/gpu": "8"}, labels={"sluice.dev/accelerator": "gpu"}),
)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def control_plane() -> AsyncIterator[DevCluster]:
    """etcd, kube-apiserver, kube-controller-manager, kube-scheduler and KWOK, with every write in the audit log."""
    async with DevCluster(ClusterOptions(nodes=NODES, default_pod_seconds=0.5, audit=True)) as cluster:
        yield cluster
