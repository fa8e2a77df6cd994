"""The contract over a real API server, with the controllers that collect garbage and empty namespaces."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from devcluster.cluster import DevCluster
from devcluster.options import ClusterOptions
from shared.kube.client import KubeClient, connect
from shared.kube.resources import NAMESPACES
from tests.contract.kube import deleting, watching, writing
from tests.contract.kube.server import Document, Review
from tests.contract.kube.writing import api

__all__ = ["api"]

REPOSITORY = Path(__file__).parents[3]

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]


class Real:
    def __init__(self, client: KubeClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def expired_version(self) -> int:
        # Older than the server's memory, which began when the definitions were installed.
        return 1

    @asynccontextmanager
    async def webhook(self, kind: str, rules: Document, review: Review) -> AsyncIterator[None]:
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def administrator() -> AsyncIterator[KubeClient]:
    options = ClusterOptions(nodes=(), with_scheduler=False, with_kwok=False)
    async with DevCluster(options) as cluster:
        await cluster.kubectl("apply", "--server-side", "-k", str(REPOSITORY / "k8s" / "crds"))
        await cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        # The garbage collector looks for new kinds at start and seldom afterwards.
        await cluster.restart("kube-controller-manager")
        async with await connect(str(cluster.kubeconfig), user_agent="sluice-contract", timeout_s=10.0) as client:
            yield client


_numbers = itertools.count(1)


@pytest_asyncio.fixture(loop_scope="module")
async def server(administrator: KubeClient) -> Real:
    namespace = f"contract-{next(_numbers)}"
    await administrator.create(NAMESPACES, "", msgspec.json.encode({"metadata": {"name": namespace}}))
    return Real(administrator, namespace)


class TestCreating(writing.Creating):
    pass


class TestPatching(writing.Patching):
    pass


class TestPutting(writing.Putting):
    pass


class TestApplying(writing.Applying):
    pass


class TestRules(writing.Rules):
    pass


class TestListing(watching.Listing):
    pass


class TestWatching(watching.Watching):
    pass


class TestDeleting(deleting.Deleting):
    pass


class TestOwning(deleting.Owning):
    pass


class TestNamespaces(deleting.Namespaces):
    pass
